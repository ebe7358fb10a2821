"""Explain photographs: one, or a folder of thousands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..progress import Progress, silent
from ..rendering.style import Style
from .explained import Writer, Written
from .network import NetworkChoice
from .outputs import Failed, Skipped, ready_folder, some_gathered, unheard
from .photographs import explain_files
from .question import Question

if TYPE_CHECKING:
    from ..networks.model import Model


@dataclass(frozen=True)
class ExplainRequest:
    """Which photographs, what is asked about them, and what is written.

    images  files and folders
    out     the folder for the pictures
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

    @property
    def asked(self) -> Question:
        """The question as it is put: what speaks for and against is only known of a class."""
        return replace(self.question, about_a_class=self.question.about_a_class or self.style.signed)


@dataclass(frozen=True)
class ExplainResult:
    """What was written, and which photographs were left out."""

    network: str
    method: str
    written: tuple[Written, ...]
    failed: tuple[Failed, ...]

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
            "images": [one.as_dict() for one in self.written],
            "failed": [one.as_dict() for one in self.failed],
        }


def explain_photographs(
    request: ExplainRequest,
    *,
    model: Model | None = None,
    progress: Progress = silent,
    skipped: Skipped = unheard,
) -> ExplainResult:
    """Explain every photograph and write its pictures; `model` is the request's network, where it is loaded already.

    Every picture is whole before `progress` is told of it, so that a cancelled run leaves whole pictures.
    """
    files, refused = some_gathered(request.images, out=request.out, skipped=skipped)
    ready_folder(request.out)
    model = model or request.network.load(progress)
    question = request.asked
    writer = Writer(request.out, files, question, request.style, bare=request.bare, npy=request.npy)
    answers = explain_files(
        model,
        files,
        question.as_method(model),
        layer=request.network.layer,
        select=request.network.select,
        batch=request.batch,
        signed=request.style.signed,
    )
    written: list[Written] = []
    failed = list(refused)
    for done, found in enumerate(answers, start=1):
        if not isinstance(found, Failed):
            written.append(writer.write(found, network=model.name))
        else:
            failed.append(found)
            if len(files) > 1:  # of a single one the result says all
                skipped(found)
        progress("explaining", done, len(files))
    return ExplainResult(model.name, question.title, tuple(written), tuple(failed))
