"""Odd networks, second part: layers that look like a map and are none, or are one in another order."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .entry import Reading, first, frames, picture, reordered, tokens
from .odd_inputs import CLASSES, Pooled, convolutions, odd


class Step(nn.Module):
    """One step between a body and a mean: after it come a convolution of kernel 1, a rectifier and a linear head."""

    def __init__(self, step: nn.Module, *, channels: int = 16, body: nn.Module | None = None) -> None:
        super().__init__()
        self.body = body or convolutions(3, 8, 16, 16)
        self.step = step
        self.after = nn.Sequential(nn.Conv2d(channels, 16, 1), nn.ReLU())
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.after(self.step(self.body(x))).mean(dim=(2, 3)))


class Shuffled(nn.Module):
    """Every position goes to a place drawn once and for all."""

    def __init__(self, positions: int = 80) -> None:
        super().__init__()
        self.register_buffer("order", torch.randperm(positions))

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(2)[:, :, self.order].reshape(x.shape)


class Does(nn.Module):
    """A function as a module."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class Broadcast(nn.Module):
    """A mean, laid out as a map again: only the padding of what follows tells its positions apart."""

    def __init__(self) -> None:
        super().__init__()
        self.blur = nn.Conv2d(16, 16, 5, padding=2)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.blur(x.mean(dim=(2, 3), keepdim=True).expand_as(x)))


class Zoom(nn.Module):
    """A spatial transformer that looks at one quarter of the picture: its maps do not cover the whole."""

    def __init__(self) -> None:
        super().__init__()
        self.body = convolutions(3, 8, 16, 16)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        theta = torch.tensor([[0.5, 0.0, -0.5], [0.0, 0.5, -0.5]]).expand(len(x), -1, -1)
        grid = F.affine_grid(theta, list(x.shape), align_corners=False)
        return self.head(self.body(F.grid_sample(x, grid, align_corners=False)).mean(dim=(2, 3)))


class Prompted(nn.Module):
    """A class token and learnt prompts before 14×14 patches; the class token answers, or the mean of the patches."""

    def __init__(self, prompts: int, *, mean: bool = False) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, 32, 4, 4)
        self.place = nn.Parameter(torch.randn(1, 196, 32) * 0.1)
        self.before = nn.Parameter(torch.randn(1, prompts, 32) * 0.1)
        self.blocks = nn.Sequential(
            *(nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True, norm_first=True) for _ in range(2))
        )
        self.norm = nn.LayerNorm(32)
        self.head = nn.Linear(32, CLASSES)
        self.mean = mean

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x).flatten(2).transpose(1, 2) + self.place
        x = self.norm(self.blocks(torch.cat([self.before.expand(len(x), -1, -1), x], dim=1)))
        return self.head(x[:, self.before.shape[1] :].mean(dim=1) if self.mean else x[:, 0])


class Queries(nn.Module):
    """Query2Label: 16 classes ask a map; their answers, (B, 16, C), are no map of 4×4."""

    def __init__(self, count: int = 16) -> None:
        super().__init__()
        self.body = convolutions(3, 8, 16, 32)
        self.queries = nn.Parameter(torch.randn(1, count, 32))
        self.decoder = nn.TransformerDecoderLayer(32, 2, 64, dropout=0.0, batch_first=True)
        self.score = nn.Linear(32, 1)

    def forward(self, x: Tensor) -> Tensor:
        memory = self.body(x).flatten(2).transpose(1, 2)
        return self.score(self.decoder(self.queries.expand(len(x), -1, -1), memory)).squeeze(2)


