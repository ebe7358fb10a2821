"""The paper's own figures, to stand beside ours."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any


@cache
def published() -> dict[str, Any]:
    """All tables of the paper and its timing figure, as they were printed.

    >>> published()["figure_time_seconds_per_frame"]["grad_cam"]["GoogLeNet"]
    0.04375116825
    """
    document: dict[str, Any] = json.loads(resources.files(__package__).joinpath("published.json").read_text("utf-8"))
    return document
