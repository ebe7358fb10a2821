"""A graph in eight bits: static quantisation by ONNX Runtime, with real photographs to learn the ranges from.

Convolutions alone become int8, with weights per channel in seven of the eight bits: without it, processors without VNNI
overflow. The first convolution and the depthwise ones stay float (they hold few of the multiplications, and most of the
error), so do sums between layers, and so does the head, whose weights the maps need as they are.
"""

from __future__ import annotations

import contextlib
import logging
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

from ..exported.card import IMAGES

Images = npt.NDArray[np.float32]


def in_int8(model: onnx.ModelProto, batches: Iterable[Images]) -> onnx.ModelProto:
    """The same graph in eight bits; `batches` are inputs of photographs."""
    with tempfile.TemporaryDirectory() as folder, _in_silence():
        prepared, made = Path(folder, "prepared.onnx"), Path(folder, "int8.onnx")
        onnx.save(model, prepared)
        quant_pre_process(prepared, prepared, skip_symbolic_shape=True)
        quantize_static(
            prepared,
            made,
            _Read(batches),
            quant_format=QuantFormat.QDQ,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            per_channel=True,
            reduce_range=True,
            op_types_to_quantize=["Conv"],
            nodes_to_exclude=kept_float(onnx.load(prepared)),
        )
        return onnx.load(made)


def kept_float(model: onnx.ModelProto) -> list[str]:
    """The names of the convolutions that stay float."""
    first = {IMAGES}
    kept = []
    for node in model.graph.node:
        if node.op_type == "Conv":
            groups = next((one.i for one in node.attribute if one.name == "group"), 1)
            if first & set(node.input) or groups > 1:
                kept.append(node.name)
        elif first & set(node.input):  # a preparation of the input, before the first convolution
            first.update(node.output)
    return kept


class _Read(CalibrationDataReader):
    """Hands over one batch after the other."""

    def __init__(self, batches: Iterable[Images]) -> None:
        self.left: Iterator[Images] = iter(batches)

    def get_next(self) -> dict[str, Any] | None:
        batch = next(self.left, None)
        return None if batch is None else {IMAGES: batch}


@contextlib.contextmanager
def _in_silence() -> Iterator[None]:
    """The quantiser advises on the root logger what was done already."""
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
