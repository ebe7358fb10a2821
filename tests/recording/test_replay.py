"""Replay: the same as a hook that multiplies, for whatever lies before and after the layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import l2caf
import networks_for_tests as nets
from l2caf.errors import NetworkError
from l2caf.filters import UnitL2
from l2caf.heads.recorded import RecordedHead
from l2caf.methods.attention_filter import pose
from l2caf.networks.imports import import_timm, import_torchvision
from l2caf.objectives.output import ClassOblivious
from l2caf.recording.inputs import Select, select_output
from l2caf.recording.replay import OUTPUT, Replay
from l2caf.recording.storage import Keeping
from methods_for_tests import SHORT_SEARCH
from networks_for_tests import pixels, seeded

TORCHVISION = {
    "alexnet": 96,
    "densenet121": 64,
    "convnext_tiny": 64,
    "efficientnet_b0": 64,
    "googlenet": 64,
    "mnasnet0_5": 64,
    "mobilenet_v2": 64,
    "mobilenet_v3_small": 64,
    "regnet_y_400mf": 64,
    "resnet18": 64,
    "resnet50": 64,
    "shufflenet_v2_x0_5": 64,
    "squeezenet1_1": 96,
    "swin_v2_t": 64,
    "vgg11_bn": 64,
    "vit_b_32": 224,
}
TIMM = {
    "vit_tiny_patch16_224": 224,
    "mixer_s32_224": 224,
    "resnetv2_50": 64,
    "test_efficientnet": 96,
    "edgenext_xx_small": 64,
}
BLOCKS = {  # a layer deep inside, so that connections cross the cut
    "resnet18": ("layer3.1.conv1", "layer3.0.downsample", "layer2.0.bn2", "layer4.0.relu"),
    "densenet121": ("features.denseblock3.denselayer5", "features.transition2.conv"),
    "googlenet": ("inception4a.branch2", "inception5b.branch3"),
    "mobilenet_v3_small": ("features.8", "features.9.block.1"),
    "swin_v2_t": ("features.3.1",),
    "vit_b_32": ("encoder.layers.encoder_layer_5.ln_1",),
}

TINY: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], str, int | None, Select]] = {
    # network, size of an input, layer, call, select
    "first layer": (nets.pooled, (3, 32, 32), "0", None, None),
    "signal": (nets.Signal, (2, 64), "0", None, None),
    "volume": (nets.Volume, (1, 8, 16, 16), "0", None, None),
    "channels last": (nets.ChannelsLast, (3, 32, 32), "mix", None, None),
    "tokens": (nets.Tokens, (3, 32, 32), "encoder.layers.0", None, None),
    "inside an encoder layer": (nets.Tokens, (3, 32, 32), "encoder.layers.0.linear2", None, None),
    "first frame": (nets.Frames, (4, 3, 32, 32), "backbone", 0, None),
    "third frame": (nets.Frames, (4, 3, 32, 32), "backbone.0", 2, None),
    "last frame": (nets.Frames, (4, 3, 32, 32), "backbone", -1, None),
    "every frame": (nets.Frames, (4, 3, 32, 32), "backbone", None, None),
    "inside every frame": (nets.Frames, (4, 3, 32, 32), "backbone.0", None, None),
    "shared rectifier": (nets.OneRectifier, (3, 32, 32), "relu", None, None),
    "skips over the bottom": (nets.UNet, (3, 32, 32), "bottom", None, None),
    "skip that is cut itself": (nets.UNet, (3, 32, 32), "down1", None, None),
    "rectified in place after": (nets.RectifiedAfterLayer, (3, 32, 32), "norm", None, None),
    "adds into the layer": (lambda: nets.Residual(branch_first=True), (3, 32, 32), "conv", None, None),
    "adds the layer in": (lambda: nets.Residual(branch_first=True), (3, 32, 32), "downsample", None, None),
    "adds into a kept value": (
        lambda: nets.Residual(branch_first=False),
        (3, 32, 32),
        "downsample",
        None,
        None,
    ),
    "layer of the kept value": (lambda: nets.Residual(branch_first=False), (3, 32, 32), "conv", None, None),
    "rectified stem": (lambda: nets.Residual(branch_first=False), (3, 32, 32), "stem", None, None),
    "scaled in place": (nets.ScaledInPlace, (3, 32, 32), "conv", None, None),
    "limits a kept value": (nets.LimitsInPlace, (3, 32, 32), "second", None, None),
    "glue before": (nets.Glue, (3, 32, 32), "second", None, None),
    "glue after": (nets.Glue, (3, 32, 32), "first", None, None),
    "tuple before": (nets.Pair, (3, 32, 32), "mix", None, 0),
    "tuple around": (nets.Pair, (3, 32, 32), "split.conv", None, 1),
}


def by_hook(network: nn.Module, inputs: Tensor, replay: Replay, weights: Tensor) -> Tensor:
    """What a person would write: a hook on the layer that multiplies its output."""
    calls = iter(range(10**6))

    def multiply(module: nn.Module, args: Any, output: Tensor) -> Tensor | None:
        call = next(calls)
        if replay.layer.call is None:
            return output * weights.reshape(len(output), replay.layer.calls, 1, *output.shape[2:])[:, call]
        if call != replay.layer.call:
            return None
        return replay.layer.layout.weigh(output, weights)

    handle = network.get_submodule(replay.layer.name).register_forward_hook(multiply)
    try:
        with torch.no_grad():
            return select_output(network(inputs), replay.select, len(inputs))
    finally:
        handle.remove()


def assert_replays(network: nn.Module, inputs: Tensor, **where: Any) -> Replay:
    replay = Replay(network, inputs, **where)
    weights = torch.randn(len(inputs), replay.positions, generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        untouched = select_output(network(inputs), replay.select, len(inputs))
    scale = untouched.abs().max()
    assert (replay.output - untouched).abs().max() <= 1e-6 * scale
    # Several times: a tape may be worn by use.
    for filtered in (weights, -2 * weights, torch.zeros_like(weights), weights):
        expected = by_hook(network, inputs, replay, filtered)
        assert (replay.filtered(filtered) - expected).abs().max() <= 2e-6 * max(scale, expected.abs().max())
        assert (replay.whole(filtered) - expected).abs().max() <= 2e-6 * max(scale, expected.abs().max())
    assert not torch.allclose(replay.filtered(weights), untouched, rtol=1e-3), "the filter makes no difference"
    return replay


def known(library: str, name: str) -> nn.Module:
    if library == "timm":
        return import_timm().create_model(name).eval()
    extra = {"init_weights": False} if name == "googlenet" else {}
    return import_torchvision().models.get_model(name, weights=None, **extra).eval()


def stirred(network: nn.Module) -> nn.Module:
    """Give zero-initialised parts some weight: a residual branch of zero would hide what is wrong."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in network.parameters():
            if not parameter.any() or parameter.abs().max() < 1e-3:
                parameter.copy_(0.1 * torch.randn(parameter.shape, generator=generator))
    return network


