"""Which layer the filter sits at: the default, names, modules, calls, and what is said of wrong ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import l2caf
import networks_for_tests as nets
from l2caf.errors import LayerError, NetworkError
from l2caf.networks.imports import import_timm, import_torchvision
from l2caf.recording.inputs import Arguments
from l2caf.recording.layers import find_layer, usable_layers
from l2caf.recording.replay import Replay
from networks_for_tests import pixels, seeded

PICTURE = (32, 32)

DEFAULTS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], str, tuple[int, ...]]] = {
    # network, size of the input after the batch, the layer, its grid
    "pooled": (nets.pooled, (3, *PICTURE), "1", (8, 8)),
    "flattened": (nets.flattened, (3, *PICTURE), "1", (4, 4)),
    "not square": (nets.pooled, (3, 32, 64), "1", (8, 16)),
    "signal": (nets.Signal, (2, 64), "1", (16,)),
    "volume": (nets.Volume, (1, 8, 16, 16), "1", (2, 4, 4)),
    "channels last": (nets.ChannelsLast, (3, *PICTURE), "mix", (8, 8)),
    "dense predictor": (nets.UNet, (3, *PICTURE), "bottom", (4, 4)),
    "shared rectifier": (nets.OneRectifier, (3, *PICTURE), "relu", (8, 8)),
    "side branch": (nets.Auxiliary, (3, *PICTURE), "conv", (8, 8)),
    "rectified after": (nets.RectifiedAfterLayer, (3, *PICTURE), "norm", (8, 8)),
}

ZOO = {
    "torchvision:resnet18": ((3, 128, 128), "layer4", (4, 4)),
    "torchvision:vgg11": ((3, 64, 64), "avgpool", (7, 7)),
    "torchvision:densenet121": ((3, 128, 128), "features", (4, 4)),
    "torchvision:convnext_tiny": ((3, 128, 128), "features", (4, 4)),
    "torchvision:efficientnet_b0": ((3, 128, 128), "features", (4, 4)),
    "torchvision:squeezenet1_0": ((3, 64, 64), "classifier.2", (3, 3)),
    "timm:swin_tiny_patch4_window7_224": ((3, 224, 224), "norm", (7, 7)),
}


def zoo(name: str) -> nn.Module:
    library, _, name = name.partition(":")
    if library == "timm":
        return import_timm().create_model(name).eval()
    return import_torchvision().models.get_model(name, weights=None).eval()


@pytest.mark.parametrize("case", DEFAULTS)
def test_default_layer(case: str) -> None:
    make, size, name, grid = DEFAULTS[case]
    layer = find_layer(seeded(make), Arguments.of(torch.rand(2, *size)), None)
    assert (layer.name, layer.layout.grid) == (name, grid)


@pytest.mark.parametrize("name", ZOO)
def test_default_layer_of_known_networks(name: str) -> None:
    size, expected, grid = ZOO[name]
    layer = find_layer(zoo(name), Arguments.of(torch.rand(1, *size)), None)
    assert (layer.name, layer.layout.grid) == (expected, grid)


@pytest.mark.parametrize("make", [nets.Tokens, lambda: zoo("timm:vit_tiny_patch16_224")], ids=["tiny", "timm"])
def test_a_class_token_alone_reaches_the_output_through_an_earlier_layer(
    make: Callable[[], nn.Module],
) -> None:
    network = seeded(make)
    inputs = pixels(1) if isinstance(network, nets.Tokens) else pixels(1, size=(224, 224))
    layer = find_layer(network, Arguments.of(inputs), None)
    assert layer.layout.kind == "tokens"
    assert layer.layout.prefix == 1
    assert layer.reaches
    # The maps after it are of no use to the output, and the listing says so.
    later = usable_layers(network, inputs)
    later = later[[one.name for one in later].index(layer.name) + 1 :]
    assert any(one.shape == layer.shape and not one.reaches for one in later)
    replay = Replay(network, inputs)
    assert not torch.equal(replay.filtered(torch.zeros(1, replay.positions)), replay.output)


def test_listing_is_in_the_order_of_the_run() -> None:
    layers = usable_layers(seeded(nets.UNet), pixels())
    assert [layer.name for layer in layers] == [
        "down1.0", "down1.1", "down1", "down2.0", "down2.1", "down2", "bottom", "up2", "up1", "answer",
    ]  # fmt: skip
    assert all(layer.calls == 1 for layer in layers)
    assert layers[6].kind == "Conv2d"
    assert layers[6].shape == (nets.CHANNELS, 4, 4)


def test_listing_of_a_wrapped_network_has_the_names_that_explain_takes() -> None:
    network = seeded(nets.pooled)
    wrapped = nn.DataParallel(network)
    names = [layer.name for layer in usable_layers(wrapped, pixels())]
    assert names == ["0", "1"]
    assert l2caf.explain(wrapped, pixels(), layer=names[0]).layer == "0"


def test_a_layer_by_module_is_the_layer_by_name() -> None:
    network = seeded(nets.pooled)
    by_name = l2caf.explain(network, pixels(), layer="0")
    by_module = l2caf.explain(network, pixels(), layer=network[0])
    assert by_name.layer == by_module.layer == "0"
    assert torch.equal(by_name.maps, by_module.maps)


def test_unknown_layer_names_the_nearest() -> None:
    with pytest.raises(LayerError, match=r"no layer 'botom'; .*bottom"):
        l2caf.explain(seeded(nets.UNet), pixels(), layer="botom")


def test_module_of_another_network() -> None:
    with pytest.raises(LayerError, match="no module of this network"):
        l2caf.explain(seeded(nets.pooled), pixels(), layer=nn.ReLU())


def test_module_that_is_never_called() -> None:
    with pytest.raises(LayerError, match="'never' is not called"):
        l2caf.explain(seeded(nets.Auxiliary), pixels(), layer="never")


def test_layer_without_a_map() -> None:
    with pytest.raises(LayerError, match="'4' has no spatial map"):
        l2caf.explain(seeded(nets.pooled), pixels(), layer="4")


def test_network_without_a_map() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 5))
    with pytest.raises(LayerError, match="No layer of this network has a spatial map"):
        l2caf.explain(network, pixels())


def test_calls_of_a_shared_module_are_counted_with_those_that_have_no_map() -> None:
    network = seeded(nets.OneRectifier)
    (layer,) = [layer for layer in usable_layers(network, pixels()) if layer.name == "relu"]
    assert (layer.call, layer.calls) == (1, 3)
    assert str(layer) == "relu (call 2 of 3)"
    assert l2caf.explain(network, pixels(), layer="relu", call=1).layer == "relu"
    assert l2caf.explain(network, pixels(), layer="relu", call=-2).layer == "relu"
    for call in (0, 2, 3, -1):
        with pytest.raises(LayerError, match="in call 1, not"):
            l2caf.explain(network, pixels(), layer="relu", call=call)


def test_each_answer_of_a_network_has_its_own_default_layer() -> None:
    network = seeded(nets.Named)
    for _ in range(2):
        for name in ("one", "other"):
            assert l2caf.explain(network, pixels(), output=name).layer == name
            assert l2caf.explain(network, pixels(), output=lambda out, name=name: out[name]).layer == name


def test_a_network_that_has_changed_is_looked_at_again() -> None:
    network = seeded(nets.pooled)
    assert l2caf.explain(network, pixels()).weights.shape == (2, 8, 8)
    network[0] = nn.Conv2d(3, nets.CHANNELS, 8, stride=8)
    assert l2caf.explain(network, pixels()).weights.shape == (2, 4, 4)
    assert l2caf.explain(network, pixels(size=(64, 64))).weights.shape == (2, 8, 8)


def test_a_batch_that_runs_otherwise_than_a_sample() -> None:
    network = seeded(nets.SampleBySample)
    assert l2caf.explain(network, pixels(1)).layer == "conv"
    with pytest.raises(NetworkError, match="one at a time"):
        l2caf.explain(network, pixels(3))
