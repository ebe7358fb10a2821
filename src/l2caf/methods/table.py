"""The methods that can be evaluated, by the names that a person types."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from ..errors import InputError
from ..objectives.classes import ClassSpecific
from .attention_filter import AttentionFilter
from .cam import CAM
from .grad_cam import GradCAM, GradCAMAbs
from .method import Method

# Each is asked about one class a sample; the class-oblivious filter has no use for it.
CONTESTANTS: dict[str, Callable[[Sequence[int]], Method]] = {
    "l2caf": lambda classes: AttentionFilter(),
    "l2caf-class": lambda classes: AttentionFilter(ClassSpecific(each=classes)),
    "l2caf-published": lambda classes: AttentionFilter(ClassSpecific(each=classes, published=True)),
    "cam": lambda classes: CAM(each=classes),
    "gradcam": lambda classes: GradCAM(each=classes),
    "gradcam-abs": lambda classes: GradCAMAbs(each=classes),
}
# Each is asked about the embedding as a whole: it has no classes.
EMBEDDING_CONTESTANTS: dict[str, Callable[[], Method]] = {
    "l2caf": AttentionFilter,
    "gradcam-abs": lambda: GradCAMAbs(embedding=True),
    "gradcam": lambda: GradCAM(embedding=True),
}
TITLES = {
    "l2caf": "L2-CAF, class-oblivious",
    "l2caf-class": "L2-CAF, class-specific",
    "l2caf-published": "L2-CAF, class-specific as published",
    "cam": "CAM",
    "gradcam": "Grad-CAM",
    "gradcam-abs": "Grad-CAM-abs",
}


def check_names(names: Sequence[str], among: Collection[str] = tuple(CONTESTANTS)) -> tuple[str, ...]:
    """Refuse a method that does not exist, and drop one that is named twice."""
    for name in names:
        if name not in among:
            raise InputError(f"There is no method {name!r}: choose among {', '.join(among)}.")
    if not names:
        raise InputError(f"No method is named: choose among {', '.join(among)}.")
    return tuple(dict.fromkeys(names))
