"""A lean graph gives torch's own gradients."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import l2caf
from l2caf.heads.lean_graph import lean_graph


def seen(*layers: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    network = nn.Sequential(*layers)
    for module in network.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.running_mean is not None:
            nn.init.uniform_(module.running_mean)
            nn.init.uniform_(module.running_var, 0.5, 2)  # type: ignore[arg-type]
            if module.weight is not None:
                nn.init.uniform_(module.weight, -1, 1)
    return network.eval()


NETWORKS = {
    "2-D": lambda: (
        seen(
            nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2),
            nn.BatchNorm2d(6),
            nn.ReLU(inplace=True),
            nn.ConvTranspose2d(6, 4, 4, stride=2, padding=1, groups=2),
            nn.ReLU(),
            nn.Conv2d(4, 4, 3, padding="same", dilation=2),
            nn.InstanceNorm2d(4),
            nn.Sigmoid(),
        ),
        (2, 4, 9, 8),
    ),
    "1-D": lambda: (
        seen(nn.Conv1d(3, 5, 5, dilation=2), nn.BatchNorm1d(5, affine=False), nn.ConvTranspose1d(5, 2, 3, bias=False)),
        (2, 3, 20),
    ),
    "3-D": lambda: (
        seen(nn.Conv3d(2, 3, 3), nn.BatchNorm3d(3), nn.ReLU(), nn.ConvTranspose3d(3, 2, 2, 2, output_padding=1)),
        (1, 2, 6, 7, 5),
    ),
    "norm of the batch": lambda: (seen(nn.BatchNorm2d(3, track_running_stats=False), nn.ReLU()), (2, 3, 5, 5)),
}


def gradient(network: nn.Module, given: Tensor, *, lean: bool) -> tuple[Tensor, Tensor]:
    leaf = torch.ones_like(given[:, :1]).requires_grad_()
    if lean:
        with lean_graph():
            output = network(given * leaf)
    else:
        output = network(given * leaf)
    return output.detach(), torch.autograd.grad((output * output.detach().cos()).sum(), leaf)[0]


@pytest.mark.parametrize("name", NETWORKS)
def test_outputs_and_gradients_are_torchs_own(name: str) -> None:
    network, shape = NETWORKS[name]()
    given = torch.randn(shape)
    for plain, own in zip(gradient(network, given, lean=False), gradient(network, given, lean=True), strict=True):
        torch.testing.assert_close(own, plain, atol=1e-5, rtol=1e-4)


def test_what_convolutions_norms_and_rectifiers_were_given_is_not_kept() -> None:
    kept: list[int] = []

    def noted(tensor: Tensor) -> Tensor:
        kept.append(tensor.numel())
        return tensor

    network = seen(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1))
    leaf = torch.rand(1, 4, 32, 32).requires_grad_()
    for lean in (False, True):
        kept.clear()
        with torch.autograd.graph.saved_tensors_hooks(noted, lambda tensor: tensor):
            if lean:
                with lean_graph():
                    network(leaf)
            else:
                network(leaf)
        assert (max(kept, default=0) < leaf.numel()) is lean


REGIONS = {
    "2-D": (slice(None), slice(None), slice(3, 5), slice(6, 7)),
    "1-D": (slice(None), slice(None), slice(0, 3)),
    "3-D": (slice(None), slice(None), slice(7, 9), slice(0, 2), slice(3, 4)),
}


@pytest.mark.parametrize("name", REGIONS)
def test_the_way_back_from_a_part_is_torchs_own_and_its_slope_too(name: str) -> None:
    network, shape = NETWORKS[name]()
    given, generator = torch.randn(shape), torch.Generator().manual_seed(1)
    found = []
    for lean in (False, True):
        leaf = torch.ones_like(given).requires_grad_()
        if lean:
            with lean_graph():
                part = network(given * leaf)[REGIONS[name]]
        else:
            part = network(given * leaf)[REGIONS[name]]
        directions = torch.randn(part.shape, generator=generator.manual_seed(2)).requires_grad_()
        (pulled,) = torch.autograd.grad(part, leaf, directions, create_graph=True)
        weights = torch.randn(shape, generator=generator.manual_seed(3))
        (pushed,) = torch.autograd.grad(pulled, directions, weights)
        found.append((pulled.detach(), pushed))
    for plain, own in zip(*found, strict=True):
        assert plain.any()
        torch.testing.assert_close(own, plain, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("padding", [0, 2, 4])
@pytest.mark.parametrize("transposed", [False, True])
def test_convolutions_go_back_from_any_corner(stride: int, padding: int, *, transposed: bool) -> None:
    kind = nn.ConvTranspose1d if transposed else nn.Conv1d
    network, given = seen(kind(2, 3, 4, stride=stride, padding=padding, dilation=2)), torch.randn(1, 2, 17)
    length = network(given).shape[2]
    for place in {0, length // 2, length - 1}:
        found = []
        for lean in (False, True):
            leaf = given.clone().requires_grad_()
            if lean:
                with lean_graph():
                    output = network(leaf)
            else:
                output = network(leaf)
            found.append(torch.autograd.grad(output[..., place].sum(), leaf)[0])
        torch.testing.assert_close(found[1], found[0], atol=1e-5, rtol=1e-4)


def test_a_gradient_joined_to_what_has_none_is_cut_out_again() -> None:
    given, beside = torch.rand(1, 2, 9, 8).requires_grad_(), torch.rand(1, 3, 9, 8)
    network = seen(nn.Conv2d(5, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 2, 3, padding=1))
    found = []
    for lean in (False, True):
        if lean:
            with lean_graph():
                output = network(torch.cat([beside, given], 1))
        else:
            output = network(torch.cat([beside, given], 1))
        found.append(torch.autograd.grad(output[:, :, 2:4, 5:7].square().sum(), given)[0])
    torch.testing.assert_close(found[1], found[0], atol=1e-6, rtol=1e-4)


class Branches(nn.Module):
    """What one value is made into in several ways, whose gradients reach back differently far."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Conv2d(3, 4, 4, stride=4)
        self.thin, self.wide, self.wider = (nn.Conv2d(4, 4, size, padding=size // 2) for size in (1, 5, 9))
        self.norm = nn.BatchNorm2d(4).eval()
        self.steering = nn.Linear(4, 16)
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.stem(x))
        return F.interpolate(self.wide(x) + self.thin(x), scale_factor=4.0).sigmoid()


def steered_by(network: Branches, x: Tensor) -> Tensor:
    return network.steering(x.mean(dim=(2, 3)))[0]


# The order decides whose gradient autograd adds to whose.
USED_TWICE: dict[str, Callable[[Branches, Tensor], Tensor]] = {
    "thin and wide": lambda network, x: network.thin(x) + network.wide(x),
    "wide and thin": lambda network, x: network.wide(x) + network.thin(x),
    "wider, thin and wide": lambda network, x: network.wider(x) + network.thin(x) + network.wide(x),
    "joined": lambda network, x: torch.cat([network.wider(x), network.wide(x), network.thin(x)], dim=1),
    "norm": lambda network, x: network.wide(network.thin(x)) + network.norm(x),
    "moved": lambda network, x: network.wide(x)[..., 3:, 3:] + network.thin(x)[..., :-3, :-3],
    "mean": lambda network, x: network.thin(x) * network.wide(x).mean(dim=(2, 3), keepdim=True),
    "computed weights": lambda network, x: F.conv2d(x, steered_by(network, x).reshape(4, 4, 1, 1)),
    "computed weights, back": lambda network, x: F.conv_transpose2d(x, steered_by(network, x).reshape(4, 4, 1, 1)),
    "computed bias": lambda network, x: F.conv2d(x, network.thin.weight, steered_by(network, x)[:4]),
    "computed norm": lambda network, x: F.batch_norm(
        x, network.norm.running_mean, network.norm.running_var, steered_by(network, x)[:4], steered_by(network, x)[4:8]
    ),
}


@pytest.mark.parametrize("name", USED_TWICE)
def test_what_is_used_twice_has_the_gradients_of_both(name: str) -> None:
    network, given = Branches().double(), torch.randn(1, 4, 16, 16).double()
    found = []
    for lean in (False, True):
        leaf = given.clone().requires_grad_()
        if lean:
            with lean_graph():
                output = USED_TWICE[name](network, network.wide(leaf))
        else:
            output = USED_TWICE[name](network, network.wide(leaf))
        found.append(torch.autograd.grad(output[..., 6:8, 6:8].square().sum(), leaf)[0])
    assert found[0].any()
    torch.testing.assert_close(found[1], found[0], atol=1e-12, rtol=1e-9)


def test_a_region_behind_two_branches_has_the_same_map_on_every_call() -> None:
    network, asked = Branches(), l2caf.Region((28, 28, 36, 36), channel=1)
    pictures = torch.rand(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    first, again = (l2caf.explain(network, pictures, objective=asked, layer="stem").weights for _ in range(2))
    torch.testing.assert_close(again, first, atol=1e-6, rtol=1e-4)
