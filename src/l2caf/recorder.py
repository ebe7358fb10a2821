"""`record`: the one place where a network is run and a head is made.

with record(network, images) as recording:        # borrowed once for all that follows
    output = recording.output
    heatmaps = [method.on(recording.head) for method in methods]
"""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType

from torch import Tensor, nn

from .heads.head import Head
from .recording.borrow import borrowed, unwrap
from .recording.inputs import Inputs, Select
from .recording.replay import Replay


class Recording:
    """One run of a network on a batch, cut at a layer; `with` borrows the network for the while.

    Without `with`, every use of the head borrows the network by itself.
    """

    def __init__(self, network: nn.Module, head: Head) -> None:
        self.network = network
        self.heads = (head,)
        self._loan = ExitStack()

    @property
    def head(self) -> Head:
        """The head of the only layer."""
        return self.heads[0]

    @property
    def output(self) -> Tensor:
        """What the network gave, untouched and without a graph."""
        return self.head.output.detach()

    def __enter__(self) -> Recording:
        self._loan.enter_context(borrowed(self.network))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loan.__exit__(kind, error, trace)


def record(
    network: nn.Module,
    inputs: Inputs,
    *,
    layer: str | nn.Module | None = None,
    call: int | None = None,
    select: Select = None,
) -> Recording:
    """Run the network once on a batch and cut it at a layer; the arguments are those of `l2caf.explain`."""
    plain = unwrap(network)
    with borrowed(plain):
        return Recording(plain, Head(Replay(plain, inputs, layer=layer, call=call, select=select)))
