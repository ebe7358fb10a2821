"""`export`: a network and its exact maps as one ONNX file, checked against the library before it is left behind."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from .. import __version__
from ..errors import ExtraError, InputError, NetworkError, OutputError
from ..exported.card import MAPS, SUFFIX, Card
from ..exported.network import ExportedNetwork, load
from ..files import write_whole
from ..heads.affine import PooledMap
from ..heads.head import Head
from ..images import image_files, open_image
from ..networks.catalogue import load as load_model
from ..networks.model import Model
from ..objectives.prediction import Prediction
from ..preprocessing import OwnPreprocessing, Preprocessing
from ..progress import Progress, silent
from ..recorder import Recording
from ..sample_photographs import SAMPLES, sample_path
from .check import Check, Comparison

Precision = Literal["float32", "int8"]
PRECISIONS = ("float32", "int8")
TOP, PRODUCTS, OPSET = 5, 4, 18
OPSETS = 18, 23  # below, reductions take their axes in another way; above, runtimes are too few
MOST_PRODUCTS = 64
BATCH = 8  # photographs that are compared at once
MOST_COMPARED = 100  # photographs; those behind them are calibrated with
ENOUGH, MOST_CALIBRATED = 32, 64  # photographs behind those, so that int8 is judged by others than it was made with


@dataclass(frozen=True)
class Exported:
    """A file that was written: what it says of itself, and how near it is to the library.

    >>> import tempfile
    >>> network = nn.Sequential(
    ...     nn.Conv2d(3, 8, 4, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = export(network, Path(folder, "model.onnx"), inputs=torch.rand(4, 3, 32, 32), maps=["class"])
    ...     answer = made.load().run(torch.rand(2, 3, 32, 32), top=3)
    >>> made.check.maps["class"].not_converged, answer.maps.shape
    (0, (2, 3, 32, 32))
    """

    path: Path
    card: Card
    check: Check

    def load(self) -> ExportedNetwork:
        """Open it."""
        return load(self.path)

    def as_dict(self) -> dict[str, Any]:
        return {
            "file": str(self.path),
            "bytes": self.path.stat().st_size,
            "network": self.card.network,
            "layer": self.card.layer,
            "grid": list(self.card.grid),
            "precision": self.card.precision,
            "outputs": self.card.outputs,
            "check": self.check.as_dict(),
        }


def export(
    network: str | Model | nn.Module,
    path: str | os.PathLike[str],
    *,
    maps: Sequence[str] | None = None,
    top: int = TOP,
    layer: str | None = None,
    precision: Precision = "float32",
    photographs: Sequence[str | os.PathLike[str]] | str | os.PathLike[str] | None = None,
    inputs: Tensor | None = None,
    temperature: float = Prediction.temperature,
    products: int = PRODUCTS,
    opset: int = OPSET,
    progress: Progress = silent,
) -> Exported:
    """Write a network and its exact maps as an ONNX file, which needs no torch to run.

    The head has to be a mean over the positions and a linear map, which is found and verified on the data. The graph
    takes `images` (batch, 3, height, width) and gives `output`, what the network itself gives, and of each kind of map
    the unit filter on the layer's grid (`l2caf.exported.MAPS`). Before the file is left at `path`, ONNX Runtime runs it
    on photographs; where its maps are not the library's, there is no file.

    - `maps`: "output", "class", "prediction"; by default all that the network can be asked.
    - `top`: how many of the best classes have a map.
    - `precision`: "float32", or "int8": quantised with `photographs`; depthwise and first convolutions and the head
      stay float.
    - `photographs`: files and folders to check and to calibrate with; by default those that are installed. A network
      that is no `Model` takes `inputs` instead, a batch of real ones.
    - `temperature`: of the map of the prediction; `products`: multiplications that a filter is found by (one more for
      the prediction), of which each leaves some sixth of the error; `opset`: of ONNX.

    >>> import tempfile
    >>> network = nn.Sequential(
    ...     nn.Conv2d(3, 8, 4, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = export(network, Path(folder, "model.onnx"), inputs=torch.rand(4, 3, 32, 32), top=2)
    >>> made.card.grid, sorted(made.check.maps), made.check.maps["class"].error < 1e-5
    ((8, 8), ['class', 'output', 'prediction'], True)
    """
    path = Path(path)
    check_settings(path, maps=maps, precision=precision, products=products, opset=opset)
    from .map_part import HeadArrays, with_maps
    from .trace import traced

    model = _model(network, inputs)
    shown = _Shown.of(model, photographs, inputs)
    progress(f"looking at {model.name}", 0, None)
    with _recorded(model, shown.first, layer) as recording:
        head = recording.head
        arrays = HeadArrays(*_head(model, head))
    card = _card(model, head, arrays.weight.shape[0], shown, maps, top, temperature)
    card = replace(card, precision=precision, products=products)
    progress("writing the graph", 0, None)
    graph = traced(model.network, head.layer, model.batch(shown.first), opset=opset)
    if precision == "int8":
        from .int8 import in_int8

        progress("calibrating", 0, None)
        graph = in_int8(graph, shown.to_calibrate())
    with write_whole(path) as temporary:
        temporary.write_bytes(with_maps(graph, arrays, card).SerializeToString())
        check = _compared(model, load(temporary), shown, head.layer.name, progress)
        check.refuse(exact=precision == "float32")
        card = replace(card, checked=check.as_dict())
        temporary.write_bytes(with_maps(graph, arrays, card).SerializeToString())
    return Exported(path, card, check)


def check_settings(
    path: Path, *, maps: Any = None, precision: Any = "float32", products: Any = PRODUCTS, opset: Any = OPSET
) -> None:
    """Refuse what cannot be exported by any network, and name packages that are missing."""
    _check_packages()
    if path.suffix.lower() != SUFFIX:
        raise InputError(f"'{path}' names no ONNX file: end it in {SUFFIX}.", field="out")
    if precision not in PRECISIONS:
        raise InputError(f"There is no precision {precision!r}: take {' or '.join(PRECISIONS)}.", field="precision")
    if maps is not None and (isinstance(maps, str) or not maps or not set(maps) <= set(MAPS)):
        raise InputError(f"The maps are {maps!r}: give a list of {', '.join(MAPS)}.", field="maps")
    for name, value, least, most in (("products", products, 1, MOST_PRODUCTS), ("opset", opset, *OPSETS)):
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise InputError(f"{name} is {value!r}: give a whole number from {least} to {most}.", field=name)


def _check_packages() -> None:
    try:
        import onnx
        import onnxruntime
        import onnxscript  # noqa: F401 - torch's exporter stands on it
    except ImportError as error:
        raise ExtraError(
            "Exporting needs onnx, onnxruntime and onnxscript: pip install onnx onnxruntime onnxscript."
        ) from error
    del onnx, onnxruntime


def _model(network: Any, inputs: Tensor | None) -> Model:
    """The network with what it is called and how it takes photographs."""
    model = load_model(network) if isinstance(network, str) else network
    if isinstance(model, nn.Module):
        if inputs is None:
            raise InputError(
                "A network alone does not say how it takes photographs: give a batch of real inputs=, or an"
                " l2caf.Model.",
                field="inputs",
            )
        model = Model(type(model).__name__, model, OwnPreprocessing(_unknown))
    if not isinstance(model, Model):
        raise InputError(
            f"The network is a {type(model).__name__}: give a name, an l2caf.Model or a torch.nn.Module.",
            field="network",
        )
    if model.clip is not None:
        raise InputError(f"{model.name} takes clips, and an exported file takes photographs: export one for these.")
    kinds = {one.dtype for one in model.network.parameters() if one.is_floating_point()} - {torch.float32}
    if kinds:
        raise NetworkError(
            f"{model.name} computes in {kinds.pop()}, and an exported file in torch.float32: give network.float().",
            field="network",
        )
    return model


def _unknown(image: object) -> Tensor:
    raise InputError("How this network takes photographs was not said.")


class _Shown:
    """The inputs that a network is checked and calibrated with, read when they are needed."""

    def __init__(self, model: Model, files: Sequence[Path], given: Tensor | None) -> None:
        self.model, self.files, self.given = model, files, given
        self.first = self._batch(0)

    @classmethod
    def of(cls, model: Model, photographs: Any, inputs: Tensor | None) -> _Shown:
        if inputs is not None:
            if photographs is not None:
                raise InputError("Photographs are given, and inputs too: give one or the other.", field="photos")
            if not isinstance(inputs, Tensor) or inputs.ndim != 4 or inputs.shape[1] != 3 or not len(inputs):
                got = tuple(inputs.shape) if isinstance(inputs, Tensor) else type(inputs).__name__
                raise InputError(f"The inputs are {got}: give a tensor (B, 3, height, width).", field="inputs")
            return cls(model, (), inputs)
        files = [sample_path(name) for name in SAMPLES] if photographs is None else image_files(photographs)
        return cls(model, files, None)

    def __len__(self) -> int:
        return len(self.files) if self.given is None else len(self.given)

    def _batch(self, start: int) -> npt.NDArray[np.float32]:
        if self.given is not None:
            return self.given[start : start + BATCH].detach().cpu().float().numpy()
        made = [self.model.ready(open_image(file)).input for file in self.files[start : start + BATCH]]
        sizes = {one.shape for one in made}
        if len(sizes) > 1:
            raise InputError(
                f"The photographs become inputs of {len(sizes)} different sizes, and an exported file takes one: show"
                " the network the centre of each, or all of it, stretched.",
                field="view",
            )
        return np.stack(made).astype(np.float32)

    def to_compare(self) -> Iterator[npt.NDArray[np.float32]]:
        """The first ones."""
        return map(self._batch, range(0, min(len(self), MOST_COMPARED), BATCH))

    def to_calibrate(self) -> Iterator[npt.NDArray[np.float32]]:
        """Those behind them; where these are few, the same ones."""
        first = MOST_COMPARED if len(self) >= MOST_COMPARED + ENOUGH else 0
        return map(self._batch, range(first, min(len(self), first + MOST_CALIBRATED), BATCH))


def _recorded(model: Model, inputs: npt.NDArray[np.float32], layer: str | None) -> Recording:
    model.run(inputs, layer=layer)  # the first run makes the plan, of which the second is made
    return model.run(inputs, layer=layer)


def _head(model: Model, head: Head) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """W and b of a head that is a mean and a linear map."""
    mapping = head.affine()
    if not isinstance(mapping, PooledMap) or not head.is_known:
        why = head.why_not_affine() or "it is another affine map"
        raise NetworkError(
            f"What follows layer {head.layer.name} of {model.name} is no mean over the positions and a linear map"
            f" ({why}), and only such a head has maps in a file: choose another layer, or explain it with torch.",
            field="layer",
        )
    if head.layer.layout.frames is not None or len(head.layer.layout.grid) != 2:
        raise NetworkError(f"Layer {head.layer.name} has no grid over a photograph: choose another.", field="layer")
    return mapping.pooled.weight.detach().cpu().numpy(), mapping.pooled.bias.detach().cpu().numpy()


def _card(
    model: Model,
    head: Head,
    outputs: int,
    shown: _Shown,
    maps: Sequence[str] | None,
    top: int,
    temperature: float,
) -> Card:
    Prediction(temperature)  # refuses what is none
    can = ("output",) if model.embedding else ("output", "class", "prediction") if outputs > 1 else ("output", "class")
    asked = can if maps is None else tuple(kind for kind in MAPS if kind in maps)
    for kind in asked:
        if kind not in can:
            why = "gives an embedding" if model.embedding else "has one score"
            raise OutputError(f"{model.name} {why}, so there is no map of the {kind}: leave it out.", field="maps")
    if isinstance(top, bool) or not isinstance(top, int) or top < 1:
        raise InputError(f"The best {top} classes are asked for: give 1 or more.", field="top")
    height, width = shown.first.shape[2:]
    return Card(
        network=model.name,
        layer=head.layer.name,
        grid=head.layer.layout.grid,
        input_size=(height, width),
        preprocessing=model.preprocess if isinstance(model.preprocess, Preprocessing) else None,
        class_names=model.class_names if len(model.class_names) == outputs else (),
        embedding=model.embedding,
        normalized=model.normalized,
        maps=asked,
        top=min(top, outputs) if "class" in asked else 0,
        temperature=float(temperature),
        identity=model.identity if shown.given is None else "",
        made_by=__version__,
    )


def _compared(model: Model, exported: ExportedNetwork, shown: _Shown, layer: str, progress: Progress) -> Check:
    comparison = Comparison(exported)
    total = min(len(shown), MOST_COMPARED)
    for inputs in shown.to_compare():
        with model.run(inputs, layer=layer) as recording:
            comparison.add(inputs, recording.head)
        progress("comparing with the library", min(comparison.photographs, total), total)
    return comparison.result()
