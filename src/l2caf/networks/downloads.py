"""Can pretrained weights be fetched? Asked first: a download library may retry for most of a minute."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import torch

from ..errors import CatalogueError

PATIENCE = 5.0  # seconds
_REMEDY = "give a local file of weights, or in Python take random ones (pretrained=False)"


@contextmanager
def fetching(name: str, url: str) -> Iterator[None]:
    """Around a download for the network `name`: quick to give up, one clear error for all that can happen."""
    host = urlsplit(url).hostname or url
    if not reachable(url):
        raise CatalogueError(
            f"The pretrained weights of {name} are at {host}, which cannot be reached: {_REMEDY}.", field="weights"
        )
    try:
        yield
    except Exception as error:  # each library has its own: HTTP errors, broken hashes, full disks
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:160]
        raise CatalogueError(
            f"The pretrained weights of {name} could not be fetched from {host} ({reason}): {_REMEDY}.",
            field="weights",
        ) from error


def no_weights(name: str) -> CatalogueError:
    """The error for a network that nobody published weights for."""
    return CatalogueError(f"There are no pretrained weights for {name}: {_REMEDY}.", field="weights")


def reachable(url: str, *, patience: float = PATIENCE) -> bool:
    """Whether the host of a URL answers, with any status, within `patience` seconds; proxies are honoured."""
    answered, finished = threading.Event(), threading.Event()

    def ask() -> None:
        try:
            # An opener of its own: the shared one keeps the proxies of its first use.
            request = urllib.request.Request(url, method="HEAD")
            urllib.request.build_opener().open(request, timeout=patience).close()
            answered.set()
        except urllib.error.HTTPError:
            answered.set()
        except (OSError, ValueError):
            pass
        finally:
            finished.set()

    # A thread, because looking up a host name obeys no timeout.
    threading.Thread(target=ask, daemon=True).start()
    finished.wait(patience)
    return answered.is_set()


def in_torch_cache(url: str) -> bool:
    """Whether torch.hub has this file already."""
    return (Path(torch.hub.get_dir()) / "checkpoints" / Path(urlsplit(url).path).name).is_file()
