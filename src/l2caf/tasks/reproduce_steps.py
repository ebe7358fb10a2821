"""The steps that tables of the paper are made of: a training, an evaluation, a measurement, each done once in a folder.

An evaluation keeps its rows and never measures a picture twice. A training that has ended, a timing, a sanity check
leave what they came to beside them, with what they were made of: what is there already is not made again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import CatalogueError, InputError
from ..evaluation.reproduction import Measure, Reproduced, Row, Unmet, ordered
from ..files import write_json
from ..networks.catalogue import DEFAULT
from ..progress import NONE, Progress, silent
from ..runs.contents import code_version, contents_of, entries_of
from .evaluate import Evaluation, EvaluationRequest, evaluate
from .network_choice import NetworkChoice
from .outputs import suffix_of
from .reproduce_tables import TABLES
from .train import TrainRequest, train_network

if TYPE_CHECKING:
    from ..training.recipe import Recipe

DONE = "done.json"
# Iterations of each training where there is no accelerator; with one, as published. Not minutes: on a whole dataset
# storing features would take most of them, and what is left would be a network that has learnt nothing.
CPU_BUDGET = "300"
CPU_VIEWS = 2  # stored views per picture there: each costs as much as all that is learned from it


@dataclass(frozen=True)
class ReproduceRequest:
    """Which tables of the paper are measured again, and on what.

    tables    keys of TABLES, or "all"
    data      a folder with data sets in their public layouts, up to two levels below it
    networks  in place of the paper's; backbones, where a table trains them
    weights   a local file for the one network that is named
    budget    the most that each training may take: minutes or hours (20m, 1.5h), or iterations (500); None for what
              suits the device
    limit     of the images that are measured in each evaluation
    rounds    of timing, of which the median counts
    """

    tables: tuple[str, ...]
    out: Path
    data: Path | None = None
    networks: tuple[str, ...] = ()
    weights: Path | None = None
    budget: str | None = None
    limit: int | None = None
    rounds: int = 5
    device: str = "auto"

    def __post_init__(self) -> None:
        if self.weights is not None and len(self.networks) != 1:
            raise InputError(
                f"A file of weights is for one network, and {len(self.networks)} are named: name the one.",
                field="weights",
            )
        if self.limit is not None and self.limit < 1:
            raise InputError(f"A limit of {self.limit} images leaves nothing: give 1 or more.", field="limit")
        if self.budget:
            from ..training.wsol.budget import Budget

            Budget.parse(self.budget)


@dataclass(frozen=True)
class TrainedNetwork:
    """What a training came to."""

    checkpoint: Path
    pictures: int
    iterations: int
    ended: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    cut: tuple[str, ...] = ()


@dataclass
class Steps:
    """Does the steps of one table, in a folder of its own, and remembers what was not as in the paper."""

    request: ReproduceRequest
    table: str
    found: Mapping[str, Path]
    progress: Progress = silent
    notes: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    pages: list[str] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        return self.request.out / self.table

    @cached_property
    def accelerated(self) -> bool:
        from ..networks.model import device_named

        return device_named(self.request.device) != "cpu"

    @property
    def budget(self) -> str:
        """The words for each training; empty for as published."""
        return self.request.budget or ("" if self.accelerated else CPU_BUDGET)

    @property
    def views(self) -> int | None:
        """Stored views of each picture; None for what a recipe takes of itself."""
        return None if self.accelerated else CPU_VIEWS

    def note(self, about: str, words: str, *, of: str = "") -> None:
        """Remember in a sentence that something was not as in the paper, and of which of our networks it was not."""
        named = self.notes.setdefault((about, words), [])
        if of and of not in named:
            named.append(of)

    @property
    def unmet(self) -> tuple[Unmet, ...]:
        """What was noted: what is alike about several networks is said once, and what is about one thing together."""
        abouts = [about for about, _ in self.notes]
        found = [
            Unmet(about, f"{'; '.join(of)}: {words}" if of else words) for (about, words), of in self.notes.items()
        ]
        return tuple(sorted(found, key=lambda one: abouts.index(one.about)))

    def told(self, words: str) -> Progress:
        """The progress of one step, which says what it is about."""

        def tell(stage: str, done: int, total: int | None, numbers: Mapping[str, float] = NONE) -> None:
            self.progress(f"{self.table}, {words}: {stage}", done, total, numbers)

        return tell

    def choice(self, network: str, **given: Any) -> NetworkChoice:
        """A network as a task takes it, with the weights that were given for it."""
        weights = self.request.weights if network in self.request.networks else None
        return NetworkChoice(network, weights, device=self.request.device, **given)

    def networks(self, paper: Mapping[str, str], try_one: Callable[[str], object]) -> list[str]:
        """Those that are named; else the paper's whose weights can be had, or else the embedded network.

        `paper` are names of the catalogue, with what the paper calls them; `try_one` raises CatalogueError.
        """
        if self.request.networks:
            if others := [title for name, title in paper.items() if name not in self.request.networks]:
                self.note("networks", f"{', '.join(others)}: not among the networks that were asked for.")
            return list(dict.fromkeys(self.request.networks))
        there = []
        for name, title in paper.items():
            try:
                try_one(name)
            except CatalogueError as error:
                self.note("weights", f"{title} was not measured: {str(error).partition(': ')[0]}.")
            else:
                there.append(name)
        if not there:
            self.note("networks", f"{DEFAULT}, whose weights are installed, is measured in their place.")
        return there or [DEFAULT]

    def evaluate(self, name: str, request: EvaluationRequest) -> Evaluation:
        """Measure, or sum up what was measured already, in the folder of this name."""
        limited = "" if self.request.limit is None else f"-{self.request.limit}"
        out = self.folder / f"{name}{limited}"
        evaluation = evaluate(replace(request, out=out, limit=self.request.limit), progress=self.told(name))
        self.pages.append(evaluation.report.relative_to(self.request.out).as_posix())
        return evaluation

    def train(self, name: str, recipe: Recipe, kind: str, *, minutes: float | None = None) -> TrainedNetwork:
        """Train a network on a dataset, unless this folder holds the one that came of it."""
        out = self.folder / name
        request = TrainRequest(recipe, kind, self.found[kind], out, self.request.device, minutes=minutes)
        samples = request.read().samples
        known = {"recipe": repr(recipe), "minutes": minutes, "files": entries_of(samples), "code": code_version()}

        def train() -> dict[str, Any]:
            result = train_network(request, progress=self.told(name)).result
            return {
                "checkpoint": result.checkpoint.name,
                "pictures": len(samples),
                "iterations": result.iterations,
                "ended": str(result.ended),
                "settings": dict(result.settings),
                "cut": list(result.notes.get("cut", ())),
            }

        made = self.once(out, known, train, file="checkpoint")
        return TrainedNetwork(**{**made, "checkpoint": out / made["checkpoint"], "cut": tuple(made["cut"])})

    def done(
        self, measures: Sequence[Measure], rows: Sequence[Row], margins: Sequence[Row] = (), note: str = ""
    ) -> Reproduced:
        """The table that came of the steps."""
        entry = TABLES[self.table]
        unmet, pages = tuple(self.unmet), tuple(self.pages)
        return Reproduced(entry.key, entry.title, note, tuple(measures), ordered(rows), ordered(margins), unmet, pages)

    def once(
        self, folder: Path, known: Mapping[str, Any], make: Callable[[], dict[str, Any]], *, file: str | None = None
    ) -> dict[str, Any]:
        """What `make` gives as JSON, made once for what is `known`; under the key `file` it names one that it left."""
        from ..networks.identity import hash_of

        done, asked = folder / DONE, hash_of([json.dumps(known, default=str)])
        try:
            stored = json.loads(done.read_text("utf-8"))
            made: dict[str, Any] = stored["made"]
            if stored["asked"] == asked and stored["file"] == _state(folder, made, file):
                return made
        except (OSError, ValueError, KeyError, TypeError):
            pass  # not done, or by halves
        made = make()
        write_json(done, {"asked": asked, "file": _state(folder, made, file), "made": made})
        return made


def names_of(*words: str) -> str:
    """The name of a folder for what is described by these words."""
    return suffix_of(word for word in words if word)


def source_of(network: str) -> str | None:
    """A hash of the file that a network is named by, where it is: its name stays when it changes."""
    for part in (network, network.rpartition(":")[0]):
        if part and Path(part).is_file():
            return contents_of(Path(part))
    return None


def _state(folder: Path, made: Mapping[str, Any], file: str | None) -> str | None:
    return None if file is None else contents_of(folder / made[file])
