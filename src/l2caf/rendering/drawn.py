"""`Heat`: one map with all that is needed to draw it, whatever it lies on: a signal, a photograph, a volume."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from ..errors import InputError
from ..preprocessing import Crop
from .colors import Floats, resized
from .grid import grid
from .legend import legend as colours
from .legend import with_legend
from .marks import Box
from .overlay import Picture, as_rgb, colorize, overlay
from .placing import placed
from .signals import planes_picture, signal_picture
from .style import BOX_LEVEL, box_of

Slice = int | tuple[str, int]
OPTIONS = {
    1: ("cmap", "size"),
    2: ("alpha", "cmap", "contours", "box", "boxes", "width"),
    3: ("alpha", "cmap", "contours", "slice", "spacing"),
}
"""What may be said about the drawing of a map, by its number of axes."""


@dataclass(frozen=True)
class Heat:
    """One map.

    grid   on the layer's own grid, scaled: drawings interpolate it straight to the picture's pixels, by bicubic curves
           that go through every cell's value and never beyond the extremes; linear ones would show diamonds
    fine   the same at the size of the input, linear: the numbers that boxes are taken from
    crop   where the input lies on the photograph, where that is known
    """

    grid: Floats
    fine: Floats
    signed: bool = False
    crop: Crop | None = None

    def on(self, picture: Any, *, slice: Slice | None = None, **options: Any) -> Image.Image:
        """Draw it on what the network was shown."""
        if picture is None:
            return self.alone(**options)
        check_options({**options, **({} if slice is None else {"slice": slice})}, OPTIONS[self.fine.ndim])
        if self.fine.ndim == 2:
            return self._on_photograph(picture, **options)
        if self.fine.ndim == 3:
            return planes_picture(self._shown(picture), self.grid, signed=self.signed, plane=slice, **options)
        return signal_picture(self._shown(picture), self.grid, signed=self.signed, **options)

    def _shown(self, picture: Any) -> npt.NDArray[np.float32]:
        """A volume or a signal, if it is as large as the input was: anything else lies elsewhere."""
        shown, axes = _numbers(picture), self.fine.ndim
        if shown.shape[-axes:] != self.fine.shape or shown.ndim > max(axes, 2):
            what = "volume (d, h, w)" if axes == 3 else "signal"
            raise InputError(
                f"What is drawn on has the shape {shown.shape}, but the network's input was {self.fine.shape}: give the"
                f" {what} as the network saw it."
            )
        return shown

    def alone(self, *, cmap: str | None = None, **options: Any) -> Image.Image:
        """Draw it without what the network was shown, as plain colours at the size of the input."""
        check_options(options, ("cmap",))
        if self.fine.ndim != 2:
            raise InputError(
                "A map of a volume or a signal is drawn on it: give save(path, volume), or save the numbers as .npy."
            )
        return colorize(self.grid, signed=self.signed, cmap=cmap, size=(self.fine.shape[1], self.fine.shape[0]))

    def laid(self, picture: Picture) -> Laid:
        """Bring it to a photograph, or to what the network saw of it."""
        under = as_rgb(picture)
        size = under.shape[:2]
        shown: tuple[int, int] = self.fine.shape
        where = placed((size[0], size[1]), input_size=shown, crop=self.crop)
        if where is None:
            heat = resized(self.grid, (size[1], size[0]))
            return Laid(under, heat, None, (size[1] / shown[1], size[0] / shown[0]))
        return Laid(under, where.lay(self.grid, input_size=shown, smooth=True), where)

    def box(self, laid: Laid, level: float) -> list[Box]:
        """The box around the hottest region, in pixels of the picture; none where the map shows nothing."""
        found = box_of(self.fine, level=level)
        if found is None:
            return []
        if laid.crop is not None:
            x0, y0, x1, y1 = laid.crop.to_image([found])[0].tolist()
        else:
            x0, x1 = (edge * laid.scale[0] for edge in found[::2])
            y0, y1 = (edge * laid.scale[1] for edge in found[1::2])
        return [Box(x0, y0, x1, y1)] if round(x1) > round(x0) and round(y1) > round(y0) else []

    def _on_photograph(
        self,
        picture: Picture,
        *,
        box: bool | float = False,
        boxes: Iterable[Box | Sequence[float]] = (),
        width: int | None = None,
        **options: Any,
    ) -> Image.Image:
        boxes = grown(boxes, picture, width)
        laid = self.laid(at_width(picture, width))
        own = self.box(laid, BOX_LEVEL if box is True else float(box)) if box is not False else []
        return overlay(laid.under, laid.heat, signed=self.signed, boxes=[*own, *boxes], seen=laid.seen, **options)


@dataclass(frozen=True)
class Laid:
    """Heat as large as the picture under it; `crop` says what of the picture the network saw, None for all."""

    under: npt.NDArray[np.uint8]
    heat: Floats
    crop: Crop | None
    scale: tuple[float, float] = (1.0, 1.0)

    @property
    def seen(self) -> tuple[int, int, int, int] | None:
        """x0, y0, x1, y1 of what the network saw; None where that is all."""
        if self.crop is None:
            return None
        (top, bottom), (left, right) = self.crop.rows.pixels, self.crop.columns.pixels
        whole = (0, 0, self.under.shape[1], self.under.shape[0])
        return None if (left, top, right, bottom) == whole else (left, top, right, bottom)


class Cell(NamedTuple):
    """A map among others: its title, and the picture that it lies on; None for the map alone."""

    title: str
    heat: Heat
    picture: Any


HIGHEST = 360  # pixels of a sample's picture among others


def sheet_of(rows: Sequence[Sequence[Cell]], *, legend: bool, **options: Any) -> Image.Image:
    """One map as it is, or several side by side, a row per sample; under them what the colours mean."""
    pictures = [[cell.heat.on(cell.picture, **options) for cell in row] for row in rows]
    first, signed, cmap = pictures[0][0], rows[0][0].heat.signed, options.get("cmap")
    if len(rows) == len(rows[0]) == 1:
        return with_legend(first, signed=signed, cmap=cmap) if legend else first
    height = min(first.height, HIGHEST) if len(rows) > 1 else first.height
    titles = [[cell.title for cell in row] for row in rows]
    return grid(
        pictures,
        titles=titles if any(map(any, titles)) else None,
        row_labels=[f"sample {number}" for number in range(len(rows))] if len(rows) > 1 else None,
        cell_height=height,
        legend=colours(signed=signed, cmap=cmap, size=max(11, height // 20)) if legend else None,
    )


def check_options(given: Mapping[str, Any], known: Sequence[str]) -> None:
    """Refuse a setting of drawings that there is not, a misspelt one for instance, with what there is."""
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"take {', '.join(known)}."
            raise InputError(f"A drawing of this map has no setting {name!r}: {hint}", field=name)


def at_width(picture: Picture, width: int | None) -> Picture:
    """A picture at another width, in its own proportions."""
    if width is None:
        return picture
    if isinstance(width, bool) or not isinstance(width, int) or width < 1:
        raise InputError(f"A picture cannot be {width!r} pixels wide: give a whole number above 0.")
    given = Image.fromarray(as_rgb(picture))
    return given.resize((width, max(1, round(given.height * width / given.width))), Image.Resampling.LANCZOS)


def grown(boxes: Iterable[Box | Sequence[float]], picture: Picture, width: int | None) -> list[Box | Sequence[float]]:
    """Boxes on a picture that is brought to another width."""
    if width is None:
        return [*boxes]
    scale = width / as_rgb(picture).shape[1]
    return [(*(edge * scale for edge in box[:4]), *box[4:]) for box in boxes]


def _numbers(values: Any) -> npt.NDArray[np.float32]:
    """A signal or volume as floats, without axes of length 1 before it: also a tensor, wherever it is."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().float().numpy()
    array = np.asarray(values, dtype=np.float32)
    while array.ndim > 3 and array.shape[0] == 1:
        array = array[0]
    return array
