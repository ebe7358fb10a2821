"""Where the channels and the positions are: what shapes propose, and what of it a person would guess."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from l2caf.recording.inputs import position_axes
from l2caf.recording.layout import Layout, natural, proposals

MAPS = {
    "one axis": ((2, 64, 50), (2, 1, 400), Layout("channels_first", (50,))),
    "a whole signal": ((2, 4, 400), (2, 1, 400), Layout("channels_first", (400,))),
    "square": ((2, 512, 7, 7), (2, 3, 224, 224), Layout("channels_first", (7, 7))),
    "tall": ((1, 64, 20, 10), (1, 3, 320, 160), Layout("channels_first", (20, 10))),
    "one row": ((1, 64, 1, 9), (1, 1, 8, 72), Layout("channels_first", (1, 9))),
    "rounded up": ((1, 64, 8, 11), (1, 3, 225, 330), Layout("channels_first", (8, 11))),
    "volume": ((2, 16, 4, 6, 6), (2, 1, 32, 48, 48), Layout("channels_first", (4, 6, 6))),
    "clip, time strided apart": (
        (2, 512, 2, 7, 7),
        (2, 3, 16, 112, 112),
        Layout("channels_first", (2, 7, 7)),
    ),
    "channels last": ((2, 7, 7, 768), (2, 3, 224, 224), Layout("channels_last", (7, 7))),
    "channels last, tall": ((2, 14, 7, 96), (2, 3, 448, 224), Layout("channels_last", (14, 7))),
    "channels last, volume": ((2, 4, 7, 7, 768), (2, 3, 8, 224, 224), Layout("channels_last", (4, 7, 7))),
    "tokens": ((2, 196, 768), (2, 3, 224, 224), Layout("tokens", (14, 14))),
    "class token": ((2, 197, 768), (2, 3, 224, 224), Layout("tokens", (14, 14), prefix=1)),
    "distillation token": ((2, 198, 192), (2, 3, 224, 224), Layout("tokens", (14, 14), prefix=2)),
    "registers": ((2, 261, 384), (2, 3, 224, 224), Layout("tokens", (16, 16), prefix=5)),
    "registers on a small grid": ((2, 30, 384), (2, 3, 80, 80), Layout("tokens", (5, 5), prefix=5)),
    "tokens of a wide picture": ((2, 1 + 8 * 14, 64), (2, 3, 128, 224), Layout("tokens", (8, 14), prefix=1)),
    "frames as a batch": ((2 * 8, 64, 7, 7), (2, 3, 8, 112, 112), Layout("channels_first", (7, 7), frames=8)),
    "frames first, as a batch": ((2 * 8, 64, 7, 7), (2, 8, 3, 112, 112), Layout("channels_first", (7, 7), frames=8)),
    "2 x 2 tokens": ((1, 5, 64), (1, 3, 32, 32), Layout("tokens", (2, 2), prefix=1)),
}

NO_MAPS = {
    "pooled": ((2, 1280, 1, 1), (2, 3, 224, 224)),
    "two channels, pooled": ((2, 2, 1, 1), (2, 3, 224, 224)),
    "few channels of a clip, pooled": ((2, 8, 1, 1, 1), (2, 3, 16, 112, 112)),
    "scores": ((2, 1000), (2, 3, 224, 224)),
    "queries of heads": ((2, 12, 197, 64), (2, 3, 224, 224)),
    "windows": ((2 * 16, 49, 96), (2, 3, 224, 224)),
    "windows of attention": ((2 * 16, 3, 49, 49), (2, 3, 224, 224)),
    "a vector as a sequence": ((2, 1, 768), (2, 3, 224, 224)),
    "finer than the input": ((2, 3, 448, 448), (2, 3, 224, 224)),
    "other proportions": ((2, 64, 7, 28), (2, 3, 224, 224)),
    "not a whole number of frames": ((2 * 5, 64, 7, 7), (2, 3, 8, 112, 112)),
    "recurrent steps": ((2, 3, 64), (2, 3, 112, 112)),
}


def guessed(output_shape: tuple[int, ...], input_shape: tuple[int, ...]) -> Layout | None:
    frames = output_shape[0] // input_shape[0]
    axes = position_axes(torch.empty(input_shape))
    axes = {axis: length for axis, length in axes.items() if length > 3 or length == frames}
    return natural(output_shape, list(proposals(output_shape, axes, input_shape[0])), axes)


@pytest.mark.parametrize("name", MAPS)
def test_maps(name: str) -> None:
    output_shape, input_shape, expected = MAPS[name]
    guess = guessed(output_shape, input_shape)
    assert guess is not None
    assert replace(guess, along=None) == expected


@pytest.mark.parametrize("name", NO_MAPS)
def test_false_friends(name: str) -> None:
    assert guessed(*NO_MAPS[name]) is None


@pytest.mark.parametrize(
    ("layout", "shape"),
    [
        (Layout("channels_first", (5,)), (2, 3, 5)),
        (Layout("channels_first", (4, 5)), (2, 3, 4, 5)),
        (Layout("channels_first", (2, 4, 5)), (2, 3, 2, 4, 5)),
        (Layout("channels_last", (4, 5)), (2, 4, 5, 3)),
        (Layout("tokens", (4, 5)), (2, 20, 3)),
        (Layout("tokens", (4, 5), prefix=2), (2, 22, 3)),
    ],
    ids=str,
)
def test_weighing_multiplies_each_position_and_leaves_prefix_tokens(layout: Layout, shape: tuple[int, ...]) -> None:
    features = torch.randn(shape)
    weights = torch.randn(2, layout.positions)
    weighed = layout.weigh(features, weights)
    columns = layout.columns(features)
    assert columns.shape == (2, 3, layout.positions)
    torch.testing.assert_close(layout.columns(weighed), columns * weights[:, None])
    if layout.prefix:
        assert torch.equal(weighed[:, : layout.prefix], features[:, : layout.prefix])
