"""The sanity check: verdicts on planted methods, measures against their libraries, a network left alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
import skimage.feature
import skimage.metrics
import torch
from PIL import Image
from torch import Tensor, nn

import l2caf.evaluation.sanity as sanity_module
from l2caf.cli import main
from l2caf.errors import Cancelled, InputError, MethodError, NetworkError
from l2caf.evaluation.randomize import cascade, layers_from_the_top, randomize
from l2caf.evaluation.sanity import sanity_check
from l2caf.evaluation.similarity import SIMILARITIES, gradient_similarity, rank_correlation, structural_similarity
from l2caf.evaluation.verdicts import Verdict
from l2caf.heads.head import Head
from l2caf.methods.method import Maps, Method
from l2caf.methods.table import METHODS
from l2caf.networks.untrained import measure_statistics
from l2caf.objectives.output import ClassOblivious
from l2caf.tasks.sanity import plot, sheet
from networks_for_tests import pixels, pooled, seeded


class Edges(Method):
    """Looks at the picture alone: what it shows has nothing to do with the network."""

    def formula(self, head: Head) -> Maps:
        grey = head.in_full().replay.arguments.main.mean(dim=1, keepdim=True)
        slope = nn.functional.pad(grey.diff(dim=-1).abs(), (0, 1))
        return Maps(nn.functional.adaptive_avg_pool2d(slope, head.layout.grid).squeeze(1))


class Constant(Method):
    """Shows the same hill whatever the network and whatever the picture."""

    def formula(self, head: Head) -> Maps:
        rows, columns = head.layout.grid
        hill = torch.hann_window(rows).unsqueeze(1) * torch.hann_window(columns)
        return Maps(hill.expand(head.batch, -1, -1).clone())


class Flat(Method):
    """Shows nothing in particular, always."""

    def formula(self, head: Head) -> Maps:
        return Maps(torch.ones(head.batch, *head.layout.grid))


class Weights(Method):
    """A map that any change of any weight throws over."""

    def formula(self, head: Head) -> Maps:
        total = sum(
            float(weight.double().abs().sum()) for weight in head.in_full().replay.network.state_dict().values()
        )
        generator = torch.Generator().manual_seed(int(total * 1e6) % 2**31)
        return Maps(torch.rand(head.batch, *head.layout.grid, generator=generator))


def normed() -> nn.Module:
    """Convolutions with batch norms; the grid is 8 x 8 for 64 x 64 pictures."""
    return nn.Sequential(
        nn.Conv2d(3, 12, 3, stride=2, padding=1),
        nn.BatchNorm2d(12),
        nn.ReLU(),
        nn.Conv2d(12, 16, 3, stride=2, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 6),
    )


@pytest.fixture
def images() -> Tensor:
    """Pictures with large shapes in them, each its own."""
    rough = pixels(6, size=(6, 6), seed=3)
    return nn.functional.interpolate(rough, (64, 64), mode="bicubic").clamp(0, 1)


@pytest.fixture
def network(images: Tensor) -> nn.Module:
    made = seeded(normed)
    measure_statistics(made, made.modules(), images)
    return made


PLANTED: dict[type[Method], Verdict] = {
    Edges: Verdict.FAILS,
    Constant: Verdict.FAILS,
    Flat: Verdict.FAILS,
    Weights: Verdict.PASSES,
}


@pytest.mark.parametrize("planted", PLANTED)
def test_planted_methods_get_the_verdict_that_is_known(
    planted: type[Method], network: nn.Module, images: Tensor
) -> None:
    found = sanity_check(network, images, methods={"planted": lambda _: planted()}, seeds=2, stages=3)
    method = found.methods["planted"]
    assert method.verdict == PLANTED[planted], method.sentence
    assert method.logits.verdict == PLANTED[planted]
    assert method.sentence.startswith("Fails" if PLANTED[planted] == Verdict.FAILS else "Passes")
    assert ("same for every image" in method.sentence) == (planted in (Constant, Flat))
    if planted is not Weights:
        assert method.all_layers.kept.value == pytest.approx(1)


def test_class_oblivious_maps_hardly_feel_a_random_logits_layer_and_class_specific_ones_do(
    images: Tensor,
) -> None:
    """A wide random layer keeps distances between features, and the class-oblivious map sees only these."""
    torch.manual_seed(0)
    network = seeded(lambda: nn.Sequential(*list(normed())[:-1], nn.Linear(16, 2000)))
    measure_statistics(network, network.modules(), images)
    found = sanity_check(network, images, methods=["l2caf", "l2caf-class"], stages=2)
    oblivious, specific = found.methods["l2caf"], found.methods["l2caf-class"]
    assert oblivious.logits.kept.value > 0.9
    assert specific.logits.kept.value < 0.5
    assert "Johnson" in oblivious.sentence or oblivious.verdict == Verdict.FAILS
    assert "Johnson" not in specific.sentence


def test_a_head_that_normalises_is_said_to_be_kept_before_its_logits(images: Tensor) -> None:
    network = seeded(lambda: nn.Sequential(*list(normed())[:-1], nn.LayerNorm(16, eps=1e-12), nn.Linear(16, 6)))
    measure_statistics(network, network.modules(), images)
    method = sanity_check(network, images, methods=["l2caf"], seeds=1, stages=2).methods["l2caf"]
    assert method.endpoint != "output"
    assert method.logits.kept.value == pytest.approx(1)
    assert "before the logits layer" in method.sentence or method.verdict == Verdict.FAILS


def test_a_cancelled_check_leaves_the_network_as_it_was(network: nn.Module, images: Tensor) -> None:
    before = {name: value.clone() for name, value in network.state_dict().items()}
    told = []

    def stop(stage: str, done: int, *_: object) -> None:
        told.append(done)
        if done == 2:
            raise Cancelled(stage)

    with pytest.raises(Cancelled):
        sanity_check(network, images, methods=["l2caf"], seeds=2, stages=3, progress=stop)
    assert told == [1, 2]
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_all_methods_are_measured_at_every_stage(network: nn.Module, images: Tensor) -> None:
    calls = []
    found = sanity_check(network, images, seeds=2, stages=3, progress=lambda *told: calls.append(told))
    assert tuple(found.methods) == METHODS.default_in("evaluate")
    assert calls == [("randomising", done, 6) for done in range(1, 7)]
    assert found.depths == [0, 1, 2, 4] or found.depths == [0, 1, 3, 4]
    for name, method in found.methods.items():
        assert set(method.control) == set(method.similarity) >= {f"shown-{measure}" for measure in SIMILARITIES}
        for values in method.similarity.values():
            assert values.shape == (2, 3, 6)
            assert np.isfinite(values).all()
            assert (values <= 1 + 1e-9).all()
        assert found.maps[name].shape == (4, 64, 64)
    assert found.methods["gradcam"].is_signed
    json.dumps(found.as_dict(), allow_nan=False)


def test_the_network_is_untouched_and_the_global_random_state_too(network: nn.Module, images: Tensor) -> None:
    network[1].train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    sanity_check(network, images, methods=["l2caf"], seeds=1, stages=2)
    assert torch.equal(torch.rand(3), expected)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert network[1].training
    assert not network[4].training
    assert all("forward" not in module.__dict__ and not module._forward_hooks for module in network.modules())


def test_seeds_repeat_and_stages_do_not_change_the_draws(network: nn.Module, images: Tensor) -> None:
    def check(stages: int | None) -> np.ndarray:
        found = sanity_check(network, images, methods=["gradcam"], seeds=2, stages=stages)
        return found.methods["gradcam"].similarity["shown-rank"]

    once, again, fine = check(2), check(2), check(None)
    assert np.array_equal(once, again)
    assert fine.shape[1] == 4
    np.testing.assert_allclose(once[:, [0, -1]], fine[:, [0, -1]], atol=1e-5)
    assert not np.array_equal(once[0], once[1])  # another seed, other weights


def test_layers_come_in_the_reverse_order_of_the_run_not_of_their_making(images: Tensor) -> None:
    class Backwards(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = nn.Linear(4, 3)
            self.second = nn.Conv2d(4, 4, 3)
            self.scale = nn.BatchNorm2d(4)
            self.first = nn.Conv2d(3, 4, 3)
            self.never = nn.ModuleList([nn.Linear(2, 2)])

        def forward(self, x: Tensor) -> Tensor:
            return self.last(self.scale(self.second(self.first(x))).mean(dim=(2, 3)))

    layers = layers_from_the_top(Backwards().eval(), images)
    assert [layer.modules for layer in layers] == [("last",), ("second", "scale"), ("first",)]


def test_the_cascade_starts_at_the_logits_ends_at_all_and_is_even(images: Tensor) -> None:
    deep = nn.Sequential(*(nn.Conv2d(3, 3, 1) for _ in range(40))).eval()
    stages = cascade(deep, images, stages=5)
    assert [stage.depth for stage in stages] == [1, 11, 21, 30, 40]
    assert [len(stage.adds) for stage in stages] == [1, 10, 10, 9, 10]
    assert stages[0].name == "39"
    assert len(cascade(deep, images, stages=None)) == 40


def test_random_layers_are_new_of_the_same_size_and_alive(network: nn.Module, images: Tensor) -> None:
    with torch.no_grad():
        trained = network(images)
    before = {name: value.clone() for name, value in network.named_parameters()}
    layers = layers_from_the_top(network, images)
    touched = randomize(network, layers, first=0, seed=0)
    measure_statistics(network, touched, images)
    with torch.no_grad():
        output = network(images)
    for name, value in network.named_parameters():
        if value.ndim > 1:
            assert not torch.allclose(value, before[name])
            size = before[name].square().mean().item()
            assert value.square().mean().item() == pytest.approx(size, rel=1e-4)
    assert output.isfinite().all()
    assert 0.1 < output.std() / trained.std() < 10


def test_a_deep_network_with_batch_norms_neither_fades_nor_overflows(images: Tensor) -> None:
    blocks = [layer for _ in range(40) for layer in (nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())]
    deep = nn.Sequential(nn.Conv2d(3, 8, 3), *blocks).eval()
    touched = randomize(deep, layers_from_the_top(deep, images), first=0, seed=1)
    measure_statistics(deep, touched, images)
    with torch.no_grad():
        assert 0.1 < deep(images).std() < 10
    assert all(norm.momentum == 0.1 and not norm.training for norm in deep if isinstance(norm, nn.BatchNorm2d))


def test_modules_without_a_reset_and_under_a_parametrisation_are_randomised_too(images: Tensor) -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.matrix = nn.Parameter(torch.randn(3, 5))

        def forward(self, x: Tensor) -> Tensor:
            return x.mean(dim=(2, 3)) @ self.matrix

    network = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 3, 3)), Own()).eval()
    before = {name: value.clone() for name, value in network.named_parameters()}
    randomize(network, layers_from_the_top(network, images), first=0, seed=0)
    after = dict(network.named_parameters())
    changed = {name for name, value in after.items() if not torch.allclose(value, before[name])}
    assert {"1.matrix", "0.parametrizations.weight.original1"} <= changed


def test_measures_are_those_of_scipy_and_scikit_image() -> None:
    rng = np.random.default_rng(0)
    one, other = rng.random((2, 48, 48)).astype(np.float32)
    assert rank_correlation(one, other) == pytest.approx(scipy.stats.spearmanr(one.ravel(), other.ravel())[0])
    expected = skimage.metrics.structural_similarity(one, other, data_range=1.0)
    assert structural_similarity(one, other) == pytest.approx(expected, abs=1e-5)
    signed = skimage.metrics.structural_similarity(one, 2 * other - 1, data_range=2.0)
    assert structural_similarity(one, 2 * other - 1) == pytest.approx(signed, abs=1e-5)
    first, second = skimage.feature.hog(one), skimage.feature.hog(other)
    expected = scipy.stats.pearsonr(first, second).statistic
    assert gradient_similarity(one, other) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("measure", SIMILARITIES.values(), ids=list(SIMILARITIES))
def test_measures_of_equal_and_of_empty_maps(measure: Callable[..., float]) -> None:
    heat = np.random.default_rng(1).random((32, 32))
    empty = np.zeros((32, 32))
    assert measure(heat, heat) == pytest.approx(1)
    assert measure(empty, empty) == pytest.approx(1)
    assert measure(heat, empty) < 0.1
    for bad in (heat[:10, :10], np.full((32, 32), np.nan), heat[:, :30]):
        with pytest.raises(InputError):
            measure(heat if bad.shape == heat.shape or bad.shape[1] == 30 else bad, bad)


def test_what_cannot_be_checked_is_said_in_one_sentence(network: nn.Module, images: Tensor) -> None:
    with pytest.raises(InputError, match="two or more"):
        sanity_check(network, images[:1])
    with pytest.raises(InputError, match="no method 'x'"):
        sanity_check(network, images, methods=["x"])
    with pytest.raises(InputError, match="seeds"):
        sanity_check(network, images, seeds=0)
    with pytest.raises(InputError, match="too few"):
        sanity_check(network, images, stages=1)
    with pytest.raises(NetworkError, match="no weights"):
        sanity_check(nn.Sequential(nn.AvgPool2d(4), nn.Flatten()), images)


def test_a_method_that_does_not_fit_is_named_and_the_rest_goes_on(images: Tensor) -> None:
    curved = seeded(lambda: nn.Sequential(*list(normed()), nn.Tanh(), nn.Linear(6, 4)))
    found = sanity_check(curved, images, methods=["cam", "gradcam"], seeds=1, stages=2)
    assert list(found.methods) == ["gradcam"]
    assert "CAM needs" in found.refused["cam"]
    with pytest.raises(MethodError):
        sanity_check(curved, images, methods=["cam"], seeds=1, stages=2)


def test_a_method_that_gives_up_on_the_way_is_named_and_the_rest_goes_on(network: nn.Module, images: Tensor) -> None:
    class Picky(Weights):
        asked = 0

        def formula(self, head: Head) -> Maps:
            Picky.asked += 1
            if Picky.asked > 4:
                raise MethodError("enough.")
            return super().formula(head)

    both = {"picky": lambda _: Picky(), "edges": lambda _: Edges()}
    found = sanity_check(network, images, methods=both, seeds=2, stages=3)
    assert list(found.methods) == ["edges"] == list(found.maps)
    assert "enough" in found.refused["picky"]


def test_figures_show_every_method(network: nn.Module, images: Tensor) -> None:
    found = sanity_check(network, images, seeds=2, stages=3)
    figure = plot(found, title="t")
    assert len(figure.axes) == len(SIMILARITIES)
    solid = [line for line in figure.axes[0].lines if line.get_linestyle() == "-"]
    assert len(solid) == len(METHODS.default_in("evaluate"))
    picture = sheet(found, Image.new("RGB", (64, 64)))
    assert picture.width > picture.height / 2


NETS = """
import torch
from torch import nn

