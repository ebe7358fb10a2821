"""A network that was explained before, and then changed, is explained as one that was never seen before."""

from __future__ import annotations

import copy
import types
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import l2caf
import networks_for_tests as nets
from contracts.test_left_as_found import assert_same, state_of
from l2caf.errors import L2cafError, MethodError
from l2caf.heads.head import Head
from l2caf.heads.planned import PlannedHead
from l2caf.heads.pooled import PooledLinear
from l2caf.heads.recorded import RecordedHead
from l2caf.heatmap import Heatmap
from l2caf.methods.attention_filter import AttentionFilter
from l2caf.methods.cam import CAM
from l2caf.methods.grad_cam import GradCAM
from l2caf.methods.method import Method
from l2caf.objectives.classes import ClassSpecific
from l2caf.objectives.output import ClassOblivious, Similarity
from l2caf.recorder import record
from l2caf.recording.borrow import borrowed
from l2caf.recording.knowledge import MOST, _networks
from l2caf.recording.replay import Replay
from l2caf.solvers.gradient_descent import GradientDescent

CHANNELS, CLASSES = 6, 5


def pixels(batch: int = 2, *, seed: int = 0) -> Tensor:
    """In double precision, where a map of yesterday's weights cannot be taken for rounding."""
    return nets.pixels(batch, size=(24, 24), seed=seed).double()


def seeded(make: Callable[[], nn.Module], seed: int = 0) -> nn.Module:
    return nets.seeded(make, seed).double()


@dataclass
class Settings:
    """What a user's network may keep beside plain attributes."""

    rectify: bool = False


class Net(nn.Module):
    """A mean and a linear map, with all the places where somebody may put something between the two."""

    floor_of_class: float | None = None

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, CHANNELS, 4, stride=4)
        self.relu = nn.ReLU()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.between = nn.Identity()
        self.drop = nn.Dropout(0.5)
        self.fc = nn.Linear(CHANNELS, CLASSES)
        self.rectify = False
        self.function: Callable[[Tensor], Tensor] = torch.clone
        self.settings = Settings()
        self.options = {"rectify": False}
        self.steps: list[str] = []
        self.register_buffer("floor", torch.tensor(-1e9))

    def means(self, maps: Tensor) -> Tensor:
        return self.pool(maps).flatten(1)

    def forward(self, x: Tensor) -> Tensor:
        means = self.function(self.between(self.means(self.relu(self.conv(x)))))
        if self.rectify or self.settings.rectify or self.options["rectify"] or "rectify" in self.steps:
            means = F.relu(means)
        if self.floor_of_class is not None:
            means = means.clamp_min(self.floor_of_class)
        return self.fc(self.drop(means.clamp_min(self.floor)))


class Apart(Net):
    """The mean is rectified in a method that `forward` calls."""

    def means(self, maps: Tensor) -> Tensor:
        return F.relu(super().means(maps))


class Between(nn.Module):
    """Somebody's own module behind the mean."""

    def __init__(self) -> None:
        super().__init__()
        self.rectify = False

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x) if self.rectify else x


def with_between(make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    def made() -> nn.Module:
        network = Net()
        network.between = make()
        return network

    return made


def prelu(slope: float) -> nn.Module:
    return nn.PReLU(CHANNELS, init=slope)


class Normed(Net):
    """W is no parameter: a weight norm by parametrisation."""

    def __init__(self) -> None:
        super().__init__()
        nn.utils.parametrizations.weight_norm(self.fc)


class Spectral(Net):
    def __init__(self) -> None:
        super().__init__()
        nn.utils.parametrizations.spectral_norm(self.fc)


class OldNormed(Net):
    @pytest.mark.filterwarnings("ignore")
    def __init__(self) -> None:
        super().__init__()
        nn.utils.spectral_norm(self.fc)


class TwoLinear(Net):
    def __init__(self) -> None:
        super().__init__()
        self.between = nn.Linear(CHANNELS, CHANNELS)


class Batchnorm(Net):
    def __init__(self) -> None:
        super().__init__()
        self.between = nn.BatchNorm1d(CHANNELS)
        self.between.running_mean += torch.randn(CHANNELS)


class Scaled(Net):
    """The scores are multiplied by a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.tensor(3.0))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.scale


class ConvBefore(nn.Module):
    """A 1 x 1 convolution classifies every position, and the scores are averaged."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, CHANNELS, 4, stride=4)
        self.relu = nn.ReLU()
        self.fc = nn.Conv2d(CHANNELS, CLASSES, 1)
        self.pool = nn.AdaptiveAvgPool2d(1)

    def forward(self, x: Tensor) -> Tensor:
        return self.pool(self.fc(self.relu(self.conv(x)))).flatten(1)


class ConvAfter(ConvBefore):
    """A 1 x 1 convolution in place of the linear layer."""

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.pool(self.relu(self.conv(x)))).flatten(1)


