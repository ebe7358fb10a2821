"""A network that the user brings: `package.module:function` or `path/to/file.py:function`.

The function takes no arguments and returns the network; or the network and its preprocessing, a callable from
PIL image to tensor; or a whole `l2caf.networks.model.Model`, with class names.
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from ..errors import CatalogueError, L2cafError
from ..preprocessing import Preprocessing
from ..transforms import readable
from .model import Model
from .source import CatalogueRow, Source
from .weights import load_weights

_PREPARED = (
    "photographs are resized to 256, cut to 224 × 224 at the centre and normalised as for ImageNet; return"
    " (network, preprocess) if it wants them otherwise"
)
_SCORES = "the output is a row of class scores; say so if it is an embedding"


class UserNetwork(Source):
    """What the user's function returns, in the shape of a model."""

    def load(self, name: str, *, weights: str | Path | None = None, pretrained: bool = True) -> Model:
        place, _, function = name.rpartition(":")
        with _importable(Path(place).parent if place.endswith(".py") else Path()):
            builder = _find_builder(_import(place), function, name)
            model = replace(_as_model(name, _call(builder, name)), built_by=builder)
        if weights is not None:
            load_weights(model.network, weights)
            model = replace(model, source=f"{model.source}, weights of {weights}")
        model.network.eval()
        return model

    def summary(self) -> CatalogueRow:
        return CatalogueRow(
            name="MODULE:FUNCTION",
            source="your own",
            parameters=None,
            needs="a function that returns a torch.nn.Module",
            description="a network of yours, as package.nets:build or path/to/file.py:build",
        )


@contextlib.contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Let the user's code import its neighbours, as a script may; an installed command would not."""
    path = str(folder.resolve())
    sys.path.insert(0, path)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(path)


def _import(place: str) -> ModuleType:
    if place.endswith(".py") and not Path(place).is_file():
        raise CatalogueError(f"There is no file {place}: give the path of a Python file with your function.")
    try:
        return _import_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if place == missing or place.startswith(f"{missing}."):
            raise CatalogueError(
                f"There is no module {missing!r}: give an importable one, or the path of a .py file, as in"
                " nets/mine.py:build."
            ) from error
        raise CatalogueError(f"{place} cannot be imported ({error}): install what it needs.") from error
    except Exception as error:  # the user's code may raise anything
        raise CatalogueError(f"{place} cannot be imported ({_said(error)}): fix it there.") from error


def _import_file(path: Path) -> ModuleType:
    # A name of its own for each path, so that two files of one name do not meet.
    name = f"{path.stem}_{hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"no loader for {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up while it is being made
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _find_builder(module: ModuleType, function: str, name: str) -> Any:
    builder = getattr(module, function, None)
    if callable(builder):
        return builder
    offered = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
    near = difflib.get_close_matches(function, offered, n=3, cutoff=0.4)
    hint = f"the nearest are {', '.join(near)}" if near else "give a function that returns the network"
    raise CatalogueError(f"{name.rpartition(':')[0]} has no function {function!r}: {hint}.")


def _call(builder: Any, name: str) -> Any:
    try:
        inspect.signature(builder).bind()
    except TypeError as error:
        raise CatalogueError(f"{name} needs arguments ({error}): give a function that runs without any.") from error
    except ValueError:
        pass  # what is written in C does not always tell
    try:
        return builder()
    except L2cafError:
        raise
    except Exception as error:  # the user's code may raise anything
        raise CatalogueError(f"{name} failed ({_said(error)}): fix it there.") from error


def _as_model(name: str, built: Any) -> Model:
    if isinstance(built, Model):
        return replace(built, preprocess=readable(built.preprocess), source=built.source or f"built by {name}")
    alone = not (isinstance(built, tuple) and len(built) == 2)
    network, preprocess = (built, Preprocessing()) if alone else built
    if not isinstance(network, nn.Module) or not callable(preprocess):
        raise CatalogueError(
            f"{name} returned {type(built).__name__}: let it return a torch.nn.Module, or that and a"
            " preprocessing function, or an l2caf.networks.model.Model."
        )
    assumed = {"preprocessing": _PREPARED} if alone else {}
    return Model(name, network, readable(preprocess), source=f"built by {name}", assumed={**assumed, "output": _SCORES})


def _said(error: Exception) -> str:
    """What an exception says, and where in the user's code it was raised, as a traceback would."""
    line = (str(error).strip().splitlines() or [""])[0]
    words = f"{type(error).__name__}: {line[:160]}" if line else type(error).__name__
    place = _place(error)
    return f"{words}, {place}" if place else words


def _place(error: Exception) -> str:
    """The last line on the way to the fault that is not ours, Python's or an installed package's."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"in {error.filename}, line {error.lineno}"
    steps = traceback.extract_tb(error.__traceback__)
    ours = str(Path(__file__).parents[1])
    foreign = [step for step in steps if not step.filename.startswith((ours, "<"))]
    own = [
        step
        for step in foreign
        if not {"site-packages", "dist-packages", "lib-dynload"} & set(Path(step.filename).parts)
    ]
    own = [step for step in own if not step.filename.startswith(sys.base_prefix)] or own
    return f"in {own[-1].filename}, line {own[-1].lineno}" if own else ""
