"""Clips: a map per frame, the same however the network is written, and what it says of which frame counts."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import l2caf
import networks_for_tests as nets
from clips_for_tests import FEATURES, PATCH, Clip, ConvLSTM, Volume, planted, trained
from l2caf.errors import FileError, InputError, LayerError, NetworkError
from networks_for_tests import seeded

QUICK = l2caf.Auto(l2caf.Riemannian(exploring=0))
KINDS = ("lstm", "gru", "both ways", "two layers", "packed", "attention", "mean")


def twins(kind: str) -> tuple[nn.Module, nn.Module]:
    """One network written as a loop over the frames, and with the frames in the batch."""
    loop, folded = seeded(lambda: Clip(kind, loop=True)), seeded(lambda: Clip(kind, loop=False))
    folded.load_state_dict(loop.state_dict())
    return loop, folded


@pytest.mark.parametrize("kind", KINDS)
def test_a_loop_over_frames_and_frames_in_the_batch_give_the_same_maps(kind: str) -> None:
    clips = planted(2, 3, seed=0)[0]
    loop, folded = (
        l2caf.explain(network, clips, objective=l2caf.ClassSpecific(1), solver=QUICK) for network in twins(kind)
    )
    assert loop.axes == folded.axes == ("sample", "frame", "y", "x")
    assert loop.layer == folded.layer == "layer"
    assert loop.call is None
    assert loop.maps.shape == (2, 3, 32, 32)
    torch.testing.assert_close(loop.weights, folded.weights, atol=1e-3, rtol=0)
    torch.testing.assert_close(loop.frame_weights, folded.frame_weights, atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(loop.frame_weights.sum(dim=1), torch.ones(2, dtype=torch.float64))


class OneByOne(l2caf.ClassOblivious):
    """The same objective, which does not say how it reads a batch that comes several times over."""

    def repeated(self, times: int) -> None:
        return None


@pytest.mark.parametrize("loop", [True, False])
@pytest.mark.parametrize("kind", ["lstm", "mean"])
def test_frames_explained_at_once_are_those_explained_one_after_the_other(kind: str, loop: bool) -> None:
    network = twins(kind)[not loop]
    clips = planted(3, 4, seed=1)[0]
    at_once = l2caf.explain(network, clips, solver=QUICK)
    apart = l2caf.explain(network, clips, objective=OneByOne(), solver=QUICK)
    torch.testing.assert_close(at_once.solution.loss, apart.solution.loss, rtol=1e-2, atol=1e-9)
    torch.testing.assert_close(at_once.frame_weights, apart.frame_weights, atol=1e-5, rtol=1e-3)
    if kind == "mean":
        assert at_once.outcome == ["exact"] * 3
        torch.testing.assert_close(at_once.weights.abs(), apart.weights.abs(), atol=1e-3, rtol=0)


def by_hook(network: Clip, clips: Tensor, weights: Tensor, frame: int) -> Tensor:
    """What a person would write: a hook that multiplies one frame's map."""
    calls = iter(range(100))

    def multiply(_module: nn.Module, _args: object, output: Tensor) -> Tensor:
        if network.loop:
            return output * weights if next(calls) == frame else output
        maps = output.unflatten(0, clips.shape[:2])
        return torch.cat(
            [maps[:, :frame], maps[:, frame : frame + 1] * weights.unsqueeze(1), maps[:, frame + 1 :]], 1
        ).flatten(0, 1)

    handle = network.layer.register_forward_hook(multiply)
    with torch.no_grad():
        output = network(clips)
    handle.remove()
    return output


@pytest.mark.parametrize("loop", [True, False])
def test_the_loss_of_a_frame_is_what_multiplying_that_frame_gives(loop: bool) -> None:
    network = twins("lstm")[not loop]
    clips = planted(2, 3, seed=2)[0]
    with torch.no_grad():
        untouched = network(clips)
    solution = l2caf.explain(network, clips, solver=QUICK).solution
    assert len(solution.frames) == 3
    for frame, own in enumerate(solution.frames):
        output = by_hook(network, clips, own.filter.unsqueeze(1), frame)
        expected = (output - untouched).double().square().sum(dim=1)
        torch.testing.assert_close(own.loss, expected, rtol=1e-3, atol=1e-9)
        torch.testing.assert_close(own.filter.flatten(1).norm(dim=1), torch.ones(2))
    off = [
        (by_hook(network, clips, torch.zeros(2, 1, 8, 8), frame) - untouched).square().sum(dim=1) for frame in range(3)
    ]
    grown = torch.stack(off, dim=1).double()
    torch.testing.assert_close(solution.frame_weights, grown / grown.sum(dim=1, keepdim=True), rtol=1e-3, atol=1e-6)


