"""The catalogue: from a name to a network with its preprocessing and its class names.

- `tf_efficientnet_lite0`: the default; its weights are installed with l2caf
- `timm:NAME`: any network of timm
- `torchvision:NAME`: any network of torchvision
- `MODULE:FUNCTION`: your own, as `package.nets:build` or `path/to/file.py:build`
- `FILE.safetensors`: a checkpoint, such as `l2caf train retrieval` leaves

A new source is one file with a `Source` and one line in `SOURCES`. A source, and with it torch, is imported when one
of its networks is asked for.
"""

from __future__ import annotations

import difflib
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import CatalogueError
from ..table import Table
from .source import CatalogueRow, SourceEntry

if TYPE_CHECKING:
    from .model import Model

__all__ = ["ALIASES", "DEFAULT", "SOURCES", "CatalogueRow", "forms", "load", "names"]

DEFAULT = "tf_efficientnet_lite0"
# The name of before. It is none of timm's: these weights load into timm's own efficientnet_lite0, without a word, and
# give displaced maps, since it pads otherwise.
ALIASES = {"efficientnet_lite0": DEFAULT}
SOURCES = Table(
    "source",
    SourceEntry("embedded", "the default", "l2caf.networks.embedded:Embedded", form=DEFAULT),
    SourceEntry("timm", "any network of timm", "l2caf.networks.from_timm:Timm", form="timm:NAME"),
    SourceEntry(
        "torchvision",
        "any network of torchvision",
        "l2caf.networks.from_torchvision:Torchvision",
        form="torchvision:NAME",
    ),
    SourceEntry("user", "a network of yours", "l2caf.networks.from_user:UserNetwork", form="MODULE:FUNCTION"),
    SourceEntry("checkpoint", "a checkpoint", "l2caf.networks.from_checkpoint:Checkpoint", form="FILE.safetensors"),
)


def load(
    name: str = DEFAULT, *, weights: str | Path | None = None, pretrained: bool = True, device: str = "cpu"
) -> Model:
    """Turn a name into a network in eval mode, its preprocessing, and its class names.

    weights     a local .pth, .pt or .safetensors file, taken in place of the published weights
    pretrained  False for random weights, with no download; a network of your own decides for itself
    device      where it runs: cpu, cuda, mps, or auto for the fastest here

    >>> model = load("tf_efficientnet_lite0", pretrained=False)
    >>> model.input_size, model.class_names[207]
    ((224, 224), 'golden retriever')
    """
    if not isinstance(name, str):
        raise CatalogueError(f"The network's name is a {type(name).__name__}: give {forms()}.", field="network")
    if is_exported(name):
        raise CatalogueError(
            f"'{name}' is an exported network, which runs without torch and explains photographs, and can do nothing"
            " else: take the network that it was made from.",
            field="network",
        )
    name = ALIASES.get(name, name)
    fitting = [entry for entry in SOURCES.values() if entry.takes(name)]
    if not fitting:
        raise CatalogueError(f"There is no network {name!r}: {_hint(name)}.", field="network")
    source = max(fitting, key=lambda entry: entry.said).open()
    from .model import device_named

    where = device_named(device)  # said before anything is fetched
    return source.load(name, weights=weights, pretrained=pretrained).on(where)


def names(pattern: str | None = None) -> list[CatalogueRow]:
    """What the catalogue offers: the forms of a name, or the networks whose names match a pattern.

    The pattern is a part of the name, or has wildcards: "resnet", "timm:convnext*", "*vgg1?".
    """
    sources = [entry.open() for entry in SOURCES.values()]
    if pattern is None:
        return [source.summary() for source in sources]
    # Those of which more is known come first.
    rows = sorted((row for source in sources for row in source.rows()), key=lambda row: row.parameters is None)
    wanted = pattern.casefold()
    if any(sign in wanted for sign in "*?["):
        return [
            row for row in rows if fnmatchcase(row.name, wanted) or fnmatchcase(row.name.rpartition(":")[2], wanted)
        ]
    return [row for row in rows if wanted in row.name]


def is_exported(name: str) -> bool:
    """Whether a name is that of an exported file, which `l2caf.exported.load` opens.

    >>> is_exported("model.onnx"), is_exported("timm:resnet50")
    (True, False)
    """
    return name.lower().endswith(".onnx")


def forms() -> str:
    """What a name may look like, in words.

    >>> forms()
    'tf_efficientnet_lite0, timm:NAME, torchvision:NAME, MODULE:FUNCTION or FILE.safetensors'
    """
    *most, last = (entry.form for entry in SOURCES.values())
    return f"{', '.join(most)} or {last}"


def _hint(name: str) -> str:
    """The nearest names, with the family that has them; they are looked through only when needed."""
    wanted = name.rpartition(":")[2]
    families: dict[str, list[str]] = {}
    for row in names(""):
        families.setdefault(row.name.rpartition(":")[2], []).append(row.name)
    # The default comes first among equals: it is the one that needs no download.
    close = difflib.get_close_matches(wanted, [DEFAULT], cutoff=0.8)
    close += difflib.get_close_matches(wanted, families, n=3, cutoff=0.6)
    known = families.get(wanted) or [full for near in dict.fromkeys(close) for full in families[near]]
    return f"the nearest are {', '.join(known[:4])}" if known else f"take {forms()}"
