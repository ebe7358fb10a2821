"""What people say about a drawing, checked: each setting is what it should be, or one sentence tells what it should."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np
from PIL import Image

from ..errors import InputError
from .marks import Box
from .overlay import Picture, as_rgb

BOX_LEVEL = 0.25  # of the greatest heat: what is above belongs to the object


def check_options(given: Mapping[str, Any], known: Sequence[str]) -> None:
    """Refuse a setting of drawings that there is not, a misspelt one for instance, with what there is."""
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"take {', '.join(known)}."
            raise InputError(f"A drawing of this map has no setting {name!r}: {hint}", field=name)


def box_level(box: Any) -> float | None:
    """The share of the greatest heat at which the box of a map ends; None where none is drawn."""
    if box is None or box is False:
        return None
    if box is True:
        return BOX_LEVEL
    if isinstance(box, str) or not np.isscalar(box) or not 0 <= box <= 1:  # type: ignore[operator]
        raise InputError(
            f"box is {box!r}: give True, or the share of the maximum at which the box ends, from 0 to 1; boxes of your"
            " own go by boxes=.",
            field="box",
        )
    return float(box)  # type: ignore[arg-type]


def check_flag(value: Any, name: str) -> None:
    """Refuse what is neither yes nor no; a word such as "off" would count as yes."""
    if value is not None and not isinstance(value, (bool, np.bool_)):
        raise InputError(f"{name} is {value!r}: give True or False.", field=name)


def listed_boxes(boxes: Any) -> list[Any]:
    """Boxes one by one, however they are given: none, one, an array (n, 4), or lists of such lists.

    >>> listed_boxes((10, 10, 50, 50)), len(listed_boxes([[(0, 0, 1, 1)], [(1, 1, 2, 2), (2, 2, 3, 3)]]))
    ([(10, 10, 50, 50)], 3)
    """
    if boxes is None or boxes is False:
        return []
    if hasattr(boxes, "detach"):
        boxes = boxes.detach().cpu().numpy()
    if not isinstance(boxes, (list, tuple, np.ndarray)) and hasattr(boxes, "__next__"):
        boxes = [*boxes]
    if depth_of(boxes) == 0:
        raise InputError(f"boxes is {boxes!r}: give x0, y0, x1, y1, or a list of such boxes.", field="boxes")
    if isinstance(boxes, Box) or depth_of(boxes) == 1:
        return [boxes] if len(boxes) else []
    return [box for part in boxes for box in listed_boxes(part)]


def depth_of(boxes: Any) -> int:
    """How many lists lie inside one another: 1 for a box, 2 for a list of boxes, 3 for a list of those."""
    if isinstance(boxes, Box):
        return 1
    if hasattr(boxes, "ndim"):
        return int(boxes.ndim)
    if isinstance(boxes, (list, tuple)):
        return 1 + max((depth_of(part) for part in boxes), default=0)
    return 0


def at_width(picture: Picture, width: int | None) -> Picture:
    """A picture at another width, in its own proportions."""
    if width is None:
        return picture
    if isinstance(width, bool) or not isinstance(width, int) or width < 1:
        raise InputError(f"A picture cannot be {width!r} pixels wide: give a whole number above 0.")
    given = Image.fromarray(as_rgb(picture))
    return given.resize((width, max(1, round(given.height * width / given.width))), Image.Resampling.LANCZOS)
