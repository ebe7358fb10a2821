"""What the owner of a network sees of our runs: one forward, in hooks and in buffers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import l2caf
import networks_for_tests as nets
from l2caf.networks.imports import import_timm
from l2caf.recording.replay import Replay
from methods_for_tests import METHODS
from networks_for_tests import pixels, seeded

ASKED = ["AttentionFilter", "AttentionFilter of a class", "AttentionFilter by descent", "GradCAM"]
HEADS: dict[str, Callable[[], nn.Module]] = {"pooled": nets.pooled, "curved": nets.curved}


class Counts(nn.Module):
    """Counts its calls in a buffer, and keeps a mean of what it saw in another that it makes anew."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.seen = 0.5 * self.seen + 0.5 * x.detach().mean()
        return x


def counting(make: Callable[[], nn.Module], places: tuple[int, ...] = (0, 2)) -> nn.Sequential:
    """A network with a counter before the layer and one behind it."""
    parts = list(seeded(make))
    for place in sorted(places, reverse=True):
        parts.insert(place, Counts())
    return nn.Sequential(*parts).eval()


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("method", ASKED)
def test_buffers_are_as_after_one_forward(method: str, head: str) -> None:
    network, twin = counting(HEADS[head]), counting(HEADS[head])
    for seed in range(3):  # the first, and planned ones
        METHODS[method](network, pixels(seed=seed))
        twin(pixels(seed=seed))
        for (name, ours), theirs in zip(network.named_buffers(), twin.buffers(), strict=True):
            assert torch.equal(ours, theirs), (seed, name)


