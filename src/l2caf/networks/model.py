"""`Model`: what a name stands for, which is a network with all that is needed to feed it and to read its answer."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from PIL import Image
from torch import Tensor, nn

from ..clips import ClipInput
from ..errors import InputError, L2cafError, LayerError, NetworkError, first_line
from ..explanation import explain
from ..heatmap import Heatmap
from ..images import as_photograph
from ..objectives.objective import Objective
from ..preprocessing import Input, Prepared, Preprocess, Preprocessing, WholePreprocessing, check_view
from ..recorder import Recording, record
from ..recording.borrow import unwrap
from ..recording.inputs import Select
from ..transforms import readable
from ..volumes import PreparedVolume, VolumePreprocessing, as_volume, is_volume
from .class_names import Prediction, class_index, class_name, prediction_of, predictions
from .classifier import without_classifier
from .clip_preparation import ClipPreparation
from .identity import code_of, construction_of, hash_of, libraries_of, own_code_of, preprocessing_of, weights_of

Photograph = str | os.PathLike[str] | Image.Image
AS_THEY_ARE = (
    "volumes are turned so that their axes run to the right, the front and the top (an .npy stays as it is), with their"
    " values as they are in the file; return (network, l2caf.volumes.VolumePreprocessing(…)) if it wants them otherwise"
)
Weights = Literal["trained", "random", "as given"]


@dataclass(frozen=True)
class Model:
    """A network, ready to run.

    network      in eval mode, on `device`
    preprocess   PIL image -> float tensor (3, H, W); `preprocess.view(image)` is the picture of what it sees. Any
                 function will do; a Compose of torchvision is read, so that maps can be placed on the photograph. Of a
                 network for volumes, an `l2caf.volumes.VolumePreprocessing`
    class_names  one short name per class, in the order of the outputs; empty where they are unknown
    source       where the network and its weights came from, in words
    embedding    whether the output is a place among other pictures, and no row of class scores
    normalized   whether embeddings are compared on the unit sphere, by cosine; else by distance between raw vectors
    weights      "trained" and "random" where that is known; "as given" where the user brought them
    built_by     the user's function that returned it, whose code decides what it is
    compares     of an embedding: what its numbers are, in words
    clip         how it takes clips; None of a network for single pictures, and where nobody said
    assumed      what nobody said and was taken for granted, in words: of the "preprocessing", of the "output"

    >>> from l2caf.preprocessing import Preprocessing
    >>> model = Model("mine", nn.Conv2d(3, 2, 4, stride=4), Preprocessing((32, 32), (36, 36)), ("cat", "dog"))
    >>> model.prepare(Image.new("RGB", (80, 60))).input.shape, model.class_index("dog")
    ((3, 32, 32), 1)
    """

    name: str
    network: nn.Module = field(repr=False)
    preprocess: Preprocess
    class_names: tuple[str, ...] = field(default=(), repr=False)
    source: str = ""
    embedding: bool = False
    normalized: bool = True
    device: str = "cpu"
    weights: Weights = "as given"
    built_by: object = field(default=None, repr=False)
    compares: str = ""
    assumed: Mapping[str, str] = field(default_factory=dict)
    clip: ClipInput | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.network, nn.Module) or not callable(self.preprocess):
            raise InputError(
                f"A model is made of a torch.nn.Module and of what prepares its photographs, not of a"
                f" {type(self.network).__name__} and a {type(self.preprocess).__name__}: give Model(name, network,"
                " preprocess)."
            )
        object.__setattr__(self, "preprocess", readable(self.preprocess))

    @property
    def input_size(self) -> tuple[int, int] | None:
        """Height and width of the network's input; None where they are not the same for all photographs."""
        return self.preprocess.input_size

    @property
    def identity(self) -> str:
        """One hash of all that decides what a picture gets."""
        return hash_of(f"{name} {value}" for name, value in self.contents.items())

    @property
    def contents(self) -> dict[str, str]:
        """The parts of the identity by name: the weights as they are now, the rest as when it was first asked for."""
        return {"weights": weights_of(unwrap(self.network)), **self._construction, "normalized": str(self.normalized)}

    @property
    def libraries(self) -> dict[str, str]:
        """The versions of the libraries that the classes of its modules come from."""
        return libraries_of(unwrap(self.network))

    @cached_property
    def _construction(self) -> dict[str, str]:
        """Kept, for a forward pass may fill tensors and settings that are no part of the weights."""
        network = unwrap(self.network)
        return {
            "modules": construction_of(network),
            "network code": own_code_of(network, code_of(self.preprocess), self.built_by),
            "preprocessing": preprocessing_of(self.preprocess),
        }

    def on(self, device: str) -> Model:
        """The same, moved to a device: "cuda", or "auto" for the fastest here."""
        where = device_named(device)
        return replace(self, network=self.network.to(where), device=where)

    def viewed(self, view: str) -> Model:
        """The same, shown the centre of each photograph ("crop"), all of it ("whole"), or all, stretched ("squash")."""
        check_view(view)
        if view == "crop":
            return self
        if not isinstance(self.preprocess, Preprocessing):
            raise InputError(
                f"{self.name} prepares its pictures itself, so no other view can be shown to it: leave this out.",
                field="view",
            )
        return self.whole() if view == "whole" else replace(self, preprocess=self.preprocess.squashed())

    def whole(self) -> Model:
        """The same, shown all of each photograph in its own proportions, not only its centre."""
        if isinstance(self.preprocess, WholePreprocessing):
            return self
        if not isinstance(self.preprocess, Preprocessing):
            raise InputError(
                f"{self.name} prepares its pictures itself, so they cannot be shown to it whole.", field="view"
            )
        return replace(self, preprocess=WholePreprocessing(self.preprocess))

    def as_embedding(self) -> Model:
        """The same for retrieval: of a classifier, what its last linear layer is given is the embedding.

        What is not said to give an embedding is a classifier. That layer is taken off the network itself, so load it
        for this use alone. `compares` says what the embedding is.
        """
        if self.embedding:
            return self if self.compares else replace(self, compares="its embedding")
        network = unwrap(self.network)
        grey = self.ready(Image.new("RGB", (256, 256), "grey")).input
        taken = without_classifier(network, self.batch([grey]), classes=len(self.class_names))
        made = replace(self, network=network, class_names=(), embedding=True)
        if taken is None:
            return replace(made, compares="its output as it is: no last linear layer was found in it")
        features = f"pooled features, the {taken.width} numbers that its last layer, {taken.name}, is given"
        return replace(made, name=f"{self.name}, pooled features", compares=features)

    def told(self, *, embedding: bool) -> Model:
        """The same, with what somebody says of its output where nothing else is known of it."""
        if "output" not in self.assumed and embedding != self.embedding:
            gives = "embeddings" if self.embedding else "scores of classes"
            raise InputError(f"{self.name} is known to give {gives}: leave this out.", field="embedding")
        known = {name: words for name, words in self.assumed.items() if name != "output"}
        return replace(self, embedding=embedding, assumed=known)

    def check_has_classes(self, asked: str = "a class", *, field: str = "class") -> None:
        """Refuse a question about classes to an embedding, whose numbers are none."""
        if self.embedding:
            raise InputError(
                f"{self.name} gives an embedding, whose numbers are no classes, so {asked} cannot be explained:"
                " ask about the whole output.",
                field=field,
            )

    def prepare(self, image: Image.Image) -> Prepared:
        """A photograph as input (3, H, W), as a sharp picture of what the network sees, and where that lies on it."""
        image = as_photograph(image)
        made = self.ready(image)
        return made._replace(view=self.view(image))

    def ready(self, image: Image.Image) -> Prepared:
        """The same without the sharp picture, which costs more than the input: for films, where most are not shown."""
        try:
            return self.preprocess.prepare(image)
        except L2cafError:
            raise
        except Exception as error:  # the user's own preprocessing may fail in any way
            raise InputError(f"{self.name} cannot prepare this picture ({first_line(error)}).") from error

    def view(self, image: Image.Image) -> Image.Image:
        """The part of a photograph that the network sees, as sharp as the photograph is."""
        return self.preprocess.sharp_view(as_photograph(image))

    @property
    def takes_volumes(self) -> bool:
        """Whether it is said to take volumes, and no photographs."""
        return isinstance(self.preprocess, VolumePreprocessing)

    def for_volumes(self, name: str) -> Model:
        """The same, where volumes are given to it; of a network that came alone nobody said what it takes."""
        if self.takes_volumes:
            return self
        if "preprocessing" not in self.assumed:
            raise InputError(
                f"{self.name} prepares photographs, and '{name}' is a volume: give a network of your own, as in"
                " nets.py:build, whose function returns the network and an l2caf.volumes.VolumePreprocessing.",
                field="network",
            )
        said = {**self.assumed, "preprocessing": AS_THEY_ARE}
        return replace(self, preprocess=VolumePreprocessing(), assumed=said)

    def prepare_volume(self, scan: Any) -> PreparedVolume:
        """A volume (a path, an array, an image of nibabel) as input (channels, d, h, w), and where that lies in it."""
        volume = as_volume(scan)
        preprocess = self.for_volumes(volume.name).preprocess
        assert isinstance(preprocess, VolumePreprocessing)
        return preprocess.prepared(volume)

    def batch(self, inputs: Tensor | Input | Sequence[Input | Tensor]) -> Tensor:
        """Inputs as one batch on the device."""
        if not isinstance(inputs, Tensor):
            inputs = torch.stack([torch.as_tensor(one) for one in inputs])
        # Arrays know no bfloat16, so that what such a network is given comes in another type.
        first = next(self.network.parameters(), None)
        halved = first is not None and first.dtype == torch.bfloat16 and inputs.is_floating_point()
        return inputs.to(self.device, torch.bfloat16 if halved else None)

    def explain(
        self,
        photographs: Photograph | Sequence[Photograph],
        *,
        objective: Objective | Callable[[Tensor], Tensor] | None = None,
        **options: Any,
    ) -> Heatmap:
        """Show where the network looked in photographs: one or several, paths or PIL images.

        `options` are those of `l2caf.explain`. The heatmap knows the photographs and what of them the network saw, so
        that `heatmap.save("where.png")` draws on the whole photograph, in the right place. A network for clips takes
        clips: paths of files, or of folders of frames; one for volumes paths of .nii, .nii.gz and .npy, arrays of three
        axes, and images of nibabel.

        >>> import torch
        >>> network = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 4, stride=4), torch.nn.AdaptiveAvgPool2d(1))
        >>> model = Model("mine", network, Preprocessing((32, 32), (36, 36)))
        >>> model.explain([Image.new("RGB", (90, 60), "red"), Image.new("RGB", (60, 60), "blue")])
        Heatmap(2 samples of 32×32, layer '0', AttentionFilter, ...)
        """
        if self.clip is not None:
            return self._explain_clips(photographs, objective, options)
        if self.takes_volumes or _are_volumes(photographs):
            return self._explain_volumes(photographs, objective, options)
        several = [photographs] if isinstance(photographs, str | os.PathLike | Image.Image) else [*photographs]
        if not several:
            raise InputError("There are no photographs to explain: give at least one.")
        opened = [as_photograph(one) for one in several]
        prepared = [self.ready(one) for one in opened]
        sizes = {one.input.shape[1:] for one in prepared}
        if len(sizes) > 1:
            raise InputError(
                f"The photographs become inputs of {len(sizes)} different sizes, which fit into no batch: explain them"
                " one by one."
            )
        inputs = self.batch([one.input for one in prepared])
        found = explain(self.network, inputs, objective=objective, **options)
        crops = tuple(
            replace(one.crop, photograph=image)
            for one, image in zip(prepared, opened, strict=True)
            if one.crop is not None
        )
        known = {"class_names": self.class_names, **({"crops": crops} if len(crops) == len(opened) else {})}
        if isinstance(found, tuple):  # several layers, or several calls of one
            return tuple(replace(one, **known) for one in found)  # type: ignore[return-value]
        return replace(found, **known)

    def _explain_clips(self, clips: Any, objective: Any, options: Mapping[str, Any]) -> Heatmap:
        assert self.clip is not None
        several = [clips] if isinstance(clips, str | os.PathLike) else [*clips]
        if not several or not all(isinstance(one, str | os.PathLike) for one in several):
            raise InputError(f"{self.name} takes clips: give their paths, or give l2caf.explain a tensor of frames.")
        prepare = ClipPreparation(self.preprocess, self.clip)
        made = [prepare.prepare_file(Path(one)) for one in several]
        found = explain(self.network, self.batch([one.input for one in made]), objective=objective, **options)
        crops = tuple(one.crop for one in made if one.crop is not None)
        return replace(found, class_names=self.class_names, crops=crops if len(crops) == len(made) else None)

    def _explain_volumes(self, volumes: Any, objective: Any, options: Mapping[str, Any]) -> Heatmap:
        several = [*volumes] if isinstance(volumes, list | tuple) else [volumes]
        if not several:
            raise InputError("There are no volumes to explain: give at least one.")
        made = [self.prepare_volume(one) for one in several]
        sizes = {one.input.shape for one in made}
        if len(sizes) > 1:
            raise InputError(
                f"The volumes become inputs of {len(sizes)} different sizes, which fit into no batch: explain them one"
                " by one, or say a size in their preprocessing."
            )
        found = explain(self.network, self.batch([one.input for one in made]), objective=objective, **options)
        known = {"class_names": self.class_names, "scans": tuple(one.crop for one in made)}
        if isinstance(found, tuple):
            return tuple(replace(one, **known) for one in found)  # type: ignore[return-value]
        return replace(found, **known)

    def run(
        self,
        inputs: Tensor | Input | Sequence[Input | Tensor] | Sequence[Prepared],
        *,
        layer: str | None = None,
        output: Select = None,
    ) -> Recording:
        """Run the network once on a batch; any number of methods can then be put to it.

        inputs  arrays or tensors, or photographs as `prepare` gives them: then a heatmap knows where it lies on them
        layer   where the filter sits; None for the last layer with a map
        output  which part of the network's answer is explained
        """
        crops = tuple(one.crop for one in inputs if isinstance(one, Prepared) and one.crop is not None)
        batch = self.batch([one.input if isinstance(one, Prepared) else one for one in inputs])
        try:
            recording = record(self.network, batch, layer=layer, output=output)
        except LayerError as error:
            error.field = error.field or (None if layer is None else "layer")
            raise
        except L2cafError:
            raise
        except Exception as error:  # any network may fail in any way
            shape = " × ".join(map(str, batch.shape))
            raise NetworkError(f"{self.name} failed on an input of {shape} ({first_line(error)}).") from error
        for head in recording.heads:
            head.crops = crops if len(crops) == len(batch) else None
        return recording

    def predictions(self, output: Tensor) -> list[Prediction | None]:
        """The best class of every sample; None where the output is no row of finite scores."""
        return [None] * len(output) if self.embedding else predictions(output, self.class_names)

    def prediction_of(self, output: Tensor, sample: int, index: int) -> Prediction:
        """What the network says of one class."""
        return prediction_of(output, sample, index, self.class_names)

    def class_name(self, index: int) -> str:
        """What an output is called."""
        return class_name(self.class_names, index)

    def class_index(self, text: str) -> int:
        """The class that a person means, by number, name, or a part that only one name has."""
        return class_index(self.class_names, text, network=self.name)


def _are_volumes(given: Any) -> bool:
    """Whether volumes are given by their files, or as images of nibabel."""
    one = given[0] if isinstance(given, list | tuple) and len(given) else given
    return hasattr(one, "get_fdata") or (isinstance(one, str | os.PathLike) and is_volume(Path(one)))


def devices() -> list[str]:
    """The names of devices that are here."""
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    return ["auto", "cpu", *(name for name, here in there.items() if here)]


def device_named(name: str) -> str:
    """The device that a name stands for; `auto` is the fastest here."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(1, device=name)
    except Exception as error:  # each backend says in its own way that it is not there
        raise InputError(f"There is no device {name!r} here: take {' or '.join(devices())}.", field="device") from error
    return name
