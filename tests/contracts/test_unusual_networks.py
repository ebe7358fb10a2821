"""Networks written in ways that a replay could stumble over; a plain hook on the whole network tells the truth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import l2caf
from l2caf.errors import NetworkError
from l2caf.heads.recorded import RecordedHead
from l2caf.methods.cam import CAM
from l2caf.recording.replay import Replay
from l2caf.recording.storage import Keeping
from networks_for_tests import pixels, seeded

CLASSES = 5


class Trunk(nn.Module):
    """Three convolutions, a mean and a linear layer, and a forward pass to be written in each case."""

    def __init__(self, forward: Callable[[Any, Tensor], Tensor], **others: nn.Module) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 8, stride=8)
        self.body = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU())
        self.last = nn.Conv2d(8, 8, 3, padding=1)
        self.rectifier = nn.ReLU()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(8, CLASSES)
        for name, module in others.items():
            setattr(self, name, module)
        self.written = forward

    def forward(self, pictures: Tensor) -> Tensor:
        return self.written(self, pictures)


def rectifies_in_place(net: Any, pictures: Tensor) -> Tensor:
    stream = nn.functional.relu(net.stem(pictures), inplace=True)
    stream = net.body(stream)  # so that nobody holds what was before
    return net.fc(net.pool(net.last(stream)).flatten(1))


def adds_in_place(net: Any, pictures: Tensor) -> Tensor:
    stream = net.stem(pictures)
    stream += 0.1
    stream = net.body(stream)  # so that nobody holds what was before
    return net.fc(net.pool(net.last(stream)).flatten(1))


def checks_its_values(net: Any, pictures: Tensor) -> Tensor:
    stream = net.stem(pictures)
    assert not stream.isnan().any()
    stream = net.body(stream)  # so that nobody holds what was before
    return net.fc(net.pool(net.last(stream)).flatten(1))


def squeezes(net: Any, pictures: Tensor) -> Tensor:
    return net.fc(net.pool(net.last(net.body(net.stem(pictures)))).squeeze())


def gives_a_number(net: Any, pictures: Tensor) -> Tensor:
    return net.fc(net.last(net.body(net.stem(pictures))).mean(dim=(2, 3))).mean(dim=1)


def detaches(net: Any, pictures: Tensor) -> Tensor:
    return net.fc(net.last(net.body(net.stem(pictures))).mean(dim=(2, 3)).detach())


def freezes(net: Any, pictures: Tensor) -> Tensor:
    with torch.no_grad():
        pooled = net.last(net.body(net.stem(pictures))).mean(dim=(2, 3))
    return net.fc(pooled)


def writes_into_what_it_keeps(net: Any, pictures: Tensor) -> Tensor:
    kept = net.stem(pictures)
    stream = net.body(net.in_place(kept))  # kept is rectified from here on
    stream += kept
    return net.fc((net.last(stream) + stream).mean(dim=(2, 3)))


def normalises_its_input(net: Any, pictures: Tensor) -> Tensor:
    pictures -= 0.5
    skipped = nn.functional.avg_pool2d(pictures, 8).mean(dim=1, keepdim=True)
    return net.fc((net.last(net.body(net.stem(pictures))) + skipped).mean(dim=(2, 3)))


class Collects(Trunk):
    """What a hook inside the body collects is read again after it."""

    def __init__(self) -> None:
        super().__init__(Collects.runs)
        self.seen: list[Tensor] = []
        self.body[0].register_forward_hook(lambda module, args, output: self.seen.append(output))

    def runs(self, pictures: Tensor) -> Tensor:
        self.seen.clear()
        stream = self.body(self.stem(pictures))
        return self.fc(self.last(stream + self.seen[0]).mean(dim=(2, 3)))


UNUSUAL: dict[str, Callable[[], nn.Module]] = {
    "rectifies in place": lambda: Trunk(rectifies_in_place),
    "adds in place": lambda: Trunk(adds_in_place),
    "checks its values": lambda: Trunk(checks_its_values),
    "squeezes the batch": lambda: Trunk(squeezes),
    "gives a number": lambda: Trunk(gives_a_number),
    "detaches": lambda: Trunk(detaches),
    "freezes": lambda: Trunk(freezes),
    "writes into what it keeps": lambda: Trunk(writes_into_what_it_keeps, in_place=nn.ReLU(inplace=True)),
    "collects by a hook": Collects,
    "normalises its input": lambda: Trunk(normalises_its_input),
}


def hooked(network: nn.Module, pictures: Tensor, layer: str, weights: Tensor) -> Tensor:
    """The output with the layer's map weighed by a hook, every layer computed."""
    handle = network.get_submodule(layer).register_forward_hook(lambda m, args, output: output * weights.unsqueeze(1))
    try:
        with torch.no_grad():
            found: Tensor = network(pictures.clone())
            return found
    finally:
        handle.remove()


@pytest.mark.parametrize("case", UNUSUAL)
def test_the_exact_filter_does_what_it_says(case: str) -> None:
    network, pictures = seeded(UNUSUAL[case]).eval(), pixels()
    heatmap = l2caf.explain(network, pictures)
    assert torch.equal(pictures, pixels())
    assert heatmap.layer == "last"
    assert heatmap.solution.outcome == ["exact", "exact"]
    untouched = network(pictures.clone()).detach()
    found = hooked(network, pictures, "last", heatmap.solution.filter)
    losses = (found - untouched).reshape(2, -1).double().square().sum(dim=1)
    torch.testing.assert_close(heatmap.solution.loss, losses, rtol=1e-3, atol=1e-9)
    for seed in range(20):  # and no other filter does better
        other = torch.randn(2, 4, 4, generator=torch.Generator().manual_seed(seed))
        other = heatmap.solution.filter + 0.1 * other
        other = other / other.flatten(1).norm(dim=1).reshape(2, 1, 1)
        moved = (hooked(network, pictures, "last", other) - untouched).reshape(2, -1).square().sum(dim=1)
        assert (moved >= losses - 1e-7).all()


