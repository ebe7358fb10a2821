"""A lean graph gives torch's own gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

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
