"""What is made of a clip's moments: a film with the maps on its frames, a strip, a curve, and the numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ..images import save_picture
from ..networks.class_names import percent
from ..rendering.film import filming
from ..rendering.filmstrip import (
    CONTOURS,
    MOMENTS,
    Series,
    Thinned,
    banner,
    banner_height,
    curve_of,
    filmstrip,
    small,
)
from ..rendering.filmstrip import Moment as Shown
from ..rendering.style import FAINT_SHARE, Style
from .moments import Moment
from .numbers import Rows, save_npz

CURVE_WIDTH = 1000  # pixels
MOST_SEEN = 5  # classes that a summary names


@dataclass(frozen=True)
class Files:
    """Where what is made of a clip goes."""

    film: Path
    strip: Path
    curve: Path
    numbers: Path

    @classmethod
    def beside(cls, film: Path) -> Files:
        """A film, and the rest under its name."""
        stem = film.with_suffix("")
        return cls(film, *(stem.with_name(f"{stem.name}{ending}") for ending in ("-strip.png", "-curve.png", ".npz")))

    def as_dict(self) -> dict[str, str]:
        return {name: str(path) for name, path in vars(self).items()}


@dataclass(frozen=True)
class Seen:
    """A class that the network saw, in which share of the frames, and how sure it was there on average."""

    name: str
    share: float
    probability: float | None

    def __str__(self) -> str:
        sure = "" if self.probability is None else f", {percent(self.probability)}"
        return f"{self.name}{sure}" if self.share == 1 else f"{self.name} in {percent(self.share)} of the frames{sure}"

    def as_dict(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass
class Watched:
    """What is remembered of the moments that have passed: numbers, and a few small pictures."""

    names: tuple[str, ...] = ()
    times: list[float] = field(default_factory=list)
    levels: list[list[float]] = field(default_factory=list)  # per map: share of the filter, or probability
    starts: list[int] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)
    sure: dict[str, float] = field(default_factory=dict)  # summed; of a single score there is none
    together: bool = False  # whether the network saw several frames at once
    crop: tuple[float, ...] | None = None
    size: tuple[int, ...] = ()

    def note(self, moment: Moment) -> None:
        if not self.times:
            self.names = tuple(one.name if one else "where it looked" for one in moment.about)
            self.levels = [[] for _ in moment.heats]
            self.together = moment.share is not None
            crop, self.size = moment.heats[0].crop, moment.heats[0].fine.shape
            if crop is not None:
                self.crop = (crop.columns.start, crop.rows.start, crop.columns.stop, crop.rows.stop)
        if moment.first or not self.times:
            self.starts.append(len(self.times))
        self.times.append(moment.frame.time)
        for which, levels in enumerate(self.levels):
            about = moment.about[which] or moment.prediction
            sure = np.nan if about is None or about.probability is None else about.probability
            levels.append(moment.share[which] if moment.share else sure)
        if moment.prediction is not None:
            self.seen[moment.prediction.name] += 1
            if moment.prediction.probability is not None:
                so_far = self.sure.get(moment.prediction.name, 0)
                self.sure[moment.prediction.name] = so_far + moment.prediction.probability

    def classes(self) -> tuple[Seen, ...]:
        """The classes seen, most often first."""
        return tuple(
            Seen(name, count / len(self.times), self.sure[name] / count if name in self.sure else None)
            for name, count in self.seen.most_common(MOST_SEEN)
        )

    def curve(self, width: int) -> Image.Image:
        """How much each frame weighs; of pictures that are explained for themselves, how sure the network is."""
        if self.together:
            title = "how much each frame weighs, 1 = an even share of what the network saw at once"
            names = self.names if len(self.names) > 1 else ("",)
            return curve_of(self._lines(names), title=title, even=1, width=width)
        named = self.names != ("where it looked",)
        title = "how sure the network is of the class" if named else "how sure the network is of what it sees"
        lines = self._lines(self.names if named else ("",))
        known = [line for line in lines if np.isfinite(line.values).any()]
        return curve_of(known, title=title, highest=1.05, width=width, unknown="the network gives no probabilities")

    def _lines(self, names: Iterable[str]) -> list[Series]:
        """A line for each map, broken where one stretch of frames ends and the next begins: each has its own scale."""
        breaks = self.starts[1:] if self.together else []
        times = np.insert(np.array(self.times), breaks, np.nan)
        return [
            Series(name, times, np.insert(np.array(levels, float), breaks, np.nan))
            for name, levels in zip(names, self.levels, strict=True)
        ]


def write_film(
    moments: Iterable[Moment], files: Files, style: Style, *, heading: str, caption: Any, width: int | None = None
) -> Watched:
    """Draw and write all of it as the moments come; every file is whole, or not there.

    caption   a function that gives the words under the strip, when all moments are known
    width     of the film in pixels; None for that of the clip
    """
    watched, strip, rows = Watched(), Thinned(MOMENTS), Rows()
    try:
        with filming(files.film) as film:
            for moment in moments:
                watched.note(moment)
                rows.add(moment.weights)
                film.add(film_frame(moment, style, width), moment.frame.time)
                if strip.wants:
                    strip.keep(_on_strip(moment, style))
                strip.count += 1
        save_picture(watched.curve(CURVE_WIDTH), files.curve)
        sheet = filmstrip(
            strip.chosen(),
            names=watched.names,
            heading=heading,
            caption=caption(watched),
            signed=style.signed,
            cmap=style.cmap,
            curve=watched.curve,
        )
        save_picture(sheet, files.strip)
        save_npz(files.numbers, _arrays(watched, rows))
    finally:
        rows.close()
    return watched


def film_frame(moment: Moment, style: Style, width: int | None = None) -> Image.Image:
    """A frame of the film: each map on the frame, side by side, and below what it is about."""
    cells = [_drawn(moment, which, style, width) for which in range(len(moment.heats))]
    high = banner_height(cells[0].height)
    sheet = Image.new("RGB", (sum(cell.width for cell in cells), cells[0].height + high))
    left = 0
    for which, cell in enumerate(cells):
        sheet.paste(cell, (left, 0))
        right = f"weight {moment.share[which]:.2f}" if moment.share else f"{moment.frame.time:.1f} s"
        sheet.paste(banner(cell.width, high, _words(moment, which), right), (left, cell.height))
        left += cell.width
    return sheet


def _words(moment: Moment, which: int) -> str:
    about = moment.about[which]
    if about is not None:
        return str(about)
    return f"seen as {moment.prediction}" if moment.prediction else "where it looked"


def _drawn(moment: Moment, which: int, style: Style, width: int | None = None, **marks: Any) -> Image.Image:
    options: Mapping[str, Any] = {
        "alpha": style.alpha * (FAINT_SHARE if moment.faint[which] else 1),
        "cmap": style.cmap,
        "contours": style.contours,
        "box": style.threshold if style.box else False,
        "width": width,
    }
    return moment.heats[which].on(moment.frame.picture, **{**options, **marks})


def _on_strip(moment: Moment, style: Style) -> Shown:
    """A moment as small as a strip shows it; its outlines tell where the heat lies on a busy picture."""
    picture = small(moment.frame.picture)
    drawn = (_drawn(moment, which, style, picture.width, contours=CONTOURS) for which in range(len(moment.heats)))
    return Shown(moment.frame.time, picture, tuple(drawn))


def _arrays(watched: Watched, rows: Rows) -> dict[str, Any]:
    arrays: dict[str, Any] = {
        "weights": rows,
        "times": np.array(watched.times),
        "shares" if watched.together else "probabilities": np.array(watched.levels).T,
        "names": np.array(watched.names),
        "starts": np.array(watched.starts),
        "input_size": np.array(watched.size),
    }
    return arrays if watched.crop is None else {**arrays, "crop": np.array(watched.crop)}
