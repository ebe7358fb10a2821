"""What a sanity check found: numbers, their intervals, and a verdict in words.

The verdict rests on `kept`, the share of likeness that the maps kept, with chance taken out:

    kept = (similarity − control) / (1 − control)

1 where the maps are as they were, 0 where they are as unlike the trained network's as those of other images
are; the mean of the three measures. Maps that are all alike whatever the image shows (control near 1) count
as kept where they stay alike. A method passes only if the whole interval lies below a quarter: too few
images let nothing pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from .intervals import Interval, interval_of
from .randomize import Stage
from .similarity import SIMILARITIES

Floats = npt.NDArray[np.float64]

PASSED, FAILED = (
    0.25,
    0.5,
)  # of the likeness kept: below the one it is gone, above the other most of it is left
_ROOM = 0.05  # between control and 1; with less, a ratio would be noise


class Verdict(StrEnum):
    """What became of a method's maps."""

    PASSES = "passes"  # they changed until they were about as unlike as maps of other images
    PARTLY = "partly"  # they changed, but not that far, or not surely
    FAILS = "fails"  # most of what they showed is still there


@dataclass(frozen=True)
class Finding:
    """One test of one method: the similarity in each measure, what was kept, and the verdict."""

    similarity: dict[str, Interval]
    control: dict[str, float]
    kept: Interval
    by_seed: tuple[float, ...]  # kept, one number a seed

    @property
    def verdict(self) -> Verdict:
        if self.kept.value > FAILED:
            return Verdict.FAILS
        return Verdict.PASSES if self.kept.high <= PASSED else Verdict.PARTLY

    def as_dict(self) -> dict[str, Any]:
        return {
            "verdict": str(self.verdict),
            "kept": _interval(self.kept),
            "kept_by_seed": list(self.by_seed),
            "similarity": {measure: _interval(value) for measure, value in self.similarity.items()},
            "control": self.control,
        }