class TokenLearner(nn.Module):
    """16 weighted means of a map: tokens that are spread over all of it."""

    def __init__(self) -> None:
        super().__init__()
        self.body = convolutions(3, 8, 16, 32)
        self.weigh = nn.Conv2d(32, 16, 1)
        self.mix = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True)
        self.head = nn.Linear(32, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(x)
        shares = self.weigh(x).flatten(2).softmax(dim=2)
        return self.head(self.mix(shares @ x.flatten(2).transpose(1, 2)).mean(dim=1))


class Capsules(nn.Module):
    """Primary capsules from a map, routed to 16 capsules of 16 numbers each."""

    def __init__(self) -> None:
        super().__init__()
        self.body = convolutions(3, 16, 32, 32)
        self.primary = nn.Conv2d(32, 32, 3, padding=1)
        self.votes = nn.Linear(8, 16 * 16, bias=False)
        self.digits = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        capsules = self.primary(self.body(x)).unflatten(1, (4, 8)).permute(0, 1, 3, 4, 2).flatten(1, 3)
        votes = self.votes(capsules / (1 + capsules.norm(dim=2, keepdim=True))).unflatten(2, (16, 16))
        logits = votes.new_zeros(votes.shape[:3])
        for _ in range(2):
            out = (logits.softmax(dim=2).unsqueeze(3) * votes).sum(dim=1)
            logits = logits + (votes * out.unsqueeze(1)).sum(dim=3)
        return self.digits(out).norm(dim=2)


class ChannelPooler(nn.Module):
    """transformers' way of a mean: AdaptiveAvgPool1d over tokens, which leaves (B, C, 1)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = convolutions(3, 8, 16, channels)
        self.norm = nn.LayerNorm(channels)
        self.pooler = nn.AdaptiveAvgPool1d(1)
        self.head = nn.Linear(channels, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.body(x).flatten(2).transpose(1, 2))
        return self.head(self.pooler(x.transpose(1, 2)).flatten(1))


class Mixer(nn.Module):
    """Mixes over positions and over channels in turn; `fourier` mixes by the real part of a Fourier transform."""

    def __init__(self, *, fourier: bool = False, skip: bool = True) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, 32, 8, 8)
        self.mix = Does(lambda x: torch.fft.fft2(x).real / 30) if fourier else nn.Linear(80, 80)
        self.norm = nn.LayerNorm(32)
        self.channels = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))
        self.last = nn.LayerNorm(32)
        self.head = nn.Linear(32, CLASSES)
        self.fourier, self.skip = fourier, skip

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x).flatten(2).transpose(1, 2)
        normed = self.norm(x)
        mixed = self.mix(normed) if self.fourier else self.mix(normed.transpose(1, 2)).transpose(1, 2)
        x = mixed + x if self.skip else mixed
        x = x + self.channels(x)
        return self.head(torch.relu(self.last(x)).mean(dim=1))


class Windows(nn.Module):
    """Tokens in the order of 4×4 windows, and inside these in raster order, up to the mean."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, 32, 8, 8)
        self.block = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.norm = nn.LayerNorm(32)
        self.head = nn.Linear(32, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x).unflatten(2, (2, 4)).unflatten(4, (2, 4)).permute(0, 2, 4, 3, 5, 1)  # B, 2, 2, 4, 4, C
        x = self.block(x.flatten(0, 2).flatten(1, 2)).reshape(len(x), 64, 32)
        return self.head(torch.relu(self.norm(x)).mean(dim=1))


class Serpentine(nn.Module):
    """Tokens in the order of a serpent, every second row backwards, through a recurrent scan."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, 32, 8, 8)
        self.scan = nn.GRU(32, 32, batch_first=True)
        self.norm = nn.LayerNorm(32)
        self.head = nn.Linear(32, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        x = torch.stack([row.flip(2) if index % 2 else row for index, row in enumerate(x.unbind(2))], dim=2)
        x = x.flatten(2).transpose(1, 2)
        return self.head(torch.relu(self.norm(x + self.scan(x)[0])).mean(dim=1))


class Graph(nn.Module):
    """Patches as nodes of a graph: each takes from the three that are most like it."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = convolutions(3, 16, 32, 32)
        self.message = nn.Linear(64, 32)
        self.norm = nn.LayerNorm(32)
        self.head = nn.Linear(32, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x).flatten(2).transpose(1, 2)
        near = torch.cdist(x, x).topk(4, largest=False).indices[:, :, 1:]
        around = torch.stack([one[index] for one, index in zip(x, near, strict=True)]).amax(dim=2)
        return self.head(self.norm(x + torch.relu(self.message(torch.cat([x, around], dim=2)))).mean(dim=1))


# Pictures out


class UNet(nn.Module):
    """Down and up again with the finer maps taken along; an answer for every pixel."""

    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2, self.down3 = convolutions(3, 8), convolutions(8, 16), convolutions(16, 32)
        self.up2 = nn.Sequential(nn.Conv2d(48, 16, 3, padding=1), nn.ReLU())
        self.up1 = nn.Sequential(nn.Conv2d(24, 8, 3, padding=1), nn.ReLU())
        self.answer = nn.Conv2d(8, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        one = self.down1(x)
        two = self.down2(one)
        three = self.down3(two)
        two = self.up2(torch.cat([F.interpolate(three, scale_factor=2.0), two], dim=1))
        one = self.up1(torch.cat([F.interpolate(two, scale_factor=2.0), one], dim=1))
        return F.interpolate(self.answer(one), scale_factor=2.0)


class Autoencoder(nn.Module):
    """A picture to a vector and back: the maps behind the vector follow no pixel of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = convolutions(3, 8, 16, 16)
        self.code = nn.Linear(16 * 80, 12)
        self.spread = nn.Linear(12, 16 * 80)
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(16, 16, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(16, 8, 4, 2, 1), nn.ReLU(),
            nn.ConvTranspose2d(8, 3, 4, 2, 1),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(torch.relu(self.spread(self.code(self.encoder(x).flatten(1)))).unflatten(1, (16, 8, 10)))


def _generator() -> nn.Module:
    return nn.Sequential(
        nn.ConvTranspose2d(24, 32, 4), nn.ReLU(), nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.ReLU(),
        nn.ConvTranspose2d(16, 3, 4, 2, 1), nn.Tanh(),
    )  # fmt: skip


class OneStageDetector(nn.Module):
    """Boxes and classes for every cell, as one map."""

    def __init__(self) -> None:
        super().__init__()
        self.body = convolutions(3, 8, 16, 32)
        self.neck = nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.ReLU())
        self.boxes = nn.Conv2d(32, 3 * (5 + CLASSES), 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.boxes(self.neck(self.body(x)))


class Pyramid(nn.Module):
    """Maps of three scales, each pooled on its own, side by side into the head."""

    def __init__(self) -> None:
        super().__init__()
        self.stages = nn.ModuleList([convolutions(3, 8), convolutions(8, 16), convolutions(16, 16)])
        self.head = nn.Linear(40, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        pooled = []
        for stage in self.stages:
            x = stage(x)
            pooled.append(x.mean(dim=(2, 3)))
        return self.head(torch.cat(pooled, dim=1))


class Everything(nn.Module):
    """The picture as one long vector, and a hidden layer that is laid out as 8×8."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(3 * 32 * 40, 16 * 64)
        self.laid_out = nn.Unflatten(1, (16, 8, 8))
        self.after = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.ReLU())
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.after(self.laid_out(torch.relu(self.hidden(x.flatten(1))))).mean(dim=(2, 3)))


