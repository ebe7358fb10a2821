"""`Question`: what is asked of a network, in the words that people type, checked before anything is loaded.

torch is imported where a method is really made: the words alone are needed for a help text.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..methods.table import FILTERS, METHODS, SOLVERS, MethodEntry
from ..volumes import is_volume, read_volume

if TYPE_CHECKING:
    from ..methods.method import Method
    from ..networks.model import Model
    from ..objectives.objective import Objective
    from ..solvers.solver import Solver


@dataclass(frozen=True)
class Question:
    """What is asked of a network: a method, and the classes that it is asked about.

    `method`, `filter` and `solver` are keys of METHODS, FILTERS and SOLVERS. With neither `classes` nor `top`, L2-CAF
    is asked what keeps the output as it is (class-oblivious); L2-CAF `published` or with `about_a_class`, and methods
    that are about a class, are asked about each photograph's best class. Classes are numbers, or names that the
    network knows. The prediction as a whole (`l2caf-prediction`) names no class. Where no method is named, `settled`
    takes the prediction if the network's scores are known to be classes, and L2-CAF otherwise.

    Of an output that is image-like, `region` says which part is asked about, "x0,y0,x1,y1" in pixels of the output or
    the file of a mask (.npy, or a picture that is black outside); of a scan "i0,j0,k0,i1,j1,k1" in its voxels, or a
    mask on them (.nii.gz, .npy); and `channel` which channel is raised there; with the channel alone, where it is
    predicted.

    >>> Question().title, Question(top=2).title, Question("l2caf-prediction").title, Question("cam").title
    ('L2-CAF, class-oblivious', 'L2-CAF, class-specific', 'L2-CAF, prediction', 'CAM')
    """

    method: str | None = None
    classes: Sequence[int | str] = ()
    top: int | None = None
    published: bool = False
    about_a_class: bool = False
    filter: str = "l2"
    solver: str = "auto"
    seed: int = 0
    region: str | None = None
    channel: int | None = None

    def __post_init__(self) -> None:
        entry = self.entry
        self._check_region()
        FILTERS[self.filter], SOLVERS[self.solver]
        if self.classes and self.top is not None:
            raise InputError(
                "Classes are named, and the best ones are asked for too: give one or the other.", field="top"
            )
        if self.top is not None and self.top < 1:
            raise InputError(f"{self.top} asks for no class: give 1 or more.", field="top")
        if not entry.is_filter:
            chosen = {"filter": self.filter != "l2", "solver": self.solver != "auto", "published": self.published}
            for field in (name for name, given in chosen.items() if given):
                raise InputError(
                    f"Filters, solvers and the published form belong to l2caf, and the method is {self.method}:"
                    " leave them out, or take the method l2caf.",
                    field=field,
                )
        elif self.filter not in ("l2", entry.settings.get("filter", self.filter)):
            raise InputError(
                f"The method {self.method} has a filter of its own: leave this one out, or take the method l2caf.",
                field="filter",
            )
        if entry.about == "output" and not entry.is_filter and (self.classes or self.top is not None):
            raise InputError(
                f"{entry.title} is about the whole output: name no class, or take another method.",
                field="class" if self.classes else "top",
            )
        if entry.about == "prediction" and (self.classes or self.top is not None or self.published):
            raise InputError(
                f"{entry.title} is about all classes that compete: name none, or take the method l2caf-class.",
                field="class" if self.classes else "top" if self.top is not None else "published",
            )

    def _check_region(self) -> None:
        """Refuse a region beside a class, and one that cannot be read, before anything is loaded."""
        if not self.is_about_region:
            return
        field = "region" if self.region is not None else "channel"
        if self.classes or self.top is not None or self.published:
            raise InputError(
                "A region is asked about, and a class too: give one or the other; a channel raises a class there.",
                field=field,
            )
        if self.method not in (None, "l2caf"):
            raise InputError(
                f"A region is a question for l2caf, and the method is {self.method}: leave it out.", field=field
            )
        if self.region is not None:
            read_region(self.region)

    @property
    def is_about_region(self) -> bool:
        """Whether a part of an image-like output is asked about."""
        return self.region is not None or self.channel is not None

    @property
    def entry(self) -> MethodEntry:
        """The method's line of the table."""
        return METHODS[self.method or "l2caf"]

    def settled(self, model: Model) -> Question:
        """The same question with its method named.

        Of a network whose scores are known to be classes, what keeps the prediction is the better answer to "where did
        it look?" (docs/benchmarks.md); elsewhere it would be a guess. Whoever names a class, another filter or a form
        of the objective asks L2-CAF.
        """
        if self.method is not None:
            return self
        about_classes = bool(self.classes) or self.top is not None or self.published or self.about_a_class
        plain = not about_classes and self.filter == "l2" and not self.is_about_region
        knows_classes = bool(model.class_names) and not model.embedding
        return replace(self, method="l2caf-prediction" if plain and knows_classes else "l2caf")

    @property
    def is_class_oblivious(self) -> bool:
        """Whether an attention filter is asked what keeps the output as it is."""
        entry = self.entry
        about_classes = bool(self.classes) or self.top is not None or self.published or self.about_a_class
        return entry.is_filter and entry.about == "output" and not about_classes

    @property
    def is_about_prediction(self) -> bool:
        """Whether an attention filter is asked what keeps the prediction."""
        return self.entry.about == "prediction"

    @property
    def title(self) -> str:
        """What a picture calls this method, in a few words."""
        entry = self.entry
        if not entry.is_filter:
            return entry.title
        if self.is_about_region:
            return f"{FILTERS[self._filter].title}, region" + (
                f", channel {self.channel}" if self.channel is not None else ""
            )
        if self.is_about_prediction:
            return f"{FILTERS[self._filter].title}, prediction"
        kind = "class-oblivious" if self.is_class_oblivious else "class-specific"
        return f"{FILTERS[self._filter].title}, {kind}{', as published' if self._published else ''}"

    @property
    def words(self) -> tuple[str, ...]:
        """What sets this question apart from others, word by word, as names of files have it.

        >>> Question("l2caf", classes=("tiger cat", 967)).words, Question("l2caf", filter="l1", top=3).words
        (('l2caf', 'tiger cat', '967'), ('l2caf', 'l1', 'top3'))
        """
        entry = self.entry
        said = [entry.key]
        said += [self.filter] * (self.filter != "l2") + [self.solver] * (self.solver != "auto")
        said += [f"seed{self.seed}"] * bool(self.seed) + ["published"] * self.published
        if self.is_about_region:
            said += ["region", *([self.region] if self.region else [])]
            said += [] if self.channel is None else [f"channel{self.channel}"]
        if self.classes:
            said += map(str, self.classes)
        elif self.top is not None:
            said.append(f"top{self.top}")
        elif self.about_a_class and entry.about == "output":
            said.append("class")
        return tuple(said)

    def as_method(self, model: Model | None = None) -> Method:
        """Make the method; names of classes are looked up in `model`, and one that gives embeddings has none."""
        entry = self.entry
        if model is not None and model.embedding:
            self._check_no_class(model)
            if not entry.is_filter:
                return entry.make_for_embeddings()
        classes = self._numbers(model) or None
        if not entry.is_filter:
            return entry.make(classes=classes, top=self.top)
        from ..methods.attention_filter import AttentionFilter

        return AttentionFilter(self._objective(classes), FILTERS[self._filter].load()(), self._solver())

    def _check_no_class(self, model: Model) -> None:
        """Refuse what is asked about a class, by the setting that asks it."""
        if self.is_about_prediction:
            self.entry.make_for_embeddings()  # says why there is none
        asked = {"class": bool(self.classes), "top": self.top is not None, "published": self._published}
        asked |= {"method": "embeddings" not in self.entry.fits, "signed": self.about_a_class}
        for field in (name for name, given in asked.items() if given):
            model.check_has_classes(field=field)

    def _numbers(self, model: Model | None) -> list[int]:
        texts = [one for one in self.classes if isinstance(one, str)]
        if texts and model is None:
            raise InputError(f"The class {texts[0]!r} is a name: give the network that knows it.", field="class")
        return [model.class_index(one) if model and isinstance(one, str) else int(one) for one in self.classes]

    @property
    def _filter(self) -> str:
        return str(self.entry.settings.get("filter", self.filter))

    @property
    def _published(self) -> bool:
        return bool(self.entry.settings.get("published", self.published))

    def _objective(self, classes: list[int] | None) -> Objective:
        from ..objectives.classes import ClassSpecific
        from ..objectives.output import ClassOblivious
        from ..objectives.prediction import Prediction

        if self.is_about_region:
            from ..objectives.region import Region

            return Region(None if self.region is None else read_region(self.region), channel=self.channel)
        if self.is_class_oblivious:
            return ClassOblivious()
        if self.is_about_prediction:
            return Prediction()
        return ClassSpecific(classes=classes, top=self.top, published=self._published)

    def _solver(self) -> Solver:
        made = SOLVERS[self.solver].load()
        # Only a solver that starts at random has a seed.
        solver: Solver = made(seed=self.seed) if "seed" in inspect.signature(made).parameters else made()
        return solver


