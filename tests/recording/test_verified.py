"""A recording is verified where errors can show: at a random filter, against a plain hook on the whole network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import l2caf
import networks_for_tests as nets
from l2caf.recording.replay import Replay
from l2caf.recording.storage import Keeping, StandInReadError, holds_stand_in, stand_in
from networks_for_tests import pixels, seeded

CLASSES = 5


class Parts(nn.Module):
    """Two convolutions before the layer "last", a linear layer after it, and a forward pass written in each case."""

    def __init__(self, forward: Callable[[Any, Tensor], Tensor], **others: nn.Module) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 8, stride=8)
        self.body = nn.Conv2d(8, 8, 3, padding=1)
        self.last = nn.Conv2d(8, 8, 3, padding=1)
        self.fc = nn.Linear(8, CLASSES)
        for name, module in others.items():
            setattr(self, name, module)
        self.written = forward

    def forward(self, pictures: Tensor) -> Tensor:
        return self.written(self, pictures)


class Features(nn.Module):
    """A backbone that returns its maps in a container, as `features_only` ones do."""

    def __init__(self, pack: Callable[[Tensor, Tensor], Any]) -> None:
        super().__init__()
        self.one = nn.Conv2d(3, 8, 8, stride=8)
        self.two = nn.Conv2d(8, 8, 3, padding=1)
        self.pack = pack

    def forward(self, pictures: Tensor) -> Any:
        one = self.one(pictures)
        return self.pack(one, self.two(one))


@dataclass
class Record:
    fine: Tensor
    maps: list[Tensor]


def appended(net: Any, pictures: Tensor) -> Tensor:
    maps = net.features(pictures)
    maps.append(net.last(maps[-1]))
    return net.fc(sum(maps).mean(dim=(2, 3)))


def read_by_its_place(net: Any, pictures: Tensor) -> Tensor:
    maps = net.features(pictures)
    maps.append(net.last(maps[1]))
    return net.fc(maps[2].mean(dim=(2, 3)))  # in a list that was kept, the map of the first run


def replaced(net: Any, pictures: Tensor) -> Tensor:
    maps = net.features(pictures)
    maps[0] = maps[0] + net.last(maps[1])
    return net.fc((maps[0] + maps[1]).mean(dim=(2, 3)))


def written_into(net: Any, pictures: Tensor) -> Tensor:
    maps = net.features(pictures)
    maps[0] += net.last(maps[1])
    return net.fc((maps[0] + maps[1]).mean(dim=(2, 3)))


def popped(net: Any, pictures: Tensor) -> Tensor:
    maps = net.features(pictures)
    last = net.last(maps["two"])
    return net.fc((maps.pop("one") + last).mean(dim=(2, 3)))


def in_a_record(net: Any, pictures: Tensor) -> Tensor:
    record = net.features(pictures)
    record.maps.append(net.last(record.fine))
    record.fine = record.fine + record.maps[-1]
    return net.fc((record.fine + sum(record.maps)).mean(dim=(2, 3)))


def in_a_namespace(net: Any, pictures: Tensor) -> Tensor:
    kept = net.features(pictures)
    kept.fine = kept.fine + net.last(kept.fine)
    return net.fc(kept.fine.mean(dim=(2, 3)))


def masks_by_a_comparison(net: Any, pictures: Tensor) -> Tensor:
    found = net.stem(pictures)
    low = found.mean(dim=1, keepdim=True) < 0  # of a value that nobody holds when the layer returns
    found = net.body(found)
    return net.fc(net.last(found).masked_fill(low, 0.0).mean(dim=(2, 3)))


def masks_what_grows(net: Any, pictures: Tensor) -> Tensor:
    found = net.stem(pictures)
    low = found.mean(dim=1, keepdim=True) < 0
    found = net.body(found)
    found = net.last(found)
    return net.fc(found.masked_fill(low & (found.abs() > 0.3), 0.0).mean(dim=(2, 3)))  # nothing is, unfiltered


def counts_by_a_comparison(net: Any, pictures: Tensor) -> Tensor:
    found = net.stem(pictures)
    share = (found > 0).float().mean(dim=(2, 3))
    found = net.body(found)
    return net.fc(net.last(found).mean(dim=(2, 3)) * share)


def picks_by_a_mask(net: Any, pictures: Tensor) -> Tensor:
    found = net.stem(pictures)
    share = found[found > 0].mean()
    found = net.body(found)
    return net.fc(net.last(found).mean(dim=(2, 3)) * share)


def chooses_by_rank(net: Any, pictures: Tensor) -> Tensor:
    found = net.stem(pictures)
    order = found.mean(dim=(2, 3)).argsort(dim=1)  # whole numbers: these could hold no NaN
    found = net.body(found)
    return net.fc(net.last(found).mean(dim=(2, 3)).gather(1, order))


def asks_for_a_number(net: Any, pictures: Tensor) -> Tensor:
    found = net.stem(pictures)
    try:
        factor = 2.0 if bool(found.mean() > 0) else 0.5
    except Exception:  # noqa: BLE001 - a network may catch what it likes
        factor = 1.0
    found = net.body(found)
    return net.fc(net.last(found).mean(dim=(2, 3)) * factor)


def writes_it_elsewhere(net: Any, pictures: Tensor) -> Tensor:
    found = net.stem(pictures)
    table = torch.zeros(len(pictures), 8)
    table[:, :4] = (found.mean(dim=(2, 3)) > 0)[:, :4].float()
    found = net.body(found)
    return net.fc(net.last(found).mean(dim=(2, 3)) + table)


def listed(one: Tensor, two: Tensor) -> list[Tensor]:
    return [one, two]


CASES: dict[str, Callable[[], nn.Module]] = {
    "a list that is appended to": lambda: Parts(appended, features=Features(listed)),
    "a list that is read by place": lambda: Parts(read_by_its_place, features=Features(listed)),
    "a list whose entry is replaced": lambda: Parts(replaced, features=Features(listed)),
    "a list whose tensor is written into": lambda: Parts(written_into, features=Features(listed)),
    "a dict that is popped from": lambda: Parts(popped, features=Features(lambda one, two: {"one": one, "two": two})),
    "a dataclass": lambda: Parts(in_a_record, features=Features(lambda one, two: Record(two, [one]))),
    "a namespace": lambda: Parts(in_a_namespace, features=Features(lambda one, two: SimpleNamespace(fine=two))),
    "a mask from a comparison": lambda: Parts(masks_by_a_comparison),
    "a mask that unfiltered does nothing": lambda: Parts(masks_what_grows),
    "a count from a comparison": lambda: Parts(counts_by_a_comparison),
    "picked by a mask": lambda: Parts(picks_by_a_mask),
    "chosen by rank": lambda: Parts(chooses_by_rank),
    "asks for a number": lambda: Parts(asks_for_a_number),
    "written elsewhere": lambda: Parts(writes_it_elsewhere),
}


def by_hook(network: nn.Module, pictures: Tensor, weights: Tensor, layer: str = "last") -> Tensor:
    """What a person would write: a hook, registered last, that multiplies the layer's output."""
    side = int(weights.shape[1] ** 0.5)
    grid = weights.reshape(len(weights), 1, side, side)
    handle = network.get_submodule(layer).register_forward_hook(lambda module, args, output: output * grid)
    try:
        with torch.no_grad():
            return network(pictures)
    finally:
        handle.remove()


