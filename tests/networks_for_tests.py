"""Tiny networks, each with one trait that has broken an explainer somewhere; random weights of a seed."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

CLASSES = 5
CHANNELS = 8


def pixels(batch: int = 2, *, size: tuple[int, ...] = (32, 32), channels: int = 3, seed: int = 0) -> Tensor:
    """A batch of random pictures (or signals, or volumes)."""
    return torch.rand(batch, channels, *size, generator=torch.Generator().manual_seed(seed))


def seeded(make: Callable[[], nn.Module], seed: int = 0) -> nn.Module:
    """Make a network with weights of its own seed, in evaluation mode; the global state stays as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make().eval()


def pooled(classes: int = CLASSES) -> nn.Module:
    """Convolution, rectifier, mean, linear: affine in the filter. Grid 8 x 8 for 32 x 32, layer "1"."""
    return nn.Sequential(
        nn.Conv2d(3, CHANNELS, 4, stride=4),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(CHANNELS, classes),
    )


def flattened() -> nn.Module:
    """Affine in the filter too, but every position has weights of its own."""
    return nn.Sequential(
        nn.Conv2d(3, 4, 8, stride=8), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 16, 6), nn.Linear(6, CLASSES)
    )


def curved() -> nn.Module:
    """A head of two layers with tanh between them."""
    return nn.Sequential(
        nn.Conv2d(3, CHANNELS, 8, stride=8),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(CHANNELS * 16, 16),
        nn.Tanh(),
        nn.Linear(16, CLASSES),
    )


class RectifiedAfterPooling(nn.Module):
    """Three rectified units on the mean: about the untouched filter this head looks straight."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, CHANNELS, 2, stride=2)
        self.hidden = nn.Linear(CHANNELS, 3)
        self.scores = nn.Linear(3, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.scores(F.relu(self.hidden(self.conv(x).mean(dim=(2, 3)))))


class RectifiedAfterLayer(nn.Module):
    """The rectifier is a function after the last map, in place as in DenseNet: affine for f >= 0 only."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, CHANNELS, 4, stride=4)
        self.norm = nn.BatchNorm2d(CHANNELS)
        self.scores = nn.Linear(CHANNELS, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.conv(x)), inplace=True)
        return self.scores(x.mean(dim=(2, 3)))


class Normalised(nn.Module):
    """A layer norm after the mean: the head does not feel the filter's scale."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, CHANNELS, 4, stride=4)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.norm = nn.LayerNorm(CHANNELS, eps=1e-12)
        self.scores = nn.Linear(CHANNELS, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.scores(self.norm(self.pool(self.conv(x)).flatten(1)))


class Tokens(nn.Module):
    """A small vision transformer: 4 x 4 patches after a class token, which alone the output reads."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 8, stride=8)
        self.register_buffer("first", torch.randn(1, 1, 16))
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.scores = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(len(x), -1, -1), x], dim=1)
        return self.scores(self.encoder(x)[:, 0])


class ChannelsLast(nn.Module):
    """Maps of shape (B, h, w, C)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, CHANNELS, 4, stride=4)
        self.mix = nn.Linear(CHANNELS, 24)
        self.scores = nn.Linear(24, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.scores(self.mix(self.conv(x).permute(0, 2, 3, 1)).mean(dim=(1, 2)))


class Frames(nn.Module):
    """One backbone for every frame of (B, T, 3, H, W), then an LSTM over the frames."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, CHANNELS, 4, stride=4), nn.ReLU())
        self.memory = nn.LSTM(CHANNELS, 6, batch_first=True)
        self.scores = nn.Linear(6, CLASSES)

    def forward(self, clip: Tensor) -> Tensor:
        steps = [self.backbone(clip[:, t]).mean(dim=(2, 3)) for t in range(clip.shape[1])]
        hidden, _ = self.memory(torch.stack(steps, dim=1))
        return self.scores(hidden[:, -1])