def test_what_makes_the_next_frame_ready_is_not_computed_again() -> None:
    network = seeded(lambda: Clip("lstm", loop=True))
    clips = planted(2, 3, seed=3)[0]
    l2caf.explain(network, clips, solver=QUICK)
    ran: list[str] = []
    for name in ("stem", "layer", "reader"):
        module = network.get_submodule(name)
        forward = module.forward
        module.forward = lambda x, name=name, forward=forward: (ran.append(name), forward(x))[1]
    l2caf.explain(network, clips, solver=QUICK)
    ran.clear()
    l2caf.explain(network, clips, solver=QUICK)
    assert ran.count("stem") == ran.count("layer") == 3
    assert ran.count("reader") > 6


def test_a_state_that_is_a_map_has_frames_as_well() -> None:
    heatmap = l2caf.explain(seeded(ConvLSTM), planted(2, 4, seed=4)[0], layer="stem", solver=QUICK)
    assert heatmap.axes == ("sample", "frame", "y", "x")
    assert heatmap.maps.shape == (2, 4, 32, 32)


def test_a_layer_that_sees_its_own_last_map_is_not_taken_frame_by_frame() -> None:
    network, clips = seeded(ConvLSTM), planted(2, 4, seed=4)[0]
    heatmap = l2caf.explain(network, clips, solver=QUICK)
    assert heatmap.layer == "stem"
    assert heatmap.maps.shape == (2, 4, 32, 32)
    named = l2caf.explain(network, clips, layer="gates", solver=QUICK)
    assert named.call == 3
    assert named.maps.shape == (2, 32, 32)


class AsByCudnn(torch.autograd.Function):
    """Its kernels for recurrent layers refuse the way back where they ran in evaluation mode."""

    @staticmethod
    def forward(context: Any, value: Tensor, refuses: bool) -> Tensor:
        context.refuses = refuses
        return value.clone()

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        if context.refuses:
            raise RuntimeError("cudnn RNN backward can only be called in training mode")
        return gradient, None


class OnCudnn(nn.GRU):
    def forward(self, *given: Any) -> Any:
        frames, state = super().forward(*given)
        return AsByCudnn.apply(frames, torch.backends.cudnn.enabled and not self.training), state


@pytest.mark.parametrize("loop", [True, False])
def test_kernels_that_refuse_a_gradient_in_evaluation_mode_are_passed_by(loop: bool) -> None:
    clips, plain = planted(2, 3, seed=3)[0], seeded(lambda: Clip("gru", loop=loop))
    refusing = seeded(lambda: Clip("gru", loop=loop))
    refusing.reader.memory = OnCudnn(FEATURES, FEATURES, batch_first=True)
    refusing.load_state_dict(plain.state_dict())
    with pytest.raises(RuntimeError, match="only be called in training mode"):
        refusing.eval()(clips.requires_grad_()).sum().backward()
    clips = clips.detach()
    for method in ("l2caf", "gradcam"):
        expected, found = (l2caf.explain(network, clips, method=method) for network in (plain, refusing))
        assert found.layer == expected.layer == "layer"
        torch.testing.assert_close(found.weights, expected.weights)
    assert torch.backends.cudnn.enabled


