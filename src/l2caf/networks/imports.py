"""The one place that imports torchvision, and timm, which stands on it.

torchvision registers what its compiled operators `nms` and `qnms` return, at import time and whether or not
those operators were loaded. Beside a torch of another build (a CPU torch and the usual torchvision wheel)
they are not, and the import stops with "operator torchvision::nms does not exist". Declaring the two
operators is enough to import everything else; calling them still fails, but no image classifier does.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

from ..errors import CatalogueError

_MISSING = "operator torchvision::nms does not exist"
_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


def import_torchvision() -> ModuleType:
    """Import torchvision, also where its compiled operators do not load.

    >>> import_torchvision().models.__name__
    'torchvision.models'
    """
    try:
        return _import("torchvision")
    except RuntimeError as error:
        if _MISSING not in str(error):
            raise
    # What the failed import left behind is half made: a second import must not build on it.
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
    _declare_missing_operators()
    return _import("torchvision")


def import_timm() -> ModuleType:
    """Import timm, which imports torchvision without a second thought.

    >>> import_timm().__name__
    'timm'
    """
    import_torchvision()
    return _import("timm")


def _declare_missing_operators() -> None:
    import torch

    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            torch.library.define(f"torchvision::{name}", _SCHEMA)


def _import(package: str) -> ModuleType:
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise CatalogueError(
            f"{package} is not installed, and this network needs it: pip install {package}."
        ) from error
