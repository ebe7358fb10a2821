"""On which part of a picture a map belongs: decided by sizes, and refused where they do not tell."""

from __future__ import annotations

from ..errors import InputError
from ..preprocessing import Crop


def placed(picture: tuple[int, int], *, input_size: tuple[int, int], crop: Crop | None) -> Crop | None:
    """Where the network's input lies on a picture of (height, width); None where the picture is that input.

    A picture is the photograph if it has its size, the input if it has the input's; failing that, a copy of either at
    another size if it has the same proportions.
    """
    if crop is None:
        if not _alike(picture, input_size):
            raise InputError(
                f"The picture is {_words(picture)} and the network's input was {_words(input_size)}, so which part of"
                " the picture the network saw is not known: add preprocess= with what prepared it, such as"
                " model.preprocess, or give the picture as the network saw it."
            )
        return None
    if picture == crop.image_size:
        return crop
    if picture == input_size:
        return None
    if _alike(picture, crop.image_size):
        return crop.at(picture)
    if _alike(picture, input_size):
        return None
    raise InputError(
        f"The picture is {_words(picture)}, but the map belongs to a photograph of {_words(crop.image_size)}, which the"
        f" network saw as {_words(input_size)}: give that photograph."
    )


def _alike(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Whether two sizes have the same proportions, to the pixel that resizing rounds off."""
    return abs(one[1] * other[0] - one[0] * other[1]) <= max(other)


def _words(size: tuple[int, int]) -> str:
    return f"{size[1]}×{size[0]}"
