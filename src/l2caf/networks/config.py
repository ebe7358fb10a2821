"""What a checkpoint says of its network: a dataclass, as JSON in the file's metadata."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from ..files import json_text
from ..preprocessing import Preprocessing


@dataclass(frozen=True)
class Config:
    """What all of them can do; one has the fields `preprocessing` and `classes`, and others of its own."""

    def as_json(self) -> str:
        """One JSON document."""
        return json_text(asdict(self), indent=2).rstrip()

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `as_json` wrote; fields of later versions are left aside."""
        document = json.loads(text)
        known = {one.name for one in fields(cls)}
        values = {name: value for name, value in document.items() if name in known}
        prepare: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in values.pop("preprocessing").items()
        }
        classes = tuple(values.pop("classes", ()))
        values |= {"classes": classes, "preprocessing": Preprocessing(**prepare)}
        return cls(**values)
