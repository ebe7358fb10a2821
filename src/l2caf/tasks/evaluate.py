"""A whole evaluation: measure every image, sum up, and leave rows, `results.json` and `report.html` in a folder."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import datasets
from ..datasets.dataset import Dataset
from ..datasets.splits import chooses, part_of, pictures_of, trained_by
from ..errors import InputError
from ..evaluation import localization, retrieval
from ..evaluation.localization import HeldOutRows, Localization, LocalizationResult
from ..evaluation.measurements import THRESHOLD, MapWork
from ..evaluation.published import localisation_table, retrieval_rows
from ..evaluation.retrieval import Retrieval, RetrievalResult
from ..evaluation.scores import MethodTable
from ..files import write_whole
from ..methods.table import METHODS
from ..preprocessing import check_view, viewed
from ..progress import Progress, silent
from ..reports.localization import write_report
from ..reports.neighbours import strips
from ..reports.retrieval import write_retrieval_report
from ..reports.tiles import Tile, sections, tiles
from ..runs.executor import SIZE, Executor, run
from ..runs.lock import alone_in
from ..runs.rows import ABOUT, ROWS, Row, methods_in
from ..runs.spec import RunSpec
from ..table import Entry, Table
from .network_choice import NetworkChoice

if TYPE_CHECKING:
    from ..networks.model import Model

CLASSES = ("labels", "predicted")  # what maps of a class can be about
CUTS = ("fixed", "held-out")  # what a map is cut at: 20 % of its maximum, and beside it what held-out pictures choose
RESULTS, REPORT = "results.json", "report.html"
HELD_OUT = Path("threshold", "held-out")  # below: two levels, so that no run takes its rows for those of a method
ADDED = "added-"  # begins the names of folders below, with the rows of methods that joined a run later
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
    classes         what maps of a class are about: the "labels" of the data, which then number the network's outputs,
                    or what is "predicted", each image's best class; None for labels where their names are the
                    network's, else there are no such maps
    split           which classes (of retrieval) or pictures; None for what suits the layout and the network
    limit           at most so many images, spread over all
    batch           images at once
    threshold       of CUTS; held-out pictures are never measured at the threshold that they chose
    out             gets the rows, the results and the report
    """

    dataset: str
    root: Path
    out: Path
    network: NetworkChoice = field(default_factory=NetworkChoice)
    protocol: str = "localisation"
    split: str | None = None
    methods: tuple[str, ...] = ()
    classes: str | None = None
    view: str = "crop"
    limit: int | None = None
    batch: int = SIZE
    threshold: str = "fixed"

    def __post_init__(self) -> None:
        check_view(self.view)
        PROTOCOLS[self.protocol], datasets.LAYOUTS[self.dataset]
        if self.classes not in (None, *CLASSES):
            raise InputError(f"There is no choice {self.classes!r}: take one of {', '.join(CLASSES)}.", field="classes")
        if self.threshold not in CUTS:
            raise InputError(
                f"There is no choice {self.threshold!r} of a threshold: take one of {', '.join(CUTS)}.",
                field="threshold",
            )


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
    """Measure, sum up and report. The same request again resumes a run that was stopped."""
    protocol = PROTOCOLS[request.protocol].load()
    with alone_in(request.out):  # before a network is loaded
        if (request.out / ABOUT).exists() and not (request.out / ROWS).exists():
            for name in (RESULTS, REPORT):  # what an earlier run found, whose rows were removed, is no result of this
                (request.out / name).unlink(missing_ok=True)
        evaluation: Evaluation = protocol(request, executor, progress)
    return evaluation


