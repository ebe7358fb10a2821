"""Who holds a network, who waits, and what of the process is put back after the last one."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

import pytest
from torch import Tensor, nn

import l2caf
import networks_for_tests as nets
from l2caf.recording import borrow, process
from l2caf.recording.borrow import borrowed
from networks_for_tests import pixels, seeded

PATIENCE = 30.0  # seconds after which a test gives up; no test waits for them where all is well


class Gate(nn.Module):
    """Says that it runs, and runs on when it may; does nothing until it is armed."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[threading.Event] = []

    def forward(self, x: Tensor) -> Tensor:
        if self.events:
            entered, may_leave = self.events
            entered.set()
            assert may_leave.wait(PATIENCE)
        return x


def gated(trunk: nn.Module | None = None) -> nn.Sequential:
    network = seeded(nets.pooled)
    return nn.Sequential(trunk or network[0], Gate(), *network[1:]).eval()


def started(work: Callable[[], object], failed: list[BaseException]) -> threading.Thread:
    def guarded() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - told to the test
            failed.append(error)

    thread = threading.Thread(target=guarded, daemon=True)
    thread.start()
    return thread


def settings() -> tuple[object, ...]:
    return tuple(vars(sys.modules[module])[name] for module, name, _ in process._NAMES if module in sys.modules)


@pytest.mark.parametrize("warm", [False, True])
def test_two_networks_side_by_side(warm: bool) -> None:
    """Each is in the middle of its run while the other is too; settings are back after the last."""
    before = settings()
    one, other = gated(), gated()
    if warm:
        for network in (one, other):
            l2caf.explain(network, pixels(1))
    events = [threading.Event() for _ in range(3)]
    one[1].events = [events[0], events[2]]
    other[1].events = [events[1], events[2]]
    failed: list[BaseException] = []
    threads = [started(lambda network=network: l2caf.explain(network, pixels(1)), failed) for network in (one, other)]
    both = all(event.wait(PATIENCE) for event in events[:2])
    during = settings()
    events[2].set()
    for thread in threads:
        thread.join(PATIENCE)
    assert both
    assert not failed
    assert during != before
    assert settings() == before
    assert not borrow._loans


def test_networks_that_share_a_module_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    trunk = seeded(nets.pooled)[0]
    one, other = gated(trunk), gated(trunk)
    entered, may_leave, second = threading.Event(), threading.Event(), threading.Event()
    one[1].events = [entered, may_leave]
    other.register_forward_pre_hook(lambda module, args: second.set())
    failed: list[BaseException] = []
    first = started(lambda: l2caf.explain(one, pixels(1)), failed)
    assert entered.wait(PATIENCE)
    waits = threading.Event()
    wait = borrow.wait_for

    def told(lock: threading.Lock) -> None:
        waits.set()
        wait(lock)

    monkeypatch.setattr(borrow, "wait_for", told)
    then = started(lambda: l2caf.explain(other, pixels(1)), failed)
    assert waits.wait(PATIENCE)
    assert not second.is_set()
    may_leave.set()
    first.join(PATIENCE)
    then.join(PATIENCE)
    assert not failed
    assert second.is_set()
    assert not borrow._loans


def test_settings_stay_until_the_last_is_back() -> None:
    before = settings()
    one, other = seeded(nets.pooled), seeded(nets.pooled)
    first, second = borrowed(one), borrowed(other)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert settings() != before
    second.__exit__(None, None, None)
    assert settings() == before


def test_a_loan_inside_a_loan_is_the_same() -> None:
    network = seeded(nets.pooled).train()
    with borrowed(network) as outer, borrowed(network) as inner:
        assert inner is outer
        assert outer.depth == 2
        assert not network.training
    assert network.training
    assert outer.depth == 0
