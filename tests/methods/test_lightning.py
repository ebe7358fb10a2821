"""A network inside a LightningModule: explained by the names that it shows, left as it was, whatever state it is in.

Where Lightning is not installed, a module of the same shape stands for it: the network as a child, a forward that calls
it, metrics and a loss as further children, and properties that raise while no trainer is attached.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import l2caf
import networks_for_tests as nets
from networks_for_tests import pixels, seeded


class Unattached(nn.Module):
    """What of a LightningModule a library that looks at a network can run into."""

    def __init__(self) -> None:
        super().__init__()
        self._trainer = None

    @property
    def trainer(self) -> Any:
        raise RuntimeError(f"{type(self).__qualname__} is not attached to a `Trainer`.")

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    @property
    def example_input_array(self) -> None:
        return None

    def log(self, name: str, value: Any) -> None:
        raise RuntimeError(f"self.log({name!r}) was called outside of a training step")


def modules() -> dict[str, type[nn.Module]]:
    found: dict[str, type[nn.Module]] = {"of the same shape": Unattached}
    try:
        from pytorch_lightning import LightningModule  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        return found
    return {**found, "pytorch_lightning": LightningModule}


def wrapped_in(base: type[nn.Module], network: nn.Module) -> nn.Module:
    class Classifier(base):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            super().__init__()
            self.model = network
            self.criterion = nn.CrossEntropyLoss()

        def forward(self, pictures: torch.Tensor) -> Any:
            return self.model(pictures)

        def training_step(self, batch: Any, number: int) -> Any:
            loss = self.criterion(self(batch[0]), batch[1])
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    return Classifier()


@pytest.mark.parametrize("base", modules())
@pytest.mark.parametrize("network", ["pooled", "curved"])
def test_a_lightning_module_is_explained_as_its_network_is(base: str, network: str) -> None:
    plain = seeded(getattr(nets, network)).eval()
    module = wrapped_in(modules()[base], plain)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    expected = l2caf.explain(plain, pixels())
    found = l2caf.explain(module, pixels())
    assert found.layer == f"model.{expected.layer}"
    assert torch.allclose(found.weights, expected.weights, atol=1e-6)
    again = l2caf.explain(module, pixels(), layer=found.layer, objective=l2caf.ClassSpecific(top=2))
    assert again.weights.shape[1] == 2
    assert [layer.name for layer in l2caf.usable_layers(module, pixels())]
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


@pytest.mark.parametrize("base", modules())
def test_between_two_training_steps_it_stays_in_training(base: str) -> None:
    module = wrapped_in(modules()[base], seeded(nets.pooled)).train()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    for _ in range(2):
        loss = module.criterion(module(pixels()), torch.tensor([0, 1]))  # type: ignore[operator]
        optimizer.zero_grad()
        loss.backward()
        kept = {name: None if one.grad is None else one.grad.clone() for name, one in module.named_parameters()}
        l2caf.explain(module, pixels())
        assert module.training
        assert module.model.training  # type: ignore[union-attr]
        for name, one in module.named_parameters():
            assert (one.grad is None) == (kept[name] is None)
            assert kept[name] is None or torch.equal(one.grad, kept[name])  # type: ignore[arg-type]
        optimizer.step()
    assert torch.equal(
        l2caf.explain(module, pixels()).weights,
        l2caf.explain(module.model, pixels()).weights,  # type: ignore[arg-type]
    )
