"""Explain photographs: one, or a folder of thousands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..datasets.dataset import Sample
from ..errors import InputError, MethodError
from ..files import remove_unfinished
from ..progress import Progress, silent
from ..rendering.style import Style
from ..runs.executor import Executor, rows_of
from ..runs.lock import alone_in
from ..runs.rows import Identity, Row
from ..runs.spec import RunSpec
from ..volumes.files import NIFTI, is_volume
from .explained import Written
from .ledger import Ledger
from .network_choice import NetworkChoice
from .outputs import (
    FIGURES,
    PICTURES,
    Failed,
    Skipped,
    is_file,
    names_for,
    ready_folder,
    some_gathered,
    stem_of,
    suffix_of,
    unheard,
)
from .photographs import Photographs
from .question import Question

if TYPE_CHECKING:
    from ..exported.network import ExportedNetwork
    from ..networks.model import Model

PAGE = "index.html"


@dataclass(frozen=True)
class ExplainRequest:
    """Which photographs, what is asked about them, and what is written.

    images  files and folders
    out     the folder for the pictures; of one photograph, the picture itself
    bare    the maps on the picture alone, no titles
    npy     the maps as numbers, too
    batch   photographs that run at once
    """

    images: Sequence[Path]
    out: Path
    network: NetworkChoice = field(default_factory=NetworkChoice)
    question: Question = field(default_factory=Question)
    style: Style = field(default_factory=Style)
    bare: bool = False
    npy: bool = False
    batch: int = 16

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise InputError(f"A batch of {self.batch} holds no photograph: give 1 or more.", field="batch")
        self.style.check()
        asked = self.question
        about_a_class = asked.classes or asked.top is not None or asked.published or asked.about_a_class
        if self.style.signed and asked.method is not None and asked.entry.about != "class" and not about_a_class:
            raise InputError(
                f"What speaks for and against is known of a class, and {asked.method} asks about none: name a class,"
                " or take the method l2caf-class.",
                field="signed",
            )

    @property
    def folder(self) -> Path:
        """Where the pictures go."""
        return self.out.parent if self.is_file else self.out

    @property
    def is_file(self) -> bool:
        """Whether `out` is one picture."""
        of_volumes = (".gif", *NIFTI) if any(is_volume(path) for path in self.images if path.is_file()) else ()
        return is_file(self.out, endings=(*PICTURES, *FIGURES, *of_volumes))

    @property
    def name(self) -> str:
        """What the one picture is called, without its ending."""
        return stem_of(self.out)

    @property
    def asked(self) -> Question:
        """The question as it is put: what speaks for and against is only known of a class."""
        return replace(self.question, about_a_class=self.question.about_a_class or self.style.signed)

    @property
    def words(self) -> tuple[str, ...]:
        """What the names of the pictures say: the question, and what of the network and the drawing is chosen."""
        return (*self.asked.words, *self.network.words, *(["signed"] if self.style.signed else []))

    def work(self) -> Photographs:
        """What is done to each photograph."""
        return Photographs(
            self.asked,
            self.style,
            str(self.folder),
            ending=self.out.suffix if self.is_file else PICTURES[0],
            layer=self.network.layer,
            select=self.network.select,
            bare=self.bare,
            npy=self.npy,
        )


@dataclass(frozen=True)
class ExplainResult:
    """What was written, and which photographs were left out."""

    network: str
    method: str
    written: tuple[Written, ...]
    failed: tuple[Failed, ...]
    assumed: Mapping[str, str]  # what was taken for granted about the network
    page: Path | None = None  # lists them, where there are several

    def nothing(self, *, where: str) -> str:
        """The sentence for a run in which no photograph went well; `where` tells where the reasons are."""
        if len(self.failed) == 1:
            return str(self.failed[0].error)
        return f"None of the {len(self.failed)} photographs could be explained: {where}."

    def as_dict(self) -> dict[str, Any]:
        return {
            **({} if self.written else {"error": self.nothing(where="see 'failed'")}),
            "network": self.network,
            "method": self.method,
            "assumed": dict(self.assumed),
            "images": [one.as_dict() for one in self.written],
            "failed": [one.as_dict() for one in self.failed],
            **({"page": str(self.page)} if self.page else {}),
        }


def _assumed(asked: Question, model: Model) -> Mapping[str, str]:
    """What was taken for granted about the network; of an image-like output, nothing about rows of scores."""
    return {about: words for about, words in model.assumed.items() if about != "output" or not asked.is_about_region}


def explain_photographs(
    request: ExplainRequest,
    *,
    model: Model | None = None,
    executor: Executor | None = None,
    progress: Progress = silent,
    skipped: Skipped = unheard,
) -> ExplainResult:
    """Explain every photograph and write its pictures; `model` is the request's network, where it is loaded already.

    Every picture is whole before `progress` is told of it. A run of several photographs that was cancelled or killed
    goes on where it was: no picture is drawn twice, and at the end a page lists them all. A method that fits no
    photograph of the first batch that could be read is refused at once.
    """
    files, refused = some_gathered(request.images, out=request.out, skipped=skipped)
    if request.is_file and len(files) > 1:
        raise InputError(
            f"'{request.out}' names one picture, and there are {len(files)} photographs: give a folder.", field="out"
        )
    ready_folder(request.folder)
    with alone_in(request.out) if len(files) > 1 else nullcontext():
        if model is None and request.network.is_exported:
            # It shares with a Model all that is needed here.
            model = request.network.load_exported(progress)  # type: ignore[assignment]
        model = model or request.network.load(progress)
        request = replace(request, question=_settled(request.asked, model))
        named = _named(files, request)
        run = _known_by(request, model) if len(files) > 1 else ""
        if run:  # alone here: what was being written when a run was killed is nobody's
            remove_unfinished(request.folder)
        written = _written_before(request.out, run, named) if run else {}
        spec = RunSpec.of(replace(request.work(), run=run), request.network.spec(), loaded=model)
        failed = _explain(request, spec, named, written, refused, executor, progress, skipped)
        result = ExplainResult(
            model.name,
            request.asked.title,
            tuple(written[name] for name in named if name in written),
            tuple(failed),
            _assumed(request.asked, model),
            request.out / PAGE if run and written else None,
        )
        if result.page:
            _list(result, result.page)
        if run:
            Ledger.of(request.out, run).close()
    return result


def _settled(asked: Question, model: Model | ExportedNetwork) -> Question:
    """The question with its method named; what the network cannot be asked is told before a photograph is read."""
    from ..exported.network import ExportedNetwork
    from .asked_of_file import settled

    if isinstance(model, ExportedNetwork):
        return settled(asked, model)
    asked = asked.settled(model)
    asked.as_method(model)
    return asked


def _named(files: Sequence[Path], request: ExplainRequest) -> dict[str, Path]:
    """The photographs by the names of their pictures, without an ending."""
    if request.is_file:
        return {request.out.stem: files[0]}
    return {name: file for file, name in names_for(files, suffix=suffix_of(request.words)).items()}


def _explain(
    request: ExplainRequest,
    spec: RunSpec,
    named: Mapping[str, Path],
    written: dict[str, Written],
    refused: Sequence[Failed],
    executor: Executor | None,
    progress: Progress,
    skipped: Skipped,
) -> list[Failed]:
    """Explain what is not written yet, and tell what failed."""
    failed = list(refused)
    done = len(written)
    if done:
        progress(spec.plan.stage, done, len(named))
    samples = [Sample(file, name=name) for name, file in named.items() if name not in written]
    for rows in rows_of(spec, samples, size=request.batch, executor=executor):
        went_well = [row for row in rows if "error" not in row]
        misfits = [row for row in rows if row.get("by_method")]
        if misfits and not written and not went_well:
            raise MethodError(misfits[0]["error"], field=misfits[0].get("setting"))
        for row in rows:
            if "error" in row:
                failed.append(Failed(named[row["image"]], InputError(row["error"], field=row.get("setting"))))
                if len(named) > 1:  # of a single one the result says all
                    skipped(failed[-1])
            else:
                written[row["image"]] = Written.from_dict(row)
            done += 1
            progress(spec.plan.stage, done, len(named))
    return failed


def _known_by(request: ExplainRequest, model: Model) -> str:
    """A hash of all that decides what a photograph's picture shows, but for the photograph."""
    parts = request.work().on(model).identity(()).parts
    return Identity({key: value for key, value in parts.items() if key not in ("out", "run")}).hash


