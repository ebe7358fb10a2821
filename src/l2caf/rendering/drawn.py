"""`Heat`: one map with all that is needed to draw it, whatever it lies on: a signal, a photograph, a volume."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from ..errors import InputError
from ..preprocessing import Crop
from ..volumes import Volume, VolumeCrop
from .colors import Cmap, Floats, resized
from .grid import grid
from .legend import legend as colours
from .legend import with_legend
from .marks import Box, draw_boxes, draw_contours
from .overlay import Picture, as_rgb, colorize, contour_levels, overlay
from .placing import placed
from .scene import Places
from .settings import at_width, box_level, check_options, listed_boxes
from .signals import signal_picture
from .sound import Strip, sound_picture
from .style import box_of
from .volumes import Drawing, drawing_of, pictured

Slice = int | tuple[str, int]
OPTIONS = {
    1: ("cmap", "size", "rate"),
    2: ("alpha", "cmap", "contours", "box", "boxes", "width"),
    3: ("alpha", "cmap", "contours", "box", "boxes", "slice", "montage", "spacing", "window"),
}
"""What may be said about the drawing of a map, by its number of axes."""
ALONE = ("cmap", "contours", "box", "boxes", "width")


@dataclass(frozen=True)
class Heat:
    """One map.

    grid   on the layer's own grid, scaled: drawings interpolate it straight to the picture's pixels, by bicubic curves
           that go through every cell's value and never beyond the extremes; linear ones would show diamonds
    fine   the same at the size of the input, linear: the numbers that boxes are taken from
    crop   where the input lies on the photograph, where that is known
    scan   or in the scan, of a volume
    """

    grid: Floats
    fine: Floats
    signed: bool = False
    crop: Crop | None = None
    scan: VolumeCrop | None = None

    def on(self, picture: Any, *, slice: Slice | None = None, **options: Any) -> Image.Image:
        """Draw it on what the network was shown."""
        if picture is None:
            return self.alone(**options)
        check_options({**options, **({} if slice is None else {"slice": slice})}, OPTIONS[self.fine.ndim])
        if self.fine.ndim == 2:
            return self._on_photograph(picture, **options)
        if self.fine.ndim == 3:
            montage = options.pop("montage", None)
            return pictured(*self.in_volume(picture, **options), slice=slice, montage=montage)
        if "rate" in options:
            return sound_picture(self._shown(picture), [Strip("", self.grid)], signed=self.signed, **options)
        return signal_picture(self._shown(picture), self.grid, signed=self.signed, **options)

    def in_volume(self, picture: Any, **options: Any) -> tuple[Drawing, Places]:
        """The map of a volume on its scan, or on what the network saw, and the planes of its hottest place."""
        if isinstance(picture, Volume):
            check_scan(picture, self.scan)
            return drawing_of(self.grid, self.fine, None, crop=self.scan, signed=self.signed, **options)
        return drawing_of(self.grid, self.fine, self._shown(picture), signed=self.signed, **options)

    def _shown(self, picture: Any) -> npt.NDArray[np.float32]:
        """A volume or a signal, if it is as large as the input was: anything else lies elsewhere."""
        shown, axes = _numbers(picture), self.fine.ndim
        if shown.shape[-axes:] != self.fine.shape or shown.ndim > max(axes, 2):
            what = "volume (d, h, w)" if axes == 3 else "signal"
            raise InputError(
                f"What is drawn on has the shape {shown.shape}, but the network's input was {self.fine.shape}: give the"
                f" {what} as the network saw it{', or save(path, frames) of a clip' if axes == 3 else ''}."
            )
        return shown

    def alone(
        self, *, cmap: Cmap | None = None, contours: Any = False, width: int | None = None, **options: Any
    ) -> Image.Image:
        """Draw it without what the network was shown, as plain colours at the size of the input."""
        if self.fine.ndim != 2:
            raise InputError(
                "A map of a volume, a clip or a signal is drawn on it: give save(path, volume) or save(path, frames),"
                " or save the numbers as .npy."
            )
        if "alpha" in options:
            raise InputError("alpha lets a picture show through the map: give the picture too.", field="alpha")
        check_options(options, ALONE)
        height, across = self.fine.shape
        laid = self.laid(np.zeros((height, across), np.uint8), width=width)
        size = (laid.under.shape[1], laid.under.shape[0])
        drawn = colorize(self.grid, signed=self.signed, cmap=cmap, size=size)
        drawn = draw_contours(drawn, np.abs(laid.heat), contour_levels(contours))
        return draw_boxes(drawn, self.marked(laid, **options))

    def laid(self, picture: Picture, *, width: int | None = None) -> Laid:
        """Bring it to a photograph, or to what the network saw of it, at another width where one is given."""
        under = as_rgb(at_width(picture, width))
        size = under.shape[:2]
        zoom = 1.0 if width is None else width / as_rgb(picture).shape[1]
        shown: tuple[int, int] = self.fine.shape
        where = placed((size[0], size[1]), input_size=shown, crop=self.crop)
        if where is None:
            heat = resized(self.grid, (size[1], size[0]))
            return Laid(under, heat, None, (size[1] / shown[1], size[0] / shown[0]), zoom)
        return Laid(under, where.lay(self.grid, input_size=shown, smooth=True), where, zoom=zoom)

    def marked(self, laid: Laid, *, box: Any = None, boxes: Any = None) -> list[Box | Sequence[float]]:
        """The boxes that are drawn, in pixels of the picture: that of the hottest region, and those that were given."""
        level = box_level(box)
        found = None if level is None else box_of(self.fine, level=level)
        own = [] if found is None else _shown([laid.of_input(found)])
        return [*own, *(one for given in listed_boxes(boxes) for one in self._placed(laid, given))]

    def _placed(self, laid: Laid, box: Any) -> list[Any]:
        """A box in pixels of the picture; one that says what it is measured on comes from there."""
        on = getattr(box, "on", None)
        if on == "input":
            return _shown([laid.of_input(box)])
        if on == "photograph" and self.crop is not None:
            if laid.crop is None:  # drawn on what the network saw
                return _shown([laid.of_input(self.crop.to_input([box])[0])])
            height, width = self.crop.image_size
            down, across = laid.under.shape[0] / height, laid.under.shape[1] / width
            return _shown([np.asarray(box) * [across, down, across, down]])
        return [box] if laid.zoom == 1 else [(*(edge * laid.zoom for edge in box[:4]), *box[4:])]

    def _on_photograph(
        self,
        picture: Picture,
        *,
        box: Any = None,
        boxes: Any = None,
        width: int | None = None,
        **options: Any,
    ) -> Image.Image:
        laid = self.laid(picture, width=width)
        marks = self.marked(laid, box=box, boxes=boxes)
        return overlay(laid.under, laid.heat, signed=self.signed, boxes=marks, seen=laid.seen, **options)


@dataclass(frozen=True)
class Laid:
    """Heat as large as the picture under it; `crop` says what of the picture the network saw, None for all.

    scale   pixels of the picture per pixel of the input, across and down, where the picture is what the network saw
    zoom    pixels of the picture per pixel of the one that was given
    """

    under: npt.NDArray[np.uint8]
    heat: Floats
    crop: Crop | None
    scale: tuple[float, float] = (1.0, 1.0)
    zoom: float = 1.0

    def of_input(self, box: Any) -> npt.NDArray[np.float64]:
        """A box in pixels of the network's input, in pixels of the picture."""
        if self.crop is not None:
            placed: npt.NDArray[np.float64] = self.crop.to_image([box])[0]
            return placed
        return np.asarray(box, np.float64) * [*self.scale, *self.scale]

    @property
    def seen(self) -> tuple[int, int, int, int] | None:
        """x0, y0, x1, y1 of what the network saw; None where that is all."""
        if self.crop is None:
            return None
        (top, bottom), (left, right) = self.crop.rows.pixels, self.crop.columns.pixels
        whole = (0, 0, self.under.shape[1], self.under.shape[0])
        return None if (left, top, right, bottom) == whole else (left, top, right, bottom)


