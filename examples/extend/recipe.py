"""A recipe of training of one's own: a small classifier, trained by the loop that every recipe shares.

python examples/extend/recipe.py       (needs the extra `train`)
"""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from PIL import Image, ImageDraw
from safetensors.torch import save_file
from torch import Tensor, nn

import l2caf
from l2caf import Job, Recipe
from l2caf.datasets.dataset import open_sample
from l2caf.preprocessing import Preprocessing
from l2caf.training.curves import Score
from l2caf.training.recipe import Limits, option
from l2caf.training.trainer import follow

PREPARE = Preprocessing((64, 64), (64, 64), mean=(0.5,) * 3, std=(0.5,) * 3)


@dataclass(kw_only=True, eq=False)
class ShapesJob(Job):
    """What is trained: its loss, what is measured, and what is left behind."""

    inputs: Tensor
    labels: Tensor

    def loss(self, iteration: int) -> Tensor:
        self.module.train()
        drawn = torch.Generator().manual_seed(iteration)  # by the iteration alone, so that a run can resume
        batch = torch.randperm(len(self.labels), generator=drawn)[:16]
        return nn.functional.cross_entropy(self.module(self.inputs[batch]), self.labels[batch])

    def measure(self) -> Mapping[str, float]:
        self.module.eval()
        with torch.no_grad():
            return {"accuracy": float((self.module(self.inputs).argmax(dim=1) == self.labels).float().mean())}

    def save(self, out: Path, run: Mapping[str, Any]) -> Path:
        save_file(self.module.state_dict(), out / "shapes.safetensors")
        return out / "shapes.safetensors"


@dataclass(frozen=True)
class ShapesRecipe(Recipe):
    """Fields made by `option` are options of `l2caf train shapes`, once RECIPES has a line for it."""

    name: ClassVar[str] = "shapes"
    rate: float = option(0.02, "Learning rate.")
    iterations: int = option(100, "The most iterations.")

    @property
    def limits(self) -> Limits:
        return Limits(self.iterations, measure_every=50)

    def prepare(self, data: l2caf.Dataset, fabric: Any, progress: Any) -> Job:
        torch.manual_seed(0)
        network = nn.Sequential(
            nn.Conv2d(3, 16, 5, stride=2), nn.ReLU(), nn.Conv2d(16, 16, 5, stride=2), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, len(data.class_names)),
        )  # fmt: skip
        inputs = torch.stack([PREPARE(open_sample(one).image) for one in data.samples])
        module, optimizer = fabric.setup(network, torch.optim.Adam(network.parameters(), lr=self.rate))
        return ShapesJob(
            fabric=fabric,
            module=module.module,
            optimizer=optimizer,
            score=Score("accuracy"),
            settings={"rate": self.rate, "pictures": len(inputs)},
            inputs=inputs,
            labels=torch.tensor([one.label for one in data.samples]),
        )


def draw(folder: Path, each: int = 16) -> None:
    """Discs and squares in different places, one folder per class."""
    places = torch.randint(6, 38, (2 * each, 2), generator=torch.Generator().manual_seed(0)).tolist()
    for number, (x, y) in enumerate(places):
        picture, kind = Image.new("RGB", (64, 64), "gray"), ("disc", "square")[number % 2]
        drawing = ImageDraw.Draw(picture)
        (drawing.ellipse if kind == "disc" else drawing.rectangle)((x, y, x + 20, y + 20), fill="white")
        (folder / kind).mkdir(parents=True, exist_ok=True)
        picture.save(folder / kind / f"{number}.png")


def main() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        draw(Path(folder) / "shapes")
        data = l2caf.read("folder", Path(folder) / "shapes")
        result = follow(ShapesRecipe(), data, Path(folder) / "trained", device="cpu")
    accuracy = result.best.numbers["accuracy"]
    print(f"accuracy {accuracy:.0%} after {result.iterations} iterations; {result.checkpoint.name}")
    assert accuracy > 0.9
    return result


if __name__ == "__main__":
    main()
