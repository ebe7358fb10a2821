"""A network observed in its validation pass: exact maps, nothing run twice, nothing left on it, nothing raised."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import l2caf
from l2caf.errors import InputError
from l2caf.map_statistics import attention_of, share_in_boxes, statistics_of
from networks_for_tests import pixels, seeded


class Classifier(nn.Module):
    """A small network with a mean and a linear layer, which counts how many inputs it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(8, 12, 3, stride=2))
        self.dropout = nn.Dropout(0.5)
        self.head = nn.Linear(12, 5)
        self.given: list[int] = []

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.given.append(len(images))
        return self.head(self.dropout(self.trunk(images).mean(dim=(2, 3))))


@pytest.fixture
def network() -> Classifier:
    return seeded(Classifier).eval()


@pytest.fixture
def batches() -> list[torch.Tensor]:
    return [pixels(4), pixels(3, seed=1) * 0.5]


def validate(network: nn.Module, batches: list[torch.Tensor]) -> None:
    with torch.inference_mode():
        for batch in batches:
            network(batch)


@pytest.mark.parametrize("objective", [None, l2caf.Prediction(), l2caf.ClassSpecific(2)], ids=str)
def test_maps_of_a_pass_are_those_of_explain(network: Classifier, batches: list[torch.Tensor], objective: Any) -> None:
    watch = l2caf.AttentionWatch(network, objective=objective, show=(0, 5))
    with watch.epoch(3):
        validate(network, batches)
    everything = torch.cat(batches)
    heatmap = l2caf.explain(network, everything, objective=objective)
    weights = (heatmap.weights.clamp_min(0) if heatmap.keeps_sign else heatmap.weights.abs()).numpy()
    expected = statistics_of(attention_of(weights), size=(32, 32))
    seen = watch.last
    assert seen.epoch == 3
    assert seen.said == ""
    assert np.allclose(seen.statistics.entropy, expected.entropy, atol=1e-5)
    assert np.allclose(seen.statistics.x, expected.x, atol=1e-5)
    assert np.allclose(seen.statistics.border, expected.border, atol=1e-5)
    for place, shown in seen.shown.items():
        assert np.allclose(shown.heat, weights[place] / weights[place].max(), atol=1e-4)


def test_no_batch_runs_twice_and_no_hook_stays(network: Classifier, batches: list[torch.Tensor]) -> None:
    watch = l2caf.AttentionWatch(network)
    with watch.epoch():
        validate(network, batches)
    network.given.clear()
    with watch.epoch():
        validate(network, batches)
    # One input more, by which the network is looked at before the first batch.
    assert sum(network.given) - sum(map(len, batches)) <= 1
    for module in network.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
    with pytest.raises(ZeroDivisionError), watch.epoch():
        raise ZeroDivisionError
    assert not network._forward_pre_hooks


def test_weights_of_the_epoch_are_those_that_explain(network: Classifier, batches: list[torch.Tensor]) -> None:
    watch = l2caf.AttentionWatch(network, objective=l2caf.ClassSpecific(0), show=1)
    before = []
    for epoch in range(2):
        with watch.epoch(epoch):
            validate(network, batches)
        before.append(watch.last.shown[0].heat)
        with torch.no_grad():
            network.head.weight.neg_()
    assert not np.allclose(before[0], before[1], atol=0.1)
    network.head.weight.data.neg_()
    weights = l2caf.explain(network, batches[0], objective=l2caf.ClassSpecific(0)).weights[0].clamp_min(0).numpy()
    assert np.allclose(before[1], weights / weights.max(), atol=1e-4)


def test_share_on_boxes_is_that_of_a_pixel_by_pixel_count() -> None:
    generator = np.random.default_rng(0)
    for _ in range(30):
        corners = np.sort(generator.integers(0, 61, (3, 2, 2)), axis=1)
        boxes = np.concatenate([corners[:, 0], corners[:, 1]], axis=1).astype(float)
        mask = np.zeros((60, 60), bool)
        for x0, y0, x1, y1 in boxes.astype(int):
            mask[y0:y1, x0:x1] = True
        expected = mask.reshape(6, 10, 5, 12).mean(axis=(1, 3))
        assert np.allclose(share_in_boxes(boxes, size=(60, 60), grid=(6, 5)), expected)


