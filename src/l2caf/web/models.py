"""The networks that are loaded: a few, the one that was idle longest makes room for the next."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from ..errors import CatalogueError
from ..networks.catalogue import DEFAULT, names
from ..progress import Progress, silent
from ..tasks.network_choice import NetworkChoice

if TYPE_CHECKING:
    from ..networks.model import Model

MOST = 4
FAMILIES = ("timm:", "torchvision:")
SUGGESTED = ("torchvision:resnet50", "torchvision:densenet121", "timm:convnext_tiny", "timm:mobilenetv3_large_100")


class Models:
    """Networks by their names, each loaded once for each use; only what was offered, or a named family has.

    A name can be the path of a file, or code to run: those are taken from whoever starts the page, never from a
    visitor.

    use   a picture and a clip each have a copy, so that a long job keeps nobody from a short one; retrieval takes the
          classifier off its own
    """

    def __init__(self, offered: Sequence[str] = (), *, device: str = "auto", most: int = MOST) -> None:
        self.offered = tuple(dict.fromkeys((*offered, DEFAULT)))
        self.device, self.most = device, most
        self._loaded: OrderedDict[tuple[str, str], Model] = OrderedDict()
        self._loading: dict[tuple[str, str], threading.Lock] = {}
        self._lock = threading.Lock()

    @property
    def choices(self) -> list[str]:
        """What the page offers; other names of the two families can be typed."""
        return list(dict.fromkeys((*self.offered, *SUGGESTED)))

    def __len__(self) -> int:
        return len(self._loaded)

    def choice(self, network: str, *, layer: str | None = None, view: str = "crop") -> NetworkChoice:
        """The choice that a visitor's words stand for; what only the host may name is refused."""
        name = (network or DEFAULT).strip()
        if name not in self.offered and not (name.startswith(FAMILIES) and _is_listed(name)):
            raise CatalogueError(
                f"There is no network {name!r} on this page: take {DEFAULT}, timm:NAME or torchvision:NAME; whoever"
                " starts the page can offer files and networks of their own.",
                field="network",
            )
        return NetworkChoice(name, layer=layer or None, view=view, device=self.device)

    def get(self, choice: NetworkChoice, *, use: str = "picture", progress: Progress = silent) -> Model:
        """The network of a choice, loaded where it is not there yet."""
        key = (choice.network, use)
        with self._lock:
            one_at_a_time = self._loading.setdefault(key, threading.Lock())
        with one_at_a_time:
            with self._lock:
                model = self._loaded.get(key)
                if model is not None:
                    self._loaded.move_to_end(key)
            if model is None:
                model = replace(choice, view="crop").load(progress)
                model = model.as_embedding() if use == "match" else model
                with self._lock:
                    self._loaded[key] = model
                    while len(self._loaded) > self.most:
                        gone, _ = self._loaded.popitem(last=False)
                        self._loading.pop(gone, None)
        return model.viewed(choice.view)


@lru_cache(maxsize=256)
def _is_listed(name: str) -> bool:
    """Whether the catalogue has a network by exactly this name."""
    return any(row.name == name for row in names(name))