def evaluate_localisation(request: EvaluationRequest, executor: Executor | None, progress: Progress) -> Evaluation:
    """How well the maps find the objects."""
    METHODS.checked(request.methods or METHODS.default_in("evaluate"))
    dataset, part = pictures_of(request.dataset, request.root, part=request.split, network=request.network.network)
    dataset = dataset.limit(request.limit)
    model = request.network.load(progress)
    dataset = _numbered(dataset, model)
    about = _about(request, dataset, model)
    methods, left_out = _fitting(request, model, about)
    work = Localization(
        methods=methods,
        view=request.view,
        labels_are_classes=about == "labels",
        layer=request.network.layer,
        output=request.network.select,
    )
    if any(len(sample.boxes) for sample in dataset.samples):
        viewed(model.preprocess, request.view)  # refuses one that boxes cannot follow
    rows = _measured(work, request, model, dataset, executor, progress)
    held_out = None
    if request.threshold == "held-out":
        rows, dataset, held_out = _held_out(list(rows), work, request, model, dataset, executor, progress)
    result, tables = localization.summarise(
        rows,
        work,
        dataset=dataset.name,
        network=model.name,
        published=localisation_table(request.dataset),
        about=about,
        left_out=left_out,
        assumed=model.assumed,
        held_out=held_out,
    )
    _write(request.out / RESULTS, result.as_dict())
    title = f"{result.network} on {result.dataset}: where do its maps lie?"
    shown = {
        "network": result.network,
        "data": result.dataset if part == "all" else f"{result.dataset} ({part})",
        "view": result.view,
        "images": str(result.comparison.images),
    }
    progress("reporting", 0, None)
    telling = _telling(tables, dataset, work, model)
    return Evaluation(result, write_report(request.out / REPORT, result, telling, title=title, settings=shown))