def _written_before(out: Path, run: str, named: Mapping[str, Path]) -> dict[str, Written]:
    """What the same run wrote before it was stopped, by name."""
    found = {}
    for name, row in Ledger.of(out, run).drawn(named).items():
        with suppress(KeyError, TypeError, ValueError):  # no row of ours: it is explained again
            found[name] = Written.from_dict(_moved(row, named[name], out))
    return found


def _moved(row: Row, file: Path, out: Path) -> Row:
    """A row that was written down, with its paths as they are called now."""
    pictures = [str(out / Path(picture).name) for picture in row["pictures"]]
    return {**row, "file": str(file), "pictures": pictures, "npy": row["npy"] and str(out / Path(row["npy"]).name)}


def _list(result: ExplainResult, page: Path) -> None:
    from ..reports.photographs import Listed, write_list

    listed = [
        Listed(
            str(found.file),
            str(found.prediction or ""),
            [str(one.about) for one in found.maps if one.about],
            [outcome.replace("_", " ") for outcome in found.outcomes],
            one.pictures,
        )
        for one in result.written
        for found in (one.explained,)
    ]
    failed = {str(one.file): str(one.error) for one in result.failed}
    shown = {"network": result.network, "method": result.method, "photographs": str(len(listed))}
    write_list(page, listed, failed, title="Where the network looked", settings=shown)