class Remembering(nn.Module):
    """Keeps what it was given last, for others to read: a re-run that does not compute it finds something else."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 4, stride=4)

    def forward(self, frame: Tensor) -> Tensor:
        self.latest = self.convolution(frame)
        return self.latest.relu()


class Reminded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.layer, self.scores = Remembering(), nn.Conv2d(4, 4, 1), nn.Linear(4, 3)

    def forward(self, clip: Tensor) -> Tensor:
        state = clip.new_zeros(len(clip), 4)
        for number in range(clip.shape[1]):
            state = 0.5 * state + self.layer(self.stem(clip[:, number])).mean(dim=(2, 3)).tanh()
            state = state + self.stem.latest.mean(dim=(2, 3))
        return self.scores(state)


def test_a_loop_of_which_nothing_can_be_kept_has_its_frames_as_well() -> None:
    network, clips = seeded(Reminded), planted(2, 4, seed=4)[0]
    heatmap = l2caf.explain(network, clips, solver=QUICK)
    assert heatmap.layer == "layer"
    assert heatmap.maps.shape == (2, 4, 32, 32)


def test_several_maps_per_sample_each_have_their_frames() -> None:
    clips = planted(2, 3, seed=5)[0]
    heatmap = l2caf.explain(twins("lstm")[0], clips, objective=l2caf.ClassSpecific(classes=[0, 2]), solver=QUICK)
    assert heatmap.axes == ("sample", "map", "frame", "y", "x")
    assert heatmap.maps.shape == (2, 2, 3, 32, 32)
    assert heatmap.frame_weights.shape == (2, 2, 3)
    one = pickle.loads(pickle.dumps(heatmap[1]))
    torch.testing.assert_close(one.frame_weights, heatmap.frame_weights[1:])
    assert len(one.solution.frames) == 3
    labels = l2caf.explain(twins("lstm")[0], clips, objective=l2caf.ClassSpecific(labels=[2, 0]), solver=QUICK)
    torch.testing.assert_close(labels.weights[0], heatmap.weights[0, 1], atol=1e-3, rtol=0)


def test_frames_together_share_one_norm_or_have_one_each() -> None:
    clips = planted(2, 3, seed=6)[0]
    network = twins("lstm")[1]
    one = l2caf.explain(network, clips, frames="together", solver=QUICK)
    torch.testing.assert_close(one.weights.flatten(1).norm(dim=1), torch.ones(2))
    each = l2caf.explain(network, clips, filter=l2caf.UnitL2PerFrame(), solver=QUICK)
    torch.testing.assert_close(each.weights.flatten(2).norm(dim=2), torch.ones(2, 3))
    assert not each.solution.frames
    with pytest.raises(InputError, match="no frames"):
        l2caf.explain(seeded(nets.curved), clips[:, 0], filter=l2caf.UnitL2PerFrame())
    with pytest.raises(InputError, match="alone"):
        l2caf.explain(network, clips, frames="apart")  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["gradcam", "gradcam-abs"])
def test_formulas_see_all_frames_of_a_loop_too(method: str) -> None:
    clips = planted(2, 3, seed=7)[0]
    loop, folded = (l2caf.explain(network, clips, method=method) for network in twins("gru"))
    assert loop.maps.shape == (2, 3, 32, 32)
    torch.testing.assert_close(loop.weights, folded.weights, atol=1e-5, rtol=1e-3)


def test_a_single_call_can_still_be_asked_for() -> None:
    heatmap = l2caf.explain(twins("lstm")[0], planted(2, 3, seed=8)[0], layer="layer", call=1, solver=QUICK)
    assert heatmap.call == 1
    assert heatmap.maps.shape == (2, 32, 32)


def test_the_words_for_a_clip_speak_of_its_frames() -> None:
    heatmap = l2caf.explain(twins("mean")[0], planted(2, 3, seed=8)[0])
    assert repr(heatmap) == "Heatmap(2 samples of 3 frames of 32×32, layer 'layer', AttentionFilter, exact)"
    with pytest.raises(InputError, match="frames"):
        heatmap[0].overlay(torch.rand(3, 32, 32, 3).numpy())
    with pytest.raises(InputError, match="frames"):
        heatmap[0].save("strip.png")


# Where frames come together, and rows of their own


class Reading(nn.Module):
    """Frames in the batch, each read by a curved part of its own, then a recurrent layer that takes time first."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.own = nn.Conv2d(3, 8, 8, stride=8), nn.Sequential(nn.Conv2d(8, 6, 2), nn.Tanh())
        self.memory, self.scores = nn.GRU(6, 8), nn.Linear(8, 3)

    def forward(self, clip: Tensor) -> Tensor:
        frames = self.own(self.layer(clip.flatten(0, 1)).relu()).mean(dim=(2, 3)).unflatten(0, clip.shape[:2])
        return self.scores(self.memory(frames.transpose(0, 1))[0][-1])