def tiny():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 5, stride=8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)
    )
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nets.py").write_text(NETS)
    rng = np.random.default_rng(0)
    for index in range(3):
        noise = (255 * rng.random((8, 8, 3))).astype(np.uint8)
        Image.fromarray(noise).resize((256, 256)).save(tmp_path / f"p{index}.png")
    return tmp_path


def test_the_command_writes_a_document_and_two_pictures(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(
        "sanity p0.png p1.png p2.png broken.png -n nets.py:tiny --seeds 1 --stages 2 -m l2caf -m gradcam"
        " --out o --json".split()
    )
    captured = capsys.readouterr()
    assert code == 0
    document = json.loads(captured.out)
    assert list(document["methods"]) == ["l2caf", "gradcam"]
    assert len(document["photographs"]) == 3
    assert document["methods"]["l2caf"]["all"]["verdict"] in list(Verdict)
    assert "broken.png" in captured.err
    assert sorted(path.name for path in Path("o").iterdir()) == [
        "sanity-maps.png",
        "sanity.json",
        "sanity.png",
    ]
    stored = json.loads(Path("o/sanity.json").read_text())
    assert stored["methods"] == document["methods"]


def test_one_photograph_is_joined_by_the_installed_ones(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main("sanity p0.png -n nets.py:tiny --seeds 1 --stages 2 -m gradcam".split()) == 0
    assert "Grad-CAM" in capsys.readouterr().out
    assert len(json.loads(Path("l2caf-out/sanity.json").read_text())["photographs"]) > 3


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        ("sanity nope.png", "nope.png"),
        ("sanity --method edges", "no method 'edges'"),
        ("sanity --stages 1", "--stages: 1"),
        ("sanity --seeds 0", "seeds"),
        ("sanity p0.png -n nothing", "no network 'nothing'"),
    ],
)
def test_bad_words_get_one_sentence(words: str, fault: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 2
    error = capsys.readouterr().err
    assert fault in error
    assert "Traceback" not in error


def test_a_run_that_is_stopped_leaves_nothing_half_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = []

    def interrupted(*args: object, **kwargs: object) -> list[nn.Module]:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return randomize(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(sanity_module, "randomize", interrupted)
    assert main("sanity p0.png p1.png p2.png -n nets.py:tiny -m gradcam --out o".split()) == 130
    assert list(Path("o").iterdir()) == []


def test_objectives_that_are_oblivious_are_told_apart() -> None:
    from l2caf.evaluation.sanity import _is_oblivious
    from l2caf.methods.attention_filter import AttentionFilter
    from l2caf.methods.grad_cam import GradCAM
    from l2caf.objectives.classes import ClassSpecific

    assert _is_oblivious(AttentionFilter())
    assert _is_oblivious(AttentionFilter(ClassOblivious()))
    assert not _is_oblivious(AttentionFilter(ClassSpecific()))
    assert not _is_oblivious(GradCAM())
    assert pooled()  # the network that the oblivious objective is exact on