class OneRectifier(nn.Module):
    """The same ReLU module runs on vectors first, on maps, and on vectors again."""

    def __init__(self) -> None:
        super().__init__()
        self.shift = nn.Linear(3, CHANNELS)
        self.conv = nn.Conv2d(3, CHANNELS, 4, stride=4)
        self.relu = nn.ReLU()
        self.hidden = nn.Linear(CHANNELS, 16)
        self.scores = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        shift = self.relu(self.shift(x.mean(dim=(2, 3))))
        x = self.relu(self.conv(x) + shift[:, :, None, None])
        return self.scores(self.relu(self.hidden(x.mean(dim=(2, 3)))))


class Checkpointed(nn.Module):
    """Two blocks that are run again for their gradient, or not."""

    def __init__(self, *, reentrant: bool | None) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.stem = nn.Conv2d(3, CHANNELS, 8, stride=8)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1), nn.ReLU()) for _ in range(2)
        )
        self.classifier = nn.Linear(CHANNELS, CLASSES)

    def forward(self, pictures: Tensor) -> Tensor:
        stream = self.stem(pictures)
        for block in self.blocks:
            if self.reentrant is None:
                stream = stream + block(stream)
            else:
                stream = stream + checkpoint(block, stream, use_reentrant=self.reentrant)
        found: Tensor = self.classifier(stream.mean(dim=(2, 3)))
        return found


class UNet(nn.Module):
    """Skip connections across the bottleneck; the output is a map."""

    def __init__(self) -> None:
        super().__init__()
        self.down1 = nn.Sequential(nn.Conv2d(3, 6, 3, stride=2, padding=1), nn.ReLU(inplace=True))
        self.down2 = nn.Sequential(nn.Conv2d(6, CHANNELS, 3, stride=2, padding=1), nn.ReLU(inplace=True))
        self.bottom = nn.Conv2d(CHANNELS, CHANNELS, 3, stride=2, padding=1)
        self.up2 = nn.ConvTranspose2d(CHANNELS, CHANNELS, 2, stride=2)
        self.up1 = nn.ConvTranspose2d(2 * CHANNELS, 6, 2, stride=2)
        self.answer = nn.Conv2d(12, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        fine = self.down1(x)
        coarse = self.down2(fine)
        x = self.up2(F.relu(self.bottom(coarse)))
        x = self.up1(torch.cat([x, coarse], dim=1))
        return self.answer(torch.cat([x, fine], dim=1))


class Residual(nn.Module):
    """A block whose `out += identity` writes into the layer's output, or into a value kept from before it."""

    def __init__(self, *, branch_first: bool) -> None:
        super().__init__()
        self.branch_first = branch_first
        self.stem = nn.Conv2d(3, CHANNELS, 2, stride=2)
        self.conv = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, stride=2)
        self.downsample = nn.Conv2d(CHANNELS, CHANNELS, 1, stride=2)
        self.scores = nn.Linear(CHANNELS, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.stem(x), inplace=True)
        if self.branch_first:
            identity = self.downsample(x)
            x = self.conv(x)
        else:
            kept = self.conv(x)
            identity = self.downsample(x)
            x = kept
        x += identity
        return self.scores(F.relu(x, inplace=True).mean(dim=(2, 3)))


class LimitsInPlace(nn.Module):
    """Holds a kept value down to the layer's output, in place: doing it twice is harmless, until f changes."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, CHANNELS, 4, stride=4)
        self.second = nn.Conv2d(3, CHANNELS, 4, stride=4)
        self.scores = nn.Linear(CHANNELS, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        kept = self.first(x)
        limit = self.second(x)
        kept.copy_(torch.minimum(kept.clone(), limit))
        return self.scores(kept.mean(dim=(2, 3)))


class ScaledInPlace(nn.Module):
    """Functions write into the layer's output and into its mean; the head is affine all the same."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, CHANNELS, 4, stride=4)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.scores = nn.Linear(CHANNELS, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        x *= 2
        x = self.pool(x)
        x += 1
        return self.scores(x.flatten(1))


