"""Which layer is taken by default, and what is no map, in the cases that the zoo has shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import l2caf
from l2caf.errors import LayerError
from l2caf.recording.inputs import Arguments
from l2caf.recording.layers import Layer, find_layer
from l2caf.recording.layout import Layout, proposals
from l2caf.recording.positions import Answers, Judged


def textured(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(2))


def default(network: nn.Module, inputs: Tensor) -> Layer:
    return find_layer(network.eval(), Arguments.of(inputs), None)


def attention_block(channels: int) -> nn.Module:
    return nn.TransformerEncoderLayer(channels, 2, 2 * channels, dropout=0.0, batch_first=True, norm_first=True)


class Words(nn.Module):
    """The first of the words stands for all of them, as in BERT."""

    def __init__(self, read: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(attention_block(16) for _ in range(2)))
        self.head = nn.Linear(16, 5)
        self.read = read

    def forward(self, words: Tensor) -> Tensor:
        return self.head(self.read(self.blocks(words)))


@pytest.mark.parametrize("place", [0, -1])
def test_a_map_of_which_one_token_is_read_is_not_the_default(place: int) -> None:
    torch.manual_seed(0)
    words = textured(2, 12, 16)
    assert default(Words(lambda tokens: tokens[:, place]), words).name == "blocks.1.norm1"
    assert default(Words(lambda tokens: tokens.mean(dim=1)), words).name == "blocks"


class DividedAttention(nn.Module):
    """Tokens of all frames in one row, then a row for each frame, then one row again, as in TimeSformer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, 16, 8, 8)
        self.together = nn.LayerNorm(16)
        self.each = nn.LayerNorm(16)
        self.keys = nn.Linear(16, 48)
        self.after = nn.LayerNorm(16)
        self.head = nn.Linear(16, 5)

    def forward(self, clip: Tensor) -> Tensor:
        batch, frames = clip.shape[:2]
        patches = self.embed(clip.flatten(0, 1)).flatten(2).transpose(1, 2).reshape(batch, -1, 16)
        tokens = self.together(torch.cat([patches.mean(dim=1, keepdim=True), patches], dim=1))
        keys = self.keys(self.each(tokens[:, 1:].reshape(batch * frames, -1, 16)))
        read = keys.unflatten(0, (batch, frames)).tanh().mean(dim=(1, 2))[:, :16]
        return self.head(self.after(torch.cat([tokens[:, :1] + read[:, None], tokens[:, 1:]], dim=1))[:, 0])


def test_the_stream_is_followed_however_a_tensor_holds_it() -> None:
    torch.manual_seed(0)
    taken = default(DividedAttention(), textured(2, 5, 3, 32, 40))
    assert taken.name == "each"
    assert taken.layout.shape == (5, 4, 5)


class ListOfPictures(nn.Module):
    """Pictures without an axis for the batch, as torchvision's detectors take them."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, 4, 1), nn.ReLU(inplace=True), nn.Conv2d(8, 8, 3, 2, 1))
        self.head = nn.Linear(8, 5)

    def forward(self, pictures: list[Tensor]) -> Tensor:
        return self.head(self.body(torch.stack(pictures)).relu().mean(dim=(2, 3)))


@pytest.mark.parametrize("of", [None, "0.1"])
def test_as_many_pictures_as_colours_are_no_batch_of_colours(of: str | None) -> None:
    torch.manual_seed(0)
    pictures = list(textured(3, 3, 64, 80))
    with pytest.raises(LayerError, match="depends on the others of the batch"):
        l2caf.explain(ListOfPictures().eval(), (pictures,), of=of)


def test_a_map_of_one_channel_is_not_read_as_a_row() -> None:
    kinds = {layout.kind for layout in proposals((2, 1, 8, 10), {2: 64, 3: 80}, 2)}
    assert kinds == {"channels_first"}
    kinds = {layout.kind for layout in proposals((2, 1, 8, 10), {2: 64}, 2)}  # of a signal, it is one
    assert kinds == {"channels_last"}


@pytest.mark.parametrize(("agreement", "taken"), [(0.58, (8, 10)), (0.3, (7, 10))])
def test_tokens_are_not_left_out_to_get_above_the_least(agreement: float, taken: tuple[int, ...]) -> None:
    found: dict[Any, Judged] = {}
    for layout, agrees in (
        (Layout("tokens", (8, 10), along=(2, 3)), agreement),
        (Layout("tokens", (7, 10), prefix=10, along=(2, 3)), 0.62),
    ):
        found[layout] = Judged(layout, agrees, certainty=9.0, highest=agrees, least_certainty=9.0)
    answers = object.__new__(Answers)
    answers.judge = found.__getitem__  # type: ignore[method-assign]
    best = answers.best(found, 2)
    assert best is not None
    assert best.layout.grid == taken
    assert best.is_sure == best.preferred == (taken == (7, 10))


class Branches(nn.Module):
    """A map, two branches of it side by side, and what they give together with its places in disorder."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Conv2d(3, 8, 4, 4)
        self.left, self.right = nn.Conv2d(8, 8, 1), nn.Conv2d(8, 4, 1)
        self.joined = Disordered()
        self.head = nn.Linear(12, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.trunk(x).relu()
        return self.head(self.joined(torch.cat([self.left(x), self.right(x)], dim=1)).square().mean(dim=(2, 3)))


class Disordered(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("order", torch.randperm(80))

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(2)[..., self.order].view_as(x)


def test_one_branch_of_several_is_not_the_default() -> None:
    """Where the last map of all is none, what comes before it shows a part of the network at best."""
    torch.manual_seed(0)
    assert default(Branches(), textured(2, 3, 32, 40)).name == "trunk"
