"""A source of networks, or a kind of checkpoint, is one file and one line in a table."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import save_file
from torch import nn

from l2caf.errors import CatalogueError, WeightsError
from l2caf.networks import catalogue, from_checkpoint
from l2caf.networks.embedding import EmbeddingConfig, EmbeddingNetwork, read_config, save_embedding
from l2caf.networks.model import Model
from l2caf.networks.weights import Header, read_header, save_checkpoint
from l2caf.preprocessing import Preprocessing
from l2caf.table import Entry, Table

SOURCE = """
from torch import nn
from l2caf.networks.model import Model
from l2caf.networks.source import CatalogueRow, Source
from l2caf.preprocessing import Preprocessing

class Attic(Source):
    def load(self, name, *, weights=None, pretrained=True):
        network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))
        return Model(name, network.eval(), Preprocessing(), ("old", "new"), "found in the attic")

    def summary(self):
        return CatalogueRow("attic:NAME", "attic", None, "a ladder", "what was put away")

    def rows(self):
        return [CatalogueRow("attic:trunk", "attic", 122, "a ladder", "what was put away")]
"""
# One line in the table, as it would stand in catalogue.py.
LINE = 'SourceEntry("attic", "what was put away", "attic_networks:Attic", form="attic:NAME")'
PROGRAM = f"""
import sys
from l2caf.networks import catalogue
from l2caf.networks.source import SourceEntry
from l2caf.table import Table
catalogue.SOURCES = Table("source", *catalogue.SOURCES.values(), {LINE})
from l2caf.cli.app import run
sys.exit(run(sys.argv[1:]))
"""


def told(tmp_path: Path, *words: str) -> str:
    """What the command line says with the source of the scratch folder in the table."""
    (tmp_path / "attic_networks.py").write_text(SOURCE)
    search = [str(tmp_path), str(Path(catalogue.__file__).parents[2])]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {search!r}\n{PROGRAM}", *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_new_source_is_in_help_listing_and_hands(tmp_path: Path) -> None:
    assert "attic:NAME" in told(tmp_path, "explain", "--help")
    assert "attic:NAME" in [row["name"] for row in json.loads(told(tmp_path, "networks", "--json"))]
    (row,) = json.loads(told(tmp_path, "networks", "attic*", "--json"))
    assert (row["name"], row["parameters"]) == ("attic:trunk", 122)
    assert json.loads(told(tmp_path, "layers", "attic:trunk", "--json"))["default"] == "0"


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("tf_efficientnet_lite0", "embedded"),
        ("timm:resnet50.a1_in1k", "timm"),
        ("torchvision:vgg16", "torchvision"),
        ("package.nets:build", "user"),
        ("C:/nets/mine.py:build", "user"),
        ("out/embedding.safetensors", "checkpoint"),
        ("C:/out/embedding.safetensors", "checkpoint"),
        ("efficientnet_lite1", None),
        ("timm:", None),
    ],
)
def test_the_form_of_a_name_tells_its_source(name: str, source: str | None) -> None:
    fitting = [entry for entry in catalogue.SOURCES.values() if entry.takes(name)]
    best = max(fitting, key=lambda entry: entry.said, default=None)
    assert (best and best.key) == source


def build(path: str) -> Model:
    """A loader of checkpoints, as a later recipe would bring."""
    network = nn.Linear(*json.loads(read_header(path).config)["size"])
    return Model(path, network, Preprocessing(), source="of the test")


def test_a_checkpoint_says_what_loads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save_checkpoint(tmp_path / "one.safetensors", nn.Linear(3, 2), Header("line", '{"size": [3, 2]}'))
    assert json.loads(path.with_suffix(".json").read_text()) == {"loader": "line", "size": [3, 2]}
    with pytest.raises(WeightsError, match="loader 'line', and this version has embedding"):
        catalogue.load(str(path))
    more = Table("checkpoint", *from_checkpoint.LOADERS.values(), Entry("line", "a line", f"{__name__}:build"))
    monkeypatch.setattr(from_checkpoint, "LOADERS", more)
    assert catalogue.load(str(path)).source == "of the test"
    with pytest.raises(CatalogueError, match="has weights of its own"):
        catalogue.load(str(path), weights="other.pth")


def test_embeddings_name_their_loader_and_older_ones_are_known(tmp_path: Path) -> None:
    network = EmbeddingNetwork(nn.Conv2d(3, 8, 3), channels=8, dimension=4)
    config = EmbeddingConfig("efficientnet_lite0", dimension=4, normalized=False, loss="npair", classes=("a", "b"))
    path = save_embedding(tmp_path / "new.safetensors", network, config)
    assert read_header(path).loader == "embedding"
    assert read_config(path) == config
    tensors = {name: value.contiguous() for name, value in network.state_dict().items()}
    older = tmp_path / "older.safetensors"
    save_file(tensors, older, metadata={"l2caf_embedding": config.as_json()})
    assert read_header(older).loader == "embedding"
    assert read_config(older) == config
    # Metadata can be lost on the way through other tools; the .json beside the file says it too.
    bare = tmp_path / "bare.safetensors"
    save_file(tensors, bare)
    with pytest.raises(WeightsError, match="not what network they are for"):
        read_header(bare)
    bare.with_suffix(".json").write_text(path.with_suffix(".json").read_text())
    assert read_config(bare) == config