def evaluate_retrieval(request: EvaluationRequest, executor: Executor | None, progress: Progress) -> Evaluation:
    """What an embedding retrieves, and where it looks."""
    if request.classes is not None:
        raise InputError("Retrieval asks about no class: leave it out.", field="classes")
    if request.threshold != "fixed":
        raise InputError(
            "Retrieval cuts all maps at 20 % of their maximum, as published: leave it out.", field="threshold"
        )
    methods = retrieval.ordered(request.methods or retrieval.DEFAULT_METHODS)
    dataset, part = part_of(request.dataset, request.root, part=request.split, network=request.network.network)
    dataset = dataset.limit(request.limit)
    model = request.network.load(progress)
    if "output" in model.assumed:
        raise InputError(
            f"Nothing says whether {model.name} gives an embedding or scores of classes, of which pooled features would"
            " be compared: say which.",
            field="embedding",
        )
    model = model.as_embedding()
    work = Retrieval(methods=methods, view=request.view, layer=request.network.layer, output=request.network.select)
    result, tables, near = retrieval.summarise(
        _measured(work, request, model, dataset, executor, progress),
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


def _held_out(
    rows: Sequence[Row],
    work: Localization,
    request: EvaluationRequest,
    model: Model,
    dataset: Dataset,
    executor: Executor | None,
    progress: Progress,
) -> tuple[Iterator[Row], Dataset, HeldOutRows]:
    """The rows and the pictures that are measured, and the rows of those that choose the thresholds.

    Where the latter are some of the former, their rows are in the run already: one that was finished with a fixed
    threshold has nothing to measure again.
    """
    chosen, rest, words = chooses(dataset, request.dataset, request.root, network=request.network.network)
    names = {sample.name for sample in chosen.samples}
    if any(sample.name in names for sample in dataset.samples):
        held = [row for row in rows if row["image"] in names]
        return (row for row in rows if row["image"] not in names), rest, HeldOutRows(held, words)
    others = _numbered(chosen.limit(request.limit), model)
    there = replace(request, out=request.out / HELD_OUT)
    held = list(_measured(work, there, model, others, executor, progress))
    return iter(rows), rest, HeldOutRows(held, words)


def _measured(
    work: Localization | Retrieval,
    request: EvaluationRequest,
    model: Model,
    dataset: Dataset,
    executor: Executor | None,
    progress: Progress,
) -> Iterator[Row]:
    """The rows of all methods: those that the folder holds, and what was missing, which alone is measured now."""
    network = request.network.spec(embedding=isinstance(work, Retrieval))

    def rows_in(folder: Path, methods: Sequence[str]) -> Iterator[Row]:
        spec = RunSpec.of(replace(work, methods=tuple(methods)), network, loaded=model)
        file = run(spec, dataset.samples, folder, size=request.batch, executor=executor, progress=progress)
        return file.rows()

    first = methods_in(request.out, work.key)
    if first is None:
        yield from rows_in(request.out, work.methods)
        return
    held = {request.out: first}
    held |= {
        folder: methods_in(folder, work.key) or ()
        for folder in sorted(request.out.glob(f"{ADDED}*"))
        if folder.is_dir()
    }
    missing = [name for name in work.methods if not any(name in methods for methods in held.values())]
    if missing:
        held[request.out / f"{ADDED}{'-'.join(missing)}"] = tuple(missing)
    given: set[str] = set()
    for number, (folder, methods) in enumerate(held.items()):
        wanted = [name for name in methods if name in work.methods and name not in given]
        if number and not wanted:
            continue
        given.update(wanted)
        for row in rows_in(folder, methods):
            # What is said of an image as such stands in the first folder.
            if row["method"] in wanted if "method" in row else not number:
                yield row


def _numbered(dataset: Dataset, model: Model) -> Dataset:
    """The dataset with labels that number the network's classes, where all of its samples' classes are among those."""
    there = {sample.label for sample in dataset.samples}
    theirs, ours = {label: name for label, name in dataset.class_names.items() if label in there}, model.class_names
    places = {name: place for place, name in enumerate(ours)}
    if not theirs or len(places) < len(ours) or not places.keys() >= set(theirs.values()):
        return dataset
    to = {label: places[name] for label, name in theirs.items()}
    samples = tuple(
        sample if sample.label is None else replace(sample, label=to[sample.label]) for sample in dataset.samples
    )
    return replace(dataset, samples=samples, class_names={to[label]: name for label, name in theirs.items()})


def _about(request: EvaluationRequest, dataset: Dataset, model: Model) -> str | None:
    """What maps of a class are about: as told, or the labels where their names are those of the network's classes."""
    if request.classes is not None:
        model.check_has_classes(field="classes")
        return request.classes
    theirs, ours = dataset.class_names, model.class_names
    agree = bool(theirs) and all(label < len(ours) and ours[label] == name for label, name in theirs.items())
    return "labels" if agree and not model.embedding else None


def _fitting(request: EvaluationRequest, model: Model, about: str | None) -> tuple[tuple[str, ...], str]:
    """The methods that can be asked, and the sentence on those that cannot; one that was named is refused."""
    asked = METHODS.checked(request.methods or METHODS.default_in("evaluate"))
    if model.embedding:
        fitting = tuple(key for key in asked if "embeddings" in METHODS[key].fits)
        why = f"{model.name} gives an embedding, whose numbers are no classes"
    else:
        fitting = tuple(key for key in asked if about is not None or METHODS[key].about != "class")
        why = (
            f"nothing says that the labels of {request.dataset} are classes of {model.name}: give the classes as labels"
            " if they number its outputs, or as predicted for maps of each image's best class"
        )
    rest = [key for key in asked if key not in fitting]
    if not rest:
        return fitting, ""
    titles = ", ".join(METHODS[key].short for key in rest)
    if request.methods:
        raise InputError(
            f"Maps of a class ({titles}) cannot be measured: {why}.", field="method" if model.embedding else "classes"
        )
    return fitting, f"maps of a class ({titles}) and top-1: {why}."


def _telling(tables: Mapping[str, MethodTable], dataset: Dataset, work: MapWork, model: Model) -> dict[str, list[Tile]]:
    chosen = sections(tables, work.thresholds.index(THRESHOLD))
    return {title: tiles(images, dataset, work, model, tables) for title, images in chosen.items()}


def _write(path: Path, results: Mapping[str, Any]) -> None:
    with write_whole(path) as temporary:
        temporary.write_text(json.dumps(results, indent=1) + "\n")
