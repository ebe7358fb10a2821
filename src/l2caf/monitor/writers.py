"""Where the numbers and pictures of an observation go: writers that others made, told by what they can do."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from ..errors import InputError
from .observation import Observation


def checked(writer: Any) -> Any:
    """A writer, or a sentence on what one is."""
    if not (hasattr(writer, "add_scalar") or hasattr(writer, "log")):
        raise InputError(
            f"The writer is a {type(writer).__name__}: give one with add_scalar and add_image, as TensorBoard's"
            " SummaryWriter, or with log, as a run of Weights & Biases.",
            field="writers",
        )
    return writer


def write_to(writer: Any, seen: Observation, *, name: str, step: int) -> None:
    """Write to one of TensorBoard's kind (`add_scalar`), or of Weights & Biases' (`log`)."""
    (_to_tensorboard if hasattr(writer, "add_scalar") else _to_run)(writer, seen, name, step)


def _to_tensorboard(writer: Any, seen: Observation, name: str, step: int) -> None:
    for key, value in seen.means.items():
        writer.add_scalar(f"{name}/{key}", value, step)
        numbers = getattr(seen.statistics, key)
        if hasattr(writer, "add_histogram"):
            writer.add_histogram(f"{name}/each {key}", numbers[np.isfinite(numbers)], step)
    for place, shown in seen.shown.items():
        writer.add_image(f"{name}/picture {place}", np.asarray(shown.drawn), step, dataformats="HWC")


def _to_run(writer: Any, seen: Observation, name: str, step: int) -> None:
    # Their own class of images where it is loaded: a run that logs has loaded it.
    image = getattr(sys.modules.get("wandb"), "Image", None) or (lambda picture: picture)
    numbers = {f"{name}/{key}": value for key, value in seen.means.items()}
    pictures = {f"{name}/picture {place}": image(shown.drawn) for place, shown in seen.shown.items()}
    writer.log({**numbers, **pictures, f"{name}/epoch": step})
