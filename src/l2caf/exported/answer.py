"""`Answer`: what an exported network says of a batch, and where it looked, as arrays."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from ..networks.class_names import Prediction, class_name
from ..solution import Outcome
from ..unit_sphere import FLAT
from .card import CONVERGED, Card

if TYPE_CHECKING:
    from PIL.Image import Image

    from ..preprocessing import Crop
    from ..rendering.drawn import Heat

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Answer:
    """The output of a batch with K maps for each sample.

    about      output, class or prediction: what the maps are about
    output     what the network itself gave, (B, m)
    weights    the unit filters on the layer's grid, with their signs, (B, K, *grid)
    classes    the class of each map, (B, K); None where the maps are about no class
    residual   how exact each filter is, (B,); None of classes, whose filters are one product and always exact
    crops      where the input lies on each photograph; empty where arrays were given
    """

    card: Card
    about: str
    output: Floats
    weights: Floats
    classes: npt.NDArray[np.int64] | None = None
    residual: Floats | None = None
    crops: tuple[Crop | None, ...] = ()

    def __len__(self) -> int:
        return len(self.output)

    @cached_property
    def outcomes(self) -> list[list[Outcome]]:
        """How well each map of each sample was found.

        The number of multiplications is fixed: where they were too few, it is `Outcome.STEP_LIMIT`.
        """
        flat = self.weights.reshape(*self.weights.shape[:2], -1)
        finite = _finite(self.output)[:, None] & _finite(flat)
        least, most = flat.min(axis=2), flat.max(axis=2)
        with np.errstate(invalid="ignore"):
            uniform = most - least <= FLAT * np.maximum(most, -least)
        # A comparison with NaN is false, so that a residual which is none counts as too large.
        converged = (
            finite if self.residual is None else np.broadcast_to(self.residual[:, None] <= CONVERGED, finite.shape)
        )
        return [
            [
                Outcome.NON_FINITE
                if not is_finite
                else Outcome.UNMOVED
                if not weights.any()
                else Outcome.UNIFORM
                if is_uniform
                else Outcome.EXACT
                if is_converged
                else Outcome.STEP_LIMIT
                for is_finite, weights, is_uniform, is_converged in zip(*of_sample, strict=True)
            ]
            for of_sample in zip(finite, flat, uniform, converged, strict=True)
        ]

    @cached_property
    def maps(self) -> Floats:
        """What a person looks at, at the size of the input: (B, K, height, width), between 0 and 1."""
        return self._fine(signed=False)

    @cached_property
    def signed(self) -> Floats:
        """The same between -1 and 1: what speaks for each class, and what against it."""
        return self._fine(signed=True)

    def grids(self, *, signed: bool = False) -> Floats:
        """The same on the layer's own grid, (B, K, *grid), the largest magnitude of each 1."""
        return _scaled(self._shown(signed=signed), axes=len(self.card.grid))

    def _shown(self, *, signed: bool) -> Floats:
        """The weights that are drawn: nothing where a map shows nothing; of a class what speaks for it."""
        nothing = np.array([[one.shows_nothing for one in row] for row in self.outcomes], bool)
        shown = np.where(nothing[(..., *[None] * len(self.card.grid))], np.float32(0), self.weights)
        if not signed:
            shown = shown.clip(min=0) if self.about == "class" else np.abs(shown)
        return shown

    def _fine(self, *, signed: bool) -> Floats:
        resized = self._shown(signed=signed)
        for axis, length in zip((-2, -1), self.card.input_size, strict=True):
            spread = _spread(resized.shape[axis], length)
            resized = resized @ spread if axis == -1 else np.swapaxes(np.swapaxes(resized, -1, axis) @ spread, -1, axis)
        return _scaled(resized, axes=2)

    def predictions(self) -> list[Prediction | None]:
        """The best class of every sample; None of an embedding, and where the scores are not finite."""
        if self.card.embedding:
            return [None] * len(self)
        finite = _finite(self.output)
        best = np.where(finite[:, None], self.output, 0).argmax(axis=1)
        return [
            self.prediction_of(sample, int(index)) if sound else None
            for sample, (index, sound) in enumerate(zip(best, finite, strict=True))
        ]

    def prediction_of(self, sample: int, index: int) -> Prediction:
        """What the network says of one class."""
        scores = self.output[sample].astype(float)
        names = self.card.class_names
        name = class_name(names if len(names) == len(scores) else (), index)
        if len(scores) == 1:
            return Prediction(index, name, None, float(scores[0]))
        shares = np.exp(scores - scores.max())
        return Prediction(index, name, float(shares[index] / shares.sum()))

    def about_map(self, sample: int, which: int) -> Prediction | None:
        """The class that a map is about."""
        return None if self.classes is None else self.prediction_of(sample, int(self.classes[sample, which]))

    def only(self, classes: list[int]) -> Answer:
        """The maps of these classes alone, in their order; a sample that has none of one is told."""
        assert self.classes is not None
        places = []
        for sample, own in enumerate(self.classes.tolist()):
            for wanted in classes:
                if wanted not in own:
                    raise InputError(
                        f"{self.prediction_of(sample, wanted).name} is not among the best {len(own)} classes here, and"
                        " the file has maps of these alone: export the network again with more of the best classes.",
                        field="class",
                    )
            places.append([own.index(wanted) for wanted in classes])
        return self._taking(np.array(places))

    def best(self, top: int) -> Answer:
        """The maps of each sample's best classes."""
        return self._taking(np.broadcast_to(np.arange(top), (len(self), top)))

    def _taking(self, places: npt.NDArray[Any]) -> Answer:
        assert self.classes is not None
        every = np.arange(len(self))[:, None]
        return replace(self, weights=self.weights[every, places], classes=self.classes[every, places])

    def heat(self, sample: int = 0, which: int = 0, *, signed: bool = False) -> Heat:
        """One map with all that is needed to draw it."""
        from ..rendering.drawn import Heat

        fine = (self.signed if signed else self.maps)[sample, which]
        crop = self.crops[sample] if self.crops else None
        return Heat(self.grids(signed=signed)[sample, which], fine, signed, crop)

    def overlay(
        self, sample: int = 0, which: int = 0, *, image: Any = None, signed: bool = False, **style: Any
    ) -> Image:
        """Draw one map on its photograph; the settings are those of `l2caf.Heatmap.overlay`."""
        from ..images import as_photograph

        crop = self.crops[sample] if self.crops else None
        under = image if image is not None else crop.photograph if crop is not None else None
        return self.heat(sample, which, signed=signed).on(None if under is None else as_photograph(under), **style)

    def save(self, path: str | Path, sample: int = 0, which: int = 0, **settings: Any) -> Path:
        """Save the same as a picture, whole or not at all."""
        from ..images import save_picture

        return save_picture(self.overlay(sample, which, **settings), path)

    def as_dict(self) -> dict[str, Any]:
        """What is known of every sample, but for the numbers of its output and of its maps."""
        return {
            "about": self.about,
            "layer": self.card.layer,
            "samples": [
                {
                    "predicted": None if predicted is None else predicted.as_dict(),
                    "residual": None if self.residual is None else float(self.residual[sample]),
                    "outcomes": [str(one) for one in self.outcomes[sample]],
                    "classes": None if self.classes is None else self.classes[sample].tolist(),
                }
                for sample, predicted in enumerate(self.predictions())
            ],
        }


def _finite(values: Floats) -> npt.NDArray[np.bool_]:
    """Along the last axis."""
    found: npt.NDArray[np.bool_] = np.logical_and.reduce(np.isfinite(values), axis=-1)
    return found


def _scaled(maps: Floats, *, axes: int) -> Floats:
    """Divide every map by its own largest magnitude."""
    largest = np.abs(maps).max(axis=tuple(range(-axes, 0)), keepdims=True)
    scaled: Floats = (maps / np.maximum(largest, np.finfo(np.float32).tiny)).astype(np.float32)
    return scaled


@lru_cache(maxsize=64)
def _spread(cells: int, length: int) -> Floats:
    """The matrix (cells, length) that interpolates so many cells linearly to a length, their centres kept in place."""
    at = ((np.arange(length) + 0.5) * cells / length - 0.5).clip(0, cells - 1)
    return np.maximum(0, 1 - np.abs(at - np.arange(cells)[:, None])).astype(np.float32)
