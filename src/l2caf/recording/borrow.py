"""A network on loan: whatever is changed on it for a run is put back on the way out.

Each promise has a file of its own: `interrupts` (Ctrl-C at any instant), `changes` (what is put back, and how),
`process` (what torch decides for all threads), `bystanders` (other threads that call the network), `hooks` and
`buffers` (what the owner sees of our runs). Torch's private names stand in these and here: `_compiled_call_impl` and
`_orig_mod` (compiled networks), `_modules`, `_forward_hooks` and the like (what a network is made of). The contract
tests over every method (`tests/contracts/test_left_as_found.py`) catch it when one of them changes.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ..errors import NetworkError
from . import process
from .arranged import Arranged
from .buffers import Buffers
from .bystanders import Bystanders, in_this_thread, wait_for
from .census import HOOKS, look_through
from .changes import Changes
from .hooks import Hooks
from .interrupts import forget as forget_interrupts
from .interrupts import hold, release

Forward = Callable[..., Any]


@dataclass(frozen=True)
class Call:
    """The index-th call of a module in one run."""

    module: nn.Module
    index: int


def unwrap(network: nn.Module) -> nn.Module:
    """Return the plain network inside a compiled or data-parallel one."""
    if isinstance(network, torch.jit.ScriptModule):
        raise NetworkError("A scripted network hides its modules: give the network from before torch.jit.script.")
    if not isinstance(network, nn.Module):
        raise NetworkError(f"The network is a {type(network).__name__}: give a torch.nn.Module{_hint(network)}.")
    wrapped = _wrapped(network)
    return network if wrapped is None else unwrap(wrapped[1])


def _hint(network: object) -> str:
    """Where the module is, of what was given in place of it."""
    if isinstance(network, str):
        return f", such as l2caf.load({network!r}).network"
    if isinstance(network, type):
        return f", an object of the class {network.__name__}"
    return ", here its .network" if isinstance(getattr(network, "network", None), nn.Module) else ""


def name_inside(network: nn.Module, name: str) -> str:
    """A layer's name as `named_modules` of a wrapped network has it, as the plain network inside knows it."""
    inside, stripped = network, name
    while (wrapped := _wrapped(inside)) is not None:
        held, inside = wrapped
        stripped = stripped.removeprefix(f"{held}.")
    known = dict(inside.named_modules())
    return name if stripped not in known and name in known else stripped


