"""`Source`: where networks come from. Each has a file of its own and a line in `catalogue.SOURCES`."""

from __future__ import annotations

import abc
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ..table import Entry

if TYPE_CHECKING:
    from .model import Model

DOWNLOADED = "a download on first use, or a file of weights"


@dataclass(frozen=True)
class CatalogueRow:
    """One line of the listing; `parameters` is None where only building the network would tell."""

    name: str
    source: str
    parameters: int | None
    needs: str
    description: str


class Source(abc.ABC):
    """Networks of one origin.

    >>> class Shelf(Source):
    ...     def load(self, name, *, weights=None, pretrained=True): ...
    ...
    ...     def summary(self):
    ...         return CatalogueRow("shelf:NAME", "shelf", None, "nothing", "what stands there")
    >>> Shelf().summary().name, Shelf().rows()
    ('shelf:NAME', [])
    """

    @abc.abstractmethod
    def load(self, name: str, *, weights: str | Path | None = None, pretrained: bool = True) -> Model:
        """The network of a name that has the source's form.

        weights     a local file, taken in place of the published weights
        pretrained  False for random weights, with no download
        """

    @abc.abstractmethod
    def summary(self) -> CatalogueRow:
        """The source in one line, under the form that its names have."""

    def rows(self) -> list[CatalogueRow]:
        """Its networks by their full names; none where they cannot be listed."""
        return []


@dataclass(frozen=True)
class SourceEntry(Entry):
    """A source in the table; `home` is its class.

    form   what its names look like: words in capitals stand for what the user fills in

    >>> entry = SourceEntry("timm", "any network of timm", "l2caf.networks.from_timm:Timm", form="timm:NAME")
    >>> entry.takes("timm:resnet50"), entry.takes("timm:"), entry.takes("torchvision:resnet50")
    (True, False, False)
    """

    form: str

    def takes(self, name: str) -> bool:
        """Tell whether a name has this form."""
        return re.fullmatch(self._pattern, name) is not None

    @property
    def said(self) -> int:
        """How many letters of a name the form settles: of two that fit, the one that says more is meant."""
        return len(re.sub(_WORD, "", self.form))

    def open(self) -> Source:
        """Import the source."""
        source: Source = self.load()()
        return source

    @cached_property
    def _pattern(self) -> str:
        return ".+".join(re.escape(part) for part in re.split(_WORD, self.form))


_WORD = "[A-Z]{2,}"