def test_planted_attention_has_known_numbers() -> None:
    maps = np.zeros((3, 4, 4))
    maps[0, 1, 2] = 5.0  # one position
    maps[1] = 1.0  # all alike
    found = statistics_of(attention_of(maps), size=(8, 8), boxes=[np.array([[4, 2, 6, 4]])] * 3)
    assert found.entropy[:2] == pytest.approx([0.0, 1.0])
    assert (found.x[0], found.y[0]) == pytest.approx((0.625, 0.375))
    assert found.on_object[:2] == pytest.approx([1.0, 1 / 16])
    assert found.border[:2] == pytest.approx([0.0, 1 - 0.75**2])
    assert np.isnan(found.entropy[2])
    assert found.row(2) == dict.fromkeys(("entropy", "x", "y", "border", "on_object"))


def test_share_on_the_object_of_a_planted_network(batches: list[torch.Tensor]) -> None:
    network = nn.Sequential(nn.AvgPool2d(4), nn.Flatten(2), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(3, 2))
    images = torch.zeros(4, 3, 32, 32)
    boxes = []
    for place, image in enumerate(images):
        image[:, 8:16, 4 + 4 * place : 12 + 4 * place] = 1.0
        boxes.append([[4 + 4 * place, 8, 12 + 4 * place, 16]])
    watch = l2caf.AttentionWatch(network.eval(), layer="0", boxes=boxes)
    with watch.epoch():
        validate(network, [images])
    assert watch.last.said == ""
    assert watch.last.means["on_object"] == pytest.approx(1.0, abs=1e-4)


def test_what_cannot_be_explained_is_said_and_raises_nothing(batches: list[torch.Tensor]) -> None:
    curved = seeded(lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.LazyLinear(3), nn.Tanh())).eval()
    curved(batches[0])
    watch = l2caf.AttentionWatch(curved)
    with watch.epoch():
        validate(curved, batches)
    assert watch.last.missed == 7
    assert "no mean and linear map" in watch.last.said


def test_a_network_in_training_mode_is_told_from_one_that_is_validated(
    network: Classifier, batches: list[torch.Tensor]
) -> None:
    watch = l2caf.AttentionWatch(network)
    network.train()
    with watch.epoch():
        validate(network, batches)
    assert watch.last.missed == 7
    assert "training mode" in watch.last.said


def test_a_network_that_is_not_called_and_one_of_another_size(network: Classifier, batches: list[torch.Tensor]) -> None:
    watch = l2caf.AttentionWatch(network)
    with watch.epoch():
        pass
    assert watch.last.said.startswith("The network was not called")
    with watch.epoch():
        validate(network, [batches[0], pixels(2, size=(48, 48))])
    assert watch.last.missed == 2
    assert "one size" in watch.last.said


def test_shuffled_pictures_are_noticed(network: Classifier, batches: list[torch.Tensor]) -> None:
    watch = l2caf.AttentionWatch(network, show=2)
    for order in (batches, batches[::-1]):
        with watch.epoch():
            validate(network, order)
    assert "another one than in the pass before" in watch.last.said


def test_half_precision_of_autocast_is_explained(network: Classifier, batches: list[torch.Tensor]) -> None:
    watch = l2caf.AttentionWatch(network)
    with watch.epoch(), torch.autocast("cpu", dtype=torch.bfloat16):
        validate(network, batches)
    assert watch.last.said == ""
    exact = statistics_of(attention_of(l2caf.explain(network, torch.cat(batches)).weights.numpy()), size=(32, 32))
    assert np.allclose(watch.last.statistics.x, exact.x, atol=0.02)


class Run:
    def __init__(self) -> None:
        self.logged: list[dict[str, Any]] = []

    def log(self, values: dict[str, Any]) -> None:
        self.logged.append(values)


