"""How torchvision is imported, by us and, once l2caf is, by anybody; and timm, which stands on it.

torchvision registers what its compiled operators `nms` and `qnms` return, at import time and whether or not
those operators were loaded. Beside a torch of another build (a CPU torch and the usual torchvision wheel)
they are not, and the import stops with "operator torchvision::nms does not exist". Declaring the two
operators is enough to import everything else; calling them still fails, but no image classifier does.

Importing l2caf puts a finder before Python's own (`l2caf/__init__.py`), which asks here when torchvision is first
imported. So a program or a network file that imports timm or torchvision after l2caf works too; where torchvision
imports by itself, nothing is different.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

from ..errors import CatalogueError

_MISSING = "operator torchvision::nms does not exist"
_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


def torchvision_spec(path: Sequence[str] | None = None) -> ModuleSpec | None:
    """Where torchvision is, with a loader that knows what to do where its operators are missing."""
    spec = PathFinder.find_spec("torchvision", path)
    if spec is not None and spec.loader is not None:
        spec.loader = _Declaring(spec.loader)
    return spec


class _Declaring(Loader):
    """Loads torchvision, a second time with its operators declared where the first stops at them."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def __getattr__(self, name: str) -> object:
        return getattr(self.loader, name)  # what tools ask a loader: its path, its source, its resources

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        try:
            self.loader.exec_module(module)
            return
        except RuntimeError as error:
            if _MISSING not in str(error):
                raise
        # What the failed import left behind is half made: a second import must not build on it.
        for name in [name for name in sys.modules if name.startswith("torchvision.")]:
            del sys.modules[name]
        _declare_missing_operators()
        self.loader.exec_module(module)


def import_torchvision() -> ModuleType:
    """Import torchvision, also where its compiled operators do not load.

    >>> import_torchvision().models.__name__
    'torchvision.models'
    """
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
