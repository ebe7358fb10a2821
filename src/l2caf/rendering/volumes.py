"""Heat in volumes: three planes through a place, one plane, many side by side, or one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

from ..errors import InputError
from ..localization import components_of_volume
from ..volumes.crop import VolumeCrop
from .colors import Cmap, Floats, checked_heat
from .grid import grid
from .legend import legend as colours
from .marks import draw_contours, font
from .overlay import ALPHA, overlay
from .region import PALETTE
from .scene import Places, Scene
from .settings import box_level, listed_boxes

SLICES = 12  # of a montage, where nobody says
FRAMES = 96  # of a scroll through a volume at most: more are a large file, and are not told apart
SCROLLED = 420  # pixels of the longest side there
FILLED = 0.06  # of the brightest: a plane that has hardly anything as bright is empty


@dataclass(frozen=True)
class Drawing:
    """A scene, what lies on it, and how that is drawn.

    heat     on any grid that covers the input; None for the volume alone
    boxes    from where to where in planes of each axis, each box
    mask     a region to be outlined, and `tint` the colours beneath it, both on grids that cover the input
    """

    scene: Scene
    heat: Floats | None = None
    signed: bool = False
    cmap: Cmap | None = None
    alpha: float = ALPHA
    contours: Any = False
    boxes: Sequence[Sequence[tuple[float, float]]] = ()
    mask: npt.NDArray[np.bool_] | None = None
    tint: npt.NDArray[np.uint8] | None = None

    def plane(self, across: int, place: int, *, scale: float | None = None, cross: Places | None = None) -> Image.Image:
        """One plane in its true proportions, with the letters of its sides and, where wanted, a cross at a place."""
        scene, size = self.scene, self.scene.size(across, scale)
        under: Any = scene.under(across, place, size)
        if self.tint is not None:
            under = _tinted(under, scene.nearest(self.tint, across, place, size))
        heat = np.zeros(size[::-1], np.float32)
        if self.heat is not None:
            heat = scene.heat(self.heat, across, place, size)
        cuts = [scene.cut(edges, across, place, size) for edges in self.boxes]
        drawn = overlay(
            under,
            heat,
            signed=self.signed,
            cmap=self.cmap,
            alpha=self.alpha,
            contours=self.contours if heat.any() else False,
            boxes=[cut for cut in cuts if cut is not None],
            seen=scene.seen(across, size),
        )
        if self.mask is not None:
            inside = scene.nearest(self.mask, across, place, size).astype(np.float32)
            drawn = draw_contours(drawn, np.pad(inside[1:-1, 1:-1], 1), [0.5]) if inside.any() else drawn
        down, right = (other for other in range(3) if other != across)
        if cross is not None:
            at = [(cross[other] + 0.5) / scene.axes[other].length for other in (right, down)]
            _cross(drawn, at[0] * size[0], at[1] * size[1])
        _letter(drawn, scene.axes[right].letters, scene.axes[down].letters)
        return drawn

    def planes(self, at: Places) -> tuple[list[Image.Image], list[str]]:
        """The three planes through a place, on one scale and of one height, and what they are called."""
        pictures = [self.plane(across, at[across], cross=at) for across in range(3)]
        height = max(picture.height for picture in pictures)
        titles = [axis.title(place) for axis, place in zip(self.scene.axes, at, strict=True)]
        return [_on_white(picture, height) for picture in pictures], titles

    def row(self, at: Places) -> Image.Image:
        """The same in one picture."""
        pictures, titles = self.planes(at)
        return grid([pictures], titles=[titles], cell_height=pictures[0].height)

    def montage(self, along: int = 0, *, slices: int = SLICES) -> tuple[list[list[Image.Image]], list[list[str]]]:
        """Rows of planes, evenly spaced over what of the volume is not empty, and what they are called."""
        if isinstance(slices, bool) or not isinstance(slices, int) or slices < 1:
            raise InputError(f"{slices} slices cannot be shown; ask for at least one.", field="montage")
        chosen = self._spread(along, slices)
        width, height = self.scene.size(along)
        across = min(len(chosen), max(1, round(np.sqrt(len(chosen) * 1.6 * height / width))))
        scale = self.scene.scale * min(1.0, 260 / max(width, height))
        pictures = [self.plane(along, place, scale=scale) for place in chosen]
        titles = [self.scene.axes[along].title(place) for place in chosen]
        starts = range(0, len(chosen), across)
        return [pictures[one : one + across] for one in starts], [titles[one : one + across] for one in starts]

    def frames(self, along: int = 0) -> list[Image.Image]:
        """All planes, or so many of them evenly spaced, each with its number: for a film."""
        width, height = self.scene.size(along)
        scale = self.scene.scale * min(1.0, SCROLLED / max(width, height))
        axis = self.scene.axes[along]
        frames = []
        for place in self._spread(along, min(axis.length, FRAMES), whole=True):
            drawn = self.plane(along, place, scale=scale)
            size = max(11, drawn.height // 26)
            ImageDraw.Draw(drawn).text(
                (5, drawn.height - 5), axis.title(place), "white", font(size), "lb", stroke_width=2, stroke_fill="black"
            )
            frames.append(drawn)
        return frames

    def _spread(self, along: int, count: int, *, whole: bool = False) -> list[int]:
        filled = self.scene.grey > FILLED
        used = np.flatnonzero(filled.mean(axis=tuple(other for other in range(3) if other != along)) > 0.01)
        first, last = (0, self.scene.axes[along].length) if whole or not len(used) else (used[0], used[-1] + 1)
        middles = first + (np.arange(count) + 0.5) * (last - first) / count
        return np.unique(middles.astype(int)).tolist()


def sheet(
    rows: Sequence[tuple[str, Drawing, Places]],
    *,
    heading: str = "",
    caption: str = "",
    legend: bool = True,
) -> Image.Image:
    """Three planes for each of several drawings, each row with its words."""
    drawn = [(words, *drawing.planes(at)) for words, drawing, at in rows]
    first = rows[-1][1]
    height = drawn[0][1][0].height
    labels = [words for words, _, _ in drawn]
    return grid(
        [pictures for _, pictures, _ in drawn],
        titles=[titles for _, _, titles in drawn],
        row_labels=labels if any(labels) else None,
        heading=heading,
        caption=caption,
        cell_height=height,
        legend=colours(signed=first.signed, cmap=first.cmap, size=max(12, height // 22)) if legend else None,
    )


def drawing_of(
    grid: npt.ArrayLike,
    fine: Floats,
    picture: Any,
    *,
    crop: VolumeCrop | None = None,
    signed: bool = False,
    spacing: Any = None,
    window: Any = None,
    box: Any = None,
    boxes: Any = None,
    **style: Any,
) -> tuple[Drawing, Places]:
    """A map as a drawing, and its hottest place, on the scan that the input was made from, or on what the network saw.

    fine   the map at the size of the input, which boxes are taken from
    crop   where the input lies in the scan; None where `picture` is the input
    """
    heat = checked_heat(grid, signed=signed, ndim=3)
    if crop is None:
        scene = Scene.of_input(picture, spacing=spacing, window=window)
    else:
        scene = Scene.of_scan(crop, spacing=spacing, window=window)
    level = box_level(box)
    own = [] if level is None else components_of_volume(fine.clip(min=0), level)[:1].tolist()
    marked = [scene.edges(one, on_scan=False) for one in own]
    marked += [scene.edges(one, on_scan=getattr(one, "on", "scan") == "scan") for one in listed_boxes(boxes)]
    # With two signs the place that speaks most for it, if any does; the middle of a map that shows nothing.
    hottest = fine if (fine > 0).any() else -fine
    peak = np.unravel_index(int(hottest.argmax()), fine.shape) if fine.any() else [n // 2 for n in fine.shape]
    at = scene.place([int(one) for one in peak], fine.shape)
    return Drawing(scene, heat, signed, boxes=marked, **style), at


def pictured(drawing: Drawing, at: Places, *, slice: Any = None, montage: Any = None) -> Image.Image:
    """Three planes through a place; or one that is named, or many.

    slice    12, a plane across the first axis, or ("coronal", 40)
    montage  True, how many, the name of the planes, or both: ("sagittal", 20)
    """
    if slice is not None:
        return drawing.plane(*drawing.scene.named(slice))
    return drawing.row(at) if montage is None or montage is False else _set([("", drawing)], montage)


def many(maps: Sequence[tuple[str, Drawing]], montage: Any, *, heading: str = "", caption: str = "") -> Image.Image:
    """A montage of each of several drawings, one below the other, with their words and what the colours mean."""
    drawing = maps[0][1]
    legend = colours(signed=drawing.signed, cmap=drawing.cmap, size=15)
    return _set(maps, montage, heading=heading, caption=caption, legend=legend)


def _set(maps: Sequence[tuple[str, Drawing]], montage: Any, **words: Any) -> Image.Image:
    listed = montage if isinstance(montage, tuple | list) else (montage,)
    names = [one for one in listed if isinstance(one, str)]
    counts = [one for one in listed if not isinstance(one, str | bool)]
    if len(names) > 1 or len(counts) > 1 or not all(isinstance(one, int) for one in counts):
        raise InputError(f"montage is {montage!r}: give True, or such as ('coronal', 20).", field="montage")
    rows: list[list[Image.Image]] = []
    titles: list[list[str]] = []
    labels: list[str] = []
    for label, drawing in maps:
        along = drawing.scene.along(names[0], field="montage") if names else 0
        drawn, called = drawing.montage(along, slices=counts[0] if counts else SLICES)
        rows, titles, labels = rows + drawn, titles + called, [*labels, label, *[""] * (len(drawn) - 1)]
    known = labels if any(labels) and len(maps) > 1 else None
    return grid(rows, titles=titles, row_labels=known, cell_height=rows[0][0].height, **words)


def _on_white(picture: Image.Image, height: int) -> Image.Image:
    if picture.height == height:
        return picture
    sheet = Image.new("RGB", (picture.width, height), "white")
    sheet.paste(picture, (0, (height - picture.height) // 2))
    return sheet


def _cross(drawn: Image.Image, x: float, y: float) -> None:
    """Thin lines where the other planes cut this one; the place itself stays free."""
    across, down = int(x), int(y)
    free = max(6, min(drawn.size) // 14)
    lines = Image.new("L", drawn.size)
    draw = ImageDraw.Draw(lines)
    for start, stop in (((0, down), (across - free, down)), ((across + free, down), (drawn.width, down))):
        if stop[0] > start[0]:
            draw.line((start, stop), fill=150)
    for start, stop in (((across, 0), (across, down - free)), ((across, down + free), (across, drawn.height))):
        if stop[1] > start[1]:
            draw.line((start, stop), fill=150)
    drawn.paste("white", mask=lines)


def _letter(drawn: Image.Image, sides: tuple[str, str], ends: tuple[str, str]) -> None:
    """The sides of a person at the edges of a plane: left and right of it, above and below."""
    size = max(11, min(20, drawn.width // 16))
    letters, draw, middle = font(size, bold=True), ImageDraw.Draw(drawn), (drawn.width / 2, drawn.height / 2)
    places = (
        (sides[0], (4, middle[1]), "lm"),
        (sides[1], (drawn.width - 4, middle[1]), "rm"),
        (ends[0], (middle[0], 3), "mt"),
        (ends[1], (middle[0], drawn.height - 3), "mb"),
    )
    for text, at, anchor in places:
        if text:
            draw.text(at, text, "white", letters, anchor, stroke_width=2, stroke_fill="black")


def _tinted(under: Floats, colors: npt.NDArray[np.uint8]) -> Floats:
    """A grey plane with the colours of what is predicted; the first class, mostly the background, has none."""
    plain = (colors == PALETTE[0]).all(axis=2) | (np.ptp(colors, axis=2) == 0)
    share = np.where(plain, 0.0, 0.4)[:, :, None]
    mixed: Floats = (under[:, :, None] * (1 - share) + colors / 255 * share).astype(np.float32)
    return mixed
