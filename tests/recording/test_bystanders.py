"""Other threads: their forwards, their training, their checkpoints, and processes that are forked beside them."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import l2caf
import networks_for_tests as nets
from l2caf.objectives.classes import ClassSpecific
from l2caf.recording import borrow, bystanders, process
from l2caf.recording.borrow import borrowed
from networks_for_tests import pixels, seeded
from state_for_tests import assert_same, state_of

PATIENCE = 30.0  # seconds after which a test gives up; no test waits for them where all is well


class Gate(nn.Module):
    """Stops the n-th call in one thread until it may go on; lets every other thread pass."""

    def __init__(self) -> None:
        super().__init__()
        self.state: dict[str, Any] = {"thread": None, "calls": 0}
        self.reached, self.open = threading.Event(), threading.Event()

    def stop(self, call: int) -> None:
        """Stop this thread at that call of it."""
        self.state.update(thread=threading.get_ident(), calls=call)

    def forward(self, x: Tensor) -> Tensor:
        if self.state["thread"] == threading.get_ident():
            self.state["calls"] -= 1
            if self.state["calls"] == 0:
                self.reached.set()
                assert self.open.wait(PATIENCE)
        return x


def gated() -> nn.Sequential:
    """A head that needs a descent, with a gate right behind the layer, and statistics that training moves."""
    conv, relu, *head = seeded(nets.curved)
    return nn.Sequential(conv, nn.BatchNorm2d(8), relu, Gate(), *head).eval()


class Result:
    """What a thread gave, or what it failed with."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self.value: Any = None
        self.error: BaseException | None = None

        def guarded() -> None:
            try:
                self.value = work()
            except BaseException as error:  # noqa: BLE001 - told to the test
                self.error = error

        self.thread = threading.Thread(target=guarded, daemon=True)
        self.thread.start()

    def get(self) -> Any:
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()
        if self.error is not None:
            raise self.error
        return self.value


@pytest.mark.parametrize("call", [1, 2, 3, 4])
def test_a_forward_beside_an_explanation(call: int) -> None:
    """In the middle of each run of ours, another thread runs the network: both get what they get alone."""
    expected = l2caf.explain(gated(), pixels(), layer="2").weights
    network = gated()
    gate, inputs = network[3], pixels(3, seed=5)
    plain = network(inputs)

    def explain() -> Tensor:
        gate.stop(call)
        return l2caf.explain(network, pixels(), layer="2").weights

    explained = Result(explain)
    assert gate.reached.wait(PATIENCE)
    beside = Result(lambda: network(inputs)).get()
    gate.open.set()
    assert torch.equal(explained.get(), expected)
    assert torch.equal(beside, plain)


def test_a_training_step_waits_for_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    network, twin = gated().train(), gated().train()
    inputs, waits = pixels(3, seed=5), threading.Event()
    expected = twin(inputs)
    wait = bystanders.wait_for

    def told(lock: threading.Lock) -> None:
        waits.set()
        wait(lock)

    monkeypatch.setattr(bystanders, "wait_for", told)
    gate = network[3]

    def explain() -> None:
        gate.stop(1)
        l2caf.explain(network, pixels(), layer="2")

    explained = Result(explain)
    assert gate.reached.wait(PATIENCE)
    assert not network.training
    step = Result(lambda: network(inputs))
    assert waits.wait(PATIENCE)
    assert step.value is None
    gate.open.set()
    explained.get()
    assert torch.equal(step.get(), expected)
    assert torch.equal(network[1].running_mean, twin[1].running_mean)
    assert all(module.training for module in network.modules())


def test_an_explanation_waits_for_a_training_step_in_the_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    """The step began before: its later modules must still be in training mode."""
    network, twin = gated().train(), gated().train()
    network, twin = (nn.Sequential(Gate(), *one).train() for one in (network, twin))
    inputs, looked = pixels(3, seed=5), threading.Event()
    expected = twin(inputs)
    monkeypatch.setattr(bystanders, "time", Sleepless(looked))

    def step() -> Tensor:
        network[0].stop(1)
        return network(inputs)

    stepped = Result(step)
    assert network[0].reached.wait(PATIENCE)
    explained = Result(lambda: l2caf.explain(network, pixels(), layer="3").weights)
    assert looked.wait(PATIENCE)
    assert network[2].training
    network[0].open.set()
    assert torch.equal(stepped.get(), expected)
    assert torch.equal(network[2].running_mean, twin[2].running_mean)
    assert torch.equal(explained.get(), l2caf.explain(twin, pixels(), layer="3").weights)


class Sleepless:
    """Stands in for the module `time`: tells that somebody sleeps."""

    def __init__(self, slept: threading.Event) -> None:
        self.slept = slept

    def sleep(self, seconds: float) -> None:
        self.slept.set()
        time.sleep(seconds)


