"""A network as an ONNX graph that gives its output and the columns of one layer, through torch's own exporter."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator

import onnx
import torch
from torch import Tensor, nn

from ..errors import NetworkError, first_line
from ..exported.card import COLUMNS, IMAGES, OUTPUT
from ..recording.borrow import borrowed
from ..recording.layers import Layer, module_named

IR = 10  # of the file format: what ONNX Runtime 1.20 reads
LARGEST = 2**31 - 1  # bytes of one file


class _Cut(nn.Module):
    """The network with what one of its layers gives as a second output."""

    def __init__(self, network: nn.Module, layer: Layer) -> None:
        super().__init__()
        self.network, self.layer = network, layer

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        given: list[Tensor] = []
        hook = module_named(self.network, self.layer.name).register_forward_hook(
            lambda module, arguments, features: given.append(features)
        )
        try:
            output = self.network(images)
        finally:
            hook.remove()
        output = output.flatten(1) if output.ndim > 1 else output.unsqueeze(1)
        return output, self.layer.layout.columns(given[self.layer.call or 0])


def traced(network: nn.Module, layer: Layer, images: Tensor, *, opset: int) -> onnx.ModelProto:
    """The graph of a network from a batch of images; the number of images stays open."""
    batch = torch.export.Dim("batch", min=1)
    two = images[:1].expand(2, *images.shape[1:])  # one alone may be taken for a fixed number
    with borrowed(network), torch.no_grad(), _in_silence():
        try:
            program = torch.onnx.export(
                _Cut(network, layer).eval(),
                (two,),
                dynamo=True,
                opset_version=opset,
                input_names=[IMAGES],
                output_names=[OUTPUT, COLUMNS],
                dynamic_shapes=({0: batch},),
                optimize=True,
                verbose=False,
            )
        except Exception as error:  # torch's exporter may fail in any way on a network of one's own
            raise NetworkError(
                f"torch cannot export this network as a graph ({_cause(error)}): let its forward do the same whatever"
                " the numbers in its input are."
            ) from error
        assert program is not None
        model: onnx.ModelProto = program.model_proto
    if model.ByteSize() > LARGEST:
        raise NetworkError(
            f"The graph takes {model.ByteSize() / 1e9:.1f} GB, and an ONNX file holds 2: export a smaller network."
        )
    return _plain(model)


def _cause(error: BaseException) -> str:
    """The first line of what torch's exporter stumbled on, below its own advice."""
    while error.__cause__ is not None:
        error = error.__cause__
    return first_line(error) if isinstance(error, Exception) else type(error).__name__


def _plain(model: onnx.ModelProto) -> onnx.ModelProto:
    """Without notes on where in the source each node was made, which are longer than the graph."""
    model.ir_version = min(model.ir_version, IR)
    for one in (*model.graph.node, *model.graph.value_info, *model.graph.input, *model.graph.output):
        del one.metadata_props[:]
    for one in model.graph.node:
        one.doc_string = ""
    del model.graph.metadata_props[:]
    return model


@contextlib.contextmanager
def _in_silence() -> Iterator[None]:
    """What torch and its exporter tell one another is not for whoever exports; what fails is raised."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