def test_writers_and_files(network: Classifier, batches: list[torch.Tensor], tmp_path: Path) -> None:
    tensorboard = pytest.importorskip("torch.utils.tensorboard")
    run = Run()
    with tensorboard.SummaryWriter(str(tmp_path / "events")) as writer:
        watch = l2caf.AttentionWatch(network, show=2, writers=[writer, run], out=tmp_path / "out")
        for epoch in range(2):
            with watch.epoch(epoch):
                validate(network, batches)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "events"))
    events.Reload()
    assert [event.step for event in events.Scalars("attention/entropy")] == [0, 1]
    assert "attention/picture 1" in events.Tags()["images"]
    assert run.logged[1]["attention/epoch"] == 1
    assert run.logged[1]["attention/entropy"] == pytest.approx(watch.last.means["entropy"])
    assert [one["epoch"] for one in json.loads((tmp_path / "out" / "attention.json").read_text())] == [0, 1]
    assert (tmp_path / "out" / "attention-0001.png").exists()
    with pytest.raises(InputError, match="SummaryWriter"):
        l2caf.AttentionWatch(network, writers=["here"])


class Full(Run):
    def log(self, values: dict[str, Any]) -> None:
        raise OSError("No space left on device")


def test_a_writer_that_fails_stops_no_training(network: Classifier, batches: list[torch.Tensor]) -> None:
    watch = l2caf.AttentionWatch(network, writers=[Full()])
    with watch.epoch(0):
        validate(network, batches)
    assert "No space left on device" in watch.last.said
    assert len(watch.last.statistics) == 7
    assert watch.history[0]["said"] == watch.last.said


@pytest.mark.filterwarnings("ignore")  # what Lightning says of itself and of few workers
def test_lightning_calls_it_back(batches: list[torch.Tensor], tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning.pytorch")
    from l2caf.monitor.lightning import AttentionCallback

    class Module(lightning.LightningModule):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = seeded(Classifier)

        def training_step(self, batch: torch.Tensor, number: int) -> torch.Tensor:
            return self.model(batch).square().mean()

        def validation_step(self, batch: torch.Tensor, number: int) -> None:
            self.model(batch)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    callback = AttentionCallback("model", objective=l2caf.Prediction(), show=2, out=tmp_path / "out")
    loader = torch.utils.data.DataLoader(torch.cat(batches), batch_size=4)
    trainer = lightning.Trainer(
        max_epochs=2,
        accelerator="cpu",
        callbacks=[callback],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
    )
    trainer.fit(Module(), loader, loader)
    assert callback.watch is not None
    assert [one["pictures"] for one in callback.watch.history] == [7, 7]  # not of the sanity check
    assert callback.watch.last.said == ""
    assert float(trainer.callback_metrics["attention/entropy"]) == pytest.approx(
        callback.watch.last.means["entropy"], abs=1e-5
    )
    trainer.callbacks[:] = [AttentionCallback("model.dropout")]
    with pytest.warns(UserWarning, match="pictures were not explained"):
        trainer.validate(Module(), loader, verbose=False)


def test_two_watches_and_explain_do_not_overhear_one_another(network: Classifier, batches: list[torch.Tensor]) -> None:
    one, two = l2caf.AttentionWatch(network), l2caf.AttentionWatch(network, objective=l2caf.Prediction())
    with one.epoch(), two.epoch():
        validate(network, batches)
        l2caf.explain(network, batches[0])
    for watch in (one, two):
        assert (len(watch.last.statistics), watch.last.said) == (7, "")
    assert not network._forward_hooks
    assert not network._forward_pre_hooks


def test_a_compiled_network_is_observed(network: Classifier, batches: list[torch.Tensor]) -> None:
    compiled: Any = torch.compile(network, backend="eager", fullgraph=True)
    validate(compiled, batches[:1])
    watch = l2caf.AttentionWatch(compiled)
    with watch.epoch():
        validate(compiled, batches)
    assert (len(watch.last.statistics), watch.last.said) == (7, "")


@pytest.mark.parametrize(("picture", "reason"), [(lambda one: 1 / 0, "zero"), (lambda one: one.numpy(), "Pillow")])
def test_a_fault_in_drawing_is_told_and_counted_once(
    network: Classifier, batches: list[torch.Tensor], tmp_path: Path, picture: Any, reason: str
) -> None:
    watch = l2caf.AttentionWatch(network, show=1, picture=picture, out=tmp_path)
    with watch.epoch():
        validate(network, batches)
    assert (len(watch.last.statistics), watch.last.missed) == (3, 4)
    assert reason in watch.last.said
