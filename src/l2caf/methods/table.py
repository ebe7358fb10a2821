"""The methods, filters and solvers by the names that people type; light enough for a help text.

    METHODS["l2caf-class"].make(labels=labels)       # a method, asked about one class per sample
    METHODS.for_embeddings()["gradcam"].make_for_embeddings()

`explain`, `compare`, `evaluate`, `sanity`, `time` and the reports read these tables, so a new method is one file and
one line here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from ..errors import InputError
from ..table import Entry, Table

if TYPE_CHECKING:
    from torch import Tensor

    from .method import Method

Asked = Literal["classes", "embeddings"]
Command = Literal["compare", "evaluate"]


@dataclass(frozen=True)
class MethodEntry(Entry):
    """One method.

    short        the title where there is little room
    about        what its map is about: one class, the output as a whole, or the prediction that is made of it
    fits         what the network may give: scores of classes, embeddings
    settings     what `home` is called with, beside the classes
    default_in   the commands that ask it unless told otherwise
    """

    short: str
    about: Literal["class", "output", "prediction"]
    fits: frozenset[Asked]
    settings: dict[str, Any] = field(default_factory=dict)
    default_in: frozenset[Command] = frozenset({"compare", "evaluate"})

    @property
    def is_filter(self) -> bool:
        """Whether it is an attention filter: its constraint, its solver and the form of its objective can be chosen."""
        return self.home.startswith(f"{_FILTERS}:")

    def make(
        self,
        *,
        classes: int | Sequence[int] | None = None,
        top: int | None = None,
        labels: Sequence[int] | Tensor | None = None,
    ) -> Method:
        """Make the method for scores of classes; one that is about the whole output has no use for the classes."""
        if self.about == "class":
            return self._made(classes=classes, top=top, labels=labels)
        return self._made()

    def make_for_embeddings(self) -> Method:
        """Make the method for embeddings, which have no classes."""
        if "embeddings" not in self.fits:
            raise InputError(self.why_no_embeddings, field="method")
        return self._made() if self.about == "output" else self._made(embedding=True)

    @property
    def why_no_embeddings(self) -> str:
        """Say why this cannot be asked of an embedding."""
        if self.about == "prediction":
            return (
                f"{self.title} keeps what a network says of its classes, and an embedding has none: ask what keeps the"
                " embedding, ClassOblivious (the method l2caf)."
            )
        return f"{self.title} is about a class, and an embedding has none."

    def _made(self, **asked: Any) -> Method:
        method: Method = self.load()(**self.settings, **asked)
        return method


@dataclass(frozen=True)
class OwnMethod(MethodEntry):
    """A method of the user's; `made_by` is its class, a function that makes it, or the method itself."""

    made_by: Any = None

    def load(self) -> Any:
        from .method import Method

        return (lambda: self.made_by) if isinstance(self.made_by, Method) else self.made_by


class Methods(Table[MethodEntry]):
    """The table of methods; its order is that of every comparison."""

    def register(
        self,
        key: str,
        made_by: Any,
        *,
        title: str | None = None,
        about: Literal["class", "output", "prediction"] = "output",
        fits: Sequence[Asked] | None = None,
    ) -> MethodEntry:
        """Add a method of one's own, for this process: from then on `explain(method=key)`, comparing, evaluating,
        sanity and the reports know it by its key, as they know those of l2caf.

        Runs in other processes have to register it there too. `made_by` is a method, `Mine()`,
        where it is about the output as a whole; with `about="class"` it is its class, or a function, that takes
        `classes`, `top` and `labels` as `CAM` does. What is about the output `fits` embeddings too, unless told.

        >>> from l2caf import CAM
        >>> Methods("method").register("mine", CAM, about="class").make(top=2).top
        2
        """
        from .method import Method

        if about not in ("class", "output", "prediction"):
            raise InputError(f"A method is about {about!r}: say class, output or prediction.", field="about")
        if not callable(made_by) or (isinstance(made_by, Method) and about == "class"):
            raise InputError(
                f"A {type(made_by).__name__} makes no method: give a method, or for one about a class its class.",
                field="method",
            )
        if not isinstance(key, str) or not key:
            raise InputError(f"The key is {key!r}: give a short word for the method.", field="method")
        fitting = (_BOTH if about == "output" else _CLASSES) if fits is None else frozenset(fits)
        return self.add(OwnMethod(key, title or key, "", title or key, about, fitting, made_by=made_by))

    def for_embeddings(self) -> Methods:
        """Those that fit embeddings."""
        return Methods(self.kind, *(entry for entry in self.values() if "embeddings" in entry.fits))

    def default_in(self, command: Command) -> tuple[str, ...]:
        """The keys of those that a command asks unless told otherwise."""
        return tuple(entry.key for entry in self.values() if command in entry.default_in)

    def checked(self, keys: Sequence[str]) -> tuple[str, ...]:
        """Refuse a method that does not exist, and drop one that is named twice."""
        if not keys:
            raise InputError(f"No method is named: choose among {self.words()}.", field="method")
        for key in keys:
            if not isinstance(key, str):
                raise InputError(
                    f"Methods are asked for by their keys, and a {type(key).__name__} is none: give it one with"
                    " METHODS.register('mine', method).",
                    field="method",
                )
        return tuple(self[key].key for key in dict.fromkeys(keys))