class Tied(Net):
    """The classifier's weight is that of a module which is never called."""

    def __init__(self) -> None:
        super().__init__()
        self.again = nn.Linear(CHANNELS, CLASSES)
        self.fc.weight = self.again.weight


class Functional(Net):
    """The classifier is never called: its weight is used by a function."""

    def forward(self, x: Tensor) -> Tensor:
        means = self.pool(self.relu(self.conv(x))).flatten(1)
        return F.linear(F.prelu(means, self.slope.weight), self.fc.weight, self.fc.bias)

    def __init__(self) -> None:
        super().__init__()
        self.slope = nn.PReLU(init=1.0)


class NearCopies(Net):
    """A second head, never used, that is almost the first: a running mean of it, say."""

    def __init__(self) -> None:
        super().__init__()
        self.aaa = nn.Linear(CHANNELS, CLASSES)
        self.aaa.weight.data = self.fc.weight.data * (1 + 8e-6 * torch.randn(CLASSES, CHANNELS))
        self._modules = {"aaa": self.aaa, **{name: part for name, part in self._modules.items() if name != "aaa"}}


class Embedding(Net):
    """No parameter is W: a fixed rotation follows."""

    def __init__(self) -> None:
        super().__init__()
        self.rotation = torch.linalg.qr(torch.randn(CLASSES, CLASSES).double())[0]

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) @ self.rotation


class InPlace(Net):
    """Writes into the layer's map."""

    def forward(self, x: Tensor) -> Tensor:
        maps = self.relu(self.conv(x))
        maps *= 2
        return self.fc(self.pool(maps).flatten(1))


class Twice(Net):
    """The layer runs twice; the last call counts."""

    def forward(self, x: Tensor) -> Tensor:
        self.relu(self.conv(x.flip(3)))
        return super().forward(x)


class Tagged(Net):
    """Asks a module of torch's for a setting that torch knows nothing of."""

    def __init__(self) -> None:
        super().__init__()
        self.pool.rectify = False

    def means(self, maps: Tensor) -> Tensor:
        means = super().means(maps)
        is_rectified = self.pool.rectify or getattr(self.fc, "rectify", False)
        return F.relu(means) if is_rectified else means