@dataclass(frozen=True)
class MethodSanity:
    """All that was measured of one method.

    similarity  by kind, "shown-rank" or "signed-ssim" say: (seeds, stages, images)
    control     by kind: (images,), an image's mean likeness to the maps of the other images
    empty       (seeds, stages, images), True where a map of the random network shows nothing at all
    """

    similarity: Mapping[str, Floats] = field(repr=False)
    control: Mapping[str, Floats] = field(repr=False)
    empty: npt.NDArray[np.bool_] = field(repr=False)
    is_oblivious: bool = False
    head_is_affine: bool = False
    endpoint: str = "output"

    @cached_property
    def logits(self) -> Finding:
        """The logits layer alone randomised."""
        return self.at(0)

    @cached_property
    def all_layers(self) -> Finding:
        """All weights randomised."""
        return self.at(-1)

    @property
    def is_signed(self) -> bool:
        return any(kind.startswith("signed") for kind in self.similarity)

    def at(self, stage: int, *, view: str = "shown") -> Finding:
        """What was found at a stage, in the maps as they are shown or with their signs (`view="signed"`)."""
        alike = {measure: self.similarity[f"{view}-{measure}"][:, stage] for measure in SIMILARITIES}
        control = {measure: self.control[f"{view}-{measure}"] for measure in SIMILARITIES}
        table = np.stack([np.stack([alike[m].mean(axis=0), control[m]], axis=1) for m in SIMILARITIES], axis=1)
        by_seed = [
            float(_kept(np.stack([[[alike[m][seed].mean(), control[m].mean()] for m in SIMILARITIES]]))[0])
            for seed in range(len(self.empty))
        ]
        return Finding(
            similarity={m: interval_of(lambda means: means, alike[m].mean(axis=0)) for m in SIMILARITIES},
            control={m: float(control[m].mean()) for m in SIMILARITIES},
            kept=interval_of(_kept, table),
            by_seed=tuple(by_seed),
        )

    @property
    def verdict(self) -> Verdict:
        """The verdict of the test that every map has to pass: all weights randomised."""
        return self.all_layers.verdict

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        found = self.all_layers
        if found.verdict == Verdict.PASSES:
            nearly = "nearly " if found.kept.low > 0 else ""
            said = f"Passes: with all weights random its maps are {nearly}as unlike the trained network's"
            said += " as those of other images"
        elif found.verdict == Verdict.PARTLY:
            said = "Passes in part: with all weights random its maps changed, but not surely as far as to those"
            said += " of other images"
        else:
            said = "Fails: with all weights random its maps are still much as they were"
            if min(found.control.values()) > 1 - _ROOM:
                said += ", and they are the same for every image"
        text = f"{said} (likeness kept: {_share(found.kept)})."
        if found.verdict != Verdict.FAILS:
            text += f" {self._about_logits(self.logits)}"
        share = float(self.empty[:, -1].mean())
        if share > 0.02:
            text += f" {share:.0%} of its maps are empty when all weights are random; they count as unlike."
        return text

    def _about_logits(self, logits: Finding) -> str:
        if logits.verdict == Verdict.PASSES:
            return f"The logits layer alone is enough for that (kept: {_share(logits.kept)})."
        text = f"With only the logits layer random it keeps {_share(logits.kept)}."
        if self.is_oblivious and self.endpoint != "output":
            text += (
                f" It keeps what comes out of {self.endpoint}, before the logits layer, so it does not depend on that."
            )
        elif self.is_oblivious and self.head_is_affine:
            text += (
                " That is how a class-oblivious map is made: it keeps distances between outputs, a random"
                " linear layer keeps distances between features (Johnson and Lindenstrauss), so the map"
                " follows the features and hardly the class weights. For these, look at a map of a class."
            )
        return text

    def as_dict(self) -> dict[str, Any]:
        document: dict[str, Any] = {
            "verdict": str(self.verdict),
            "sentence": self.sentence,
            "logits": self.logits.as_dict(),
            "all": self.all_layers.as_dict(),
            "empty_maps": self.empty.mean(axis=(0, 2)).tolist(),
            "similarity": {kind: values.mean(axis=2).tolist() for kind, values in self.similarity.items()},
            "control": {kind: float(values.mean()) for kind, values in self.control.items()},
        }
        if self.is_signed:
            document["signed"] = {
                "logits": self.at(0, view="signed").as_dict(),
                "all": self.at(-1, view="signed").as_dict(),
            }
        return document


@dataclass(frozen=True)
class Sanity:
    """The check of a network, method by method; `refused` holds the methods that do not fit it, and why.

    maps  (stages + 1, h, w) per method: the first image's, trained and then stage by stage with the first seed
    """

    layer: str
    stages: tuple[Stage, ...]
    seeds: int
    images: int
    methods: Mapping[str, MethodSanity]
    refused: Mapping[str, str]
    maps: Mapping[str, npt.NDArray[np.float32]] = field(repr=False)

    @property
    def depths(self) -> list[int]:
        """How many layers are random, trained network first."""
        return [0, *(stage.depth for stage in self.stages)]

    def as_dict(self) -> dict[str, Any]:
        return {
            "layer": self.layer,
            "images": self.images,
            "seeds": self.seeds,
            "stages": [{"random_layers": stage.depth, "down_to": stage.name} for stage in self.stages],
            "methods": {name: found.as_dict() for name, found in self.methods.items()},
            "refused": dict(self.refused),
        }


def _kept(means: Floats) -> Floats:
    """From mean similarity and control, (..., measures, 2), to the share of likeness kept, (...)."""
    alike, control = means[..., 0], means[..., 1]
    room = 1 - control
    with np.errstate(divide="ignore", invalid="ignore"):
        share = (alike - control) / room
    stuck = np.where(alike >= control - _ROOM, 1.0, 0.0)
    return np.where(room < _ROOM, stuck, share).mean(axis=-1)


def _share(kept: Interval) -> str:
    return f"{kept.value:.2f}, 95 % interval {kept.low:.2f} to {kept.high:.2f}"


def _interval(value: Interval) -> dict[str, float]:
    return {"mean": value.value, "low": value.low, "high": value.high}
