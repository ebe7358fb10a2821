"""Export a network with its exact maps, for machines without torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..files import writable_folder
from ..progress import Progress, silent
from .network_choice import NetworkChoice

if TYPE_CHECKING:
    from ..exporter.onnx_file import Exported
    from ..networks.model import Model


@dataclass(frozen=True)
class ExportRequest:
    """Which network becomes which file.

    out          the file, which ends in .onnx
    maps         of output, class, prediction; None for all that the network can be asked
    top          how many of the best classes have a map
    precision    float32 or int8
    photographs  files and folders to check and to calibrate with; None for those that are installed
    products     multiplications that a filter is found by; None for the usual number
    opset        of ONNX; None for the usual one
    """

    out: Path
    network: NetworkChoice = field(default_factory=NetworkChoice)
    maps: Sequence[str] | None = None
    top: int = 5
    precision: str = "float32"
    photographs: Sequence[Path] | None = None
    products: int | None = None
    opset: int | None = None

    def __post_init__(self) -> None:
        if self.network.is_exported:
            raise InputError(f"'{self.network.network}' is exported already: give a network.", field="network")
        if self.network.select is not None:
            raise InputError("An exported network gives one output: leave this out.", field="output")


def export_network(request: ExportRequest, *, model: Model | None = None, progress: Progress = silent) -> Exported:
    """Write the file, or say why there is none; `model` is the request's network, where it is loaded already."""
    from ..exporter.onnx_file import check_settings, export

    settings: dict[str, Any] = {"maps": request.maps, "precision": request.precision}
    settings |= {name: value for name in ("products", "opset") if (value := getattr(request, name)) is not None}
    check_settings(request.out, **settings)  # before the network is loaded
    writable_folder(request.out.parent)
    return export(
        model or request.network.load(progress),
        request.out,
        **settings,
        top=request.top,
        layer=request.network.layer,
        photographs=request.photographs,
        progress=progress,
    )
