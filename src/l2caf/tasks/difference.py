"""Compare two runs of `evaluate` on the images that both have."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..progress import Progress, silent

if TYPE_CHECKING:
    from ..evaluation.difference import PairedDifference, Unshared


@dataclass(frozen=True)
class DifferenceRequest:
    """The folders of two runs; differences are the first less the second."""

    first: Path
    second: Path


@dataclass(frozen=True)
class DifferenceResult:
    """The differences, over the images that both runs have."""

    first: Path
    second: Path
    images: int
    left_out: int  # images that only one of them has
    differences: tuple[PairedDifference, ...]
    unshared: Unshared  # what only one of them has

    def as_dict(self) -> dict[str, Any]:
        return {
            "first": str(self.first),
            "second": str(self.second),
            "images": self.images,
            "left_out": self.left_out,
            "differences": [one.as_dict() for one in self.differences],
            **self.unshared.as_dict(),
        }


def compare_runs(request: DifferenceRequest, *, progress: Progress = silent) -> DifferenceResult:
    """Read both runs and compare them image by image."""
    from ..evaluation.difference import MeasuredRun, Unshared, compared

    runs = []
    for number, folder in enumerate((request.first, request.second)):
        progress("reading", number, 2)
        runs.append(MeasuredRun.read(folder))
    progress("comparing", 0, None)
    images, differences = compared(*runs)
    left_out = len(set(runs[0].images) ^ set(runs[1].images))
    return DifferenceResult(request.first, request.second, images, left_out, differences, Unshared.of(*runs))
