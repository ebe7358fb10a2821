"""The recipes for localisers: a plain classifier with a mean over its map, with ADL, or ACoL's two classifiers.

- stochastic gradient descent with momentum; the backbone moves ten times more slowly than what follows it
- the learning rates fall to a tenth three times, after 30, 60 and 90 % of all iterations
- batch norms of the trained part learn their statistics, as published
- of cub and cars, the official training pictures of all classes are trained on
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ...errors import InputError
from ..recipe import BATCH, NETWORK, Limits, Recipe, option
from .budget import Budget

if TYPE_CHECKING:
    from ...datasets import Dataset
    from ...progress import Progress
    from .job import WsolJob

RECIPES = ("gap", "adl", "acol")
FALLS = (0.3, 0.6, 0.9)


@dataclass(frozen=True)
class WsolRecipe(Recipe):
    """What is trained, and how. The defaults are those of the literature where there are any.

    recipe           gap, adl (attention-based dropout) or acol (adversarial complementary learning)
    stride           pixels per cell of the map: the backbone's last strides are taken out
    freeze           auto, none, trunk, or the name of the last module that stays as it is
    width            of the 3×3 convolutions behind the trunk; None: 1,024 for vgg16-gap, and for ACoL where there is an
                     accelerator; else there are none
    adl_at           names of the modules that ADL is put behind, with commas; auto: the ends of the trained stages
    drop_threshold   of ADL; None: 0.9 for resnet50-se, else 0.8
    views            stored views per picture; 0: pictures are read anew each time; None: 4 on a processor, else 0
    held_out         share of each training class that is only measured with, to choose the network that is saved
    """

    name: ClassVar[str] = "wsol"
    unseen: ClassVar[Literal["classes", "pictures"]] = "pictures"
    about: ClassVar[str] = """
    Of cub and cars, the official training pictures are trained on; l2caf
    evaluate then measures on the test pictures. What the budget or a CPU
    made shorter than published is said at the end. Run the same command
    again to resume a run that was stopped. The folder gets
    localiser.safetensors (and .json), log.json and curves.png. For several
    processes or machines, start it with torchrun.

    \b
    [bold]Examples[/bold]
    l2caf train wsol cub /data/CUB_200_2011 --recipe adl \\
        --budget 20m --out birds-adl
    l2caf train wsol cub /data/CUB_200_2011 --recipe acol \\
        --backbone vgg16-gap --out birds-acol
    l2caf train wsol folder products/ --backbone resnet50-se
    l2caf evaluate cub /data/CUB_200_2011 \\
        --network birds-adl/localiser.safetensors
    """

    recipe: str = option("gap", "gap (a mean over the map), adl, or acol.")
    backbone: str = option(
        "tf_efficientnet_lite0", "tf_efficientnet_lite0, vgg16-gap, resnet50-se or timm:NAME.", panel=NETWORK
    )
    stride: int = option(16, "Pixels per cell of the map: 8, 16 or 32.", panel=NETWORK)
    width: int | None = option(
        None,
        "Channels of the 3×3 convolutions behind the backbone; 0: none. [dim]Default: 1024 for vgg16-gap, and for"
        " acol on a GPU; else 0.[/dim]",
        panel=NETWORK,
    )
    freeze: str = option(
        "auto",
        "What is not trained: none; trunk (the whole backbone); auto (nothing on a GPU, else all but the last stage);"
        " or everything up to the module of this name.",
        panel=NETWORK,
    )
    adl_at: str = option(
        "auto",
        "Modules that ADL is put behind, by name, with commas; auto: the ends of the trained stages.",
        panel=NETWORK,
    )
    epochs: int = option(50, "How often every picture is learned from.")
    budget: str = option(
        "", "The most that it may take: minutes or hours (20m, 1.5h), or iterations (500); epochs are cut to fit."
    )
    lr: float | None = option(
        None,
        "Learning rate of what follows the backbone. [dim]Default: 0.1 for one linear layer, 0.01 where convolutions"
        " come before it.[/dim]",
    )
    backbone_lr: float | None = option(
        None, "Learning rate of the part of the backbone that is trained. [dim]Default: a tenth of the other.[/dim]"
    )
    drop_rate: float = option(0.75, "ADL: how often cells are dropped; else they are weighed by importance.")
    drop_threshold: float | None = option(
        None,
        "ADL: share of the largest attention from which on cells are dropped."
        " [dim]Default: 0.8; resnet50-se 0.9.[/dim]",
    )
    erase_threshold: float = option(0.6, "ACoL: share of the map's range from which on cells are erased.")
    batch: int = option(32, "Pictures per batch.", panel=BATCH)
    views: int | None = option(
        None,
        "Views per picture whose features are stored; 0: pictures are read and cropped anew each time."
        " [dim]Default: 4 on a CPU, else 0.[/dim]",
        panel=BATCH,
    )
    held_out: float = option(0.1, "Share of each class that is kept for measuring top-1.", panel=BATCH)
    seed: int = option(0, "Random seed.", panel=BATCH)
    momentum: float = 0.9
    weight_decay: float = 1e-4
    warmup: int = 10

    def __post_init__(self) -> None:
        if self.recipe not in RECIPES:
            raise InputError(f"There is no recipe {self.recipe!r}: take {', '.join(RECIPES)}.", field="recipe")
        for name in ("epochs", "batch"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}: give 1 or more.", field=name)
        for name in ("drop_rate", "drop_threshold", "erase_threshold"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise InputError(f"{name} is {value}: give a number from 0 to 1.", field=name)
        if self.width is not None and self.width < 0:
            raise InputError(f"width is {self.width}: give 0 or more.", field="width")
        Budget.parse(self.budget)

    @property
    def limits(self) -> Limits:
        """Those of a job say how many iterations there are, which the pictures and the budget decide."""
        return self.limits_of(self.epochs)

    def limits_of(self, iterations: int, *, measure_every: int = 25) -> Limits:
        """The schedule over so many iterations; it is followed to its end, as the last part of it is the best."""
        falls = tuple(round(share * iterations) for share in FALLS)
        return Limits(iterations, measure_every, patience=iterations, worth=0.0, warmup=self.warmup, falls=falls)

    def prepare(self, data: Dataset, fabric: Any, progress: Progress) -> WsolJob:
        from .job import prepare

        return prepare(data, self, fabric, progress)
