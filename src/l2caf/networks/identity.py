"""What a network is known by: its weights, how it is built, the code of one's own that it runs, how pictures reach it.

Two networks of one name may differ in any of these, and what was measured on the one is no result of the other. Each
part has a hash of its own, so that whoever refuses can say which of them is another.
"""

from __future__ import annotations

import inspect
import random
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from ..files import hash_of as hash_of
from ..preprocessing import OwnPreprocessing, Preprocess, Preprocessing, WholePreprocessing
from ..volumes import VolumePreprocessing

_PLAIN = (bool, int, float, str, type(None), torch.dtype)
_INSTALLED = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def weights_of(network: nn.Module) -> str:
    """Of all tensors that are saved with it, by name, with how they are stored."""
    return hash_of(part for name, tensor in sorted(network.state_dict().items()) for part in _tensor(name, tensor))


def construction_of(network: nn.Module) -> str:
    """Of its modules: classes, settings, hooks, and tensors that are not saved with the weights.

    What a forward pass fills (a table of positions, a counter) is among these tensors and settings, so that it is asked
    for before the first one.
    """
    return hash_of(part for name, module in network.named_modules() for part in _module(name, module))


def own_code_of(network: nn.Module, *more: object) -> str:
    """Of the files that the classes of its modules, their hooks and further objects were written in, but for libraries.

    A library is known by its version (`libraries_of`); a file of one's own may change while its name stays.
    """
    files = {file for one in (*_coded(network), *more) if (file := _file_of(one)) and not _is_installed(file)}
    return hash_of(sorted(_text(file) for file in files))


def libraries_of(network: nn.Module) -> dict[str, str]:
    """The versions of the libraries that the classes of its modules come from."""
    names = {kind.__module__.partition(".")[0] for kind in _kinds(network)}
    versions = {name: getattr(sys.modules.get(name), "__version__", None) for name in sorted({*names, "torch"})}
    return {name: str(version) for name, version in versions.items() if version is not None}


def preprocessing_of(preprocess: Preprocess) -> str:
    """Of what it does to a picture: its settings, or, where a function of one's own does it, what it makes of one."""
    if isinstance(preprocess, Preprocessing | WholePreprocessing | VolumePreprocessing):
        return hash_of([repr(preprocess)])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        drawn = random.getstate()
        random.seed(0)
        try:
            made = torch.as_tensor(preprocess.prepare(_picture()).input)
        except Exception as error:  # noqa: BLE001 - a function that takes no small picture, say
            return hash_of([type(error).__name__])
        finally:
            random.setstate(drawn)
    return hash_of(_tensor("made", made))


def code_of(preprocess: Preprocess) -> Any:
    """The function of a preprocessing of one's own."""
    return preprocess.function if isinstance(preprocess, OwnPreprocessing) else preprocess


def _tensor(name: str, tensor: Tensor) -> Iterable[str | bytes]:
    yield f"{name} {tensor.dtype} {tuple(tensor.shape)}"
    stored = tensor.detach().cpu()
    if stored.layout == torch.strided and not stored.is_quantized and not stored.is_meta:
        yield stored.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    else:
        yield repr(stored)


def _module(name: str, module: nn.Module) -> Iterable[str | bytes]:
    kind = type(module)
    # Where a file of one's own is imported from is part of its module's name, and says nothing about the network.
    yield f"{name} {kind.__module__ if kind.__module__.startswith('torch.') else ''} {kind.__qualname__}"
    yield _extra(module)
    saved = module.state_dict().keys()
    for own, buffer in module.named_buffers(recurse=False):
        if own not in saved:
            yield from _tensor(own, buffer)
    for hooks in (module._forward_pre_hooks, module._forward_hooks):
        yield from (getattr(hook, "__qualname__", type(hook).__qualname__) for hook in hooks.values())
    if not kind.__module__.startswith("torch."):  # theirs tell all that decides in `extra_repr`
        for own, value in sorted(vars(module).items()):
            if own not in _OF_EVERY_MODULE:
                yield from _setting(own, value)


def _setting(name: str, value: Any) -> Iterable[str | bytes]:
    if isinstance(value, Tensor):
        yield from _tensor(name, value)
    elif isinstance(value, np.ndarray) and value.dtype.kind != "O":
        yield f"{name} {value.dtype} {value.shape}"
        yield np.ascontiguousarray(value).tobytes()
    elif isinstance(value, _PLAIN):
        yield f"{name} {value!r}"
    elif isinstance(value, list | tuple):
        for place, one in enumerate(value):
            yield from _setting(f"{name}[{place}]", one)
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from _setting(f"{name}[{key!r}]", one)


_OF_EVERY_MODULE = frozenset(vars(nn.Module()))


def _extra(module: nn.Module) -> str:
    try:
        return str(module.extra_repr())
    except Exception:  # noqa: BLE001 - the user's code may raise anything
        return ""


def _kinds(network: nn.Module) -> dict[type, None]:
    return dict.fromkeys(base for module in network.modules() for base in type(module).__mro__ if base is not object)


def _coded(network: nn.Module) -> Iterable[object]:
    yield from _kinds(network)
    for module in network.modules():
        yield from module._forward_pre_hooks.values()
        yield from module._forward_hooks.values()
        if "forward" in vars(module):  # somebody replaced it
            yield vars(module)["forward"]


def _file_of(one: object) -> Path | None:
    one = getattr(one, "func", one)  # of functools.partial
    code: Any = inspect.unwrap(one) if inspect.isroutine(one) else one if isinstance(one, type) else type(one)
    try:
        return Path(inspect.getfile(code))
    except (TypeError, OSError, ValueError):  # built in, or typed at a prompt
        return None


def _is_installed(file: Path) -> bool:
    return str(file).startswith(_INSTALLED) or file.is_relative_to(_PACKAGE)


_PACKAGE = Path(__file__).resolve().parents[1]  # this library, whose version a run keeps


def _text(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""


def _picture() -> Image.Image:
    """A picture in which every place and every colour is another, wider than high."""
    pixels = np.random.default_rng(0).integers(0, 256, (240, 320, 3), dtype=np.uint8)
    return Image.fromarray(pixels)