LARGE = ("swin_v2_t", "vgg11_bn", "vit_b_32")  # their kinds are in `make test` as smaller ones, in the zoo


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.endurance) if name in LARGE else name for name in TORCHVISION]
)
def test_torchvision(name: str) -> None:
    size = TORCHVISION[name]
    network = stirred(seeded(lambda: known("torchvision", name)))
    inputs = pixels(2, size=(size, size))
    # With random weights the last map of this one hardly changes with the input: it must be named.
    where = {"layer": "features"} if name == "efficientnet_b0" else {}
    assert_replays(network, inputs, **where)
    for layer in BLOCKS.get(name, ()):
        assert_replays(network, inputs, layer=layer)


@pytest.mark.parametrize("name", TIMM)
def test_timm(name: str) -> None:
    network = stirred(seeded(lambda: known("timm", name)))
    assert_replays(network, pixels(2, size=(TIMM[name], TIMM[name])))


@pytest.mark.parametrize("case", TINY)
def test_tiny(case: str) -> None:
    make, size, layer, call, select = TINY[case]
    network = stirred(seeded(make))
    inputs = torch.rand(3, *size, generator=torch.Generator().manual_seed(1))
    assert_replays(network, inputs, layer=layer, call=call, select=select)


@pytest.mark.parametrize("case", TINY)
def test_gradient_in_the_filter(case: str) -> None:
    make, size, layer, call, select = TINY[case]
    network = seeded(make).double()
    replay = Replay(network, torch.rand(1, *size, dtype=torch.float64), layer=layer, call=call, select=select)
    start = torch.rand(1, replay.positions, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda f: replay.filtered(f).sum(dim=-1), (start,), fast_mode=True, atol=1e-6)


def test_only_what_follows_the_layer_is_computed() -> None:
    network = seeded(nets.UNet)
    replay = Replay(network, pixels(), layer="bottom")
    ran: list[str] = []
    for name, module in network.named_modules():
        if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)):
            module.register_forward_hook(lambda m, args, out, name=name: ran.append(name))
    replay.filtered(torch.ones(2, 16, requires_grad=True))
    assert ran == ["up2", "up1", "answer"]


