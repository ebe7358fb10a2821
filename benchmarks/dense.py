"""What does a region of a U-Net's output cost, asked at its bottleneck, beside a forward?"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable

import torch
from torch import Tensor, nn

import l2caf

from .memory import now_and_peak, reset_peak
from .row import Row, side_by_side

SIZE, WIDTH, DEPTH, CHANNELS = 256, 16, 4, 5
ROUNDS = 9
MMAP_THRESHOLD = -3  # glibc's name for it
BOX = (96, 96, 160, 160)  # a sixteenth of the picture


class UNet(nn.Module):
    """The classic one: two convolutions with their norms a level, and a skip connection at each."""

    def __init__(self) -> None:
        super().__init__()
        widths = [WIDTH * 2**level for level in range(DEPTH + 1)]
        self.down = nn.ModuleList(_block(before, after) for before, after in zip([3, *widths], widths, strict=False))
        pairs = list(zip(widths[1:], widths, strict=False))[::-1]
        self.up = nn.ModuleList(nn.ConvTranspose2d(deep, fine, 2, 2) for deep, fine in pairs)
        self.join = nn.ModuleList(_block(2 * fine, fine) for _, fine in pairs)
        self.scores = nn.Conv2d(WIDTH, CHANNELS, 1)

    def forward(self, pictures: Tensor) -> Tensor:
        x, skips = pictures, []
        for level, block in enumerate(self.down):
            x = block(x if level == 0 else nn.functional.max_pool2d(x, 2))
            skips.append(x)
        for up, join, skip in zip(self.up, self.join, skips[-2::-1], strict=True):
            x = join(torch.cat([up(x), skip], 1))
        found: Tensor = self.scores(x)
        return found


def _block(before: int, after: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for channels in (before, after):
        layers += [nn.Conv2d(channels, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


def rows() -> list[Row]:
    torch.manual_seed(0)
    network = UNet()
    with torch.no_grad():
        network(torch.randn(2, 3, SIZE, SIZE))  # so that its norms have seen something
    network.eval()
    mask = torch.zeros(SIZE, SIZE)
    mask[40:200, 60:220] = 1
    asked = {
        "a channel raised in a box": l2caf.Region(BOX, channel=1),
        "a box kept": l2caf.Region(BOX),
        "a mask of 39 % of the picture kept": l2caf.Region(mask),
    }
    pictures = torch.rand(1, 3, SIZE, SIZE)

    def forward() -> None:
        with torch.no_grad():
            network(pictures)

    def explaining(region: l2caf.Region) -> Callable[[], None]:
        return lambda: l2caf.explain(network, pictures, objective=region).weights.sum().item()

    asking = {name: explaining(region) for name, region in asked.items()}
    times = side_by_side({"forward": forward, **asking}, rounds=ROUNDS, warm_up=2)
    held = {name: _held(run) for name, run in {"forward": forward, **asking}.items()}
    found = []
    for name in asked:
        ratio, memory = times.ratio(name, "forward"), held[name] / held["forward"]
        label = f"U-Net, {SIZE}×{SIZE}, from the second question on, {name}"
        measured = f"{ratio:.2f} ({times.spread(name, 'forward')})"
        found.append(Row(f"{label} ÷ forward", measured, "≤ 2", ratio <= 2, {"ratio": ratio}))
        found.append(Row(f"{label}: peak memory ÷ forward", f"{memory:.2f}", "≤ 1.5", memory <= 1.5, {"ratio": memory}))
    return found


def _held(run: Callable[[], None]) -> int:
    """Kilobytes that a run holds at most; what it gives back goes back to the system, so that each starts alike."""
    ctypes.CDLL(None).mallopt(MMAP_THRESHOLD, 1 << 16)
    gc.collect()
    reset_peak()
    before = now_and_peak()[0]
    run()
    return max(1, now_and_peak()[1] - before)
