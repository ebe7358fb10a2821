"""Networks of torchvision by name: `torchvision:resnet50`."""

from __future__ import annotations

import difflib
import inspect
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..clips import ClipInput
from ..errors import CatalogueError
from ..preprocessing import Preprocessing
from .class_names import IMAGENET_CLASSES, imagenet_class_names
from .downloads import fetching, in_torch_cache, no_weights
from .imports import import_torchvision
from .model import Model, Weights
from .source import DOWNLOADED, CatalogueRow, Source
from .weights import load_weights

# Their builders rescale the input for the published weights, and for those alone.
_RESCALING = ("googlenet", "inception_v3")


class Torchvision(Source):
    """A torchvision network with its default weights, those of a file, or random ones."""

    def load(self, name: str, *, weights: str | Path | None = None, pretrained: bool = True) -> Model:
        models, own = import_torchvision().models, name.removeprefix("torchvision:")
        published = _default_weights(models, own)
        state: Weights = "random"
        if weights is None and pretrained:
            network, source, state = _pretrained(models, own, published), "torchvision, pretrained", "trained"
        else:
            network, source = _bare(models, own, rescaling=weights is not None), "torchvision, random weights"
        if weights is not None:
            load_weights(network, weights)
            source, state = f"torchvision, weights of {weights}", "as given"
        categories = () if published is None else published.meta.get("categories", ())
        class_names = imagenet_class_names() if len(categories) == IMAGENET_CLASSES else ()
        clip = _clip_input(models, own)
        if clip is not None:
            class_names = tuple(categories)  # of actions
        prepare = _preprocessing(published)
        assumed = {} if prepare else {"preprocessing": "photographs are prepared as is usual for ImageNet"}
        prepare = prepare or Preprocessing()
        known = Model(f"torchvision:{own}", network.eval(), prepare, class_names, source, weights=state)
        return replace(known, assumed=assumed, clip=clip)

    def summary(self) -> CatalogueRow:
        return CatalogueRow(
            name="torchvision:NAME",
            source="torchvision",
            parameters=None,
            needs=DOWNLOADED,
            description=f"{len(_parameters()):,} image classifiers, as torchvision:vgg16",
        )

    def rows(self) -> list[CatalogueRow]:
        return [
            CatalogueRow(
                name=f"torchvision:{name}",
                source="torchvision",
                parameters=parameters,
                needs=DOWNLOADED,
                description="1,000 classes of ImageNet",
            )
            for name, parameters in _parameters().items()
        ]


def _parameters() -> dict[str, int | None]:
    """The image classifiers of torchvision, with their number of parameters."""
    models = import_torchvision().models
    counts: dict[str, int | None] = {}
    for name in models.list_models(module=models):
        published = _default_weights(models, name)
        counts[name] = None if published is None else published.meta.get("num_params")
    return counts


def _default_weights(models: Any, name: str) -> Any:
    """The newest published weights of a network, or None; an unknown name is an error."""
    known = models.list_models()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
        hint = f"the nearest are {', '.join(near)}" if near else "l2caf networks PATTERN lists them"
        raise CatalogueError(f"torchvision has no network {name!r}: {hint}.")
    published = models.get_model_weights(name)
    return published.DEFAULT if len(published) else None


def _bare(models: Any, name: str, *, rescaling: bool) -> Any:
    """The network with random weights, and without the downloads that some builders start all the same."""
    options: dict[str, Any] = {"weights": None}
    if name in _RESCALING:
        options |= {"init_weights": False, "transform_input": rescaling}
    if "weights_backbone" in inspect.signature(models.get_model_builder(name)).parameters:
        options["weights_backbone"] = None
    return models.get_model(name, **options)


def _pretrained(models: Any, name: str, published: Any) -> Any:
    if published is None:
        raise no_weights(f"torchvision:{name}")
    if in_torch_cache(published.url):
        return models.get_model(name, weights=published)
    with fetching(f"torchvision:{name}", published.url):
        return models.get_model(name, weights=published)


def _preprocessing(published: Any) -> Preprocessing | None:
    """That of the published weights; None where they name no crop (segmentation)."""
    preset: Any = None if published is None else published.transforms()
    if not isinstance(getattr(preset, "crop_size", None), list):
        return None
    crop, resize = preset.crop_size, preset.resize_size
    return Preprocessing(
        input_size=(crop[0], crop[-1]),
        resize_size=(resize[0], resize[-1]),
        mean=tuple(preset.mean),
        std=tuple(preset.std),
        interpolation=preset.interpolation.value,
        fit="squash" if len(resize) == 2 else "crop",  # two sides are taken as they are, one keeps the proportions
    )


def _clip_input(models: Any, name: str) -> ClipInput | None:
    """How a network of torchvision.models.video takes clips, as its published weights were judged."""
    if name not in models.list_models(module=models.video):
        return None
    if name.startswith("mvit"):  # its embedding of positions is made for one length
        return ClipInput(16, channels_first=True, rate=7.5)
    return ClipInput(channels_first=True, rate=15)