def test_a_lean_tape_is_dropped_where_glue_needs_more() -> None:
    assert Replay(seeded(nets.Glue), pixels(), layer="second").tape.keeping is Keeping.COPIES
    assert (
        Replay(seeded(lambda: nets.Residual(branch_first=False)), pixels(), layer="downsample").tape.keeping
        is Keeping.COPIES
    )
    assert Replay(seeded(nets.UNet), pixels(), layer="bottom").tape.keeping is Keeping.LEAN


def test_a_lean_tape_holds_only_what_is_read_again() -> None:
    depth = 12
    deep = nn.Sequential(*[nn.Conv2d(3, 3, 1) for _ in range(depth)], nn.AdaptiveAvgPool2d(1), nn.Flatten())
    replay = Replay(deep, pixels(), layer=str(depth - 1))
    held = [noted for noted in replay.tape._noted if noted.held]
    assert len(replay.tape._noted) == depth - 1
    assert len(held) <= 1


def test_a_later_cut_is_not_computed_to_be_recorded() -> None:
    network = seeded(nets.curved)
    replay = Replay(network, pixels())
    call = next(call for call in replay.observed if isinstance(call.module, nn.Linear))
    ran: list[nn.Module] = []
    forward = call.module.forward
    call.module.forward = lambda *args: (ran.append(call.module), forward(*args))[1]  # type: ignore[method-assign]
    tape = replay.from_call(call)
    assert not ran
    del call.module.forward
    torch.testing.assert_close(tape.run(replay.observed[call].clone()), replay.output)


@pytest.mark.parametrize("layer", ["stem", "blocks.0.0", "blocks.0", "blocks.1.0", "blocks.1"])
@pytest.mark.parametrize("objective", [l2caf.ClassOblivious(), l2caf.ClassSpecific(1)], ids=["oblivious", "class"])
@pytest.mark.parametrize("reentrant", [True, False])
def test_what_is_checkpointed_is_explained_like_what_is_not(
    reentrant: bool, objective: l2caf.Objective, layer: str
) -> None:
    plain = seeded(lambda: nets.Checkpointed(reentrant=None))
    network = seeded(lambda: nets.Checkpointed(reentrant=reentrant))
    found, wanted = (
        l2caf.explain(one, pixels(), objective=objective, layer=layer, solver=SHORT_SEARCH) for one in (network, plain)
    )
    torch.testing.assert_close(found.solution.filter, wanted.solution.filter)
    assert found.solution.solver == wanted.solution.solver


def test_a_network_that_no_gradient_can_pass_is_explained_after_that_place() -> None:
    network = seeded(nets.WritesIntoViews)
    heatmap = l2caf.explain(network, pixels())
    assert heatmap.layer == "mix"
    assert heatmap.solution.outcome == ["exact", "exact"]


def test_random_network_is_refused() -> None:
    with pytest.raises(NetworkError, match="random"):
        l2caf.explain(seeded(nets.AlwaysRandom), pixels())


def test_later_call_ends_the_run_there() -> None:
    network = seeded(nets.UNet)
    replay = Replay(network, pixels(), layer="bottom")
    call = replay.later_call("up1")
    weights = torch.rand(2, 16)
    kept: list[Tensor] = []
    handle = network.up1.register_forward_hook(lambda module, args, output: kept.append(output))
    by_hook(network, pixels(), replay, weights)
    handle.remove()
    torch.testing.assert_close(replay.filtered(weights, until=call), kept[0])


@pytest.mark.parametrize("case", TINY)
def test_the_features_stay_what_they_are(case: str) -> None:
    """Whatever is asked of a head, and wherever what follows the layer writes."""
    make, size, layer, call, select = TINY[case]
    network = seeded(make)
    replay = Replay(network, torch.rand(2, *size), layer=layer, call=call, select=select)
    features = replay.features.clone()
    head = RecordedHead(replay)
    problem, _ = pose(head, UnitL2(), ClassOblivious())
    head.filtered(torch.rand(2, replay.positions))
    SHORT_SEARCH.solve(problem)
    for later in reversed(list(replay.observed)):
        if later != OUTPUT:
            replay.later_call(replay.name_of(later))
            replay.from_call(later)
    assert torch.equal(replay.features, features)


def test_inputs_by_name_and_several_inputs() -> None:
    class Shifted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nets.pooled()

        def forward(self, picture: Tensor, *, shift: Tensor, flag: bool = True) -> Tensor:
            return self.inner(picture) + shift if flag else shift

    network = seeded(Shifted)
    shift = torch.rand(2, nets.CLASSES)
    replay = Replay(network, {"picture": pixels(), "shift": shift})
    torch.testing.assert_close(replay.output, network.inner(pixels()).detach() + shift)
    torch.testing.assert_close(replay.filtered(torch.ones(2, 64)), replay.output)