class Cell(NamedTuple):
    """A map among others: its title, and the picture that it lies on, None for the map alone.

    heat   None for a picture without a map, which figures have
    own    settings of this one alone
    """

    title: str
    heat: Heat | None
    picture: Any
    own: Mapping[str, Any] = MappingProxyType({})

    def drawn(self, **options: Any) -> Image.Image:
        if self.heat is None:
            return Image.fromarray(as_rgb(self.picture))
        return self.heat.on(self.picture, **self.settings(options))

    def settings(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Those of all cells, and its own."""
        return {**options, **self.own}


HIGHEST = 360  # pixels of a sample's picture among others


def sheet_of(rows: Sequence[Sequence[Cell]], *, legend: bool, title: str = "", **options: Any) -> Image.Image:
    """One map as it is, or several side by side, a row per sample; under them what the colours mean."""
    pictures = [[cell.drawn(**options) for cell in row] for row in rows]
    first, cmap = pictures[0][0], options.get("cmap")
    signed = any(cell.heat is not None and cell.heat.signed for row in rows for cell in row)
    if len(rows) == len(rows[0]) == 1 and not title:
        return with_legend(first, signed=signed, cmap=cmap) if legend else first
    height = min(first.height, HIGHEST) if len(rows) > 1 else first.height
    titles = [[cell.title for cell in row] for row in rows]
    return grid(
        pictures,
        titles=titles if any(map(any, titles)) else None,
        row_labels=[f"sample {number}" for number in range(len(rows))] if len(rows) > 1 else None,
        heading=str(title),
        cell_height=height,
        legend=colours(signed=signed, cmap=cmap, size=max(11, height // 20)) if legend else None,
    )


def check_scan(scan: Volume, crop: VolumeCrop | None) -> None:
    """Refuse a scan that a map cannot be placed on: where the input lies in it is not known, or it is another one."""
    if crop is None:
        raise InputError(
            f"Where the network's input lies in {scan.name} is not known: add preprocess= with what prepared it, an"
            " l2caf.volumes.VolumePreprocessing, or explain the scan itself by the explain of an l2caf.Model."
        )
    same = scan.affine is crop.scan.affine or (
        scan.affine is not None and crop.scan.affine is not None and np.allclose(scan.affine, crop.scan.affine)
    )
    if scan.shape != crop.scan.shape or not same:
        raise InputError(
            f"{scan.name} has other voxels than {crop.scan.name}, which the map belongs to: give that scan, or one on"
            " its grid."
        )


def _shown(boxes: Iterable[npt.NDArray[np.float64]]) -> list[Box]:
    """The boxes of which a pixel is left on the picture."""
    edges = [Box(*box.tolist()) for box in boxes]
    return [box for box in edges if round(box.x1) > round(box.x0) and round(box.y1) > round(box.y0)]


def _numbers(values: Any) -> npt.NDArray[np.float32]:
    """A signal or volume as floats, without axes of length 1 before it: also a tensor, wherever it is."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().float().numpy()
    array = np.asarray(values, dtype=np.float32)
    while array.ndim > 3 and array.shape[0] == 1:
        array = array[0]
    return array