def _wrapped(network: nn.Module) -> tuple[str, nn.Module] | None:
    """The network inside a wrapper, under the name that it has there."""
    if isinstance(network, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
        return "module", network.module
    compiled_from = getattr(network, "_orig_mod", None)
    return ("_orig_mod", compiled_from) if isinstance(compiled_from, nn.Module) else None


class Loan:
    """A network that is held, with its modules, since to walk through them takes longer than many a head."""

    def __init__(self, network: nn.Module) -> None:
        self.network = network
        self.look = look_through(network)
        self.modules = self.look.modules
        self.thread = threading.get_ident()
        self.depth = 0
        self.knowledge: Any = None  # what is known about the network as it is now; looked up once a loan
        self.changes = Changes()
        self.bystanders = Bystanders(self.modules)
        self.buffers = Buffers(self.modules)
        self.hooks: Hooks | None = None
        self._mode: torch.inference_mode | None = None
        self._is_entered = False
        self._owners_run_is_due = True
        self._runs_as_owner = False
        self._runs = 0  # runs inside of runs

    def begin(self) -> None:
        """Have the network as recording needs it; all that is done here, `end` undoes, as far as it came."""
        self._is_entered = True
        process.enter()
        # This enables gradients too, and on the way out everything about gradients is as it was.
        self._mode = torch.inference_mode(False)
        self._mode.__enter__()
        if self.look.some_special:
            special = [module for module in self.modules if _is_special(module.__dict__)]
            self.hooks = Hooks(self.network, self.modules, self.changes)
            self._set_aside([module for module in special if _is_as_trained(module)])

    def _set_aside(self, modules: list[nn.Module]) -> None:
        """Have these modules as for evaluation. Other threads wait, since they would find them changed."""
        for module in modules:
            own = module._compiled_call_impl or module._call_impl
            self.changes.set(module.__dict__, "_compiled_call_impl", self.bystanders.call_of(module, own))
        if modules:
            self.bystanders.let_out()
        for module in modules:
            if module.training:
                self.changes.evaluate(module)
            for name in ("_backward_hooks", "_backward_pre_hooks"):
                if getattr(module, name):
                    self.changes.set(module.__dict__, name, OrderedDict())

    def end(self) -> None:
        """Have the network as it was; once is enough, and twice does no harm."""
        try:
            self.buffers.finish()
        finally:
            self.changes.undo()
            if self._mode is not None:
                if threading.get_ident() == self.thread:
                    self._mode.__exit__(None, None, None)
                else:
                    _modes_of_others.append(self._mode)
                self._mode = None
            if self._is_entered:
                self._is_entered = False
                process.leave(self.thread)

    def ask_anew(self) -> None:
        """Another question begins, on this same loan: its first run stands for a forward of the owner's."""
        self.buffers.finish()
        self._owners_run_is_due = True

    @property
    def hooks_are_unknown(self) -> bool:
        """Whether the owner's run must come first, to tell which hooks are a part of the network."""
        return self._owners_run_is_due and self.hooks is not None and self.hooks.unknown

    def run_begins(self, *, as_owner: bool) -> None:
        """Have hooks and buffers as this run needs them; a run inside a run is a part of it."""
        self._runs += 1
        if self._runs > 1:
            return
        self._runs_as_owner = as_owner and self._owners_run_is_due
        if self._runs_as_owner:
            self._owners_run_is_due = False
            self.buffers.before_the_owners_run()
        else:
            self.buffers.before_a_run()
        if self.hooks is not None:
            self.hooks.begin(as_owner=self._runs_as_owner)

    def run_ends(self) -> None:
        self._runs -= 1
        if self._runs > 0:
            return
        if self.hooks is not None:
            self.hooks.end()
        if self._runs_as_owner:
            self.buffers.after_the_owners_run()
        else:
            self.buffers.after_a_run()

    def shares_with(self, other: Loan) -> bool:
        """Whether two loans hold a module in common."""
        return not set(self.modules).isdisjoint(other.modules)


def _is_special(parts: dict[str, Any]) -> bool:
    """Whether a module is not as a run of ours needs it."""
    return (
        any(parts[name] for name in HOOKS)
        or "_compiled_call_impl" in parts
        or parts.get("training", True)  # a scripted module keeps it elsewhere
    )


def _is_as_trained(module: nn.Module) -> bool:
    compiled = module._compiled_call_impl is not None
    return bool(module.training or compiled or module._backward_hooks or module._backward_pre_hooks)


# Forward methods are swapped on the modules themselves, so no two threads may hold the same module; networks that
# share none are explained side by side. The lock is held for looking into the table only, never while a network runs.
_table = threading.Lock()
_loans: dict[nn.Module, Loan] = {}
_modes_of_others: list[torch.inference_mode] = []  # to drop one would change the mode of the thread that drops it
_in_use: dict[int, list[Loan]] = {}  # by thread: the loans that it is inside of, the innermost last


class borrowed:  # noqa: N801 - used like a function: `with borrowed(network) as loan`
    """Hold the network in evaluation mode, uncompiled and outside inference mode, and give it back as it was.

    Nothing is checkpointed meanwhile. A network that this thread holds already stays as it is, so a long piece of work
    borrows it once for all its runs. Another thread waits until every module of the network is free.

    It is given back whatever happens: an interrupt waits while the network is taken or given back
    (`interrupts`), all that is changed is noted before (`changes`), and what is never left is given back when it is
    dropped.
    """

    _loan: Loan | None = None  # there from the start: what is interrupted in its `__init__` is dropped too
    _held = False

    def __init__(self, network: nn.Module) -> None:
        self._network = network

    def __enter__(self) -> Loan:
        self._held = hold()
        try:
            self._loan = loan = _taken(self._network)
            _in_use.setdefault(loan.thread, []).append(loan)
            if loan.depth == 1:
                loan.begin()
        except BaseException:
            self._give_back()
            raise
        return loan

    def __exit__(self, *_: object) -> None:
        try:
            self._give_back()
        except BaseException:
            self._give_back()  # whatever came in between; what is done already is not done again
            raise

    def __del__(self) -> None:
        if self._held or self._loan is not None:
            with suppress(KeyboardInterrupt):  # there is nobody to take it
                self._give_back()

    def _give_back(self) -> None:
        loan = self._loan
        if loan is not None:
            if loan.depth == 1:
                loan.end()
            _returned(loan)
            self._loan = None
        if self._held:
            self._held = False
            release()


def _taken(network: nn.Module) -> Loan:
    me = threading.get_ident()
    loan = _loans.get(network)
    if loan is not None and loan.thread == me:
        loan.depth += 1
        return loan
    loan = Loan(network)
    while True:
        with _table:
            other = next((one for one in _loans.values() if one.thread != me and one.shares_with(loan)), None)
            if other is None:
                loan.depth = 1
                _loans[network] = loan
                return loan
        wait_for(other.bystanders.back)


def is_on_loan() -> bool:
    """Whether this thread is in a run of ours, which whoever observes a network has no part in."""
    return threading.get_ident() in _in_use


def _returned(loan: Loan) -> None:
    in_use = _in_use[loan.thread]
    in_use.remove(loan)
    if not in_use:
        del _in_use[loan.thread]
    loan.depth -= 1
    if loan.depth == 0:
        with _table:
            del _loans[loan.network]
        loan.bystanders.back.release()


def _only_this_thread() -> None:
    """In a forked process there is no other thread: what others had on loan is put back, and nobody holds a lock."""
    global _table
    _table = threading.Lock()
    me = threading.get_ident()
    process.only(me)
    for loan in [one for one in _loans.values() if one.thread != me]:
        del _loans[loan.network]
        loan.end()
    for thread in [one for one in _in_use if one != me]:
        del _in_use[thread]
    if me not in _in_use:
        forget_interrupts()


os.register_at_fork(after_in_child=_only_this_thread)


class forwards_replaced:  # noqa: N801 - used like a function
    """Let each module's forward be another function for a while, in this thread; others call the module's own.

    `hooks` says what becomes of modules' hooks meanwhile. On a network on loan this is one run. `as_owner` says that it
    may stand for the forward that the owner asked for, which is the first such run: the owner's hooks see that one, and
    it leaves what it writes into buffers.
    """

    _loan: Loan | None = None
    _changes: Changes | None = None
    _held = False

    def __init__(
        self,
        replacements: Mapping[nn.Module, Forward],
        *,
        hooks: Mapping[nn.Module, Arranged] | None = None,
        as_owner: bool = False,
    ) -> None:
        self._replacements = replacements
        self._hooks = hooks or {}
        self._as_owner = as_owner

    def __enter__(self) -> None:
        self._held = hold()
        try:
            in_use = _in_use.get(threading.get_ident())
            if in_use:
                self._loan = in_use[-1]
                self._loan.run_begins(as_owner=self._as_owner)
            changes = self._loan.changes if self._loan else Changes()
            self._length, self._changes = len(changes), changes
            for module, forward in self._replacements.items():
                changes.set(module.__dict__, "forward", in_this_thread(forward, module.forward))
            for module, arranged in self._hooks.items():
                arranged.arrange(module, changes)
        except BaseException:
            self._put_back()
            raise

    def __exit__(self, *_: object) -> None:
        try:
            self._put_back()
        except BaseException:
            self._put_back()
            raise

    def __del__(self) -> None:
        if self._held or self._changes is not None:
            with suppress(KeyboardInterrupt):
                self._put_back()

    def _put_back(self) -> None:
        if self._changes is not None:
            self._changes.undo(self._length)
            self._changes = None
        if self._loan is not None:
            self._loan.run_ends()
            self._loan = None
        if self._held:
            self._held = False
            release()


def watching(
    modules: Iterable[nn.Module],
    *,
    called: Callable[[Call], None] | None = None,
    returned: Callable[[Call, Any], None] | None = None,
    forwards: Mapping[nn.Module, Forward] | None = None,
) -> dict[nn.Module, Forward]:
    """Return forwards that tell of every call, when it begins and with what it returned, and compute as ever.

    `forwards` are taken in place of the modules' own, where given. Put them in place with `forwards_replaced`.
    """
    own = forwards or {}

    def watched_forward(module: nn.Module, forward: Forward) -> Forward:
        calls = 0

        def watched(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            call = Call(module, calls)
            calls += 1
            if called is not None:
                called(call)
            output = forward(*args, **kwargs)
            if returned is not None:
                returned(call, output)
            return output

        return watched

    return {module: watched_forward(module, own.get(module, module.forward)) for module in modules}
