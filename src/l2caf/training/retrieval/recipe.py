"""The recipe for retrieval networks: learn the classes at hand without forgetting what the backbone knew.

- the linear layer starts as the principal axes of the backbone's own features, so the start is as good as those
- only what follows the cut moves, the trunk more slowly than the linear layer; batch statistics stay as they are
- what is shipped is the running mean of the weights, drawn about half-way back to the start
- training ends when held-out pictures of the training classes are found no better for a while
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from ...errors import InputError
from ..recipe import BATCH, NETWORK, Limits, Recipe, option

if TYPE_CHECKING:
    from ...datasets import Dataset
    from ...progress import Progress
    from .job import RetrievalJob
    from .losses import EmbeddingLoss

PICTURES = 64  # in a batch, where nothing else is asked for


@dataclass(frozen=True)
class RetrievalRecipe(Recipe):
    """What is trained, and how. The defaults are the paper's where it says, and ours where it does not.

    classes, each    a batch: so many classes (None: up to 64 pictures in all), so many pictures of each (None: 4, and
                     2 for N-pair)
    lr, backbone_lr  learning rates of the linear layer and the trained part of the backbone; None: what suits the loss
    freeze           auto, none, trunk, or the name of the last module that stays as it is
    views            stored views per picture; 0: pictures are read anew each time; None: 4 on a processor, else 0
    held_out         share of each training class that is only measured with
    keep             share of the start in the weights that are shipped; None: what suits the loss
    decay            of the running mean of the weights, per iteration
    patience         measurements without a better R@1, by a hundredth, before training ends
    """

    name: ClassVar[str] = "retrieval"
    about: ClassVar[str] = """
    Of cub and cars, the first half of the classes is trained on. Run the
    same command again to resume a run that was stopped. The folder gets
    embedding.safetensors (and .json), log.json and curves.png. For several
    processes or machines, start it with torchrun.

    \b
    [bold]Examples[/bold]
    l2caf train retrieval cub /data/CUB_200_2011 --out birds
    l2caf train retrieval folder products/ \\
        --backbone timm:resnet50 --loss npair
    torchrun --nproc-per-node 2 \\
        -m l2caf train retrieval cars /data/cars \\
        --out cars
    """

    backbone: str = option("tf_efficientnet_lite0", "tf_efficientnet_lite0 or timm:NAME.", panel=NETWORK)
    dimension: int = option(128, "Embedding dimension.", panel=NETWORK)
    freeze: str = option(
        "auto",
        "What is not trained: none; trunk (the whole backbone); auto (nothing on a GPU, else all but the last stage);"
        " or everything up to the module of this name.",
        panel=NETWORK,
    )
    loss: str = option("triplet", "triplet (semi-hard, on the unit sphere) or npair (raw).")
    iterations: int = option(5000, "The most iterations.")
    patience: int = option(6, "Measurements without a better R@1 before it ends.")
    lr: float | None = option(None, "Learning rate of the linear layer. [dim]Default: what suits the loss.[/dim]")
    backbone_lr: float | None = option(
        None, "Learning rate of the part of the backbone that is trained. [dim]Default: what suits the loss.[/dim]"
    )
    keep: float | None = option(
        None, "Share of the starting weights in those that are saved. [dim]Default: what suits the loss.[/dim]"
    )
    classes: int | None = option(None, "Classes per batch. [dim]Default: for up to 64 pictures.[/dim]", panel=BATCH)
    each: int | None = option(None, "Pictures of each class. [dim]Default: 4; npair takes 2.[/dim]", panel=BATCH)
    views: int | None = option(
        None,
        "Views per picture whose features are stored; 0: pictures are read and cropped anew each time."
        " [dim]Default: 4 on a CPU, else 0.[/dim]",
        panel=BATCH,
    )
    held_out: float = option(0.3, "Share of each class that is kept for measuring R@1.", panel=BATCH)
    seed: int = option(0, "Random seed.", panel=BATCH)
    warmup: int = 20
    decay: float = 0.98
    measure_every: int = 25

    def __post_init__(self) -> None:
        for name in ("iterations", "dimension", "measure_every", "patience"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}: give 1 or more.", field=name)
        for name in ("keep", "decay"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1:
                raise InputError(f"{name} is {value}: give 0 or more, and less than 1.", field=name)
        if self.loss == "npair" and self.each not in (None, 2):
            raise InputError(
                f"N-pair takes one pair per class, not {self.each} pictures: leave this option out.", field="each"
            )

    @property
    def limits(self) -> Limits:
        return Limits(self.iterations, self.measure_every, self.patience, warmup=self.warmup)

    def prepare(self, data: Dataset, fabric: Any, progress: Progress) -> RetrievalJob:
        from .job import prepare
        from .losses import loss_by_name

        loss = loss_by_name(self.loss)
        return prepare(data, self.suited_to(loss), loss, fabric, progress)

    def suited_to(self, loss: EmbeddingLoss) -> RetrievalRecipe:
        """The same with all that was left open as it suits the loss."""
        each = self.each or loss.each
        return replace(
            self,
            each=each,
            classes=self.classes or PICTURES // each,
            lr=loss.rates[0] if self.lr is None else self.lr,
            backbone_lr=loss.rates[1] if self.backbone_lr is None else self.backbone_lr,
            keep=loss.keep if self.keep is None else self.keep,
        )