def test_who_waits_for_us_in_the_middle_of_a_call_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hook explains its own network, in a training step that another thread's explanation waits for."""
    network = gated().train()
    reached, looked = threading.Event(), threading.Event()
    monkeypatch.setattr(bystanders, "time", Sleepless(looked))
    found: list[Tensor] = []

    def explaining(module: nn.Module, args: Any, output: Tensor) -> None:
        handle.remove()
        reached.set()
        assert looked.wait(PATIENCE)
        found.append(l2caf.explain(network, pixels(), layer="2").weights)

    handle = network[0].register_forward_hook(explaining)
    stepped = Result(lambda: network(pixels(3, seed=5)))
    assert reached.wait(PATIENCE)
    explained = Result(lambda: l2caf.explain(network, pixels(), layer="2").weights)
    assert torch.equal(explained.get(), l2caf.explain(gated(), pixels(), layer="2").weights)
    stepped.get()  # it was not waited for, so what its hook found may come later
    assert torch.equal(found[0], explained.get())
    assert all(module.training for module in network.modules())


class Blocks(nn.Module):
    """A checkpointed block that counts its runs, by thread."""

    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.conv = nn.Conv2d(3, 4, 8, stride=8)
        self.scores = nn.Linear(4, 3)
        self.runs: list[int] = []

    def block(self, x: Tensor) -> Tensor:
        self.runs.append(threading.get_ident())
        return torch.tanh(self.conv(x))

    def forward(self, x: Tensor) -> Tensor:
        return self.scores(checkpoint(self.block, x, use_reentrant=self.reentrant).mean(dim=(2, 3)))


@pytest.mark.parametrize("reentrant", [False, True])
def test_the_training_of_another_thread_is_checkpointed(reentrant: bool) -> None:
    trained, explained = Blocks(reentrant=reentrant), seeded(nets.pooled)

    def step() -> int:
        trained(pixels().requires_grad_()).sum().backward()
        return trained.runs.count(threading.get_ident())

    with borrowed(explained):
        assert Result(step).get() == 2  # once, and once more for the gradient
        assert step() == 1  # in the thread that borrows, nothing is
    assert step() == 1 + 2


def test_the_fused_attention_of_another_thread_stays() -> None:
    encoder = nn.TransformerEncoderLayer(8, 2, dim_feedforward=8, batch_first=True).eval()
    inner: list[int] = []
    own = encoder.linear1.forward
    encoder.linear1.forward = lambda x: (inner.append(threading.get_ident()), own(x))[1]
    tokens = torch.rand(2, 5, 8)

    def passes_the_inner_modules_by() -> bool:
        with torch.no_grad():
            encoder(tokens)
        return threading.get_ident() not in inner

    with borrowed(seeded(nets.pooled)):
        assert Result(passes_the_inner_modules_by).get()
        assert not passes_the_inner_modules_by()
    inner.clear()
    assert passes_the_inner_modules_by()
    assert torch.backends.mha.get_fastpath_enabled() is True


def test_the_compiled_functions_of_another_thread_stay() -> None:
    ran: list[int] = []

    def counting(graph: Any, inputs: Any) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            ran.append(threading.get_ident())
            return graph.forward(*args)

        return run

    @torch.compile(backend=counting)
    def double(x: Tensor) -> Tensor:
        return x * 2

    def is_compiled() -> bool:
        before = len(ran)
        double(torch.ones(3))
        return len(ran) > before

    assert is_compiled()
    with borrowed(seeded(nets.pooled)):
        assert Result(is_compiled).get()
        assert not is_compiled()
    assert is_compiled()


def test_the_names_of_torch_are_there() -> None:
    """Where torch renames one of them, what it is about would go on unseen."""
    importlib.import_module("torch._dynamo.eval_frame")  # it loads late

    with borrowed(seeded(nets.pooled)):
        for module, name, stand_in in process._NAMES:
            assert isinstance(vars(sys.modules[module])[name], stand_in)


def test_a_long_descent_holds_up_no_other_network() -> None:
    """A call on another network begins and ends while the first is in the middle of its run."""
    network = gated()
    gate = network[3]

    def explain() -> None:
        gate.stop(3)
        l2caf.explain(network, pixels(), layer="2")

    held = Result(explain)
    assert gate.reached.wait(PATIENCE)
    others = [seeded(nets.pooled), seeded(nets.curved).train()]
    for other in others:
        assert len(Result(lambda other=other: l2caf.explain(other, pixels(), objective=ClassSpecific(1))).get()) == 2
    assert held.value is None
    assert held.thread.is_alive()
    gate.open.set()
    held.get()


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")  # Python 3.12; it is the point
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.parametrize("call", [1, 2, 3])
def test_a_fork_while_a_thread_explains(call: int) -> None:
    """The child has the network as its owner left it, and can explain it."""
    network = gated().train()
    before = state_of(network)
    expected = l2caf.explain(gated(), pixels(), layer="2").weights
    gate = network[3]

    def explain() -> None:
        gate.stop(call)
        l2caf.explain(network, pixels(), layer="2")

    explained = Result(explain)
    assert gate.reached.wait(PATIENCE)
    with borrow._table, process._lock:  # as if another thread were in the middle of taking a network
        child = os.fork()
    if child == 0:
        failed = True
        try:
            assert not borrow._loans
            assert_same(state_of(network), before)
            failed = not torch.equal(l2caf.explain(network, pixels(), layer="2").weights, expected)
        finally:
            os._exit(failed)
    gate.open.set()
    explained.get()
    deadline = time.monotonic() + PATIENCE
    while not (ended := os.waitpid(child, os.WNOHANG))[0] and time.monotonic() < deadline:
        time.sleep(0.01)
    if not ended[0]:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert ended == (child, 0)
    assert_same(state_of(network), before)