def read_region(text: str) -> Any:
    """A box from its numbers, or a mask from its file.

    >>> read_region("10,20,40,60")
    (10, 20, 40, 60)
    """
    import numpy

    box = read_box(text)
    if box is not None:
        return box
    path = Path(text)
    if not path.is_file():
        raise InputError(
            f"{text!r} is no region: give x0,y0,x1,y1 in pixels of the output, or the file of a mask.", field="region"
        )
    try:
        if is_volume(path):
            mask = read_volume(path).values
        elif path.suffix.lower() == ".npy":
            mask = numpy.load(path)
        else:
            from PIL import Image

            with Image.open(path) as picture:
                mask = numpy.asarray(picture.convert("L"))
    except (OSError, ValueError) as error:
        raise InputError(f"The mask '{path}' cannot be read: give a picture or a .npy file.", field="region") from error
    return mask > 0


def read_box(text: str) -> tuple[int, ...] | None:
    """The numbers of a box; None of what is the name of a file.

    >>> read_box("mask.png"), read_box("10,20,40,60")
    (None, (10, 20, 40, 60))
    """
    numbers = text.replace(" ", "").split(",")
    if len(numbers) in (2, 4, 6) and all(number.lstrip("-").isdigit() for number in numbers):
        return tuple(int(number) for number in numbers)
    return None