class Views(nn.Module):
    """(B, V, C, H, W): views of one thing, each on its own, the strongest answer taken."""

    def __init__(self) -> None:
        super().__init__()
        self.body = convolutions(3, 8, 16, 16)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        each = self.body(x.flatten(0, 1)).mean(dim=(2, 3)).unflatten(0, x.shape[:2])
        return self.head(each.amax(dim=1))


def _picture() -> Tensor:
    return picture(2, 3, 64, 80)


def _square() -> Tensor:
    return picture(2, 3, 64, 64)


def _quarters() -> Tensor:
    return picture(2, 3, 56, 56)


def _rolled(x: Tensor) -> Tensor:
    return x.roll((4, 5), dims=(2, 3))


BODY = Reading(r"body(\.5)?", (8, 10))
READ = r"blocks\.1\.(norm1|self_attn\.\w+)|blocks\.0"

NETWORKS = (
    odd("shuffled_positions", lambda: Step(Shuffled()), _picture, BODY, why="every position elsewhere"),
    odd("transposed_square", lambda: Step(Does(lambda x: x.transpose(2, 3))), _square, Reading(r"body(\.5)?", (8, 8)),
        Reading(r"after(\.1)?", (8, 8), reordered(first, (1, 0), (8, 8)), axes=(2, 3)), why="rows for columns"),
    odd("mirrored", lambda: Step(Does(lambda x: x.flip(3))), _picture, BODY,
        Reading(r"after(\.1)?", (8, 10), lambda x: x.flip(3).flatten(2), axes=(2, 3)), why="left for right"),
    odd("rolled", lambda: Step(Does(_rolled)), _picture, BODY,
        Reading(r"after(\.1)?", (8, 10), lambda x: x.roll((-4, -5), dims=(2, 3)).flatten(2), axes=(2, 3)),
        why="shifted by half of the picture, as in Swin"),
    odd("padding_only", lambda: Step(Broadcast()), _picture, BODY, why="a mean laid out as a map"),
    odd("space_to_depth", lambda: Step(nn.PixelUnshuffle(2), channels=64), _picture,
        Reading(r"after(\.1)?", (4, 5)), why="four positions as channels of one"),
    odd("depth_to_space", lambda: Step(nn.PixelShuffle(2), channels=4), _picture, Reading(r"after(\.1)?", (16, 20)),
        why="channels as positions, in their place"),
    odd("sees_a_quarter", Zoom, _picture, why="maps that cover the upper left quarter alone"),
    odd("prompts_16", lambda: Prompted(17), _quarters, Reading(READ, (14, 14), tokens(17)),
        why="17 tokens before the patches"),
    odd("prompts_20", lambda: Prompted(21), _quarters, Reading(READ, (14, 14), tokens(21)),
        why="21 tokens before the patches"),
    odd("prompts_50", lambda: Prompted(51), _quarters, Reading(READ, (14, 14), tokens(51)), held_out=False,
        why="51 tokens before the patches"),
    odd("prompts_60_mean", lambda: Prompted(60, mean=True), _quarters,
        Reading(r"norm|blocks(\.1)?", (14, 14), tokens(60)), why="60 tokens before 196: as many as 16×16"),
    odd("queries_16", Queries, _picture, Reading(r"body(\.5)?", (8, 10)), why="16 queries that are no 4×4"),
    odd("token_learner", TokenLearner, _square, Reading(r"weigh|body(\.5)?", (8, 8)), why="16 tokens that are no 4×4"),
    odd("capsules", Capsules, _square, Reading(r"primary", (8, 8)), why="16 capsules that are no 4×4"),
    odd("pooler_64", lambda: ChannelPooler(64), _square, Reading(r"norm", (8, 8), tokens()), why="(B, 64, 1)"),
    odd("pooler_1408", lambda: ChannelPooler(1408), lambda: picture(1, 3, 64, 88), Reading(r"norm", (8, 11), tokens()),
        why="(B, 1408, 1): 32×44"),
    odd("mixer", Mixer, _picture, Reading(r"last", (8, 10), tokens()), held_out=False,
        why="a linear map over positions"),
    odd("mixer_without_skips", lambda: Mixer(skip=False), _picture, Reading(r"norm", (8, 10), tokens()),
        Reading(r"embed", (8, 10)), why="positions mixed beyond recognition"),
    odd("fourier_without_skips", lambda: Mixer(fourier=True, skip=False), _picture,
        Reading(r"norm", (8, 10), tokens()), Reading(r"embed", (8, 10)), why="positions become frequencies"),
    odd("fourier_with_skips", lambda: Mixer(fourier=True), _picture, Reading(r"last", (8, 10), tokens()),
        why="FNet: frequencies beside positions"),
    odd("windows_of_tokens", Windows, _square,
        Reading(r"norm", (8, 8), reordered(tokens(), (0, 2, 1, 3), (2, 2, 4, 4)), axes=(2, 3)),
        Reading(r"embed", (8, 8)), why="tokens window by window"),
    odd("serpentine", Serpentine, _picture, Reading(r"embed", (8, 10)), also=r"norm", why="every second row backwards"),
    odd("graph_of_patches", Graph, _picture, Reading(r"norm", (8, 10), tokens()), why="neighbours by likeness"),
    odd("unet", UNet, _picture, Reading(r"down3(\.1)?", (8, 10)), also=r"(?!answer).*", why="a picture out"),
    odd("autoencoder", Autoencoder, _picture, Reading(r"encoder(\.5)?", (8, 10)), why="a vector between two pictures"),
    odd("generator", _generator, lambda: torch.randn(2, 24, 1, 1, generator=torch.Generator().manual_seed(3)),
        why="a picture from a vector"),
    odd("one_stage_detector", OneStageDetector, _picture, Reading(r"neck(\.1)?", (8, 10)), also=r"body.*",
        why="its answer is a map"),
    odd("pyramid", Pyramid, _picture, Reading(r"stages\.2(\.1)?", (8, 10)), also=r"stages.*", why="three scales"),
    odd("everything_at_once", Everything, lambda: picture(2, 3, 32, 40), why="a vector laid out as 8×8"),
    odd("views", Views, lambda: torch.stack([picture(2, 3, 48, 64, seed=seed) for seed in range(5)], dim=1),
        Reading(r"body(\.5)?", (5, 6, 8), frames(5), axes=(1, 3, 4)), why="views in no order"),
    odd("one_position", lambda: Pooled(nn.Sequential(nn.Conv2d(3, 16, 32), nn.ReLU()), 16),
        lambda: picture(2, 3, 32, 32), why="one position is no map"),
)  # fmt: skip
