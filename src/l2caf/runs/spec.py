"""`RunSpec`: what to do, as plain data that pickles and is JSON; it is built where it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..table import Entry, Table
from .rows import Identity, Row
from .work import Built, Work

if TYPE_CHECKING:
    from ..datasets.dataset import Sample
    from ..networks.model import Model

DISTANCES = ("cosine", "euclidean")
WORKS = Table(
    "work",
    Entry("localisation", "boxes of the maps", "l2caf.evaluation.localization:Localization"),
    Entry("retrieval", "embeddings, and boxes of their maps", "l2caf.evaluation.retrieval:Retrieval"),
    Entry("places", "where a network looks", "l2caf.evaluation.atlas:Places"),
    Entry("embedding", "vectors of pictures", "l2caf.retrieval.embed:Embedding"),
    Entry("explanation", "explained photographs, drawn and written", "l2caf.tasks.photographs:Photographs"),
)


@dataclass(frozen=True)
class ModelSpec:
    """A network by its name: what `l2caf.networks.catalogue.load` is given.

    embedding   taken for retrieval: of a classifier, what its last linear layer is given
    view        what of each photograph it is shown: crop, whole, squash
    distance    by which embeddings are compared, where somebody chose it: one of DISTANCES
    told        whether its output is an embedding, where somebody had to say so
    """

    name: str
    weights: str | None = None
    device: str = "cpu"
    embedding: bool = False
    view: str = "crop"
    told: bool | None = None
    distance: str | None = None

    def build(self) -> Model:
        """Load it onto its device."""
        from ..networks.catalogue import is_exported, load

        if is_exported(self.name):
            from ..exported.network import load as load_exported

            # It shares with a Model all that explaining photographs needs.
            return load_exported(self.name).viewed(self.view)  # type: ignore[return-value]
        model = load(self.name, weights=self.weights)
        model = model if self.told is None else model.told(embedding=self.told)
        model = model.as_embedding() if self.embedding else model
        model = model if self.distance is None else replace(model, normalized=self.distance == "cosine")
        return model.viewed(self.view).on(self.device)


@dataclass(frozen=True)
class RunSpec:
    """What to do, with which network, and how.

    work       a key of WORKS
    settings   of that work, by name; JSON values

    >>> spec = RunSpec("embedding", ModelSpec("tf_efficientnet_lite0"))
    >>> RunSpec.from_dict(spec.as_dict()) == spec
    True
    """

    work: str
    model: ModelSpec
    settings: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, work: Work, model: ModelSpec, *, loaded: Model | None = None) -> RunSpec:
        """From the work itself; a network that is loaded here already is not loaded again."""
        spec = cls(work.key, model, work.settings())
        if loaded is not None:
            spec.__dict__["_built"] = work.on(loaded)
        return spec

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> RunSpec:
        """Read what `as_dict` gave."""
        return cls(document["work"], ModelSpec(**document["model"]), dict(document["settings"]))

    def as_dict(self) -> Row:
        """As JSON."""
        return {"work": self.work, "model": asdict(self.model), "settings": dict(self.settings)}

    @cached_property
    def plan(self) -> Work:
        """The work without a network."""
        found: Work = WORKS[self.work].load()(**self.settings)
        return found

    def build(self) -> Built:
        """The function from a block to its rows; the network is loaded once in each process."""
        return self._built

    def identity(self, samples: Sequence[Sample]) -> Identity:
        """What a run over these samples is about."""
        return self.build().identity(samples)

    @cached_property
    def _built(self) -> Built:
        return self.plan.on(self.model.build())

    def __reduce__(self) -> tuple[type[RunSpec], tuple[str, ModelSpec, dict[str, Any]]]:
        """Leave the network behind: it is loaded anew where the specification arrives."""
        return RunSpec, (self.work, self.model, dict(self.settings))
