"""The catalogue: from a name to a network with its preprocessing and its class names.

- `efficientnet_lite0`: the default; its weights are installed with l2caf
- `timm:NAME`: any network of timm
- `torchvision:NAME`: any network of torchvision
- `MODULE:FUNCTION`: your own, as `package.nets:build` or `path/to/file.py:build`
- `FILE.safetensors`: a retrieval network, as `l2caf train retrieval` leaves it
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from ..errors import CatalogueError
from ..preprocessing import Preprocessing
from . import embedded
from .class_names import class_index, imagenet_class_names
from .embedding import SUFFIX, load_embedding
from .from_timm import load_timm, timm_names
from .from_torchvision import load_torchvision, torchvision_names
from .from_user import load_user_network
from .model import CatalogueEntry

__all__ = [
    "CatalogueEntry",
    "CatalogueRow",
    "Preprocessing",
    "class_index",
    "imagenet_class_names",
    "load",
    "names",
]

DEFAULT = embedded.NAME


def load(name: str = DEFAULT, *, weights: str | Path | None = None, pretrained: bool = True) -> CatalogueEntry:
    """Turn a name into a network in eval mode, its preprocessing, and its class names.

    weights     a local .pth, .pt or .safetensors file, taken in place of the published weights
    pretrained  False for random weights, with no download; a network of your own decides for itself

    >>> entry = load("efficientnet_lite0", pretrained=False)
    >>> entry.input_size, entry.class_names[207]
    ((224, 224), 'golden retriever')
    """
    if name.endswith(SUFFIX):
        return _checkpoint(name, weights)
    family, _, member = name.partition(":")
    if name == embedded.NAME:
        return embedded.load_embedded(weights=weights, pretrained=pretrained)
    if family == "timm" and member:
        return load_timm(member, weights=weights, pretrained=pretrained)
    if family == "torchvision" and member:
        return load_torchvision(member, weights=weights, pretrained=pretrained)
    place, _, function = name.rpartition(":")
    if place and function and family not in ("timm", "torchvision"):
        return load_user_network(name, weights=weights)
    raise CatalogueError(f"There is no network {name!r}: {_hint(name)}.")


def _checkpoint(path: str, weights: str | Path | None) -> CatalogueEntry:
    if weights is not None:
        raise CatalogueError(f"{path} has weights of its own: give it alone, or name the network that {weights} fits.")
    return load_embedding(path)


@dataclass(frozen=True)
class CatalogueRow:
    """One line of the listing; `parameters` is None where only building the network would tell."""

    name: str
    source: str
    parameters: int | None
    needs: str
    description: str


def names(pattern: str | None = None) -> list[CatalogueRow]:
    """What the catalogue offers: the forms of a name, or the networks whose names match a pattern.

    The pattern is a part of the name, or has wildcards: "resnet", "timm:convnext*", "*vgg1?".
    """
    if pattern is None:
        return [_embedded_row(), *_form_rows()]
    rows = [_embedded_row(), *_torchvision_rows(), *_timm_rows()]
    wanted = pattern.casefold()
    if any(sign in wanted for sign in "*?["):
        return [
            row for row in rows if fnmatchcase(row.name, wanted) or fnmatchcase(row.name.rpartition(":")[2], wanted)
        ]
    return [row for row in rows if wanted in row.name]


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
    if known:
        return f"the nearest are {', '.join(known[:4])}"
    return f"take {DEFAULT}, timm:NAME, torchvision:NAME, MODULE:FUNCTION or FILE{SUFFIX}"


def _embedded_row() -> CatalogueRow:
    return CatalogueRow(
        name=embedded.NAME,
        source="embedded",
        parameters=embedded.PARAMETERS,
        needs="nothing: its weights are installed",
        description="EfficientNet-Lite0, 1,000 classes of ImageNet; the default",
    )


def _form_rows() -> list[CatalogueRow]:
    return [
        CatalogueRow(
            name="timm:NAME",
            source="timm",
            parameters=None,
            needs="a download on first use, or --weights FILE",
            description=f"{len(timm_names()):,} networks, as timm:resnet50 or timm:resnet50.a1_in1k",
        ),
        CatalogueRow(
            name="torchvision:NAME",
            source="torchvision",
            parameters=None,
            needs="a download on first use, or --weights FILE",
            description=f"{len(torchvision_names()):,} image classifiers, as torchvision:vgg16",
        ),
        CatalogueRow(
            name="MODULE:FUNCTION",
            source="your own",
            parameters=None,
            needs="a function that returns a torch.nn.Module",
            description="a network of yours, as package.nets:build or path/to/file.py:build",
        ),
        CatalogueRow(
            name=f"FILE{SUFFIX}",
            source="your own",
            parameters=None,
            needs="a checkpoint of 'l2caf train retrieval'",
            description="a retrieval network, as out/embedding.safetensors",
        ),
    ]


def _torchvision_rows() -> list[CatalogueRow]:
    return [
        CatalogueRow(
            name=f"torchvision:{name}",
            source="torchvision",
            parameters=parameters,
            needs="a download on first use, or --weights FILE",
            description="1,000 classes of ImageNet",
        )
        for name, parameters in torchvision_names().items()
    ]


def _timm_rows() -> list[CatalogueRow]:
    published = set(timm_names(pretrained=True))
    return [
        CatalogueRow(
            name=f"timm:{name}",
            source="timm",
            parameters=None,
            needs="a download on first use, or --weights FILE" if name in published else "--weights FILE",
            description="pretrained" if name in published else "no published weights",
        )
        for name in timm_names()
    ]
