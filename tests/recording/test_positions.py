"""Do positions answer to the input beneath them? Planted layouts, right and wrong, and what is said of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import l2caf
import networks_for_tests as nets
from l2caf.errors import InputError, LayerError
from l2caf.recording.inputs import Arguments
from l2caf.recording.layers import Layer, find_layer, usable_layers
from l2caf.recording.layout import Layout
from l2caf.recording.positions import Verdict
from l2caf.recording.slabs import Slabs
from networks_for_tests import CHANNELS, CLASSES, pixels, seeded

SIDE, CELLS = 48, 12  # of a picture, and of the map of a convolution with stride 4
SHUFFLED = torch.randperm(CELLS * CELLS, generator=torch.Generator().manual_seed(3))


class Rearranged(nn.Module):
    """A convolution's map, held in any way that a function gives it, then something global behind it."""

    def __init__(self, rearrange: Callable[[Tensor], Tensor], channels: int = -1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, CHANNELS, 4, stride=4)
        self.held = nn.Identity()
        self.rearrange = rearrange
        self.channels = channels
        self.scores = nn.LazyLinear(CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        held = self.held(self.rearrange(self.conv(x)))
        return self.scores(held.movedim(self.channels, -1).flatten(1, -2).mean(dim=1))


def tokens(maps: Tensor) -> Tensor:
    return maps.flatten(2).transpose(1, 2)


def beside(maps: Tensor, before: int, after: int) -> Tensor:
    """Tokens with others before and behind them, that answer to everything at once."""
    row = tokens(maps)
    common = torch.tanh(row.mean(dim=1, keepdim=True))
    return torch.cat([common * (1 + n) for n in range(before)] + [row] + [common * (2 + n) for n in range(after)], 1)


RIGHT: dict[str, tuple[Callable[[Tensor], Tensor], int, Layout]] = {
    "channels first": (lambda maps: maps, 1, Layout("channels_first", (CELLS, CELLS))),
    "channels last": (lambda maps: maps.permute(0, 2, 3, 1), -1, Layout("channels_last", (CELLS, CELLS))),
    "transposed": (lambda maps: maps.transpose(2, 3), 1, Layout("channels_first", (CELLS, CELLS), order=(1, 0))),
    "tokens": (tokens, -1, Layout("tokens", (CELLS, CELLS))),
    "tokens, channels first": (lambda maps: maps.flatten(2), 1, Layout("channels_first", (CELLS, CELLS))),
    "tokens by columns": (
        lambda maps: tokens(maps.transpose(2, 3)), -1, Layout("tokens", (CELLS, CELLS), order=(1, 0)),
    ),
    "one before": (lambda maps: beside(maps, 1, 0), -1, Layout("tokens", (CELLS, CELLS), prefix=1)),
    "five before": (lambda maps: beside(maps, 5, 0), -1, Layout("tokens", (CELLS, CELLS), prefix=5)),
    "fifty before": (lambda maps: beside(maps, 50, 0), -1, Layout("tokens", (CELLS, CELLS), prefix=50)),
    "one before, twenty behind": (
        lambda maps: beside(maps, 1, 20), -1, Layout("tokens", (CELLS, CELLS), prefix=1, suffix=20),
    ),
}  # fmt: skip

WRONG: dict[str, tuple[Callable[[Tensor], Tensor], int]] = {
    "shuffled": (lambda maps: tokens(maps)[:, SHUFFLED], -1),
    "channels as positions": (lambda maps: maps.mean(dim=(2, 3))[:, :, None] * torch.tensor([1.0, -2.0, 3.0]), -1),
    "mixed by a matrix": (lambda maps: tokens(maps).roll(1, 1).cumsum(1)[:, SHUFFLED].cumsum(1)[:, SHUFFLED], -1),
    "mirrored": (lambda maps: maps.flip(2, 3), 1),
    "a quarter": (lambda maps: F.interpolate(maps[:, :, : CELLS // 2, : CELLS // 2], size=(CELLS, CELLS)), 1),
}


def pictures(batch: int = 2, seed: int = 0) -> Tensor:
    return pixels(batch, size=(SIDE, SIDE), seed=seed)


def network_with(rearrange: Callable[[Tensor], Tensor], channels: int) -> nn.Module:
    def make() -> nn.Module:
        network = Rearranged(rearrange, channels)
        network(pictures())  # the lazy layer finds its size
        return network

    return seeded(make)


def layer_of(network: nn.Module, name: str = "held", **where: Any) -> Layer:
    (found,) = [layer for layer in usable_layers(network, pictures(), **where) if layer.name == name]
    return found


@pytest.mark.parametrize("name", RIGHT)
def test_a_map_is_found_however_it_is_held(name: str) -> None:
    rearrange, channels, layout = RIGHT[name]
    network = network_with(rearrange, channels)
    found = layer_of(network)
    assert found.verdict is Verdict.CONFIRMED
    expected = {"kind": layout.kind, "grid": layout.grid, "prefix": layout.prefix, "suffix": layout.suffix}
    assert {field: getattr(found.layout, field) for field in expected} == expected
    assert found.layout.order == layout.order
    assert found.agreement > 0.9
    heatmap = l2caf.explain(network, pictures(), layer="held")
    assert heatmap.weights.shape == (2, CELLS, CELLS)
    assert heatmap.solution.outcome == ["exact", "exact"]


@pytest.mark.parametrize("name", [name for name in RIGHT if RIGHT[name][2].order])
def test_a_planted_pixel_lies_where_it_lies_on_the_input(name: str) -> None:
    rearrange, channels, _ = RIGHT[name]
    network = network_with(rearrange, channels)
    picture = torch.zeros(1, 3, SIDE, SIDE)
    picture[..., 6 * 4 : 7 * 4, 1 * 4 : 2 * 4] = 5.0
    nn.init.zeros_(network.conv.bias)
    heat = l2caf.explain(network, picture, layer="held").weights.abs()[0]
    assert divmod(int(heat.argmax()), CELLS) == (6, 1)


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_answer_is_refused(name: str) -> None:
    network = network_with(*WRONG[name])
    assert all(layer.name != "held" for layer in usable_layers(network, pictures()))
    with pytest.raises(LayerError, match=r"'held'.*(no map of input '0'|has no spatial map)"):
        l2caf.explain(network, pictures(), layer="held")
    assert l2caf.explain(network, pictures()).layer == "conv"


def test_a_layout_that_is_given_is_checked_too() -> None:
    network = network_with(tokens, -1)
    right = l2caf.explain(network, pictures(), layer="held", layout=Layout("tokens", (CELLS, CELLS)))
    assert torch.equal(right.weights, l2caf.explain(network, pictures(), layer="held").weights)
    with pytest.raises(LayerError, match=r"read as a grid of 6 x 24 is no map.*read as a grid of 12 x 12 it does"):
        l2caf.explain(network, pictures(), layer="held", layout=Layout("tokens", (6, 24)))
    with pytest.raises(LayerError, match="which is not 1 token and a grid of 12 x 12"):
        l2caf.explain(network, pictures(), layer="held", layout=Layout("tokens", (CELLS, CELLS), prefix=1))
    with pytest.raises(LayerError, match="name that with layer="):
        l2caf.explain(network, pictures(), layout=Layout("tokens", (CELLS, CELLS)))
    with pytest.raises(LayerError, match="does not name each axis"):
        Layout("tokens", (CELLS, CELLS), order=(0, 2))
    # What was said wrongly is not remembered.
    assert l2caf.explain(network, pictures(), layer="held").solution.outcome == ["exact", "exact"]


def test_what_cannot_be_told_is_said_to_be_undecided() -> None:
    heatmap = l2caf.explain(seeded(nets.pooled), pixels(1, size=(4, 12)))  # three positions
    assert heatmap.solution.outcome == ["undecided"]
    assert "too few to be sure" in heatmap.solution.reason
    assert heatmap.maps.max() == 1


def test_the_default_does_not_depend_on_the_pictures() -> None:
    dark, bright = torch.zeros(1, 3, 32, 32), pixels(1)
    for make in (nets.pooled, nets.curved, nets.Tokens, nets.RectifiedAfterLayer):
        layers = {
            find_layer(seeded(make), Arguments.of(torch.cat(batch)), None).name
            for batch in ([dark, bright], [bright, dark], [bright], [dark])
        }
        assert len(layers) == 1


class Frames(nn.Module):
    """Frames folded into the batch, of (B, T, C, H, W) or (B, C, T, H, W), then a recurrent layer."""

    def __init__(self, axis: int) -> None:
        super().__init__()
        self.axis = axis
        self.conv = nn.Conv2d(3, CHANNELS, 4, stride=4)
        self.memory = nn.GRU(CHANNELS, 6, batch_first=True)
        self.scores = nn.Linear(6, CLASSES)

    def forward(self, clip: Tensor) -> Tensor:
        clip = clip.movedim(self.axis, 1)
        maps = self.conv(clip.flatten(0, 1))
        steps = maps.mean(dim=(2, 3)).unflatten(0, clip.shape[:2])
        return self.scores(self.memory(steps)[0][:, -1])


@pytest.mark.parametrize("frames", [2, 3, 5])
@pytest.mark.parametrize("axis", [1, 2])
def test_frames_in_the_batch_are_told_from_colours(axis: int, frames: int) -> None:
    clip = torch.rand(2, frames, 3, 32, 40, generator=torch.Generator().manual_seed(0)).movedim(1, axis)
    heatmap = l2caf.explain(seeded(lambda: Frames(axis)), clip.contiguous(), layer="conv")
    assert heatmap.axes == ("sample", "frame", "y", "x")
    assert heatmap.weights.shape == (2, frames, 8, 10)
    assert heatmap.maps.shape == (2, frames, 32, 40)


class Siamese(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Conv2d(3, CHANNELS, 4, stride=4), nn.ReLU())
        self.scores = nn.Linear(2 * CHANNELS, CLASSES)

    def forward(self, one: Tensor, other: Tensor) -> Tensor:
        return self.scores(torch.cat([self.trunk(x).mean(dim=(2, 3)) for x in (one, other)], dim=1))


def test_each_input_has_its_own_map_at_its_own_size() -> None:
    network, pair = seeded(Siamese), (pixels(2), pixels(2, size=(48, 64), seed=1))
    first, second = (l2caf.explain(network, pair, of=name) for name in (0, "1"))
    assert (first.input, first.call, first.maps.shape) == ("0", 0, (2, 32, 32))
    assert (second.input, second.call, second.maps.shape) == ("1", 1, (2, 48, 64))
    assert l2caf.explain(network, pair).input == "0"
    # A call that is named belongs to the input that it answers to.
    assert l2caf.explain(network, pair, layer="trunk", call=1).input == "1"
    with pytest.raises(InputError, match=r"There is no input 'other' to explain.*'0', '1'"):
        l2caf.explain(network, pair, of="other")


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nets.pooled()

    def forward(self, batch: dict[str, Any]) -> Tensor:
        assert batch["number"] == 3
        return self.body(batch["views"][0]["image"])


class Views(NamedTuple):
    first: dict[str, Tensor]
    size: int


@pytest.mark.parametrize("views", [list, tuple, lambda one: Views(one[0], 7)], ids=["list", "tuple", "named"])
def test_inputs_inside_containers_are_found(views: Callable[[list[Any]], Any]) -> None:
    network, picture = seeded(Nested), pixels()
    batch = {"views": views([{"image": picture}]), "number": 3}
    heatmap = l2caf.explain(network, (batch,))
    assert heatmap.input == "0.views.0.image"
    assert torch.equal(heatmap.maps, l2caf.explain(network.body, picture).maps)
    assert l2caf.explain(network, {"batch": batch}).input == "batch.views.0.image"


@pytest.mark.parametrize(
    ("make", "inputs", "size"),
    [
        (lambda: nn.Sequential(nn.Unflatten(1, (1, -1)), *nets.Signal()), torch.rand(2, 64), (64,)),
        (lambda: nn.Sequential(nn.Embedding(20, 2), _Turned(), *nets.Signal()), torch.arange(2 * 40) % 20, (40,)),
    ],
    ids=["waveform", "words"],
)
def test_signals_without_channels_and_whole_numbers(
    make: Callable[[], nn.Module], inputs: Tensor, size: tuple[int, ...]
) -> None:
    if inputs.ndim == 1:
        inputs = inputs.reshape(2, -1)
    network = seeded(make)
    if isinstance(network[0], nn.Unflatten):
        network[1] = nn.Conv1d(1, CHANNELS, 4, stride=4)
    heatmap = l2caf.explain(network.eval(), inputs)
    assert heatmap.maps.shape == (2, *size)
    assert heatmap.solution.outcome == ["exact", "exact"]


class _Turned(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2)


def test_what_the_verification_costs() -> None:
    rows: list[int] = []
    network = seeded(nets.curved)
    forward = network[0].forward
    network[0].forward = lambda x: (rows.append(0 if torch.is_grad_enabled() else len(x)), forward(x))[1]
    l2caf.explain(network, pixels(1))
    assert 17 in rows  # one batch of slabs; the others are of the one sample
    assert sum(number for number in rows if number > 1) == 17
    rows.clear()
    l2caf.explain(network, pixels(1, seed=1))
    assert max(rows) == 1


def test_a_network_that_refuses_noise_is_shown_its_own_picture() -> None:
    class Strict(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            if x.min() < 0 or x.max() > 1:
                raise ValueError("pictures are between 0 and 1")
            return super().forward(x)

    network = seeded(lambda: Strict(*nets.pooled()))
    assert l2caf.explain(network, (pixels() > 0.5).float()).solution.outcome == ["exact", "exact"]


def test_slabs_change_what_they_say_and_nothing_else() -> None:
    slabs = Slabs.of(pixels(3), (2, 3))
    rows = slabs.rows(0, len(slabs))
    assert len(rows) == 17
    for row, (axis, slab) in zip(rows[1:], slabs.changes, strict=True):
        changed = (row != rows[0]).any(dim=0)
        expected = torch.zeros(32, 32, dtype=torch.bool)
        expected.narrow(axis - 2, slab * 4, 4).fill_(True)
        assert torch.equal(changed, expected)
    again = Slabs.of(pixels(3).flip(0), (2, 3))
    torch.testing.assert_close(again.base, slabs.base)


def test_what_is_written_into_a_map_later_changes_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """The base is compared with rows of later batches as the layer gave it, not as a rectifier in place left it."""

    def rest() -> list[nn.Module]:
        return [nn.Conv2d(8, 8, 3, 2, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)]

    def agreements(rows: int) -> dict[str, float | None]:
        monkeypatch.setattr("l2caf.recording.survey.FEWEST", rows)
        monkeypatch.setattr("l2caf.recording.survey.AT_ONCE_FAST", 1)
        network = seeded(lambda: nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.Identity(), nn.ReLU(inplace=True), *rest()))
        return {layer.name: layer.agreement for layer in usable_layers(network, pixels())}

    together = agreements(rows=17)
    assert "1" in together
    assert agreements(rows=3) == pytest.approx(together, abs=1e-3)
