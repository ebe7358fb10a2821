"""A whole evaluation: measure every image, sum up, and leave rows, `results.json` and `report.html` in a folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import datasets
from ..datasets.dataset import Dataset
from ..datasets.splits import part_of, trained_by
from ..errors import InputError
from ..evaluation import localization, retrieval
from ..evaluation.localization import Localization, LocalizationResult
from ..evaluation.measurements import THRESHOLD, MapWork
from ..evaluation.published import localisation_table, retrieval_rows
from ..evaluation.retrieval import Retrieval, RetrievalResult
from ..evaluation.scores import MethodTable
from ..files import write_whole
from ..methods.table import METHODS
from ..preprocessing import check_view
from ..progress import Progress, silent
from ..reports.localization import write_report
from ..reports.neighbours import strips
from ..reports.retrieval import write_retrieval_report
from ..reports.tiles import Tile, sections, tiles
from ..runs.executor import SIZE, Executor, run
from ..runs.lock import alone_in
from ..runs.rows import ABOUT, ROWS
from ..runs.spec import RunSpec
from ..table import Entry, Table
from .network_choice import NetworkChoice

if TYPE_CHECKING:
    from ..networks.model import Model

RESULTS, REPORT = "results.json", "report.html"
PROTOCOLS = Table(
    "protocol",
    Entry("localisation", "boxes of the maps", "l2caf.tasks.evaluate:evaluate_localisation"),
    Entry("retrieval", "R@K, NMI and LOC of an embedding", "l2caf.tasks.evaluate:evaluate_retrieval"),
)


@dataclass(frozen=True)
class EvaluationRequest:
    """What is to be measured.

    dataset, root   a layout by name, and where it lies
    methods         none: those that the protocol asks unless told otherwise
    part            of retrieval: which classes or pictures; None for what suits the layout
    limit           at most so many images, spread over all
    batch           images at once
    out             gets the rows, the results and the report
    """

    dataset: str
    root: Path
    out: Path
    network: NetworkChoice = field(default_factory=NetworkChoice)
    protocol: str = "localisation"
    part: str | None = None
    methods: tuple[str, ...] = ()
    view: str = "crop"
    limit: int | None = None
    batch: int = SIZE

    def __post_init__(self) -> None:
        check_view(self.view)
        PROTOCOLS[self.protocol], datasets.LAYOUTS[self.dataset]


@dataclass(frozen=True)
class Evaluation:
    """The results, and the page that shows them."""

    result: LocalizationResult | RetrievalResult
    report: Path

    def as_dict(self) -> dict[str, Any]:
        return self.result.as_dict()


def evaluate(
    request: EvaluationRequest, *, executor: Executor | None = None, progress: Progress = silent
) -> Evaluation:
    """Measure, sum up and report. The same request goes on where a run was cut off or cancelled."""
    protocol = PROTOCOLS[request.protocol].load()
    with alone_in(request.out):  # before a network is loaded
        if (request.out / ABOUT).exists() and not (request.out / ROWS).exists():
            for name in (RESULTS, REPORT):  # what an earlier run found, whose rows were removed, is no result of this
                (request.out / name).unlink(missing_ok=True)
        evaluation: Evaluation = protocol(request, executor, progress)
    return evaluation


def evaluate_localisation(request: EvaluationRequest, executor: Executor | None, progress: Progress) -> Evaluation:
    """How well the maps find the objects."""
    if request.part is not None:
        raise InputError("It belongs to retrieval: leave it out, or take the protocol retrieval.", field="part")
    methods = METHODS.checked(request.methods or METHODS.default_in("evaluate"))
    dataset = datasets.read(request.dataset, request.root).limit(request.limit)
    model = request.network.load(progress)
    work = Localization(
        methods=methods,
        view=request.view,
        labels_are_classes=_labels_are_classes(request.dataset, dataset.class_names, model.class_names),
        layer=request.network.layer,
    )
    spec = RunSpec.of(work, request.network.spec(), loaded=model)
    file = run(spec, dataset.samples, request.out, size=request.batch, executor=executor, progress=progress)
    result, tables = localization.summarise(
        file.rows(),
        work,
        dataset=dataset.name,
        network=model.name,
        published=localisation_table(request.dataset),
    )
    _write(request.out / RESULTS, result.as_dict())
    title = f"{result.network} on {result.dataset}: where do its maps lie?"
    shown = {
        "network": result.network,
        "data": result.dataset,
        "view": result.view,
        "images": str(result.comparison.images),
    }
    progress("reporting", 0, None)
    telling = _telling(tables, dataset, work, model)
    return Evaluation(result, write_report(request.out / REPORT, result, telling, title=title, settings=shown))


def evaluate_retrieval(request: EvaluationRequest, executor: Executor | None, progress: Progress) -> Evaluation:
    """What an embedding retrieves, and where it looks."""
    methods = retrieval.ordered(request.methods or retrieval.DEFAULT_METHODS)
    dataset, part = part_of(request.dataset, request.root, part=request.part, network=request.network.network)
    dataset = dataset.limit(request.limit)
    model = request.network.load(progress).as_embedding()
    work = Retrieval(methods=methods, view=request.view, layer=request.network.layer)
    spec = RunSpec.of(work, request.network.spec(embedding=True), loaded=model)
    file = run(spec, dataset.samples, request.out, size=request.batch, executor=executor, progress=progress)
    result, tables, near = retrieval.summarise(
        file.rows(),
        work,
        model,
        dataset=dataset.name,
        part=part,
        published=retrieval_rows(request.dataset, trained_by(request.network.network)) if part == "unseen" else (),
    )
    _write(request.out / RESULTS, result.as_dict())
    title = f"{result.network} on {result.dataset}: what does it retrieve, and where does it look?"
    shown = {
        "network": result.network,
        "data": f"{result.dataset} ({part})",
        "view": result.view,
        "compared": "by cosine" if result.normalized else "by distance",
    }
    progress("reporting", 0, None)
    telling = _telling(tables, dataset, work, model) if tables else {}
    nearest = strips(near, dataset, work, model)
    page = write_retrieval_report(request.out / REPORT, result, telling, nearest, title=title, settings=shown)
    return Evaluation(result, page)


def _labels_are_classes(dataset: str, theirs: Mapping[int, str], ours: tuple[str, ...]) -> bool:
    """Whether the labels number the network's outputs: by definition, or because the names agree."""
    if not datasets.LAYOUTS[dataset].own_classes:
        return True
    return bool(ours) and all(label < len(ours) and ours[label] == name for label, name in theirs.items())


def _telling(tables: Mapping[str, MethodTable], dataset: Dataset, work: MapWork, model: Model) -> dict[str, list[Tile]]:
    chosen = sections(tables, work.thresholds.index(THRESHOLD))
    return {title: tiles(images, dataset, work, model, tables) for title, images in chosen.items()}


def _write(path: Path, results: Mapping[str, Any]) -> None:
    with write_whole(path) as temporary:
        temporary.write_text(json.dumps(results, indent=1) + "\n")