def assert_replays(network: nn.Module, pictures: Tensor, layer: str = "last") -> Replay:
    replay = Replay(network, pictures, layer=layer)
    weights = torch.randn(len(pictures), replay.positions, generator=torch.Generator().manual_seed(3))
    for filtered in (weights, torch.ones_like(weights), -2 * weights, torch.zeros_like(weights), weights):
        expected = by_hook(network, pictures, filtered, layer)
        torch.testing.assert_close(replay.filtered(filtered), expected, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(replay.whole(filtered), expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(replay.output, network(pictures).detach(), rtol=1e-5, atol=1e-6)
    return replay


@pytest.mark.parametrize("case", CASES)
def test_a_replay_is_the_whole_network(case: str) -> None:
    assert_replays(seeded(CASES[case]), pixels())


@pytest.mark.parametrize("case", CASES)
def test_the_filter_does_what_it_says(case: str) -> None:
    network, pictures = seeded(CASES[case]), pixels()
    solution = l2caf.explain(network, pictures, layer="last").solution
    moved = by_hook(network, pictures, solution.filter.flatten(1)) - network(pictures).detach()
    torch.testing.assert_close(solution.loss.float(), moved.square().sum(dim=1), rtol=1e-3, atol=1e-7)


def test_what_a_container_holds_needs_no_more_than_it_must() -> None:
    ways = {case: Replay(seeded(make), pixels(), layer="last").tape.keeping for case, make in CASES.items()}
    assert ways["a list that is appended to"] is ways["a dataclass"] is Keeping.LEAN
    assert ways["a list whose tensor is written into"] is Keeping.COPIES
    assert ways["a mask from a comparison"] is ways["chosen by rank"] is Keeping.COPIES


def test_a_value_that_is_read_for_some_filters_alone_is_computed() -> None:
    """The comparison matters only where the filtered map is negative: nothing shows it before."""

    def reads_sometimes(net: Any, pictures: Tensor) -> Tensor:
        found = net.stem(pictures)
        low = found.mean(dim=(2, 3)) < 0
        found = net.body(found)
        mean = net.last(found).mean(dim=(2, 3))
        return net.fc(mean.masked_fill(low, 0.0) if bool(mean.sum() > 20) else mean)

    network, pictures = seeded(lambda: Parts(reads_sometimes)), pixels()
    replay = Replay(network, pictures, layer="last")
    assert replay.tape.keeping is Keeping.LEAN
    for factor in (1.0, 1e3, -1e3):
        weights = torch.full((2, replay.positions), factor)
        expected = by_hook(network, pictures, weights)
        torch.testing.assert_close(replay.filtered(weights), expected, rtol=1e-5, atol=1e-6)


def test_a_stand_in_shows_itself() -> None:
    one = stand_in(torch.Size([2, 3]), torch.float32, torch.device("cpu"))
    number = stand_in(torch.Size([2]), torch.int64, torch.device("cpu"))
    plain = torch.zeros(2, 3)
    for computed in (one < 1, plain.masked_fill(one < 1, 0.0), torch.cat([plain, one]), plain[number], F.relu(one) + 1):
        assert holds_stand_in({"in": [computed]})
    looks: list[Callable[[], object]] = [
        lambda: bool(one.sum() > 0),
        lambda: one.sum().item(),
        lambda: plain[one > 0],
        lambda: plain.add_(one),
        lambda: plain.__setitem__(0, one[0]),
        lambda: torch.equal(one, plain),
        lambda: torch.add(one, 1, out=plain),
        lambda: number.tolist(),
    ]
    for look in looks:
        with pytest.raises(StandInReadError):
            look()
    assert one.shape == (2, 3)
    assert not holds_stand_in(plain)


class DropsBefore(nn.Module):
    """Dropout by function before the layer: what follows the layer is always the same."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 8, stride=8)
        self.last = nn.Conv2d(8, 8, 3, padding=1)
        self.fc = nn.Linear(8, CLASSES)

    def forward(self, pictures: Tensor) -> Tensor:
        return self.fc(self.last(F.dropout(self.stem(pictures), 0.5)).mean(dim=(2, 3)))


@pytest.mark.parametrize("objective", [None, l2caf.ClassSpecific(1)])
def test_randomness_before_the_layer_is_noticed(objective: l2caf.Objective | None) -> None:
    network = seeded(DropsBefore)
    for _ in range(2):  # and is not forgotten
        with pytest.raises(l2caf.L2cafError, match="dropout"):
            l2caf.explain(network, pixels(), layer="last", objective=objective)


def test_an_output_of_another_shape_leads_to_the_surer_way() -> None:
    """With the stored list, which the first run emptied, the answer would have fewer columns."""

    class Emptied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[Tensor] = []
            self.stem = nn.Conv2d(3, 8, 8, stride=8)
            self.stem.register_forward_hook(lambda module, args, output: self.seen.append(output.mean(dim=(2, 3))))
            self.last = nn.Conv2d(8, 8, 3, padding=1)

        def forward(self, pictures: Tensor) -> Tensor:
            self.seen.clear()
            found = self.last(self.stem(pictures)).mean(dim=(2, 3))
            return torch.cat([found, *self.seen], dim=1)

    replay = assert_replays(seeded(Emptied), pixels())
    assert replay.tape.keeping is Keeping.NOTHING


@pytest.mark.parametrize("make", [nets.pooled, nets.curved], ids=["affine", "curved"])
@pytest.mark.parametrize("objective", [None, l2caf.ClassSpecific(1)], ids=["oblivious", "class"])
def test_what_a_hook_adds_to_the_layer_is_filtered_with_it(
    make: Callable[[], nn.Module], objective: l2caf.Objective | None
) -> None:
    network, pictures = seeded(make), pixels()
    shift = torch.randn(1, nets.CHANNELS, 1, 1, generator=torch.Generator().manual_seed(1))
    network[1].register_forward_hook(lambda module, args, output: output + shift)
    network[0].register_forward_hook(lambda module, args, output: 2 * output)
    replay = assert_replays(network, pictures, "1")
    torch.testing.assert_close(replay.features, F.relu(2 * network[0](pictures) / 2).detach() + shift)
    for _ in range(2):  # also by the plan
        solution = l2caf.explain(network, pictures, layer="1", objective=objective).solution
        output = by_hook(network, pictures, solution.filter.flatten(1), "1")
        if objective is None:
            loss = (output - network(pictures).detach()).square().sum(dim=1)
        else:
            loss = -2 * (output[:, 1] - output.mean(dim=1))
        torch.testing.assert_close(solution.loss.float(), loss, rtol=1e-3, atol=1e-6)


def test_a_hook_with_named_arguments_and_one_before_are_kept_too() -> None:
    network, pictures = seeded(nets.pooled), pixels()
    network[1].register_forward_pre_hook(lambda module, args: (args[0] + 0.1,))
    network[1].register_forward_hook(lambda module, args, kwargs, output: output - 0.3, with_kwargs=True)
    network[2].register_forward_hook(lambda module, args, output: output + 1)
    assert_replays(network, pictures, "1")
    assert_replays(network, pictures, "0")


def test_a_shared_module_with_a_hook() -> None:
    """Its first calls are answered, its last ones computed, and the hook belongs to each of them."""
    network, pictures = seeded(nets.OneRectifier), pixels()
    network.relu.register_forward_hook(lambda module, args, output: output + 0.25)
    assert_replays(network, pictures, "conv")
    replay = Replay(network, pictures, layer="relu", call=1)
    weights = torch.randn(2, replay.positions, generator=torch.Generator().manual_seed(3))
    calls = iter(range(3))
    grid = weights.reshape(2, 1, 8, 8)
    handle = network.relu.register_forward_hook(lambda m, args, out: out * grid if next(calls) == 1 else None)
    expected = network(pictures).detach()
    handle.remove()
    torch.testing.assert_close(replay.filtered(weights).detach(), expected)
    calls = iter(range(3))
    torch.testing.assert_close(replay.whole(weights).detach(), expected)


def test_no_hook_sees_a_stand_in_or_runs_for_a_filter() -> None:
    network, pictures = seeded(nets.UNet), pixels()
    ran: Counter[str] = Counter()
    finite: list[bool] = []

    def note(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, output: Tensor) -> None:
            ran[name] += 1
            finite.append(bool(output.isfinite().all()) and bool(args[0].isfinite().all()))

        return hook

    for name, module in network.named_modules():
        if name:
            module.register_forward_hook(note(name))
    replay = Replay(network, pictures, layer="bottom")
    before = dict(ran)
    for _ in range(5):
        replay.filtered(torch.rand(2, replay.positions))
    assert all(finite)
    assert dict(ran) == before  # they only look on, and have seen the one forward that was asked for


def test_the_hooks_are_the_owners_own_afterwards() -> None:
    network, pictures = seeded(nets.pooled), pixels()
    network[1].register_forward_hook(lambda module, args, output: output + 1)
    hooks, before = network[1]._forward_hooks, dict(network[1]._forward_hooks)
    pre = network[1]._forward_pre_hooks
    l2caf.explain(network, pictures, layer="1")
    assert network[1]._forward_hooks is hooks
    assert hooks == before
    assert network[1]._forward_pre_hooks is pre


def test_it_is_verified_once_for_each_network_and_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[str] = []
    whole = Replay.whole
    monkeypatch.setattr(Replay, "whole", lambda self, weights: (runs.append(self.layer.name), whole(self, weights))[1])
    network = seeded(nets.curved)
    for seed in range(3):
        Replay(network, pixels(seed=seed), layer="1")
    Replay(network, pixels(), layer="0")
    assert runs == ["1", "0"]
