"""`Overheard`: what passes through a network while somebody else runs it, as heads that can be explained.

Nothing is run a second time: a hook at the layer keeps the map of each batch, a hook at the network its output, and
what is between them is a mean and a linear map that a recording of one input verified before. Every batch checks that
W mean(A) + b is the output just given, so that a network which changed in between is never explained by what it was.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import InputError, LayerError
from ..heads.planned import PlannedHead
from ..numerics import AGREE, rows
from ..recorder import record
from ..recording.borrow import is_on_loan, unwrap
from ..recording.inputs import Arguments, Select, select_output
from ..recording.layers import module_named

Heard = Callable[[PlannedHead, Tensor, int], None]

# Single precision agrees to AGREE; what autocast computed in half precision to some units of its rounding.
UNITS = 16


class Overheard:
    """Hooks on a network: `heard(head, inputs, place)` is called after each batch, `place` that of its first input.

    No error of ours leaves a hook: a training run is worth more than a picture of it. `missed` is how many inputs were
    not explained, and `reason` the last cause.
    """

    def __init__(self, network: nn.Module, heard: Heard, *, layer: str | nn.Module | None, output: Select) -> None:
        self.network = unwrap(network)
        self.heard = heard
        self.layer = layer
        self.output = output
        self.missed = 0
        self.reason = ""
        self.batches = 0
        self.place = 0  # how many inputs came before
        self._known: PlannedHead | None = None
        self._features: Tensor | None = None
        self._hooks: list[Any] = []
        self._stance = ExitStack()

    def __enter__(self) -> Overheard:
        # A compiled network would compile our hooks too, or leave them out: in the pass it runs as it was written.
        if "torch._dynamo" in sys.modules:
            self._stance.enter_context(torch.compiler.set_stance("force_eager"))
        self._hooks = [self.network.register_forward_pre_hook(self._begins, with_kwargs=True)]
        return self

    def __exit__(self, *_: object) -> None:
        self._release()
        self._stance.close()

    def _release(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        self._features = None

    def _begins(self, network: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Before the first batch: look at the network with one of its inputs, with no hook of ours on it."""
        if is_on_loan():  # a run of explain, or of another watch
            return
        self._release()
        try:
            arguments = Arguments.of(args if args else kwargs)
            one = arguments.map(lambda tensor: tensor[:1])
            # By the network's own precision: what autocast rounds has no exact map.
            with torch.autocast(arguments.main.device.type, enabled=False):
                head = record(network, one.args or one.kwargs, layer=self.layer, output=self.output).head
            if not isinstance(head, PlannedHead) or head.layer.calls != 1 or head.layout.frames:
                raise InputError(
                    "What follows the layer is no mean and linear map, which is what can be explained in passing:"
                    " explain some pictures after the epoch with l2caf.explain, or choose another layer."
                )
            self._known = head
        except Exception as error:  # noqa: BLE001 - any fault of ours or of the network's in a run of our own
            self._miss(0, error)
        layer = None if self._known is None else module_named(self.network, self._known.layer.name)
        watched = [] if layer is None else [layer.register_forward_hook(self._map)]
        self._hooks = [*watched, network.register_forward_hook(self._ends, with_kwargs=True)]

    def _map(self, layer: nn.Module, args: Any, features: Any) -> None:
        if not is_on_loan():
            self._features = features if isinstance(features, Tensor) else None

    def _ends(self, network: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], returned: Any) -> None:
        if is_on_loan():
            return
        features, self._features = self._features, None
        self.batches += 1
        try:
            arguments = Arguments.of(args if args else kwargs)
        except Exception as error:  # noqa: BLE001 - of a call that is not like the others
            self._miss(1, error)
            return
        place, self.place = self.place, self.place + arguments.batch
        if self._known is None:
            self._miss(arguments.batch)
            return
        try:
            with torch.inference_mode(False), torch.no_grad():
                self.heard(self._head(self._known, arguments, features, returned), arguments.main, place)
        except Exception as error:  # noqa: BLE001 - see the class
            self._miss(arguments.batch, error)

    def _head(self, known: PlannedHead, arguments: Arguments, features: Any, returned: Any) -> PlannedHead:
        """The head of this batch, checked on its own numbers."""
        if features is None:
            raise LayerError(f"The layer {known.layer.name} gave no map in this batch.")
        output = select_output(returned, self.output, arguments.batch)
        given = torch.finfo(features.dtype).eps if features.is_floating_point() else 0.0
        weight = known.pooled.weight
        features, output = (_plain(one.detach()).to(weight) for one in (features, output))
        if features.shape != (arguments.batch, *known.layer.shape):
            raise InputError(
                f"The map of this batch is {'×'.join(map(str, features.shape[2:]))} where that of the first was"
                f" {'×'.join(map(str, known.layer.shape[1:]))}: give all pictures of a pass one size."
            )
        head = known.of_batch(features, output)
        wrong = (known.pooled.of_mean(head.columns.mean(dim=2)) - rows(output)).abs().amax()
        if not bool(wrong <= max(10 * AGREE, UNITS * given) * rows(output).abs().amax()):
            raise InputError(
                "W mean(A) + b is not the output of this batch, so that no exact map is known: is the network in"
                " training mode, or was its head changed during the pass?"
            )
        return head

    def _miss(self, inputs: int, error: BaseException | None = None) -> None:
        self.missed += inputs
        if error is not None:
            self.reason = str(error) or type(error).__name__


def _plain(values: Tensor) -> Tensor:
    """The same outside of inference mode, whose tensors have no versions."""
    return values.clone() if values.is_inference() else values
