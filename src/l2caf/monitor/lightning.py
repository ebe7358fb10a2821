"""`AttentionCallback`: an `AttentionWatch` for a Lightning trainer.

    trainer = Trainer(callbacks=[AttentionCallback(network="model", objective=l2caf.Prediction())])

Lightning is the user's own; only this file needs it.
"""

from __future__ import annotations

import warnings
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from torch import nn

from ..errors import ExtraError, InputError
from .watch import AttentionWatch

if TYPE_CHECKING:
    Callback: Any
else:
    try:
        from lightning.pytorch import Callback
    except ImportError:
        try:
            from pytorch_lightning import Callback
        except ImportError as error:
            raise ExtraError("The callback is for Lightning: pip install lightning.") from error


class AttentionCallback(Callback):
    """Observes a network in every validation epoch and writes to the trainer's loggers.

    `network` is the dotted name of the module inside the LightningModule that `validation_step` calls; by default the
    LightningModule itself, called as `self(x)`. All else is as for `AttentionWatch`. Of several processes, each
    observes its own pictures, and the first writes. The means are also logged as metrics (`attention/entropy`, …), so
    that checkpoints and early stopping can go by them.
    """

    def __init__(self, network: str = "", *, name: str = "attention", **options: Any) -> None:
        super().__init__()
        self.inside = network
        self.name = name
        self.options = options
        self.watch: AttentionWatch | None = None
        self._stack = ExitStack()

    def on_validation_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        if trainer.sanity_checking:
            return
        if self.watch is None:
            self.watch = AttentionWatch(self._module(pl_module), name=self.name, **self.options)
        self._stack.enter_context(self.watch.epoch(trainer.current_epoch))

    def on_validation_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        if self.watch is None or trainer.sanity_checking:
            return
        if trainer.is_global_zero:
            given = self.options.get("writers", ())
            self.watch.writers = [*given, *(one.experiment for one in trainer.loggers if _is_writer(one))]
        else:
            self.watch.writers, self.watch.out = [], None
        self._stack.close()
        if self.watch.last.missed or self.watch.last.reason:  # nobody else would hear of it
            warnings.warn(self.watch.last.said, stacklevel=2)
        for key, value in self.watch.last.means.items():
            pl_module.log(f"{self.name}/{key}", value, sync_dist=True, logger=False)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._stack.__exit__(type(exception), exception, exception.__traceback__)  # the hooks go, nothing is written

    def _module(self, pl_module: nn.Module) -> nn.Module:
        try:
            return pl_module.get_submodule(self.inside)
        except AttributeError as error:
            raise InputError(
                f"The LightningModule has no module {self.inside!r}: give the name of the one that validation calls.",
                field="network",
            ) from error


def _is_writer(logger: Any) -> bool:
    experiment = getattr(logger, "experiment", None)
    return hasattr(experiment, "add_image") or hasattr(experiment, "log")