@pytest.mark.parametrize("case", ["detaches", "freezes", "collects by a hook", "writes into what it keeps"])
def test_a_class_where_the_gradient_may_be_hidden(case: str) -> None:
    network, pictures = seeded(UNUSUAL[case]).eval(), pixels()
    heatmap = l2caf.explain(network, pictures, objective=l2caf.ClassSpecific(1))
    assert heatmap.solution.outcome == ["exact", "exact"]
    output = hooked(network, pictures, "last", heatmap.solution.filter)
    torch.testing.assert_close(
        heatmap.solution.loss.float(), -2 * (output[:, 1] - output.mean(dim=1)), rtol=1e-3, atol=1e-5
    )
    assert CAM(1)(network, pictures).weights.abs().max() > 0


def test_each_needs_no_more_than_it_must() -> None:
    ways = {case: Replay(seeded(make).eval(), pixels()).tape.keeping for case, make in UNUSUAL.items()}
    assert ways["collects by a hook"] is Keeping.NOTHING
    assert ways["writes into what it keeps"] is Keeping.NOTHING
    assert ways["rectifies in place"] is ways["adds in place"] is ways["checks its values"] is Keeping.COPIES
    assert ways["detaches"] is Keeping.LEAN


def test_where_the_gradient_is_stopped_it_is_done_without() -> None:
    def bends(net: Any, pictures: Tensor) -> Tensor:
        with torch.no_grad():
            hidden = net.bent(net.last(net.stem(pictures)))
        return net.fc(hidden)

    network = seeded(lambda: Trunk(bends, bent=nn.Sequential(nn.Flatten(), nn.Linear(128, 8), nn.Tanh())))
    for objective in (None, l2caf.ClassSpecific(1)):
        solution = l2caf.explain(network, pixels(), objective=objective).solution
        assert solution.outcome == ["stuck", "stuck"]
        assert "searched without derivatives" in solution.reason


def test_inference_mode_inside_the_network_is_named() -> None:
    class Infers(Trunk):
        @torch.inference_mode()
        def forward(self, pictures: Tensor) -> Tensor:
            return squeezes(self, pictures)

    with pytest.raises(NetworkError, match="inference mode"):
        l2caf.explain(seeded(lambda: Infers(squeezes)), pixels())


def test_what_computes_a_weight_is_no_layer() -> None:
    def spectral(*conv: int) -> nn.Module:
        return nn.utils.parametrizations.spectral_norm(nn.Conv2d(*conv))

    critic = nn.Sequential(spectral(3, 8, 8, 8), nn.LeakyReLU(), spectral(8, 1, 4), nn.Flatten()).eval()
    for batch in (1, 2):
        assert l2caf.explain(critic, pixels(batch)).layer == "1"


def test_a_compiled_part_is_explained_like_any_other() -> None:
    def compiled(net: Any, pictures: Tensor) -> Tensor:
        return net.fc(net.compiled(net.stem(pictures)).mean(dim=(2, 3)))

    def plain(net: Any, pictures: Tensor) -> Tensor:
        return net.fc(net.body(net.stem(pictures)).mean(dim=(2, 3)))

    wanted = seeded(lambda: Trunk(plain)).eval()
    network = Trunk(compiled)
    network.load_state_dict(wanted.state_dict())
    network.compiled = torch.compile(network.body, backend="eager")
    found = l2caf.explain(network.eval(), pixels(), objective=l2caf.ClassSpecific(2))
    torch.testing.assert_close(found.maps, l2caf.explain(wanted, pixels(), objective=l2caf.ClassSpecific(2)).maps)


@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float16])
def test_half_precision_reports_what_the_network_gives(precision: torch.dtype) -> None:
    network = seeded(lambda: Trunk(squeezes)).eval().to(precision)
    pictures = pixels().to(precision)
    solution = l2caf.explain(network, pictures).solution
    moved = (
        hooked(network, pictures, "last", solution.filter.to(precision)).float() - network(pictures).detach().float()
    )
    torch.testing.assert_close(solution.loss.float(), moved.square().sum(dim=1), rtol=0.05, atol=1e-6)


def test_a_dense_output_is_not_written_out_as_a_map(monkeypatch: pytest.MonkeyPatch) -> None:
    def dense(net: Any, pictures: Tensor) -> Tensor:
        return nn.functional.interpolate(net.last(net.stem(pictures)), scale_factor=8.0)

    network = seeded(lambda: Trunk(dense)).eval()
    exact = l2caf.explain(network, pixels(), layer="last").solution
    assert exact.solver == "Exact"
    monkeypatch.setattr("l2caf.heads.recorded.MAP_BUDGET", 1000)
    written: list[str] = []
    monkeypatch.setattr(RecordedHead, "_find_map", lambda *_: written.append("a map of every position"))
    found = l2caf.explain(network, pixels(), layer="last").solution
    assert found.solver == "Exact"  # by products with the map, which is never written out
    assert written == []
    torch.testing.assert_close(found.loss, exact.loss, rtol=1e-3, atol=0)
    torch.testing.assert_close(found.filter, exact.filter, rtol=0, atol=0.02)