def test_every_run_starts_from_the_same_buffers() -> None:
    """A network whose output depends on how often it ran is explained as it is at this one run."""

    class Fades(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.ones(()))

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return x / self.calls

    network = nn.Sequential(*seeded(nets.curved), Fades()).eval()
    found = l2caf.explain(network, pixels())
    assert network[-1].calls == 2
    reference = seeded(nets.curved)
    reference[5].weight.data /= 2
    reference[5].bias.data /= 2
    expected = l2caf.explain(reference, pixels())
    torch.testing.assert_close(found.solution.loss, expected.solution.loss, rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(found.weights, expected.weights, rtol=0, atol=1e-3)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("method", ASKED)
def test_hooks_see_one_forward(method: str, head: str) -> None:
    network = seeded(HEADS[head])
    seen: dict[str, list[tuple[int, ...]]] = {"after": [], "before": [], "with names": [], "always": [], "backward": []}
    for module in (network, *network):
        module.register_forward_hook(lambda module, args, output: seen["after"].append(tuple(output.shape)))
        module.register_forward_pre_hook(lambda module, args: seen["before"].append(tuple(args[0].shape)))
        module.register_forward_hook(
            lambda module, args, kwargs, output: seen["with names"].append(tuple(output.shape)), with_kwargs=True
        )
        module.register_forward_hook(
            lambda module, args, output: seen["always"].append(tuple(output.shape)), always_call=True
        )
        module.register_full_backward_hook(lambda module, inside, outside: seen["backward"].append(()))
    network(pixels(3))
    expected = {kind: list(shapes) for kind, shapes in seen.items()}
    for seed in range(3):
        for shapes in seen.values():
            shapes.clear()
        METHODS[method](network, pixels(3, seed=seed))
        assert seen == expected


class Collects(nn.Module):
    """Gives what a hook of its own has collected, as timm's networks of features do."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = seeded(nets.pooled)[:2]
        self.rest = seeded(nets.pooled)[2:]
        self.found: list[Tensor] = []
        self.trunk[1].register_forward_hook(lambda module, args, output: self.found.append(output))

    def forward(self, x: Tensor) -> Tensor:
        self.found.clear()
        self.trunk(x)
        return self.rest(self.found[0])


FOUND: dict[str, Tensor] = {}


class CollectsInAGlobal(Collects):
    """The same, in something that only the two functions know."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk[1].register_forward_hook(_collect)

    def forward(self, x: Tensor) -> Tensor:
        self.trunk(x)
        return self.rest(FOUND["map"])


def _collect(module: nn.Module, args: Any, output: Tensor) -> None:
    FOUND["map"] = output


class SetsAnAttribute(Collects):
    def __init__(self) -> None:
        super().__init__()
        self.trunk[1].register_forward_hook(lambda module, args, output: setattr(module, "last", output))

    def forward(self, x: Tensor) -> Tensor:
        self.trunk(x)
        return self.rest(self.trunk[1].last)


class WritesIntoTheOutput(Collects):
    def __init__(self) -> None:
        super().__init__()
        self.rest[1].register_forward_hook(_tanh_in_place)

    def forward(self, x: Tensor) -> Tensor:
        return self.rest(self.trunk(x))


def _tanh_in_place(module: nn.Module, args: Any, output: Tensor) -> None:
    output.tanh_()


@pytest.mark.parametrize("make", [Collects, CollectsInAGlobal, SetsAnAttribute, WritesIntoTheOutput])
def test_hooks_that_are_a_part_of_the_network_run_every_time(make: Callable[[], nn.Module]) -> None:
    """FT(f) of a replay is that of a plain hook that multiplies the map."""
    network = make().eval()
    weights = torch.rand(2, 64, generator=torch.Generator().manual_seed(1)) - 0.3
    l2caf.explain(network, pixels(), layer="trunk.1")  # the hooks are known from here on
    replay = Replay(network, pixels(), layer="trunk.1")
    found = replay.filtered(weights)

    multiplied = make().eval()
    multiplied.load_state_dict(network.state_dict())
    # After the owner's hooks: what these make of the layer's output is what is filtered.
    multiplied.trunk[1].register_forward_hook(lambda m, a, output: output * weights.view(2, 1, 8, 8))
    torch.testing.assert_close(found, multiplied(pixels()))


def test_features_that_timm_collects_by_hooks() -> None:
    network = import_timm().create_model("resnet10t", features_only=True, feature_cls="hook", out_indices=(4,)).eval()
    images = torch.rand(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))

    def pooled(found: Any) -> Tensor:
        return found[0].mean(dim=(2, 3))

    l2caf.explain(network, images, layer="body.layer3", output=pooled)
    replay = Replay(network, images, layer="body.layer3", select=pooled)
    weights = torch.rand(1, replay.positions, generator=torch.Generator().manual_seed(1))
    found = replay.filtered(weights)
    layer = dict(network.named_modules())["body.layer3"]
    layer.register_forward_hook(lambda module, args, output: output * weights.view(1, 1, *output.shape[2:]))
    torch.testing.assert_close(found, pooled(network(images)))


def test_a_hook_that_removes_itself_stays_away() -> None:
    network, seen = seeded(nets.pooled), list[int]()

    def once(module: nn.Module, args: Any, output: Tensor) -> None:
        seen.append(1)
        handle.remove()

    handle = network[1].register_forward_hook(once)
    l2caf.explain(network, pixels())
    assert seen == [1]
    assert not network[1]._forward_hooks


def test_a_hook_that_begins_to_change_something_takes_part() -> None:
    network, scale = seeded(nets.curved), [1.0]
    network[3].register_forward_hook(lambda module, args, output: None if scale[0] == 1.0 else output * scale[0])
    plain = l2caf.explain(network, pixels()).solution.loss
    scale[0] = 0.1
    changed = l2caf.explain(network, pixels()).solution.loss
    reference = seeded(nets.curved)
    reference[3].weight.data *= 0.1
    reference[3].bias.data *= 0.1
    torch.testing.assert_close(changed, l2caf.explain(reference, pixels()).solution.loss, rtol=1e-3, atol=1e-6)
    assert not torch.allclose(changed, plain)
