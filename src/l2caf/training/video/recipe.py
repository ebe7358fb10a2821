"""The recipe for recurrent networks over clips, as in the paper: a frozen backbone, a shallow CNN, an LSTM.

- the backbone runs once for a few views of every clip, and its features are kept; only what follows is trained
- a view is a choice of T frames, one of each T-th part of the clip: the middle ones, or any; and a part of the picture
- clips are never mirrored, since a turn to the left would become one to the right
- training ends when held-out clips of the training classes are found no better for a while
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ...errors import InputError
from ..recipe import BATCH, NETWORK, Limits, Recipe, option

if TYPE_CHECKING:
    from ...datasets import Dataset
    from ...progress import Progress
    from .job import VideoJob


@dataclass(frozen=True)
class VideoRecipe(Recipe):
    """What is trained, and how.

    frames           of each clip that the network is shown, T
    layer            where the backbone ends; auto: the last stage with a cell for every 16 pixels
    size             of the frames as the network is shown them; None: what the backbone was made for
    motion           take off what all frames of a clip share before the LSTM, so that only what changes counts
    width, hidden    channels of the shallow CNN, numbers that the LSTM remembers
    classes, each    a batch: so many classes, so many clips of each
    views            of each clip, of which features are kept; the first is what the network is shown when it is used
    held_out         share of each class that is only measured with
    decay            of the running mean of the weights, which is what is saved
    patience         measurements without a better R@1, by a hundredth, before training ends
    """

    name: ClassVar[str] = "video"
    layout: ClassVar[str] = "clips"
    demo: ClassVar[bool] = True
    about: ClassVar[str] = """
    DIR has one folder of clips per class; or give a CSV file that lists clips
    with the columns file and label. A clip is a file (mp4, webm, mkv, avi,
    gif) or a folder of frames. A clip with fewer frames than the network is
    shown gives some of them several times. Run the same command again to
    resume a run that was stopped. The folder gets clips.safetensors
    (and .json), log.json and curves.png.

    \b
    [bold]Examples[/bold]
    l2caf train video turns/ --out turns-network
    l2caf train video clips.csv --frames 8 --motion
    l2caf train video --demo
    """

    backbone: str = option("tf_efficientnet_lite0", "tf_efficientnet_lite0 or timm:NAME.", panel=NETWORK)
    layer: str = option(
        "auto", "Where the backbone ends; auto: its last stage with a cell for every 16 pixels.", panel=NETWORK
    )
    frames: int = option(3, "Frames of each clip that the network is shown.", panel=NETWORK)
    size: int | None = option(
        None,
        "Height and width of the frames that it is shown. [dim]Default: what the backbone was made for.[/dim]",
        panel=NETWORK,
    )
    dimension: int = option(128, "Embedding dimension.", panel=NETWORK)
    motion: bool = option(
        False, "Take off what all frames of a clip share, so that only what changes counts.", panel=NETWORK
    )
    iterations: int = option(1000, "The most iterations.")
    patience: int = option(12, "Measurements without a better R@1 before it ends.")
    lr: float = option(1e-3, "Learning rate.")
    classes: int = option(8, "Classes per batch.", panel=BATCH)
    each: int = option(8, "Clips of each class.", panel=BATCH)
    views: int = option(4, "Views of each clip whose features are kept.", panel=BATCH)
    held_out: float = option(0.3, "Share of each class that is kept for measuring R@1.", panel=BATCH)
    seed: int = option(0, "Random seed.", panel=BATCH)
    width: int = 8
    hidden: int = 128
    weight_decay: float = 0.01
    warmup: int = 10
    decay: float = 0.9
    measure_every: int = 25

    def __post_init__(self) -> None:
        for name in ("iterations", "dimension", "measure_every", "patience", "frames", "views", "width", "hidden"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}: give 1 or more.", field=name)
        if not 0 <= self.decay < 1:
            raise InputError(f"decay is {self.decay}: give 0 or more, and less than 1.", field="decay")

    @property
    def limits(self) -> Limits:
        return Limits(self.iterations, self.measure_every, self.patience, warmup=self.warmup)

    def prepare(self, data: Dataset, fabric: Any, progress: Progress) -> VideoJob:
        from .job import prepare

        return prepare(data, self, fabric, progress)
