"""The one store of what is known about networks: kept while a network lives, and keeping none alive.

Everything in it was found out by running the network, and is valid for one fingerprint of it (`fingerprint.py`): with
another module, hook or setting it is found out anew. It holds names, shapes and numbers; no module and no input.
"""

from __future__ import annotations

import weakref
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from .borrow import Loan, borrowed
from .fingerprint import Fingerprint

MOST = 64  # entries of a kind: a service that sees inputs of every size must not collect them without end


@dataclass
class Knowledge:
    """What is known about one network, by kind (survey, keeping, plan) and by what it depends on."""

    fingerprint: Fingerprint
    kinds: dict[str, dict[Hashable, Any]] = field(default_factory=dict)

    def get(self, kind: str, key: Hashable) -> Any:
        """Return what is known, or None."""
        return self.kinds.get(kind, {}).get(key)

    def put(self, kind: str, key: Hashable, value: Any) -> None:
        """Keep something; the oldest of a kind makes room where there are many."""
        known = self.kinds.setdefault(kind, {})
        known.pop(key, None)
        known[key] = value
        while len(known) > MOST:
            del known[next(iter(known))]


_networks: weakref.WeakKeyDictionary[nn.Module, Knowledge] = weakref.WeakKeyDictionary()


def knowledge_of(network: nn.Module) -> Knowledge:
    """Return what is known about a network as it is now; empty where it has changed since."""
    with borrowed(network) as loan:
        return knowledge_on(loan)


def knowledge_on(loan: Loan) -> Knowledge:
    """The same of a network that is on loan; looked up once a loan."""
    if loan.knowledge is None:
        known = _networks.get(loan.network)
        if known is None or not known.fingerprint.holds(loan.look):
            known = _networks[loan.network] = Knowledge(Fingerprint(loan.look))
        loan.knowledge = known
    found: Knowledge = loan.knowledge
    return found


def forget(network: nn.Module) -> None:
    """Drop all that is known about a network."""
    with borrowed(network) as loan:
        _networks.pop(network, None)
        loan.knowledge = None