_CLASSES: frozenset[Asked] = frozenset({"classes"})
_BOTH: frozenset[Asked] = frozenset({"classes", "embeddings"})
_COMPARED: frozenset[Command] = frozenset({"compare"})
_FILTERS = "l2caf.methods.attention_filter"

METHODS = Methods(
    "method",
    MethodEntry("l2caf", "L2-CAF, class-oblivious", f"{_FILTERS}:class_oblivious", "L2-CAF", "output", _BOTH),
    MethodEntry(
        "l2caf-prediction", "L2-CAF, prediction", f"{_FILTERS}:prediction", "L2-CAF, prediction", "prediction", _CLASSES
    ),
    MethodEntry(
        "l2caf-class", "L2-CAF, class-specific", f"{_FILTERS}:class_specific", "L2-CAF, class", "class", _CLASSES
    ),
    MethodEntry(
        "l2caf-published",
        "L2-CAF, class-specific as published",
        f"{_FILTERS}:class_specific",
        "L2-CAF, published",
        "class",
        _CLASSES,
        {"published": True},
        frozenset(),
    ),
    MethodEntry("cam", "CAM", "l2caf.methods.cam:CAM", "CAM", "class", _CLASSES),
    MethodEntry("gradcam", "Grad-CAM", "l2caf.methods.grad_cam:GradCAM", "Grad-CAM", "class", _BOTH),
    MethodEntry("gradcam-abs", "Grad-CAM-abs", "l2caf.methods.grad_cam:GradCAMAbs", "Grad-CAM-abs", "class", _BOTH),
    MethodEntry(
        "l1",
        "L1 filter, class-oblivious",
        f"{_FILTERS}:class_oblivious",
        "L1",
        "output",
        _BOTH,
        {"filter": "l1"},
        _COMPARED,
    ),
    MethodEntry(
        "softmax",
        "softmax filter, class-oblivious",
        f"{_FILTERS}:class_oblivious",
        "softmax",
        "output",
        _BOTH,
        {"filter": "softmax"},
        _COMPARED,
    ),
    MethodEntry(
        "gaussian",
        "Gaussian filter, class-oblivious",
        f"{_FILTERS}:class_oblivious",
        "Gaussian",
        "output",
        _BOTH,
        {"filter": "gaussian"},
        _COMPARED,
    ),
)

FILTERS = Table(
    "filter",
    Entry("l2", "L2-CAF", "l2caf.filters:UnitL2"),
    Entry("l1", "L1 filter", "l2caf.filters:UnitL1"),
    Entry("softmax", "softmax filter", "l2caf.filters:Softmax"),
    Entry("gaussian", "Gaussian filter", "l2caf.filters:Gaussian"),
)

SOLVERS = Table(
    "solver",
    Entry("auto", "the solver that fits", "l2caf.solvers.auto:Auto"),
    Entry("exact", "the closed form", "l2caf.solvers.exact:Exact"),
    Entry("riemannian", "descent on the sphere", "l2caf.solvers.riemannian:Riemannian"),
    Entry("linearised", "the closed form of the tangent", "l2caf.solvers.linearised:Linearised"),
    Entry("gradient-descent", "the paper's descent", "l2caf.solvers.gradient_descent:GradientDescent"),
)
