"""Clips: how many evaluations do all frames need, what do they cost, and are planted frames and patches found?"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, relu

import l2caf
from clips_for_tests import PATCH, Clip, Volume, planted, trained

from .row import Row

FRAMES, CLIPS, ROUNDS = 3, 4, 9
SIDE, SQUARE = 224, 64


class Recurrent(nn.Module):
    """The paper's: a frozen backbone, a shallow network shared by the frames, an LSTM, an embedding of length 1."""

    def __init__(self, *, loop: bool = False) -> None:
        super().__init__()
        whole = l2caf.load("tf_efficientnet_lite0").network.eval()
        self.backbone = nn.Sequential(whole.conv_stem, whole.bn1, whole.blocks, whole.conv_head, whole.bn2)
        self.backbone.requires_grad_(False)
        self.shallow = nn.Sequential(nn.Conv2d(1280, 64, 1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU())
        self.memory = nn.LSTM(64, 64, batch_first=True)
        self.embed = nn.Linear(64, 32)
        self.loop = loop

    def read(self, features: Tensor, clips: int) -> Tensor:
        frames = self.shallow(features).mean(dim=(2, 3)).unflatten(0, (clips, -1))
        return normalize(self.embed(self.memory(frames)[0][:, -1]), dim=1)

    def forward(self, clip: Tensor) -> Tensor:
        if not self.loop:
            return self.read(self.backbone(clip.flatten(0, 1)), len(clip))
        state = None
        for number in range(clip.shape[1]):
            frame = self.shallow(self.backbone(clip[:, number])).mean(dim=(2, 3)).unsqueeze(1)
            hidden, state = self.memory(frame, state)
        return normalize(self.embed(hidden[:, -1]), dim=1)


def moving(number: int, seed: int) -> tuple[Tensor, Tensor]:
    """A coloured square that moves to the left or to the right over noise: six kinds."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.randn(number, 3, 28, 28, generator=generator)
    ground = 0.5 * nn.functional.interpolate(coarse, size=SIDE, mode="bicubic")
    clips, kinds = ground.unsqueeze(1).repeat(1, FRAMES, 1, 1, 1), torch.randint(6, (number,), generator=generator)
    for clip, kind in zip(clips, kinds.tolist(), strict=True):
        top = int(torch.randint(SIDE - SQUARE, (1,), generator=generator))
        for frame, picture in enumerate(clip):
            left = 80 + 60 * (frame - 1) * (1 if kind < 3 else -1)
            picture[:, top : top + SQUARE, left : left + SQUARE] = -1.5
            picture[kind % 3, top : top + SQUARE, left : left + SQUARE] = 2.0
    return clips, kinds


def recurrent() -> Recurrent:
    """Trained with the triplet loss until all kinds are apart."""
    torch.manual_seed(0)
    network = Recurrent().eval()
    clips, kinds = moving(72, seed=1)
    with torch.no_grad():
        features = torch.stack([network.backbone(clip) for clip in clips])
    optimiser = torch.optim.Adam([one for one in network.parameters() if one.requires_grad], 1e-3)
    generator = torch.Generator().manual_seed(2)
    for _ in range(200):
        chosen = torch.randint(len(clips), (32,), generator=generator)
        embedded = network.read(features[chosen].flatten(0, 1), 32)
        apart, same = torch.cdist(embedded, embedded), kinds[chosen, None] == kinds[None, chosen]
        loss = relu((apart * same).amax(dim=1) - (apart + 10 * same).amin(dim=1) + 0.2).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return network


def rows() -> list[Row]:
    network = recurrent()
    clips, _ = moving(CLIPS, seed=5)
    found = [_against_descent(network, clips)]
    for loop in (False, True):
        network.loop = loop
        found.append(_cost("a loop over the frames" if loop else "frames in the batch", network, clips))
    return [*found, *_planted()]


def _against_descent(network: nn.Module, clips: Tensor) -> Row:
    ours = l2caf.explain(network, clips).solution.frames
    theirs = l2caf.explain(network, clips, solver=l2caf.GradientDescent(tolerance=0.0)).solution.frames
    loss, spent = (torch.stack([getattr(one, name) for one in ours]) for name in ("loss", "evaluations"))
    path = torch.stack([one.losses for one in theirs])  # frames, steps, clips
    best = path.amin(dim=1)
    needed = (path <= 1.001 * best.unsqueeze(1)).float().argmax(dim=1) + 1
    above, fewer = float((loss / best - 1).max()), float((needed / spent).min())
    return Row(
        "per-frame filters of a trained recurrent network against the paper's descent",
        f"{100 * above:+.4f} % at most, {fewer:.0f}x fewer evaluations at least ({float(spent.float().mean()):.0f} "
        f"against {float(needed.float().mean()):.0f} on average)",
        "≤ +0.1 %, ≥ 10x",
        above <= 1e-3 and fewer >= 10,
    )


def _cost(how: str, network: nn.Module, clips: Tensor) -> Row:
    def plain() -> None:
        with torch.inference_mode():
            network(clips)

    ratios = _ratios(lambda: l2caf.explain(network, clips).maps, plain)
    low, middle, high = statistics.quantiles(ratios, n=4)
    return Row(
        f"all {FRAMES} frames of {CLIPS} clips ÷ forward, {how}",
        f"{middle:.2f} [{low:.2f} to {high:.2f}]",
        "≤ 1.6",
        middle <= 1.6,
    )


def _ratios(ours: Callable[[], object], plain: Callable[[], object]) -> list[float]:
    """Of CPU time, in turn, after a first call of each."""
    ours(), plain()
    found = []
    for _ in range(ROUNDS):
        began = time.process_time()
        plain()
        between = time.process_time()
        ours()
        found.append((time.process_time() - between) / (between - began))
    return found


def _planted() -> list[Row]:
    found = []
    kinds = {"bidirectional LSTM": ("both ways", 200), "GRU in a loop": ("gru", 250)}
    for name, (kind, steps) in kinds.items():
        network = trained(lambda kind=kind: Clip(kind, loop=kind == "gru"), steps=steps)
        clips, _, when, corners = planted(100, 3, seed=9)
        found.append(_found(name, network, clips, clips, when, corners))
        found += [_peer(peer, name, network, clips, when, corners) for peer in (_captum, _grad_cam)]
    network = trained(Volume, channels_first=True, frames=5, steps=300)
    clips, _, when, corners = planted(100, 5, seed=10)
    found.append(_found("3-D network", network, clips.transpose(1, 2), clips, when, corners))
    return found


def _found(name: str, network: nn.Module, given: Tensor, clips: Tensor, when: Tensor, corners: Tensor) -> Row:
    heatmap = l2caf.explain(network, given, objective=l2caf.ClassSpecific())
    right = _right(heatmap.maps, heatmap.frame_weights, when, corners)
    return Row(f"planted clips, {name}: heaviest frame and peak right", f"{right} of {len(clips)}", "≥ 95", right >= 95)


def _peer(
    explain: Callable[[nn.Module, Tensor], Tensor],
    name: str,
    network: nn.Module,
    clips: Tensor,
    when: Tensor,
    corners: Tensor,
) -> Row:
    """What another library makes of the same clips: its largest value is its peak, its heaviest frame the brightest."""
    what = f"the same through {explain.__doc__}, {name}"
    try:
        maps = explain(network, clips)
        if maps.shape[:2] != clips.shape[:2]:
            return Row(what, f"maps of shape {tuple(maps.shape)} for {tuple(clips.shape)}: no map per frame")
        return Row(what, f"{_right(maps, maps.flatten(2).sum(dim=2), when, corners)} of {len(clips)}")
    except Exception as error:  # noqa: BLE001 - what others do on clips is shown as it is
        return Row(what, f"{type(error).__name__}: {str(error).splitlines()[0][:100]}")


def _captum(network: nn.Module, clips: Tensor) -> Tensor:
    """captum's LayerGradCam"""
    from captum.attr import LayerAttribution, LayerGradCam

    with torch.no_grad():
        classes = network(clips).argmax(dim=1)
    found = LayerGradCam(network, network.layer).attribute(clips, target=classes, relu_attributions=True)
    large = LayerAttribution.interpolate(found, clips.shape[-2:], "bilinear").detach()
    return large.reshape(len(clips), -1, *large.shape[-2:])


def _grad_cam(network: nn.Module, clips: Tensor) -> Tensor:
    """pytorch-grad-cam"""
    from pytorch_grad_cam import GradCAM

    with GradCAM(model=network, target_layers=[network.layer]) as extractor:
        found = torch.from_numpy(extractor(clips.clone().requires_grad_(), targets=None))
    return found.reshape(len(clips), -1, *found.shape[-2:])


def _right(maps: Tensor, weights: Tensor, when: Tensor, corners: Tensor) -> int:
    right = 0
    for own, heavy, frame, (y, x) in zip(maps, weights, when.tolist(), corners.tolist(), strict=True):
        row, column = divmod(int(own[frame].argmax()), own.shape[-1])
        right += int(heavy.argmax()) == frame and y <= row < y + PATCH and x <= column < x + PATCH
    return right