@pytest.mark.parametrize("make", [Reading, lambda: Clip("gru", loop=True), lambda: Clip("attention", loop=False)])
def test_any_rows_past_the_joint_of_the_frames_are_what_these_frames_give_alone(make: Callable[[], nn.Module]) -> None:
    clips = planted(2, 4, seed=3)[0]
    head = l2caf.record(seeded(make), clips, layer="layer").head.in_full()
    each = head.each_frame()
    assert each is not None
    assert each.takes_rows()
    rows = torch.tensor([5, 0, 5, 3])  # of frames 0 to 3, each with two samples: one of them twice
    weights = torch.randn(len(rows), each.positions, generator=torch.Generator().manual_seed(0))
    found = each.filtered_rows(weights, rows)
    for place, row in enumerate(rows.tolist()):
        alone = head.frames()[row // 2].filtered(weights[place].expand(2, -1))
        torch.testing.assert_close(found[place], alone[row % 2], atol=1e-5, rtol=1e-4)


def test_what_a_frame_has_for_itself_is_computed_for_its_own_filter_alone() -> None:
    network, clips = seeded(Reading), planted(1, 8, seed=3)[0]
    l2caf.explain(network, clips, layer="layer", solver=QUICK)
    rows: list[int] = []
    network.own[0].register_forward_hook(lambda _module, _args, output: rows.append(len(output)))
    solution = l2caf.explain(network, clips, layer="layer", solver=QUICK).solution
    rows.clear()
    solution = l2caf.explain(network, clips, layer="layer", solver=QUICK).solution
    spent = int(solution.evaluations.sum())
    # With all frames in every row there would be eight times as many.
    assert sum(rows) < 3 * (spent + 8 * 30)


class Mixing(nn.Module):
    """Takes the mean of the batch off: a filter on one sample changes what all of them give."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.scores = nn.Conv2d(3, 8, 8, stride=8), nn.Linear(8, 3)

    def forward(self, images: Tensor) -> Tensor:
        features = self.layer(images).mean(dim=(2, 3)).tanh()
        return self.scores(features - features.mean(dim=0))


def test_a_head_that_mixes_the_samples_of_a_batch_is_refused() -> None:
    network, images = seeded(Mixing), torch.rand(3, 3, 32, 32)
    l2caf.explain(network, images[:1], solver=QUICK)
    with pytest.raises(NetworkError, match="mixes the samples of a batch after layer 'layer'"):
        l2caf.explain(network, images, solver=QUICK)


class Wandering(nn.Module):
    def __init__(self, order: list[int]) -> None:
        super().__init__()
        self.order, self.layer = order, nn.Conv2d(3, 8, 8, stride=8)
        self.memory, self.scores = nn.GRUCell(8, 8), nn.Linear(8, 3)

    def forward(self, clip: Tensor) -> Tensor:
        state = clip.new_zeros(len(clip), 8)
        for frame in self.order:
            state = self.memory(self.layer(clip[:, frame]).relu().mean(dim=(2, 3)), state)
        return self.scores(state)


@pytest.mark.parametrize("order", [[3, 2, 1, 0], [0, 2], [0, 1, 2, 3, 0, 1, 2, 3], [0, 0, 1, 2, 3]])
def test_a_loop_that_is_not_once_over_all_frames_says_of_which_call_its_map_is(order: list[int]) -> None:
    network, clips = seeded(lambda: Wandering(order)), planted(2, 4, seed=4)[0]
    heatmap = l2caf.explain(network, clips, solver=QUICK)
    assert heatmap.call == len(order) - 1
    assert f"runs {len(order)} times in a pass" in heatmap.solution.reason
    asked = l2caf.explain(network, clips, call=0, solver=QUICK)
    assert "in a pass" not in asked.solution.reason


def test_frames_folded_time_first_are_named_as_what_they_are() -> None:
    class TimeFirst(Reading):
        def forward(self, clip: Tensor) -> Tensor:
            maps = self.own(self.layer(clip.transpose(0, 1).flatten(0, 1)).relu()).mean(dim=(2, 3))
            return self.scores(self.memory(maps.unflatten(0, clip.transpose(0, 1).shape[:2]))[0][-1])

    with pytest.raises(LayerError, match="all samples of the first frame, then those of the next"):
        l2caf.explain(seeded(TimeFirst), planted(2, 4, seed=4)[0])


@pytest.mark.parametrize("loop", [True, False])
def test_a_clip_without_a_batch_or_without_frames_is_told(loop: bool) -> None:
    network, clips = seeded(lambda: Clip("gru", loop=loop)), planted(1, 3, seed=3)[0]
    with pytest.raises(InputError, match=r"no batch: give inputs.unsqueeze\(0\)"):
        l2caf.explain(network, clips[0])
    with pytest.raises(InputError, match="holds no numbers"):
        l2caf.explain(network, clips[:, :0])


def test_boxes_of_a_clip_come_frame_by_frame() -> None:
    weights = torch.zeros(1, 2, 4, 4)
    weights[0, 0, 1, 2] = weights[0, 1, 3, 0] = 1
    clip = l2caf.Heatmap(weights, (4, 4), "layer", "method", axes=("sample", "frame", "y", "x"))
    assert [boxes.tolist() for boxes in clip.boxes(0.5)[0]] == [[[2, 1, 3, 2]], [[0, 3, 1, 4]]]
    both = clip.boxes([0.2, 0.5])
    assert [[one.tolist() for one in frame] for frame in both[0]] == [[[[2, 1, 3, 2]]] * 2, [[[0, 3, 1, 4]]] * 2]


def test_a_film_that_cannot_be_written_is_told_which_can(tmp_path: Path) -> None:
    clip = l2caf.Heatmap(torch.rand(1, 2, 4, 4), (8, 8), "layer", "method", axes=("sample", "frame", "y", "x"))
    with pytest.raises(FileError, match=r"\.mp4 or \.gif for a film"):
        clip.save(tmp_path / "a.webm", torch.rand(2, 8, 8, 3))
    strip = clip.save(tmp_path / "strip.png", torch.rand(2, 3, 8, 8))  # as the network takes its frames
    assert strip.stat().st_size > 0


# Clips whose answer is known


def judged(heatmap: l2caf.Heatmap, when: Tensor, corners: Tensor) -> float:
    """The share of clips whose heaviest frame is the planted one, with its peak in the planted patch."""
    right = 0
    for maps, weights, frame, (y, x) in zip(heatmap.maps, heatmap.frame_weights, when, corners.tolist(), strict=True):
        row, column = divmod(int(maps[frame].argmax()), maps.shape[-1])
        right += int(weights.argmax()) == frame and y <= row < y + PATCH and x <= column < x + PATCH
    return right / len(when)


@pytest.mark.parametrize(("kind", "steps"), [("both ways", 200), ("gru", 250)])
def test_the_planted_frame_is_the_heaviest_and_its_patch_the_peak(kind: str, steps: int) -> None:
    network = trained(lambda: Clip(kind, loop=kind == "gru"), steps=steps)
    clips, classes, when, corners = planted(100, 3, seed=9)
    assert (network(clips).argmax(dim=1) == classes).sum() >= 97
    heatmap = l2caf.explain(network, clips, objective=l2caf.ClassSpecific(), solver=QUICK)
    assert judged(heatmap, when, corners) >= 0.95


def test_a_network_with_a_map_over_time_weighs_its_frames() -> None:
    network = trained(Volume, channels_first=True, frames=5, steps=300)
    clips, classes, when, corners = planted(100, 5, seed=10)
    clips = clips.transpose(1, 2)
    assert (network(clips).argmax(dim=1) == classes).sum() >= 97
    heatmap = l2caf.explain(network, clips, objective=l2caf.ClassSpecific())
    assert set(heatmap.outcome) == {"exact"}
    assert heatmap.maps.shape == (100, 5, 32, 32)
    assert judged(heatmap, when, corners) >= 0.95
