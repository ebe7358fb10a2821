"""Weight files: into a network that is already built, and out of one with what loads it again.

Files are read as data only: `torch.load(weights_only=True)` or safetensors, so that none can run code.
A checkpoint is one .safetensors file; which loader builds its network, and what that loader has to know, stands in its
metadata, and for people in a .json of the same name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..errors import InputError, WeightsError
from ..files import write_json, write_whole

SUFFIX = ".safetensors"
_LOADER, _CONFIG = "l2caf_loader", "l2caf_config"
_BEFORE_LOADERS = "l2caf_embedding"  # where the config stood while there was one kind of checkpoint

# Names under which training scripts put the state dict beside optimiser, epoch and the like.
_WRAPPINGS = ("state_dict", "model_state_dict", "model", "network", "net", "weights")
# What DataParallel, torch.compile and training frameworks put before every key.
_PREFIXES = ("module.", "_orig_mod.", "model.", "network.", "net.")


def load_weights(network: nn.Module, path: str | Path) -> None:
    """Fill a network from a file; values are cast to the network's own dtype and device.

    The network is untouched where the file does not fit.
    """
    path = Path(path)
    weights = _without_prefix(read_state_dict(path), network.state_dict())
    misfit = _misfit(weights, network.state_dict())
    if misfit:
        raise WeightsError(
            f"{path.name} does not fit {type(network).__name__}: {misfit}; take the weights of this very network."
        )
    network.load_state_dict(weights, strict=False)


def read_state_dict(path: str | Path) -> dict[str, torch.Tensor]:
    """The tensors of a .pth, .pt or .safetensors file by name, unwrapped."""
    path = Path(path)
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise WeightsError(f"The weights file {path} {what}: give the path of a .pth, .pt or .safetensors file.")
    try:
        content = _read(path)
    except Exception as error:  # on unknown bytes the readers raise anything, EOFError to RuntimeError
        raise WeightsError(
            f"{path.name} cannot be read as weights ({_reason(error)}): it is truncated, corrupt, or holds"
            " more than tensors; save it anew with torch.save(network.state_dict(), FILE)."
        ) from error
    weights = _unwrap(content, path)
    _check_values(weights, path)
    return weights


@dataclass(frozen=True)
class Header:
    """What a checkpoint says of itself: the key of what loads it, and the JSON text that this loader reads."""

    loader: str
    config: str


def save_checkpoint(path: str | Path, network: nn.Module, header: Header) -> Path:
    """Write weights and header, each file whole or not at all."""
    from safetensors.torch import save

    path = Path(path)
    if path.suffix != SUFFIX:
        raise InputError(f"A checkpoint cannot be written to '{path}': give a file name that ends in {SUFFIX}.")
    tensors = {name: value.detach().cpu().contiguous() for name, value in network.state_dict().items()}
    with write_whole(path) as temporary:
        temporary.write_bytes(save(tensors, metadata={_LOADER: header.loader, _CONFIG: header.config}))
    write_json(path.with_suffix(".json"), {"loader": header.loader, **json.loads(header.config)}, indent=2)
    return path


def read_header(path: str | Path) -> Header:
    """The header of a checkpoint, from its metadata, or from the .json beside it."""
    path = Path(path)
    metadata, beside = _metadata(path), path.with_suffix(".json")
    if _CONFIG in metadata:
        return Header(metadata.get(_LOADER, ""), metadata[_CONFIG])
    if _BEFORE_LOADERS in metadata:
        return Header("embedding", metadata[_BEFORE_LOADERS])
    if beside.is_file():
        text = beside.read_text(encoding="utf-8")
        return Header(_loader_beside(text), text)
    raise WeightsError(
        f"{path.name} holds weights, but not what network they are for: give the network by its name and this file as"
        " its weights, or take a checkpoint of 'l2caf train'.",
        field="network",
    )


def _loader_beside(text: str) -> str:
    """Files from before there were several loaders do not name theirs."""
    try:
        return str(json.loads(text).get("loader", "embedding"))
    except (ValueError, AttributeError):
        return "embedding"  # which then says what is wrong with its config


def _metadata(path: Path) -> Mapping[str, str]:
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise WeightsError(f"The checkpoint {path} {what}: give the path of a {SUFFIX} file.")
    try:
        with safe_open(path, framework="pt") as opened:
            return opened.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise WeightsError(
            f"{path.name} cannot be read as a checkpoint ({error}): it is truncated or corrupt; copy it anew."
        ) from error


def _read(path: Path) -> Any:
    if path.suffix.lower() == ".safetensors":
        from safetensors.torch import load_file

        return load_file(path)
    return torch.load(path, map_location="cpu", weights_only=True)


def _unwrap(content: Any, path: Path) -> dict[str, torch.Tensor]:
    while isinstance(content, Mapping):
        if content and all(isinstance(value, torch.Tensor) for value in content.values()):
            return {str(key): value for key, value in content.items()}
        inner = next((content[key] for key in _WRAPPINGS if isinstance(content.get(key), Mapping)), None)
        if inner is None:
            break
        content = inner
    raise WeightsError(
        f"{path.name} holds no state dict (a mapping of names to tensors): save one with"
        " torch.save(network.state_dict(), FILE)."
    )


def _check_values(weights: Mapping[str, torch.Tensor], path: Path) -> None:
    """Refuse tensors that no network can be filled from, each with what makes ordinary ones of them."""
    for name, tensor in weights.items():
        if tensor.is_meta:
            what, remedy = (
                "has a shape and no values (meta device)",
                "save it from a network that was given its weights",
            )
        elif tensor.layout != torch.strided:
            what, remedy = f"is sparse ({tensor.layout})", "save it dense, as tensor.to_dense() gives it"
        elif tensor.is_quantized:
            what, remedy = f"is quantised ({tensor.dtype})", "save the network as it was before it was quantised"
        elif tensor.is_complex():
            what, remedy = f"is complex ({tensor.dtype})", "save real numbers"
        else:
            continue
        raise WeightsError(f"{name} of {path.name} {what}: {remedy}.")


def _without_prefix(weights: dict[str, torch.Tensor], wanted: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    while weights and not weights.keys() & wanted.keys():
        common = [prefix for prefix in _PREFIXES if all(key.startswith(prefix) for key in weights)]
        if not common:
            break
        weights = {key.removeprefix(common[0]): value for key, value in weights.items()}
    return weights


def _misfit(weights: Mapping[str, torch.Tensor], wanted: Mapping[str, torch.Tensor]) -> str:
    """What is wrong, in words; empty where the weights fit."""
    # Batch counters matter to training only, and older files lack them.
    missing = [key for key in wanted if key not in weights and not key.endswith("num_batches_tracked")]
    unknown = [key for key in weights if key not in wanted]
    reshaped = [
        f"{key} is {_shape(weights[key])} in the file and {_shape(wanted[key])} in the network"
        for key in wanted
        if key in weights and weights[key].shape != wanted[key].shape
    ]
    findings = [("missing", missing), ("unknown", unknown), ("of another shape", reshaped)]
    return ", ".join(f"{len(found)} {what} ({_first(found)})" for what, found in findings if found)


def _first(found: list[str], count: int = 3) -> str:
    return ", ".join(found[:count]) + (", …" if len(found) > count else "")


def _shape(tensor: torch.Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "a number"


def _reason(error: Exception) -> str:
    """The first line of a reader's message, shortened: some of them print a page."""
    line = (str(error).strip().splitlines() or [""])[0].split(". ")[0].rstrip(".:")
    return f"{type(error).__name__}: {line[:120]}" if line else type(error).__name__
