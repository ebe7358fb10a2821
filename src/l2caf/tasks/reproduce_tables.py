"""The tables of the paper that can be measured again, by the names that people type; light enough for a help text."""

from __future__ import annotations

from dataclasses import dataclass

from ..table import Entry, Table


@dataclass(frozen=True)
class PaperTable(Entry):
    """One of them.

    needs    layouts of data, of which it needs at least one
    trains   its networks, so that no file of weights can be given for them
    """

    needs: tuple[str, ...] = ()
    trains: bool = False


TABLES = Table(
    "table",
    PaperTable(
        "table1",
        "Table 1: localisation on ImageNet, networks as they are",
        "l2caf.tasks.reproduce_localisation:table1",
        ("imagenet",),
    ),
    PaperTable(
        "table2",
        "Table 2: localisation on CUB-200-2011, networks fine-tuned for it",
        "l2caf.tasks.reproduce_localisation:table2",
        ("cub",),
        trains=True,
    ),
    PaperTable(
        "table3",
        "Table 3: retrieval and localisation on CUB-200-2011 and Stanford Cars",
        "l2caf.tasks.reproduce_retrieval:table3",
        ("cub", "cars"),
        trains=True,
    ),
    PaperTable("timing", "Timing figure: seconds a frame", "l2caf.tasks.reproduce_checks:timing"),
    PaperTable("sanity", "Sanity checks: maps of randomised networks", "l2caf.tasks.reproduce_checks:sanity"),
)
ALL = "all"
