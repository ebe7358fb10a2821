"""Networks of timm by name: `timm:resnet50`, or with the tag of certain weights, `timm:resnet50.a1_in1k`."""

from __future__ import annotations

import difflib
import math
from pathlib import Path
from typing import Any

from torch import nn

from ..errors import CatalogueError
from ..preprocessing import Preprocessing
from .class_names import IMAGENET_CLASSES, imagenet_class_names
from .downloads import fetching, in_torch_cache, no_weights
from .imports import import_timm
from .model import Model, Weights
from .source import DOWNLOADED, CatalogueRow, Source
from .weights import load_weights


class Timm(Source):
    """A timm network with its published weights, those of a file, or random ones."""

    def load(self, name: str, *, weights: str | Path | None = None, pretrained: bool = True) -> Model:
        timm, own = import_timm(), name.removeprefix("timm:")
        _check_name(timm, own)
        state: Weights = "random"
        if weights is None and pretrained:
            network, source, state = _pretrained(timm, own), "timm, pretrained", "trained"
        else:
            network, source = timm.create_model(own, pretrained=False), "timm, random weights"
        if weights is not None:
            load_weights(network, weights)
            source, state = f"timm, weights of {weights}", "as given"
        class_names = imagenet_class_names() if _is_imagenet(network) else ()
        prepare = _preprocessing(timm, network)
        return Model(
            f"timm:{own}",
            network.eval(),
            prepare,
            class_names,
            source,
            weights=state,
            embedding=_gives_embedding(network),
        )

    def summary(self) -> CatalogueRow:
        return CatalogueRow(
            name="timm:NAME",
            source="timm",
            parameters=None,
            needs=DOWNLOADED,
            description=f"{len(_names()):,} networks, as timm:resnet50 or timm:resnet50.a1_in1k",
        )

    def rows(self) -> list[CatalogueRow]:
        published = set(_names(pretrained=True))
        return [
            CatalogueRow(
                name=f"timm:{name}",
                source="timm",
                parameters=None,
                needs=DOWNLOADED if name in published else "a file of weights",
                description="pretrained" if name in published else "no published weights",
            )
            for name in _names()
        ]


def _names(*, pretrained: bool = False) -> list[str]:
    """All architectures that timm knows, or only those with published weights."""
    names = import_timm().list_models(pretrained=pretrained)
    return sorted({name.partition(".")[0] for name in names})


def _check_name(timm: Any, name: str) -> None:
    architecture, _, tag = name.partition(".")
    if not timm.is_model(architecture):
        near = difflib.get_close_matches(architecture, timm.list_models(), n=3, cutoff=0.5)
        hint = f"the nearest are {', '.join(near)}" if near else "l2caf networks PATTERN lists them"
        raise CatalogueError(f"timm has no network {architecture!r}: {hint}.")
    known = timm.list_models(f"{architecture}.*", pretrained=True) if tag else []
    if tag and name not in known:
        hint = f"there are {', '.join(known[:5])}" if known else "give the name alone"
        raise CatalogueError(f"timm has no weights {tag!r} for {architecture}: {hint}.")


def _pretrained(timm: Any, name: str) -> nn.Module:
    config = timm.get_pretrained_cfg(name)
    if config is None or not config.has_weights:
        raise no_weights(f"timm:{name}")
    overlay: dict[str, Any] | None = None
    url = config.url
    if config.hf_hub_id:
        from huggingface_hub import constants

        url = f"{constants.ENDPOINT}/{config.hf_hub_id.partition('@')[0]}"
        cached = _in_hub_cache(config)
        if cached is not None:
            # Read as timm's own file format: a custom reader is for the original download only.
            overlay = {"file": cached, "custom_load": False}
    if overlay is not None or (not config.hf_hub_id and in_torch_cache(url)):
        return timm.create_model(name, pretrained=True, pretrained_cfg_overlay=overlay)
    with fetching(f"timm:{name}", url):
        return timm.create_model(name, pretrained=True)


def _in_hub_cache(config: Any) -> str | None:
    from huggingface_hub import try_to_load_from_cache

    repository, _, revision = config.hf_hub_id.partition("@")
    for filename in filter(None, (config.hf_hub_filename, "model.safetensors", "pytorch_model.bin")):
        found = try_to_load_from_cache(repository, filename, revision=revision or None)
        if isinstance(found, str):
            return found
    return None


def _preprocessing(timm: Any, network: nn.Module) -> Preprocessing:
    config = timm.data.resolve_model_data_config(network)
    height, width = config["input_size"][-2:]
    share = config["crop_pct"]
    fit = {"squash": "squash", "border": "border"}.get(config["crop_mode"], "crop")
    return Preprocessing(
        input_size=(height, width),
        resize_size=(math.floor(height / share), math.floor(width / share)),
        mean=tuple(config["mean"]),
        std=tuple(config["std"]),
        interpolation=config["interpolation"],
        fit=fit,  # type: ignore[arg-type]
    )


def _is_imagenet(network: Any) -> bool:
    """1,000 outputs, and no tag that names another set of weights than ImageNet-1k's."""
    tag = (getattr(network, "pretrained_cfg", None) or {}).get("tag") or ""
    return getattr(network, "num_classes", 0) == IMAGENET_CLASSES and (not tag or "in1k" in tag)


def _gives_embedding(network: Any) -> bool:
    """Whether it was published without a classifier (DINO, MAE), or gives a place beside texts (CLIP and its like)."""
    config = getattr(network, "pretrained_cfg", None) or {}
    if getattr(network, "num_classes", None) == 0:
        return True
    named, tag = str(config.get("architecture", "")), str(config.get("tag", ""))
    tuned = any(part.startswith("in") and part[2:].rstrip("k").isdigit() for part in tag.split("_"))
    return any(kind in f"{named} {tag}" for kind in ("clip", "pe_core")) and bool(tag) and not tuned
