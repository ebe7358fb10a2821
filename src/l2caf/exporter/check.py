"""Whether an exported graph says what the library says: both on the same photographs, before a file is left behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..errors import NetworkError
from ..exported.answer import Answer
from ..exported.network import ExportedNetwork
from ..heads.head import Head
from ..methods.attention_filter import AttentionFilter
from ..objectives.classes import ClassSpecific
from ..objectives.objective import Objective
from ..objectives.output import ClassOblivious
from ..objectives.prediction import Prediction
from ..solution import Outcome

MOST_OFF = 1e-4  # of a map's largest weight, in float32
OUTPUT_OFF = 1e-3  # of the largest score: what a long network loses to another order of sums
TINY = 1e-30  # so that nothing is divided by zero
LEAST_ALIKE = 0.9  # the mean rank correlation of maps in int8 with those of the library
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class MapCheck:
    """How near the maps of one kind are to the library's.

    maps            that were compared: those that both found
    error           the largest difference of a weight, where the largest weight of each map is 1
    correlation     the mean rank correlation of the magnitudes, and the least one
    not_converged   maps whose residual says that the multiplications were too few
    """

    maps: int
    error: float
    correlation: float
    least_correlation: float
    not_converged: int


@dataclass(frozen=True)
class Check:
    """How near an exported network is to the network that it was made from.

    photographs   that both were shown
    output        the largest difference of the output, as a share of its largest number
    same_best     the share of photographs with the same best class; None of an embedding
    maps          the figures of each kind of map
    """

    photographs: int
    output: float
    same_best: float | None
    maps: Mapping[str, MapCheck]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def refuse(self, *, exact: bool) -> None:
        """Raise what speaks against the file, if anything does."""
        if exact and not self.output <= OUTPUT_OFF:
            raise NetworkError(
                f"The exported graph gives another output than the network (off by {self.output:.2g} of its largest"
                " number), so that no file was written: let its forward do the same whatever the numbers are."
            )
        for kind, found in self.maps.items():
            if not found.maps and found.not_converged:
                raise NetworkError(
                    f"The fixed number of multiplications finds no filter of the {kind} on any of {self.photographs}"
                    " photographs, so that no file was written: take more of them, or leave this map out.",
                    field="products",
                )
            if not found.maps:
                raise NetworkError(
                    f"None of {self.photographs} photographs gives a map of the {kind} to compare with the library's,"
                    " so that no file was written: give photographs of what the network knows.",
                    field="photos",
                )
            if exact and not found.error <= MOST_OFF:
                raise NetworkError(
                    f"The maps of the {kind} differ from the library's by {found.error:.2g} of their largest weight, so"
                    " that no file was written: take more multiplications.",
                    field="products",
                )
            if not exact and not found.correlation >= LEAST_ALIKE:
                raise NetworkError(
                    f"In int8 the maps of the {kind} have a rank correlation of {found.correlation:.2f} with the"
                    " library's, so that no file was written: calibrate with more photographs, or keep float32.",
                    field="precision",
                )


class Comparison:
    """Gathers figures batch by batch."""

    def __init__(self, exported: ExportedNetwork) -> None:
        self.exported = exported
        self.photographs, self.same = 0, 0
        self.output: list[float] = []
        self.errors: dict[str, list[float]] = {kind: [] for kind in exported.card.maps}
        self.correlations: dict[str, list[float]] = {kind: [] for kind in exported.card.maps}
        self.not_converged = dict.fromkeys(exported.card.maps, 0)

    def add(self, inputs: Floats, head: Head) -> None:
        """Show both the same batch, of which the library has the head."""
        card = self.exported.card
        answers = {
            kind: self.exported.run(inputs, about=kind, top=card.top if kind == "class" else None)  # type: ignore[arg-type]
            for kind in card.maps
        }
        for kind, answer in answers.items():
            self._compare(kind, answer, head)
        ours = next(iter(answers.values())).output
        theirs = head.output.detach().reshape(len(inputs), -1).cpu().numpy()
        self.photographs += len(inputs)
        self.output.append(float(np.abs(ours - theirs).max()) / max(float(np.abs(theirs).max()), TINY))
        self.same += int((ours.argmax(axis=1) == theirs.argmax(axis=1)).sum())

    def _compare(self, kind: str, answer: Answer, head: Head) -> None:
        objectives: Sequence[Objective]
        if answer.classes is not None:
            objectives = [ClassSpecific(labels=column.tolist()) for column in answer.classes.T]
        else:
            about = {"output": ClassOblivious(), "prediction": Prediction(self.exported.card.temperature)}
            objectives = [about[kind]]
        for place, objective in enumerate(objectives):
            heatmap = AttentionFilter(objective).on(head)
            theirs = _flat(heatmap.weights)
            for sample, outcome in enumerate(heatmap.solution.outcome):
                ours = answer.weights[sample, place].reshape(-1)
                own = answer.outcomes[sample][place]
                if own is Outcome.STEP_LIMIT:
                    self.not_converged[kind] += 1
                elif outcome is Outcome.EXACT:
                    self._note(
                        kind, ours / max(np.abs(ours).max(), TINY), theirs[sample] / np.abs(theirs[sample]).max()
                    )

    def _note(self, kind: str, ours: Floats, theirs: Floats) -> None:
        self.errors[kind].append(float(np.abs(ours - theirs).max()))
        self.correlations[kind].append(rank_correlation(np.abs(ours), np.abs(theirs)))

    def result(self) -> Check:
        """The figures over all batches."""
        return Check(
            self.photographs,
            float(np.max(self.output)),  # NaN is not lost in it
            None if self.exported.embedding else self.same / max(self.photographs, 1),
            {
                kind: MapCheck(
                    len(errors),
                    float(np.max(errors)) if errors else 0.0,
                    float(np.mean(self.correlations[kind])) if errors else 0.0,
                    min(self.correlations[kind], default=0.0),
                    self.not_converged[kind],
                )
                for kind, errors in self.errors.items()
            },
        )


def rank_correlation(ours: Floats, theirs: Floats) -> float:
    """Spearman's, of numbers among which none are equal.

    >>> rank_correlation(np.float32([1, 2, 9]), np.float32([0, 5, 6]))
    1.0
    """
    ranks = [values.argsort().argsort() for values in (ours, theirs)]
    return round(float(np.corrcoef(ranks[0], ranks[1])[0, 1]), 9)


def _flat(weights: Tensor) -> Floats:
    flat: Floats = weights.detach().to(torch.float32).flatten(1).cpu().numpy()
    return flat
