"""Photographs that come with scikit-image, so that there is something to look at without a download."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from PIL import Image

from .errors import ImageError
from .images import open_image

SAMPLES = {
    "cat": "chelsea.png",
    "cup": "coffee.png",
    "motorcycle": "motorcycle_left.png",
    "photographer": "camera.png",
    "rocket": "rocket.jpg",
}
"""Name here, and file in scikit-image's own folder."""


def sample(name: str) -> Image.Image:
    """One photograph by its name here.

    >>> sample("cat").size
    (451, 300)
    """
    return open_image(sample_path(name))


def sample_path(name: str) -> Path:
    """Where a photograph lies."""
    spec = find_spec("skimage")
    if name not in SAMPLES or spec is None or spec.origin is None:
        raise ImageError(f"There is no sample photograph {name!r}: take one of {', '.join(SAMPLES)}.")
    return Path(spec.origin).parent / "data" / SAMPLES[name]
