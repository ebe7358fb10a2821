"""From the words that a person uses on the command line or the page to a method.

Nothing heavy is imported before a method is really made: the words alone are needed for a help text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from ..errors import InputError

if TYPE_CHECKING:
    from ..filters import Filter
    from ..methods.method import Method
    from ..objectives.objective import Objective
    from ..solvers.solver import Solver


class MethodName(StrEnum):
    """How to look."""

    L2CAF = "l2caf"
    CAM = "cam"
    GRADCAM = "gradcam"
    GRADCAM_ABS = "gradcam-abs"


class FilterName(StrEnum):
    """What the attention filter is held to."""

    L2 = "l2"
    L1 = "l1"
    SOFTMAX = "softmax"
    GAUSSIAN = "gaussian"


class SolverName(StrEnum):
    """How the filter is found."""

    AUTO = "auto"
    EXACT = "exact"
    RIEMANNIAN = "riemannian"
    GRADIENT_DESCENT = "gradient-descent"


@dataclass(frozen=True)
class Question:
    """What is asked of a network: a method, and the classes that it is asked about.

    With neither `classes` nor `top`, L2-CAF is asked what keeps the output as it is (class-oblivious); the
    other methods, and L2-CAF `published` or with `about_a_class`, about each photograph's best class.
    """

    method: MethodName = MethodName.L2CAF
    classes: Sequence[int] = ()
    top: int | None = None
    published: bool = False
    about_a_class: bool = False
    filter: FilterName = FilterName.L2
    solver: SolverName = SolverName.AUTO
    seed: int = 0

    def __post_init__(self) -> None:
        if self.classes and self.top is not None:
            raise InputError("Give --class or --top, not both: they both say which classes to show.")
        if self.top is not None and self.top < 1:
            raise InputError(f"--top {self.top} asks for no class: give 1 or more.")
        if self.method != MethodName.L2CAF and (
            self.published or self.filter != FilterName.L2 or self.solver != SolverName.AUTO
        ):
            raise InputError(
                f"--filter, --solver and --published belong to l2caf, and the method is {self.method}:"
                " leave them out, or take --method l2caf."
            )

    @property
    def is_class_oblivious(self) -> bool:
        named = bool(self.classes) or self.top is not None
        return self.method == MethodName.L2CAF and not (named or self.published or self.about_a_class)

    @property
    def title(self) -> str:
        """What a picture calls this method, in a few words."""
        if self.method != MethodName.L2CAF:
            return {"cam": "CAM", "gradcam": "Grad-CAM", "gradcam-abs": "Grad-CAM-abs"}[self.method]
        name = {"l2": "L2-CAF", "l1": "L1 filter", "softmax": "softmax filter", "gaussian": "Gaussian filter"}
        kind = "class-oblivious" if self.is_class_oblivious else "class-specific"
        return f"{name[self.filter]}, {kind}{', as published' if self.published else ''}"

    def as_method(self) -> Method:
        """Make the method."""
        from ..methods.attention_filter import AttentionFilter
        from ..methods.cam import CAM
        from ..methods.grad_cam import GradCAM, GradCAMAbs

        several = list(self.classes) or None
        if self.method == MethodName.CAM:
            return CAM(several, self.top)
        if self.method == MethodName.GRADCAM:
            return GradCAM(several, self.top)
        if self.method == MethodName.GRADCAM_ABS:
            return GradCAMAbs(several, self.top)
        return AttentionFilter(self._objective(), self._filter(), self._solver())

    def _objective(self) -> Objective:
        from ..objectives.classes import ClassSpecific
        from ..objectives.output import ClassOblivious

        if self.is_class_oblivious:
            return ClassOblivious()
        return ClassSpecific(list(self.classes) or None, self.top, published=self.published)

    def _filter(self) -> Filter:
        from .. import filters

        if self.filter == FilterName.L1:
            return filters.UnitL1()
        if self.filter == FilterName.SOFTMAX:
            return filters.Softmax()
        return filters.Gaussian() if self.filter == FilterName.GAUSSIAN else filters.UnitL2()

    def _solver(self) -> Solver:
        from ..solvers.auto import Auto
        from ..solvers.exact import Exact
        from ..solvers.gradient_descent import GradientDescent
        from ..solvers.riemannian import Riemannian

        if self.solver == SolverName.GRADIENT_DESCENT:
            return GradientDescent(seed=self.seed)
        if self.solver == SolverName.EXACT:
            return Exact()
        return Riemannian() if self.solver == SolverName.RIEMANNIAN else Auto()
