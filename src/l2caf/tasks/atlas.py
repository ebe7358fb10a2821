"""Where a network looks in a whole folder: the numbers, and a page that shows the unusual pictures first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import datasets
from ..datasets.dataset import Dataset, Sample
from ..errors import DatasetError, InputError, MethodError
from ..evaluation.atlas import CLUSTERS, MOST_CLUSTERS, Atlas, Places, atlas_of
from ..files import write_json
from ..images import image_files
from ..methods.table import METHODS
from ..progress import Progress, silent
from ..reports.atlas import write_atlas
from ..runs.executor import SIZE, Executor, run
from ..runs.lock import alone_in
from ..runs.spec import RunSpec
from .network_choice import NetworkChoice

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..networks.model import Model

RESULTS, PAGE = "atlas.json", "atlas.html"
FOLDER = "folder"


@dataclass(frozen=True)
class AtlasRequest:
    """Which pictures, and by which method.

    root      a folder of pictures, with or without sub-folders by class; or a data set of another `dataset` layout,
              whose boxes then tell how much of the attention is on the object
    method    a key of METHODS; None for the map of each picture's best class, or of an embedding what keeps it
    clusters  how many groups of pictures that are looked at in the same places
    limit     at most so many pictures, spread over all
    """

    root: Path
    out: Path
    network: NetworkChoice = field(default_factory=NetworkChoice)
    dataset: str = FOLDER
    method: str | None = None
    clusters: int = CLUSTERS
    limit: int | None = None
    batch: int = SIZE

    def __post_init__(self) -> None:
        datasets.LAYOUTS[self.dataset]
        if self.method is not None:
            METHODS.checked((self.method,))
        if not 1 <= self.clusters <= MOST_CLUSTERS:
            raise InputError(f"{self.clusters} groups were asked for: give 1 to {MOST_CLUSTERS}.", field="clusters")


@dataclass(frozen=True)
class AtlasResult:
    """What was found, and the page that shows it."""

    network: str
    method: str
    data: str
    found: Atlas
    page: Path
    assumed: Mapping[str, str]

    def as_dict(self) -> dict[str, Any]:
        return {
            "network": self.network,
            "assumed": dict(self.assumed),
            "method": self.method,
            "data": self.data,
            **self.found.as_dict(),
            "page": str(self.page),
        }


def make_atlas(
    request: AtlasRequest,
    *,
    model: Model | None = None,
    executor: Executor | None = None,
    progress: Progress = silent,
) -> AtlasResult:
    """Explain every picture, order them, and write the page. The same request again resumes a run that was stopped."""
    with alone_in(request.out):
        dataset = _read(request).limit(request.limit)
        model = model or request.network.load(progress)
        work = Places(_method(request, model), request.network.layer, request.network.select)
        spec = RunSpec.of(work, request.network.spec(), loaded=model)
        file = run(spec, dataset.samples, request.out, size=request.batch, executor=executor, progress=progress)
        names = _Names(dataset, model)
        found = atlas_of(file.rows(), name_of=names, clusters=request.clusters)
        if not found.pictures:
            reason = next(iter(found.bad.values()), "their maps show nothing")
            raise InputError(f"None of the {len(dataset)} pictures has a map: {reason}", field="root")
        result = AtlasResult(
            model.name, METHODS.title(work.method), dataset.name, found, request.out / PAGE, model.assumed
        )
        write_json(request.out / RESULTS, result.as_dict())
        progress("drawing", 0, None)
        settings = {
            "network": model.name,
            "data": dataset.name,
            "pictures": str(len(found.pictures)),
            "maps": result.method,
        }
        write_atlas(result.page, found, dataset, work, model, names=names, settings=settings)
        return result


@dataclass(frozen=True)
class _Names:
    """What the class is called in which a picture is compared with its like: its folder's, or what the network says."""

    dataset: Dataset
    model: Model

    def __call__(self, label: int | None, predicted: int | None) -> str:
        if label is not None:  # of data without names of classes, by its number
            return self.dataset.class_name(label)
        return "" if predicted is None else self.model.class_name(predicted)


def _read(request: AtlasRequest) -> Dataset:
    """The pictures: of a folder without sub-folders, the files that lie in it."""
    if request.dataset != FOLDER or _has_classes(request.root):
        found = datasets.read(request.dataset, request.root)
        return replace(found, samples=tuple(_outside(found.samples, request.out)))
    files = [file for file in image_files(request.root) if not file.resolve().is_relative_to(request.out.resolve())]
    samples = tuple(Sample(file, name=file.relative_to(request.root).as_posix()) for file in files)
    if not samples:
        raise DatasetError(f"'{request.root}' holds no picture: give a folder of them.")
    return Dataset(f"folder '{request.root.name}'", samples)


def _outside(samples: tuple[Sample, ...], out: Path) -> Iterator[Sample]:
    home = out.resolve()
    return (sample for sample in samples if not sample.path.resolve().is_relative_to(home))


def _has_classes(root: Path) -> bool:
    """Whether all pictures lie in sub-folders, which then are classes."""
    if not root.is_dir():
        return False
    return all(file.parent != root for file in image_files(root))


def _method(request: AtlasRequest, model: Model) -> str:
    if request.method is not None:
        if model.embedding and "embeddings" not in METHODS[request.method].fits:
            raise MethodError(METHODS[request.method].why_no_embeddings)
        return request.method
    return "l2caf" if model.embedding else "l2caf-class"
