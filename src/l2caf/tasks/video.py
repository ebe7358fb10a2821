"""Explain clips: a film of each with where the network looked, a strip of its moments, and the numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..clips import RATE, Clip, clip_files, open_clip
from ..errors import ClassError, InputError, MethodError
from ..files import printable
from ..progress import Progress, silent
from ..rendering.film import ENDINGS, filming
from ..rendering.style import Style
from ..solution import Outcome
from .filmed import Files, Seen, Watched, write_film
from .moments import Asked, Moment, Sampling, smoothed
from .network_choice import NetworkChoice
from .outputs import Failed, Skipped, is_file, names_for, ready_folder, unheard
from .question import Question
from .samples import two_objects

if TYPE_CHECKING:
    from ..networks.model import Model

DEMO_SIDE, DEMO_FRAMES, DEMO_RATE = 320, 60, 20
NARROWEST = 64  # pixels of a film: less shows nothing


@dataclass(frozen=True)
class VideoRequest:
    """Which clips, what is asked about them, and what is written.

    clips     files, folders of frames, and folders of clips
    out       the folder for the films; of one clip, the film itself
    smooth    of how many frames' maps each map is the mean; 1 for its own alone
    gif       a GIF in place of an mp4
    width     of the film in pixels; None for that of the clip
    fps       how many frames of a folder make a second; None for 25
    demo      a clip of the program's own in place of others
    """

    clips: Sequence[Path]
    out: Path
    network: NetworkChoice = field(default_factory=NetworkChoice)
    question: Question = field(default_factory=Question)
    style: Style = field(default_factory=Style)
    sampling: Sampling = field(default_factory=Sampling)
    smooth: int = 1
    gif: bool = False
    width: int | None = None
    demo: bool = False
    fps: float | None = None

    def __post_init__(self) -> None:
        self.style.check()
        if self.smooth < 1:
            raise InputError(f"A mean over {self.smooth} frames is none: give 1 or more.", field="smooth")
        if self.width is not None and self.width < NARROWEST:
            raise InputError(f"A film {self.width} pixels wide shows nothing: give {NARROWEST} or more.", field="width")
        if self.demo and self.clips:
            raise InputError("The demonstration makes its own clip: leave the others out.", field="demo")
        if not self.demo and not self.clips:
            raise InputError("There is no clip: give files or folders, or ask for the demonstration.", field="clip")

    @property
    def folder(self) -> Path:
        """Where the films go."""
        return self.out.parent if self.is_one else self.out

    @property
    def is_one(self) -> bool:
        """Whether `out` is the name of one film."""
        return is_file(self.out, endings=ENDINGS)

    @property
    def asked(self) -> Question:
        """The question as it is put: what speaks for and against is only known of a class."""
        return replace(self.question, about_a_class=self.question.about_a_class or self.style.signed)


@dataclass(frozen=True)
class Filmed:
    """A clip, what the network saw in it, and what was written."""

    file: Path
    files: Files
    frames: int
    seconds: float
    together: int | None  # frames that the network saw at once; None where each was explained for itself
    seen: tuple[Seen, ...]
    layer: str
    solver: str
    outcomes: Mapping[Outcome, int]
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        return {
            "file": str(self.file),
            "frames": self.frames,
            "seconds": round(self.seconds, 3),
            "frames_at_once": self.together,
            "seen": [one.as_dict() for one in self.seen],
            "layer": self.layer,
            "solver": self.solver or None,
            "outcomes": {str(outcome): count for outcome, count in self.outcomes.items()},
            "notes": list(self.notes),
            **self.files.as_dict(),
        }


@dataclass(frozen=True)
class VideoResult:
    """What was written, and which clips were left out."""

    network: str
    method: str
    written: tuple[Filmed, ...]
    failed: tuple[Failed, ...]
    assumed: Mapping[str, str]  # what was taken for granted about the network

    def nothing(self, *, where: str) -> str:
        """The sentence for a run in which no clip went well; `where` tells where the reasons are."""
        if len(self.failed) == 1:
            return str(self.failed[0].error)
        return f"None of the {len(self.failed)} clips could be explained: {where}."

    def as_dict(self) -> dict[str, Any]:
        return {
            **({} if self.written else {"error": self.nothing(where="see 'failed'")}),
            "network": self.network,
            "method": self.method,
            "assumed": dict(self.assumed),
            "clips": [one.as_dict() for one in self.written],
            "failed": [one.as_dict() for one in self.failed],
        }


def explain_clips(
    request: VideoRequest, *, model: Model | None = None, progress: Progress = silent, skipped: Skipped = unheard
) -> VideoResult:
    """Explain every clip and write its film; `model` is the request's network, where it is loaded already.

    A clip that cannot be read does not hold up the rest; a fault that none can help is raised.
    """
    from ..networks.clip_input import with_clip_input

    ready_folder(request.folder)
    if request.demo:
        request = replace(request, clips=[make_demo(request.folder / "demo.mp4")], demo=False)
    files = _gathered(request)
    model = model or request.network.load(progress)
    request = replace(request, question=request.asked.settled(model))
    request.asked.as_method(model)  # a class that the network does not have is told before a clip is read
    names = names_for(files, suffix=_name_of(request.asked))
    written: list[Filmed] = []
    failed: list[Failed] = []
    for file in files:
        try:
            clip = open_clip(file, fps=request.fps)
            first = next(iter(clip))
            model = with_clip_input(model, first.picture, frames=request.sampling.frames)
            film = request.out if request.is_one else request.out / f"{names[file]}{ENDINGS[request.gif]}"
            written.append(_film(request, model, clip, Files.beside(film), progress))
        except (InputError, MethodError) as error:
            if isinstance(error, ClassError) or (error.field and error.field != "clip"):
                raise
            failed.append(Failed(file, error))
            if len(files) > 1:  # of a single one the result says all
                skipped(failed[-1])
    return VideoResult(model.name, request.asked.title, tuple(written), tuple(failed), model.assumed)


def _film(request: VideoRequest, model: Model, clip: Clip, files: Files, progress: Progress) -> Filmed:
    if request.smooth > 1 and model.clip is not None:
        raise InputError(
            f"{model.name} sees several frames at once, so its maps have a time of their own: leave this out.",
            field="smooth",
        )
    question = request.asked
    asked = Asked(
        model,
        question.as_method(model),
        layer=request.network.layer,
        select=request.network.select,
        signed=request.style.signed,
        sampling=request.sampling,
    )
    damage: list[str] = []
    if clip.is_folder and clip.rate is None:
        damage.append(
            f"The frames of a folder tell no times: {RATE:.0f} are taken to make a second, unless a rate is given."
        )
    stage = f"explaining {printable(clip.path.name)}"
    moments = _told(asked.moments(clip, damage.append), stage, asked.shown(clip), progress)

    def caption(watched: Watched) -> str:
        parts = [question.title, f"{model.name}, layer {asked.found.layer}"]
        outcomes = asked.found.outcomes
        if set(outcomes) == {Outcome.EXACT}:
            parts.append("solved exactly")
        elif outcomes:
            parts.append(f"{asked.found.solver}: {', '.join(one.replace('_', ' ') for one in outcomes)}")
        if watched.together:
            each = (
                "a filter for each, shown to its own maximum" if asked.found.per_frame else "one filter for all of them"
            )
            parts.append(f"{_longest(watched)} frames at once, {each}")
        else:
            parts.append("frame by frame, each map to its own maximum")
        if request.smooth > 1:
            parts.append(f"maps are means over {request.smooth} frames")
        return "  ·  ".join(parts) + "".join(f"\n{note}" for note in (*asked.notes, *damage))

    moments = smoothed(moments, request.smooth) if request.smooth > 1 else moments
    watched = write_film(moments, files, request.style, heading=clip.path.name, caption=caption, width=request.width)
    return Filmed(
        clip.path,
        files,
        len(watched.times),
        watched.times[-1],
        _longest(watched) if watched.together else None,
        watched.classes(),
        asked.found.layer,
        asked.found.solver,
        dict(asked.found.outcomes),
        (*asked.notes, *damage),
    )


def _longest(watched: Watched) -> int:
    """How many frames the network saw at once."""
    ends = [*watched.starts[1:], len(watched.times)]
    return max(end - start for start, end in zip(watched.starts, ends, strict=True))


def _told(moments: Iterator[Moment], stage: str, total: int | None, progress: Progress) -> Iterator[Moment]:
    """The same moments, with progress told of each; a file may hold more frames than it says."""
    done = 0
    progress(stage, done, total)
    for moment in moments:
        yield moment
        done += 1
        progress(stage, done, None if total is None else max(total, done))


def _gathered(request: VideoRequest) -> list[Path]:
    home = request.out.resolve()
    files = [
        file for file in clip_files(request.clips) if file in request.clips or not file.resolve().is_relative_to(home)
    ]
    if not files:
        raise InputError("There are no clips: give files or folders.", field="clip")
    if request.is_one and len(files) > 1:
        raise InputError(
            f"'{request.out}' names one film, and there are {len(files)} clips: give a folder.", field="out"
        )
    return list(dict.fromkeys(files))


def _name_of(question: Question) -> str:
    """What tells the film of one question from that of another."""
    words = [question.entry.key, *(str(one) for one in question.classes)]
    words += [] if question.top is None else [f"top{question.top}"]
    return "-".join(re.sub(r"[^\w.]+", "-", word).strip("-") for word in words)


def make_demo(path: Path) -> Path:
    """A clip to look at without a download: a look that wanders from a cat to a cup."""
    both = two_objects(DEMO_SIDE)
    with filming(path) as film:
        for number in range(DEMO_FRAMES):
            # It rests at both ends, so that there is time to see what the network sees there.
            along = float(np.clip(1.5 * number / (DEMO_FRAMES - 1) - 0.25, 0, 1))
            left = round((3 * along**2 - 2 * along**3) * (both.width - DEMO_SIDE))
            film.add(both.crop((left, 0, left + DEMO_SIDE, DEMO_SIDE)), number / DEMO_RATE)
    return path
