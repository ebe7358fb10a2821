"""A weights file on disk, into a network that is already built.

Files are read as data only: `torch.load(weights_only=True)` or safetensors, so that none can run code.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..errors import WeightsError

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
    return _unwrap(content, path)


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
