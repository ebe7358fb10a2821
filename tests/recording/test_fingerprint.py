"""What of a network is noticed between two looks at it, and what is of no account."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import l2caf
from l2caf.recording import fingerprint
from l2caf.recording.census import look_through, modules_of
from l2caf.recording.fingerprint import Fingerprint
from networks_for_tests import pixels, seeded


class Net(nn.Module):
    """Settings of every kind, in the instance and in its class."""

    bent = property(lambda self: False)
    factor = 2

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 4, stride=4)
        self.relu = nn.ReLU()
        self.fc = nn.Linear(6, 5)
        self.scale = torch.ones(6)
        self.size = (300, 400)
        self.options: dict[str, Any] = {"sizes": [1, 2, 3], "names": ("a", "b")}

    @staticmethod
    def means(maps: Tensor) -> Tensor:
        return maps.mean(dim=(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        means = self.scale * self.means(self.relu(self.conv(x)))
        found: Tensor = self.fc(F.relu(means) if self.bent else means)
        return found


def changed_class(name: str, value: Any) -> Callable[[Net, pytest.MonkeyPatch], None]:
    return lambda network, patch: patch.setattr(Net, name, value)


def hooked_by_hand(network: Net, patch: pytest.MonkeyPatch) -> None:
    network.fc._forward_hooks[0] = lambda module, args, output: output


def parts_exchanged(network: Net, patch: pytest.MonkeyPatch) -> None:
    network.first, network.second = nn.Identity(), nn.Identity()


class Other(nn.Module):
    """Another base for a class."""

    def means(self, maps: Tensor) -> Tensor:
        return maps.amax(dim=(2, 3))


CHANGES: dict[str, Callable[[Net, pytest.MonkeyPatch], Any]] = {
    "a tensor": lambda network, patch: setattr(network, "scale", torch.full((6,), 2.0)),
    "a tensor for a number": lambda network, patch: setattr(network, "size", torch.ones(2)),
    "written into a tensor": lambda network, patch: network.scale.fill_(2.0),
    "a size": lambda network, patch: setattr(network, "size", (300, 401)),
    "a setting taken away": lambda network, patch: delattr(network, "size"),
    "a setting for another": lambda network, patch: (delattr(network, "size"), setattr(network, "sizes", (300, 400))),
    "deep in a setting": lambda network, patch: network.options["sizes"].append(4),
    "a property": changed_class("bent", property(lambda self: True)),
    "a static method": changed_class("means", staticmethod(lambda maps: maps.amax(dim=(2, 3)))),
    "a property for a function": changed_class("bent", lambda self: True),
    "a number of the class": changed_class("factor", 3),
    "a hook put in by hand": hooked_by_hand,
    "more parts": parts_exchanged,
}


@pytest.mark.parametrize("case", CHANGES)
def test_a_change_is_noticed(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    network = seeded(Net)
    before = Fingerprint(look_through(network))
    kept = vars(network).copy(), vars(Net).copy()  # what is exchanged lives on, so that no end of it tells
    assert before.holds(look_through(network))
    CHANGES[case](network, monkeypatch)
    assert not before.holds(look_through(network))
    assert Fingerprint(look_through(network)).holds(look_through(network))
    assert kept


def test_a_base_of_a_class_is_noticed() -> None:
    class Base(nn.Module):
        pass

    class Derived(Base):
        pass

    network = Derived()
    before = Fingerprint(look_through(network))
    Derived.__bases__ = (Other,)
    assert not before.holds(look_through(network))


def refused(*_: Any) -> Any:
    """In place of the long look: the short one must do."""
    raise AssertionError("described in full")


def test_nothing_is_described_where_nothing_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    network = seeded(Net)
    before = Fingerprint(look_through(network))
    monkeypatch.setattr(fingerprint, "_description", refused)
    assert before.holds(look_through(network))


def set_again(network: Net) -> None:
    size = network.size
    del network.size
    network.size = size


OF_NO_ACCOUNT: dict[str, Callable[[Net], Any]] = {
    "an equal size": lambda network: setattr(network, "size", (*network.size[:1], 400)),
    "an equal list": lambda network: network.options.update(sizes=[1, 2, 3]),
    "an object of the class": lambda network: setattr(Net, "noted", object()),
    "another order of settings": set_again,
}


@pytest.mark.parametrize("case", OF_NO_ACCOUNT)
def test_what_is_equal_is_no_change(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Net, "noted", object(), raising=False)
    network = seeded(Net)
    before = Fingerprint(look_through(network))
    OF_NO_ACCOUNT[case](network)
    assert before.holds(look_through(network))
    monkeypatch.setattr(fingerprint, "_description", refused)
    assert before.holds(look_through(network))


def test_a_module_in_the_place_of_one_that_is_gone() -> None:
    """The same id may be given again at once, so an id alone tells nothing."""
    network = seeded(Net)
    for _ in range(50):
        network.between = nn.ReLU()
        before = Fingerprint(look_through(network))
        network.between = None
        network.between = nn.ReLU()
        assert not before.holds(look_through(network))


def test_nothing_is_kept_alive() -> None:
    network = seeded(Net)
    network.method = network.forward
    network.function = partial(type, network)
    found = Fingerprint(look_through(network))
    gone = [fingerprint.ref(module) for module in modules_of(network)]
    del network
    gc.collect()
    assert not any(module() for module in gone)
    assert found is not None


def test_a_tensor_exchanged_while_the_old_one_lives_on_is_explained_anew() -> None:
    network, twin = seeded(Net), seeded(Net)
    kept = network.scale
    l2caf.explain(network, pixels())
    for one in (network, twin):
        one.scale = torch.arange(6.0)
    found, expected = l2caf.explain(network, pixels()), l2caf.explain(twin, pixels())
    torch.testing.assert_close(found.weights, expected.weights, rtol=0, atol=0)
    assert kept is not network.scale