class Glue(nn.Module):
    """Functions before the layer read a module's output, write into it, and let go of it."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, CHANNELS, 4, stride=4)
        self.place = nn.Parameter(torch.randn(1, CHANNELS, 8, 8))
        self.second = nn.Conv2d(CHANNELS, CHANNELS, 1)
        self.scores = nn.Linear(2 * CHANNELS, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        gate = x.mean(dim=(2, 3))
        x += self.place
        x = self.second(F.relu(x, inplace=True))
        return self.scores(torch.cat([x.mean(dim=(2, 3)), gate], dim=1))


class Pair(nn.Module):
    """Gives a tuple, and an inner module that does."""

    class Split(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 2 * CHANNELS, 4, stride=4)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            one, other = self.conv(x).chunk(2, dim=1)
            return one.clone(), other

    def __init__(self) -> None:
        super().__init__()
        self.split = self.Split()
        self.mix = nn.Conv2d(CHANNELS, CHANNELS, 1)
        self.scores = nn.Linear(CHANNELS, CLASSES)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        one, other = self.split(x)
        one += 1
        x = self.mix(one) + other
        return self.scores(x.mean(dim=(2, 3))), x


class WritesIntoViews(nn.Module):
    """Runs only where no gradient flows through its stem: it writes into one of several views."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 2 * CHANNELS, 4, stride=4)
        self.mix = nn.Conv2d(CHANNELS, CHANNELS, 1)
        self.scores = nn.Linear(CHANNELS, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        one, other = self.stem(x).chunk(2, dim=1)
        one += 1
        return self.scores((self.mix(one) + other).mean(dim=(2, 3)))


class Named(nn.Module):
    """Gives a dict of two answers, each with a map of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Conv2d(3, CHANNELS, 4, stride=4)
        self.other = nn.Conv2d(3, CHANNELS, 4, stride=4)
        self.scores = nn.Linear(CHANNELS, CLASSES)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {
            "one": self.scores(self.one(x).mean(dim=(2, 3))),
            "other": self.scores(self.other(x).mean(dim=(2, 3))),
        }


class AlwaysRandom(nn.Module):
    """Dropout by function, which evaluation mode does not switch off."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, CHANNELS, 4, stride=4)
        self.scores = nn.Linear(CHANNELS, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.scores(F.dropout(self.conv(x), 0.5).mean(dim=(2, 3)))


class Unfelt(nn.Module):
    """Has a map, but does not use it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, CHANNELS, 4, stride=4)
        self.scores = nn.Linear(3, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        self.conv(x)
        return self.scores(x.mean(dim=(2, 3)))


class Auxiliary(nn.Module):
    """Ends with a side branch whose map, of another shape, reaches nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, CHANNELS, 4, stride=4)
        self.scores = nn.Linear(CHANNELS, CLASSES)
        self.side = nn.Conv2d(CHANNELS, 4, 3)
        self.never = nn.Conv2d(3, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        scores = self.scores(x.mean(dim=(2, 3)))
        self.side(x)
        return scores


class SampleBySample(nn.Module):
    """Calls its layer once a sample, so a batch runs otherwise than one sample."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, CHANNELS, 4, stride=4)
        self.scores = nn.Linear(CHANNELS, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.scores(self.conv(sample[None]).mean(dim=(2, 3))) for sample in x])


class Signal(nn.Sequential):
    """One spatial axis."""

    def __init__(self) -> None:
        pool, scores = nn.AdaptiveAvgPool1d(1), nn.Linear(CHANNELS, CLASSES)
        super().__init__(nn.Conv1d(2, CHANNELS, 4, stride=4), nn.ReLU(), pool, nn.Flatten(), scores)


class Volume(nn.Sequential):
    """Three spatial axes."""

    def __init__(self) -> None:
        pool, scores = nn.AdaptiveAvgPool3d(1), nn.Linear(CHANNELS, CLASSES)
        super().__init__(nn.Conv3d(1, CHANNELS, 4, stride=4), nn.ReLU(), pool, nn.Flatten(), scores)