class Side(Net):
    """A later map that reaches nothing until `gate` is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.side = nn.Conv2d(CHANNELS, CHANNELS, 1)
        self.gate = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        maps = self.relu(self.conv(x))
        maps = maps + self.gate * self.side(maps)
        return self.fc(self.pool(maps).flatten(1))


def all_methods(classes: int = CLASSES) -> dict[str, Method]:
    to = torch.randn(classes, generator=torch.Generator().manual_seed(3))
    return {
        "oblivious": AttentionFilter(ClassOblivious()),
        "top 3": AttentionFilter(ClassSpecific(top=min(3, classes))),
        "similar": AttentionFilter(Similarity(to)),
        "CAM": CAM(1),
        "GradCAM": GradCAM(1),
    }


def asked(head: Head) -> dict[str, Heatmap | str]:
    """The answer of every method, or its error; of a bent head only what is found without a long search."""
    found: dict[str, Heatmap | str] = {}
    methods = all_methods(head.output.shape[1])
    if not head.is_affine and bool((head.finite & head.moved()).any()):
        methods = {"descent": AttentionFilter(solver=GradientDescent(steps=3)), "CAM": CAM(1), "GradCAM": GradCAM(1)}
    for name, method in methods.items():
        try:
            found[name] = method.on(head)
        except MethodError as error:
            found[name] = str(error)
    return found


def assert_alike(found: dict[str, Heatmap | str], expected: dict[str, Heatmap | str], atol: float = 1e-6) -> None:
    assert found.keys() == expected.keys()  # else one was taken for straight and the other for bent
    for name, ours in found.items():
        theirs = expected[name]
        if isinstance(theirs, str) or isinstance(ours, str):
            assert ours == theirs, name
            continue
        assert (ours.layer, ours.call, ours.axes, ours.size) == (theirs.layer, theirs.call, theirs.axes, theirs.size)
        scale = theirs.weights.abs().amax().clamp_min(1e-30)
        off = float(((ours.weights - theirs.weights).abs() / scale).amax())
        assert off <= atol, f"{name} is off by {off:.2g}"
        if theirs.classes is not None:
            assert torch.equal(ours.classes, theirs.classes), name
        if not theirs.solution.is_formula:
            assert ours.solution.outcome == theirs.solution.outcome, name
            assert ours.solution.endpoint == theirs.solution.endpoint, name


def explained(network: nn.Module, inputs: Any, **where: Any) -> tuple[dict[str, Heatmap | str], bool]:
    before = state_of(network)
    with record(network, inputs, **where) as recording:
        found = asked(recording.head)
    assert_same(state_of(network), before)
    return found, isinstance(recording.head, PlannedHead)


def never_planned(network: nn.Module, inputs: Any, output: Any = None, **where: Any) -> dict[str, Heatmap | str]:
    with borrowed(network):
        return asked(RecordedHead(Replay(network, inputs, select=output, **where)))


# What is done to a network between two calls.


def trained(network: nn.Module, *, rate: float = 0.5, steps: int = 1) -> None:
    optimizer = torch.optim.SGD(network.parameters(), lr=rate)
    network.train()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # dropout
        for step in range(steps):
            optimizer.zero_grad()
            network(pixels(4, seed=7 + step)).square().sum().backward()
            optimizer.step()
    optimizer.zero_grad()
    network.eval()


def nudged(network: nn.Module, *, by: float, only: str = "") -> None:
    generator = torch.Generator().manual_seed(1)
    for name, tensor in network.named_parameters():
        if name.startswith(only):
            tensor.data.add_(by * torch.randn(tensor.shape, generator=generator))


def loaded(network: nn.Module) -> None:
    other = seeded(lambda: copy.deepcopy(network), 5)
    nudged(other, by=0.3)
    network.load_state_dict(other.state_dict())


def averaged(network: nn.Module) -> None:
    other = copy.deepcopy(network)
    nudged(other, by=0.3)
    for ours, theirs in zip(network.parameters(), other.parameters(), strict=True):
        ours.data.mul_(0.9).add_(theirs.data, alpha=0.1)


def new_head(network: nn.Module, classes: int = CLASSES) -> None:
    network.fc = seeded(lambda: nn.Linear(CHANNELS, classes), 9)


def new_head_after_the_old_is_gone(network: nn.Module) -> None:
    network.fc = None
    new_head(network)


def head_resized_in_place(network: nn.Module) -> None:
    other = seeded(lambda: nn.Linear(CHANNELS, 7), 9)
    network.fc.weight, network.fc.bias = other.weight, other.bias


def head_as_plain_tensors(network: nn.Module) -> None:
    weight, bias = 2 * network.fc.weight.data, network.fc.bias.data
    del network.fc.weight, network.fc.bias
    network.fc.weight, network.fc.bias = weight, bias


def head_renamed(network: nn.Module) -> None:
    network.head = network.fc
    order = [name for name in network._modules if name not in ("fc", "head")]
    network._modules = {**{name: network._modules[name] for name in order}, "fc": network.fc}
    network._modules = {("head" if name == "fc" else name): part for name, part in network._modules.items()}
    network.forward = types.MethodType(
        lambda self, x: self.head(self.pool(self.relu(self.conv(x))).flatten(1)), network
    )


def layer_renamed(network: nn.Sequential) -> None:
    network._modules = {f"part{name}": part for name, part in network._modules.items()}


def set_(name: str, value: Any) -> Callable[[nn.Module], None]:
    """Set an attribute, however deep."""
    *way, last = name.split(".")

    def change(network: nn.Module) -> None:
        place: Any = network
        for part in way:
            place = getattr(place, part)
        setattr(place, last, value)

    return change


def hooked(module: str, hook: Callable[..., Any], *, before: bool = False) -> Callable[[nn.Module], None]:
    def change(network: nn.Module) -> None:
        part = network.get_submodule(module)
        (part.register_forward_pre_hook if before else part.register_forward_hook)(hook)

    return change


def patched(network: nn.Module) -> None:
    own = network.fc.forward
    network.fc.forward = lambda x: own(F.relu(x))


def call_patched(network: nn.Module) -> None:
    own = network.fc.forward
    network.fc._call_impl = lambda x: own(F.relu(x))


def patched_twice(network: nn.Module) -> None:
    """The second patch takes the place of the first, in memory too."""
    own = nn.Linear.forward
    network.fc.forward = types.MethodType(lambda self, x: own(self, x), network.fc)
    l2caf.explain(network, pixels())
    del network.fc.forward
    network.fc.forward = types.MethodType(lambda self, x: own(self, F.relu(x)), network.fc)


def between_again(first: Callable[[], nn.Module], then: Callable[[], nn.Module]) -> Callable[[nn.Module], None]:
    """A module gives way to another of its kind, which may take its place in memory."""

    def change(network: nn.Module) -> None:
        network.between = first()
        l2caf.explain(network, pixels())
        network.between = None
        network.between = then()

    return change


def buffer_written(network: nn.Module) -> None:
    network.floor.fill_(0.0)


def buffer_data_written(network: nn.Module) -> None:
    network.floor.data.fill_(0.0)


def slope_trained(network: nn.Module) -> None:
    with torch.no_grad():
        network.between.weight.fill_(0.25)


def slope_data_written(network: nn.Module) -> None:
    network.between.weight.data.fill_(0.25)


def functional_slope(network: nn.Module) -> None:
    with torch.no_grad():
        network.slope.weight.fill_(0.25)


def gate_opened(network: nn.Module) -> None:
    with torch.no_grad():
        network.gate.fill_(1.0)


def compiled_part(network: nn.Module) -> None:
    network.fc = torch.compile(network.fc, backend="eager")


def modes_switched(network: nn.Module) -> None:
    network.train()


def parametrised(network: nn.Module) -> None:
    nn.utils.parametrizations.weight_norm(network.fc)
    network.fc.parametrizations.weight.original0.data *= 2


def rectified_head(network: nn.Module) -> None:
    network.fc = nn.Sequential(nn.ReLU(), network.fc)


def frozen(network: nn.Module) -> None:
    network.requires_grad_(False)


def nothing(network: nn.Module) -> None:
    pass


relu_out = lambda module, args, output: F.relu(output)  # noqa: E731
relu_in = lambda module, args: (F.relu(args[0]),)  # noqa: E731
double_out = lambda module, args, output: 2 * output  # noqa: E731
look = lambda module, args, output: None  # noqa: E731

Make = Callable[[], nn.Module]
Change = Callable[[nn.Module], None]
CHANGES: dict[str, tuple[Make, Change]] = {
    "nothing": (Net, nothing),
    # Values.
    "trained": (Net, trained),
    "trained a little": (Net, partial(trained, rate=1e-6)),
    "trained by 1e-7": (Net, partial(nudged, by=1e-7)),
    "trained by 1e-6": (Net, partial(nudged, by=1e-6)),
    "trained by 1e-5": (Net, partial(nudged, by=1e-5)),
    "only the bias, by 1e-6": (Net, partial(nudged, by=2e-6, only="fc.bias")),
    "written through .data": (Net, partial(nudged, by=0.1)),
    "loaded": (Net, loaded),
    "averaged": (Net, averaged),
    "weight norm trained": (Normed, trained),
    "weight norm written by 1e-6": (Normed, partial(nudged, by=1e-6)),
    "spectral norm trained": (Spectral, trained),
    "spectral norm of old": (OldNormed, partial(nudged, by=0.1)),
    "two linear maps trained": (TwoLinear, trained),
    "two linear maps written by 1e-6": (TwoLinear, partial(nudged, by=1e-6)),
    "batch norm behind the mean trained": (Batchnorm, trained),
    "scale trained": (Scaled, trained),
    "scale exchanged": (Scaled, set_("scale", torch.tensor(5.0).double())),
    "convolution before the mean trained": (ConvBefore, trained),
    "convolution after the mean trained": (ConvAfter, trained),
    "tied trained": (Tied, trained),
    "tied no longer": (Tied, lambda network: set_("fc.weight", nn.Parameter(2 * network.fc.weight.data))(network)),
    "embedding trained": (Embedding, trained),
    "embedding turned": (Embedding, lambda network: network.rotation.neg_()),
    "near copies": (NearCopies, nothing),
    "near copies trained": (NearCopies, partial(nudged, by=1e-6, only="fc")),
    "in place trained": (InPlace, partial(nudged, by=0.1)),
    "twice trained": (Twice, trained),
    "a gate opens": (Side, gate_opened),
    "a gate is opened through .data": (Side, lambda network: network.gate.data.fill_(1.0)),
    # Values that bend the head where the untouched filter does not show it.
    "slope trained": (with_between(partial(prelu, 1.0)), slope_trained),
    "slope written": (with_between(partial(prelu, 1.0)), slope_data_written),
    "slope of a function trained": (Functional, functional_slope),
    "floor raised": (Net, buffer_written),
    "floor written": (Net, buffer_data_written),
    "floor exchanged": (Net, set_("floor", torch.tensor(0.0).double())),
    # Modules.
    "new head": (Net, new_head),
    "new head after the old is gone": (Net, new_head_after_the_old_is_gone),
    "more classes": (Net, partial(new_head, classes=9)),
    "one class less": (Net, partial(new_head, classes=4)),
    "head resized in place": (Net, head_resized_in_place),
    "head of plain tensors": (Net, head_as_plain_tensors),
    "head renamed": (Net, head_renamed),
    "rectifier added": (Net, set_("between", nn.ReLU())),
    "rectifier in front of the head": (Net, rectified_head),
    "other kind of mean": (Net, set_("pool", nn.AdaptiveMaxPool2d(1))),
    "slope set": (with_between(partial(nn.LeakyReLU, 1.0)), set_("between.negative_slope", 0.1)),
    "slope of another": (
        Net,
        between_again(partial(nn.LeakyReLU, 1.0), partial(nn.LeakyReLU, 0.0)),
    ),
    "range set": (with_between(partial(nn.Hardtanh, -1e6, 1e6)), set_("between.min_val", 0.0)),
    "writes into its input": (with_between(nn.ReLU), set_("relu.inplace", True)),
    # Plain settings.
    "flag": (Net, set_("rectify", True)),
    "flag of an inner module": (with_between(Between), set_("between.rectify", True)),
    "flag of a module of torch": (Tagged, set_("pool.rectify", True)),
    "new flag of a module of torch": (Tagged, set_("fc.rectify", True)),
    "flag in a dataclass": (Net, set_("settings.rectify", True)),
    "flag in a dict": (Net, lambda network: network.options.update(rectify=True)),
    "flag in a list": (Net, lambda network: network.steps.append("rectify")),
    "function": (Net, set_("function", F.relu)),
    "function of the instance": (Net, set_("means", lambda maps: F.relu(maps.mean(dim=(2, 3))))),
    "class of the instance": (Net, lambda network: setattr(network, "__class__", Apart)),
    # Hooks.
    "hook on the mean": (Net, hooked("pool", relu_out)),
    "hook on the output": (Net, hooked("", double_out)),
    "hook that rectifies the output": (Net, hooked("", relu_out)),
    "hook on the layer": (Net, hooked("relu", double_out)),
    "hook before the head": (Net, hooked("fc", relu_in, before=True)),
    "hook that looks": (Net, hooked("fc", look)),
    # Forward methods.
    "patched": (Net, patched),
    "patched twice": (Net, patched_twice),
    "call of the instance": (Net, call_patched),
    "compiled part": (Net, compiled_part),
    # The rest.
    "parametrised": (Net, parametrised),
    "frozen": (Net, frozen),
    "training": (Net, modes_switched),
    "channels last": (Net, lambda network: network.to(memory_format=torch.channels_last)),
}


@pytest.mark.parametrize("case", CHANGES)
def test_a_change_between_two_calls(case: str) -> None:
    make, change = CHANGES[case]
    network, twin, other = (seeded(make) for _ in range(3))
    explained(network, pixels())
    for one in (network, twin, other):
        change(one)
        one.zero_grad()
    assert_as_if_new(network, twin, other)


def assert_as_if_new(network: nn.Module, twin: nn.Module, other: nn.Module) -> None:
    """A network that was explained before against two that were not."""
    found, planned = explained(network, pixels())
    expected, _ = explained(twin, pixels())
    assert_alike(found, expected)
    if planned:  # else it was recorded as the next one is
        assert_alike(found, never_planned(other, pixels()))
        again = {"oblivious": l2caf.explain(network, pixels(3, seed=4))}
        assert_alike(again, {"oblivious": l2caf.explain(twin, pixels(3, seed=4))})
    assert isinstance(record(network, pixels()).head, PlannedHead) == isinstance(
        record(twin, pixels()).head, PlannedHead
    )


def rectified(method: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda self, x: method(self, F.relu(x))


OF_CLASSES: dict[str, tuple[type, str, Any]] = {
    "forward of the network": (Net, "forward", lambda self, x: self.fc(F.relu(self.conv(x).mean(dim=(2, 3))))),
    "forward of a module of torch": (nn.Linear, "forward", rectified(nn.Linear.forward)),
    "forward of an own module": (Between, "forward", lambda self, x: F.relu(x)),
    "method": (Net, "means", lambda self, maps: F.relu(maps.mean(dim=(2, 3)))),
    "plain attribute": (Net, "floor_of_class", 0.0),
}


@pytest.mark.parametrize("case", OF_CLASSES)
def test_a_change_of_a_class(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    networks = [seeded(with_between(Between)) for _ in range(3)]
    explained(networks[0], pixels())
    monkeypatch.setattr(*OF_CLASSES[case])
    assert_as_if_new(*networks)


@pytest.mark.parametrize("before", [False, True])
def test_a_hook_on_every_module(before: bool) -> None:
    networks = [seeded(Net) for _ in range(3)]
    explained(networks[0], pixels())

    def hook(module: nn.Module, args: tuple[Tensor], output: Any = None) -> Any:
        return (F.relu(args[0]),) if isinstance(module, nn.Linear) and before else None

    register = nn.modules.module.register_module_forward_pre_hook
    handle = (
        register(hook)
        if before
        else nn.modules.module.register_module_forward_hook(
            lambda module, args, output: F.relu(output) if isinstance(module, nn.AdaptiveAvgPool2d) else None
        )
    )
    try:
        assert_as_if_new(*networks)
    finally:
        handle.remove()
    found, planned = explained(networks[0], pixels())
    assert planned
    assert_alike(found, explained(seeded(Net), pixels())[0])


def test_a_norm_of_the_batch_that_was_none_is_refused_as_one() -> None:
    def make() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(3, CHANNELS, 4, stride=4), nn.BatchNorm2d(CHANNELS), nn.ReLU(), nn.AdaptiveAvgPool2d(1)
        )

    network = seeded(make)
    l2caf.explain(network, pixels(), layer="0")
    norm = network[1]
    norm.track_running_stats, norm.running_mean, norm.running_var = False, None, None
    with pytest.raises(L2cafError, match="mixes the samples"):
        l2caf.explain(network, pixels(), layer="0")


def test_a_layer_of_another_name() -> None:
    networks = [nets.seeded(nets.pooled).double() for _ in range(3)]
    explained(networks[0], pixels())
    for network in networks:
        layer_renamed(network)
    assert_as_if_new(*networks)


class Several(Net):
    """Two inputs: a picture and a vector that is added to the scores."""

    def forward(self, x: Tensor, shift: Tensor, rectify: bool = False) -> Tensor:
        means = self.pool(self.relu(self.conv(x))).flatten(1)
        return self.fc(F.relu(means) if rectify else means) + shift


class Listed(Net):
    """What to do with the mean is an argument."""

    def forward(self, x: Tensor, steps: list[str]) -> Tensor:
        means = self.pool(self.relu(self.conv(x))).flatten(1)
        return self.fc(F.relu(means) if "rectify" in steps else means)


class Answers(Net):
    def forward(self, x: Tensor) -> dict[str, Tensor]:
        scores = super().forward(x)
        return {"scores": scores, "halves": 0.5 * scores, "bent": scores.tanh()}


def spoilt(value: float, *places: int, batch: int = 4) -> Tensor:
    inputs = pixels(batch, seed=2)
    inputs[list(places)] = value
    return inputs


def shifts(batch: int = 2, *, seed: int = 0) -> Tensor:
    return torch.randn(batch, CLASSES, generator=torch.Generator().manual_seed(seed)).double()


def no_bias() -> nn.Module:
    network = Net()
    network.conv.bias = None
    return network


INPUTS: dict[str, tuple[Make, Any, Any, dict[str, Any], dict[str, Any]]] = {
    "other pictures": (Net, pixels(), pixels(seed=1), {}, {}),
    "one picture": (Net, pixels(), pixels(1, seed=1), {}, {}),
    "sixteen pictures": (Net, pixels(1), pixels(16, seed=1), {}, {}),
    "another size": (Net, pixels(), torch.rand(2, 3, 40, 16).double(), {}, {}),
    "not contiguous": (Net, pixels(), pixels(seed=1).transpose(2, 3), {}, {}),
    "with a gradient": (Net, pixels(), pixels(seed=1).requires_grad_(), {}, {}),
    "NaN in one": (Net, pixels(), spoilt(float("nan"), 1), {}, {}),
    "infinity in two": (Net, pixels(), spoilt(float("inf"), 0, 3), {}, {}),
    "NaN in all": (Net, pixels(), spoilt(float("nan"), 0, 1, 2, 3), {}, {}),
    "NaN first": (Net, spoilt(float("nan"), 0), pixels(), {}, {}),
    "huge in one": (Net, pixels(), spoilt(1e8, 2), {}, {}),
    "zero maps": (no_bias, pixels(), spoilt(0.0, 0, 2), {}, {}),
    "zero maps only": (no_bias, pixels(), torch.zeros(2, 3, 24, 24).double(), {}, {}),
    "zero maps first": (no_bias, torch.zeros(2, 3, 24, 24).double(), pixels(), {}, {}),
    "several inputs": (Several, (pixels(), shifts()), (pixels(seed=1), shifts(seed=1)), {}, {}),
    "several inputs, one picture": (Several, (pixels(1), shifts(1)), (pixels(1), shifts(1, seed=1)), {}, {}),
    "a flag among the inputs": (Several, (pixels(1), shifts(1)), (pixels(1), shifts(1), True), {}, {}),
    "named inputs": (
        Several,
        {"x": pixels(1), "shift": shifts(1)},
        {"shift": shifts(1), "x": pixels(1), "rectify": True},
        {},
        {},
    ),
    "a list among the inputs": (Listed, (pixels(1), []), (pixels(1), ["rectify"]), {}, {}),
    "another answer": (Answers, pixels(), pixels(), {"output": "scores"}, {"output": "halves"}),
    "a bent answer": (Answers, pixels(1), pixels(1), {"output": "scores"}, {"output": "bent"}),
    "an answer by a function": (
        Answers,
        pixels(),
        pixels(),
        {"output": lambda found: found["scores"]},
        {"output": lambda found: 2 * found["scores"]},
    ),
    "another layer": (ConvBefore, pixels(), pixels(), {"layer": "relu"}, {"layer": "fc"}),
    "a module as the layer": (Net, pixels(), pixels(), {"layer": "relu"}, {"layer": "conv"}),
    "the first call": (Twice, pixels(), pixels(), {"layer": "relu"}, {"layer": "relu", "call": 1}),
}


@pytest.mark.parametrize("case", INPUTS)
def test_other_inputs(case: str) -> None:
    make, before, after, where, then = INPUTS[case]
    network, twin, other = (seeded(make) for _ in range(3))
    explained(network, before, **where)
    found, planned = explained(network, after, **then)
    again, _ = explained(network, after, **then)
    expected, _ = explained(twin, after, **then)
    assert_alike(found, expected)
    assert_alike(again, expected)
    if planned:
        assert_alike(found, never_planned(other, after, **then))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_another_precision(dtype: torch.dtype) -> None:
    """The map of a fresh process to the last bit, and that of a recording to the precision."""
    network, twin, other = (seeded(Net) for _ in range(3))
    explained(network, pixels())
    inputs = pixels().to(dtype)
    for one in (network, twin, other):
        one.to(dtype)
    found, _ = explained(network, inputs)
    assert_alike(found, explained(twin, inputs)[0], atol=0)
    rounding = {torch.float32: 2e-5, torch.float64: 1e-6, torch.bfloat16: 1e-6}
    assert_alike(found, never_planned(other, inputs), atol=rounding[dtype])
    for one in (network, twin):
        one.double()
    assert_alike(explained(network, pixels())[0], explained(twin, pixels())[0])


CONTEXTS: dict[str, Callable[[], Any]] = {
    "no gradient": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": partial(torch.autocast, "cpu", torch.bfloat16),
}


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("context", CONTEXTS)
def test_under_settings_of_the_caller(context: str, first: bool) -> None:
    network, twin, other = (nets.seeded(Net) for _ in range(3))
    inputs = nets.pixels(size=(24, 24))
    if first:
        with CONTEXTS[context]():
            explained(network, inputs)
        found, expected = explained(network, inputs)[0], explained(twin, inputs)[0]
        assert_alike(found, expected)
        return
    explained(network, inputs)
    with CONTEXTS[context]():
        found, expected = explained(network, inputs)[0], explained(twin, inputs)[0]
        assert_alike(found, expected)
        assert_alike(found, never_planned(other, inputs), atol=2e-5)


def test_wrapped_networks_share_the_plan_of_the_plain_one() -> None:
    network = seeded(Net)
    found, _ = explained(network, pixels())
    for wrapped in (nn.DataParallel(network), torch.compile(network, backend="eager")):
        with record(wrapped, pixels()) as recording:
            assert isinstance(recording.head, PlannedHead)
            assert_alike(asked(recording.head), found)


def test_what_a_plan_cannot_answer_is_recorded_in_full() -> None:
    network, twin = seeded(Net), seeded(Net)
    l2caf.explain(network, pixels())
    questions: dict[str, Method] = {
        "descent": AttentionFilter(solver=GradientDescent(steps=5)),
        "vanilla descent": AttentionFilter(solver=GradientDescent(steps=5, vanilla=True)),
        "at the mean": AttentionFilter(ClassOblivious(at="pool")),
        "at the head": AttentionFilter(ClassOblivious(at="fc")),
        "a function of the output": AttentionFilter(lambda output: output.square().sum(dim=1)),
        "by softmax": AttentionFilter(filter=l2caf.Softmax(), solver=GradientDescent(steps=5)),
    }
    for name, question in questions.items():
        before = state_of(network)
        with record(network, pixels()) as recording:
            assert isinstance(recording.head, PlannedHead)
            found = question.on(recording.head)
        assert_same(state_of(network), before)
        # A search ends where its steps no longer tell.
        atol = 1e-3 if name == "a function of the output" else 1e-6
        assert_alike({name: found}, {name: question.on(RecordedHead(Replay(twin, pixels())))}, atol=atol)
    with pytest.raises(L2cafError):
        l2caf.explain(network, pixels(), objective=ClassOblivious(at="conv"))


class Keeps(Net):
    """Keeps the map of its last run, as many a network does whose maps somebody wanted to see."""

    def forward(self, x: Tensor) -> Tensor:
        self.last = self.relu(self.conv(x))
        return self.fc(self.pool(self.last).flatten(1))


def test_a_network_that_keeps_its_map_is_planned() -> None:
    network, twin = seeded(Keeps), seeded(Keeps)
    runs: list[int] = []
    network.register_forward_hook(lambda module, args, output: runs.append(1))
    for module in (network, twin):
        module(pixels())
    explained(network, pixels(seed=1))
    runs.clear()
    with record(network, pixels()) as recording:
        found = asked(recording.head)
    assert len(runs) == 1
    assert_alike(found, never_planned(twin, pixels()))


def test_what_is_known_is_bounded() -> None:
    network = nets.seeded(Net)
    for side in range(16, 16 + MOST + 6):
        l2caf.explain(network, nets.pixels(1, size=(16, side)))
    known = _networks[network]
    assert {len(entries) for entries in known.kinds.values()} <= set(range(MOST + 1))
    assert len(known.kinds["plan"]) == MOST


@pytest.mark.parametrize("select", [["scores"], {"scores"}, 1.5, "nowhere"])
def test_what_cannot_be_selected_is_said(select: Any) -> None:
    network = seeded(Answers)
    l2caf.explain(network, pixels(), output="scores")
    with pytest.raises(L2cafError):
        l2caf.explain(network, pixels(), output=select)


UNSEEN: dict[str, bool] = {}  # outside of the network, where no look at its modules finds it


class SwitchedFromOutside(nn.Module):
    """A mean and torch's own linear layer, with what no fingerprint tells on either side of it."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Conv2d(3, CHANNELS, 4, stride=4), nn.ReLU())
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(CHANNELS, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        means = self.pool(self.trunk(x)).flatten(1)
        if UNSEEN.get("before"):
            means = means - 0.5 * means.mean(dim=1, keepdim=True)
        scores: Tensor = self.fc(means)
        if UNSEEN.get("written into"):
            scores.sub_(scores.mean(dim=1, keepdim=True)).relu_()  # the very tensor that the linear layer returned
        return 2 * scores if UNSEEN.get("after") else scores


@pytest.mark.parametrize("case", ["before", "written into", "after"])
def test_the_linear_layer_is_believed_only_where_the_output_is_its_own(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, images = seeded(SwitchedFromOutside), pixels()
    l2caf.explain(network, images)
    with record(network, images) as recording:
        assert isinstance(recording.head, PlannedHead)
    monkeypatch.setitem(UNSEEN, case, True)
    again, fresh = l2caf.explain(network, images), l2caf.explain(copy.deepcopy(network), images)
    torch.testing.assert_close(again.weights, fresh.weights, rtol=0, atol=1e-6)
    assert (again.solution.outcome, again.solution.reason) == (fresh.solution.outcome, fresh.solution.reason)


def test_a_mean_by_a_function_is_planned() -> None:
    class MeanByFunction(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.trunk = nn.Sequential(nn.Conv2d(3, CHANNELS, 4, stride=4), nn.ReLU())
            self.fc = nn.Linear(CHANNELS, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            scores: Tensor = self.fc(self.trunk(x).mean(dim=(2, 3)))
            return scores

    networks, images = [seeded(MeanByFunction) for _ in range(2)], pixels()
    assert isinstance(record(networks[0], images).head, PlannedHead)
    for objective in (ClassOblivious(), ClassSpecific(1)):
        planned = l2caf.explain(networks[0], images, objective=objective)
        in_full = AttentionFilter(objective).on(RecordedHead(Replay(networks[1], images)))
        torch.testing.assert_close(planned.weights, in_full.weights, rtol=0, atol=1e-6)


def test_no_product_with_the_weights_confirms_a_linear_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    network, images = seeded(SwitchedFromOutside), pixels()
    l2caf.explain(network, images)
    products: list[Any] = []
    monkeypatch.setattr(PooledLinear, "of_mean", lambda self, means: products.append(means))
    assert isinstance(record(network, images).head, PlannedHead)
    assert not products
