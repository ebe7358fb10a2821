"""The networks that have a name."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ..errors import InputError
from ..networks.catalogue import names
from ..networks.source import CatalogueRow
from ..progress import Progress, silent


@dataclass(frozen=True)
class NetworksRequest:
    """A part of a name, or wildcards; None for the forms that a name may have."""

    pattern: str | None = None


@dataclass(frozen=True)
class NetworksResult:
    """The rows of the catalogue that match."""

    rows: tuple[CatalogueRow, ...]

    def as_list(self) -> list[dict[str, Any]]:
        """The document, which is a list of networks."""
        return [asdict(row) for row in self.rows]


def list_networks(request: NetworksRequest, *, progress: Progress = silent) -> NetworksResult:
    """Look the catalogue through."""
    progress("looking through the catalogue", 0, None)
    rows = names(request.pattern)
    if not rows:
        raise InputError(
            f"No network is called {request.pattern!r}: try a shorter part of its name, as in 'resnet'.",
            field="pattern",
        )
    return NetworksResult(tuple(rows))
