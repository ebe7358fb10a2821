"""The paper's own figures, to stand beside ours."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cache
from importlib import resources
from typing import Any

_LOCALISATION = {"imagenet": "table1_imagenet_standard"}
_LOSSES = {"triplet": "triplet", "npair": "n-pair"}
_TIMED = {"vanilla": "vanilla_l2caf", "fast": "fast_l2caf", "gradcam": "grad_cam"}


@cache
def published() -> dict[str, Any]:
    """All tables of the paper and its timing figure, as they were printed.

    >>> published()["figure_time_seconds_per_frame"]["grad_cam"]["GoogLeNet"]
    0.04375116825
    """
    document: dict[str, Any] = json.loads(resources.files(__package__).joinpath("published.json").read_text("utf-8"))
    return document


@dataclass(frozen=True)
class PaperLocalisation:
    """A row of the paper's table of localisation, in per cent."""

    method: str
    backbone: str
    cls_top1: float
    cls_top5: float
    loc_top1: float
    loc_top5: float


@dataclass(frozen=True)
class PaperRetrieval:
    """A row of the paper's table of retrieval: R@1, NMI and LOC in per cent, margin to Grad-CAM in points."""

    method: str
    backbone: str
    loss: str
    r1: float
    nmi: float
    loc: float
    margin: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def localisation_table(dataset: str) -> str | None:
    """The name of the paper's table for a dataset, where there is one."""
    return _LOCALISATION.get(dataset)


def localisation_rows(table: str | None) -> tuple[PaperLocalisation, ...]:
    """The rows of that table.

    >>> localisation_rows(localisation_table("imagenet"))[0].loc_top1
    44.43
    """
    return tuple(PaperLocalisation(**row) for row in published()[table]["rows"]) if table else ()


def retrieval_rows(dataset: str, loss: str | None = None) -> tuple[PaperRetrieval, ...]:
    """The paper's rows for a dataset, where it has some; of one loss, if it is one of the paper's.

    >>> retrieval_rows("cub", "triplet")[2].loc
    29.63
    """
    return tuple(
        PaperRetrieval(
            method=row["method"],
            backbone=row["backbone"],
            loss=row["loss"],
            r1=row[f"{dataset}_r1"],
            nmi=round(100 * row[f"{dataset}_nmi"], 1),
            loc=row[f"{dataset}_loc"],
            margin=row[f"{dataset}_margin"],
        )
        for row in published()["table3_retrieval"]["rows"]
        if f"{dataset}_r1" in row and (loss not in _LOSSES or row["loss"] == _LOSSES[loss])
    )


@dataclass(frozen=True)
class PaperFineTuned:
    """A row of the paper's table of fine-tuned networks, in per cent; `quoted` from somebody else's paper."""

    method: str
    backbone: str
    tuning: str
    cub_cls: float
    cub_loc: float
    imagenet_cls: float
    imagenet_loc: float
    quoted: bool = False


def fine_tuned_rows() -> tuple[PaperFineTuned, ...]:
    """The rows of that table.

    >>> [row.tuning for row in fine_tuned_rows() if row.backbone == "VGG-GAP" and row.method == "CAM"]
    ['GAP', 'ADL']
    """
    return tuple(PaperFineTuned(**row) for row in published()["table2_finetuned"]["rows"])


def paper_times() -> dict[str, dict[str, float]]:
    """Seconds a frame in the paper's figure, by network, and by the form of the method.

    >>> sorted(paper_times()["VGG"].items())
    [('fast', 1.329674244), ('gradcam', 0.03294756413), ('vanilla', 2.525328803)]
    """
    figures = published()["figure_time_seconds_per_frame"]
    networks = figures["grad_cam"]
    return {name: {ours: figures[theirs][name] for ours, theirs in _TIMED.items()} for name in networks}
