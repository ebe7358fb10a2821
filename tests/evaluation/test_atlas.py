"""An atlas of a folder: pictures that are looked at in unusual places come first, on planted answers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import l2caf
from l2caf.errors import InputError
from l2caf.evaluation.atlas import atlas_of, clusters_of, surprise_of
from l2caf.map_statistics import regridded
from l2caf.preprocessing import Preprocessing
from l2caf.tasks.atlas import AtlasRequest, make_atlas

SIZE = 64


class Reds(nn.Module):
    """Scores of (red, blue): the mean of what is red and of what is blue."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = nn.AvgPool2d(8)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        maps = self.pool(images)
        means = maps.mean(dim=(2, 3))
        return torch.stack([means[:, 0], means[:, 2]], dim=1)


@pytest.fixture
def model() -> l2caf.Model:
    plain = Preprocessing((SIZE, SIZE), (SIZE, SIZE), mean=(0.0,) * 3, std=(1.0,) * 3)
    return l2caf.Model("reds", Reds().eval(), plain, ("red", "blue"))


def picture(color: int, *, at: tuple[int, int], generator: np.random.Generator) -> Image.Image:
    values = generator.integers(0, 30, (SIZE, SIZE, 3)).astype(np.uint8)
    x, y = at
    values[y : y + 16, x : x + 16, color] = 230
    return Image.fromarray(values)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """40 red and 40 blue pictures, the square near the middle; in two red ones it lies in a corner."""
    generator = np.random.default_rng(0)
    for name, color in (("red", 0), ("blue", 2)):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(40):
            x, y = (int(one) for one in generator.integers(18, 30, 2))
            at = (46, 47) if name == "red" and number in (7, 23) else (x, y)
            picture(color, at=at, generator=generator).save(tmp_path / "photos" / name / f"{number:02}.png")
    return tmp_path / "photos"


def test_planted_corners_come_first_and_make_a_group(folder: Path, model: l2caf.Model, tmp_path: Path) -> None:
    result = make_atlas(AtlasRequest(folder, tmp_path / "atlas", clusters=3), model=model)
    first = [one.image for one in result.found.pictures[:2]]
    assert sorted(first) == ["red/07.png", "red/23.png"]
    assert sorted(result.found.clusters[0].pictures) == [0, 1]
    written = json.loads((tmp_path / "atlas" / "atlas.json").read_text())
    assert [one["image"] for one in written["pictures"][:2]] == first
    assert len(written["pictures"]) == 80
    page = (tmp_path / "atlas" / "atlas.html").read_text()
    assert page.index("unusual places") < page.index("07.png")


def test_a_run_goes_on_where_it_was(folder: Path, model: l2caf.Model, tmp_path: Path) -> None:
    request = AtlasRequest(folder, tmp_path / "atlas", clusters=3, batch=16)
    whole = make_atlas(request, model=model).as_dict()
    rows = tmp_path / "atlas" / "rows.jsonl"
    kept = rows.read_bytes()
    rows.write_bytes(kept[: len(kept) // 2])
    calls: list[int] = []
    model.network.register_forward_pre_hook(lambda module, args: calls.append(len(args[0])))
    assert make_atlas(request, model=model).as_dict()["pictures"] == whole["pictures"]
    assert rows.read_bytes() == kept


def test_a_folder_without_classes_and_a_file_that_is_no_picture(
    folder: Path, model: l2caf.Model, tmp_path: Path
) -> None:
    flat = tmp_path / "flat"
    flat.mkdir()
    for file in (folder / "red").iterdir():
        file.rename(flat / file.name)
    (flat / "broken.png").write_bytes(b"no picture")
    result = make_atlas(AtlasRequest(flat, flat / "atlas"), model=model)
    assert {one.image for one in result.found.pictures[:2]} == {"07.png", "23.png"}
    assert list(result.found.bad) == ["broken.png"]
    again = make_atlas(AtlasRequest(flat, flat / "atlas"), model=model)  # its own pictures are none of the folder's
    assert len(again.found.pictures) == 40


def test_share_on_the_object_orders_pictures_with_boxes(folder: Path, model: l2caf.Model, tmp_path: Path) -> None:
    lines = ["file,x0,y0,x1,y1,label"]
    lines += [f"{folder.name}/red/{number:02}.png,16,16,48,48,0" for number in range(40)]
    (tmp_path / "boxes.csv").write_text("\n".join(lines) + "\n")
    request = AtlasRequest(tmp_path / "boxes.csv", tmp_path / "atlas", dataset="manifest")
    result = make_atlas(request, model=model)
    least = [result.found.pictures[place].image for place in result.found.off_object[:2]]
    assert {Path(name).name for name in least} == {"07.png", "23.png"}
    assert "Least on the object" in result.page.read_text()


def test_a_label_without_a_name_is_the_class_and_not_the_prediction(
    folder: Path, model: l2caf.Model, tmp_path: Path
) -> None:
    lines = ["file,label", *(f"{folder.name}/red/{number:02}.png,{number % 2}" for number in range(6))]
    (tmp_path / "labels.csv").write_text("\n".join(lines) + "\n")
    found = make_atlas(AtlasRequest(tmp_path / "labels.csv", tmp_path / "atlas", dataset="manifest"), model=model).found
    assert [str(one.label) for one in found.pictures] == list(found.groups)
    assert set(found.groups) == {"0", "1"}


@pytest.mark.parametrize("clusters", [0, 65])
def test_numbers_of_groups_are_checked(clusters: int, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="groups"):
        AtlasRequest(tmp_path, tmp_path / "atlas", clusters=clusters)


def test_surprise_is_the_cross_entropy_of_its_definition() -> None:
    generator = np.random.default_rng(1)
    maps = generator.random((12, 3, 4))
    maps /= maps.sum(axis=(1, 2), keepdims=True)
    groups = ["a"] * 5 + ["b"] * 7
    found = surprise_of(maps, groups)
    for place in range(12):
        alike = [maps[other] for other in range(12) if other != place and groups[other] == groups[place]]
        everyone = np.mean([maps[other] for other in range(12) if other != place], axis=0)
        mean = (np.sum(alike, axis=0) + 5 * everyone) / (len(alike) + 5)
        assert found[place] == pytest.approx(-(maps[place] * np.log(mean + 1e-4)).sum())


def test_groups_are_those_of_scikit_learn_where_they_are_clear() -> None:
    cluster = pytest.importorskip("sklearn.cluster")
    generator = np.random.default_rng(2)
    corners = np.zeros((3, 4, 4))
    corners[0, 0, 0] = corners[1, 3, 3] = corners[2, 1:3, 1:3] = 1.0
    maps = np.concatenate([corner + 0.05 * generator.random((20, 4, 4)) for corner in corners])
    maps /= maps.sum(axis=(1, 2), keepdims=True)
    ours = np.zeros(60, int)
    for number, one in enumerate(clusters_of(maps, np.zeros(60), count=3)):
        ours[list(one.pictures)] = number
    theirs = cluster.KMeans(3, n_init=5, random_state=0).fit_predict(np.sqrt(maps).reshape(60, -1))
    assert len({(a, b) for a, b in zip(ours, theirs, strict=True)}) == 3


def test_maps_of_several_grids_meet_on_one_and_keep_their_attention() -> None:
    rows = []
    for number, shape in enumerate([(2, 2), (3, 5), (4, 4)]):
        attention = np.zeros(shape)
        attention[0, 0] = 1.0
        numbers = dict.fromkeys(("entropy", "x", "y", "border", "on_object"), 0.5)
        row = {"image": str(number), "label": None, "predicted": 0, **numbers}
        rows.append({**row, "attention": attention.tolist(), "outcome": "exact"})
        assert regridded(attention, (7, 3)).sum() == pytest.approx(1.0)
    found = atlas_of(rows, name_of=lambda label, predicted: "one", clusters=1)
    assert found.clusters[0].attention.shape == (4, 5)


CUB = Path(__file__).parents[3] / "shared" / "data" / "cub-36"


@pytest.mark.endurance
@pytest.mark.dataset
@pytest.mark.skipif(not CUB.exists(), reason="needs CUB-200-2011's pictures")
def test_watermarks_that_a_network_learnt_are_found_among_the_first_tenth(tmp_path: Path) -> None:
    """5 % of one class have a stamp, and their bird is one of the other class: nothing else tells that they are in it.

    The last layers of the embedded network are fine-tuned on them, as people do.
    """
    from PIL import ImageDraw, ImageFont

    model = l2caf.load("tf_efficientnet_lite0")
    species = sorted(path for path in (CUB / "images").iterdir() if path.is_dir())
    files = [[file for one in species[side::2] for file in sorted(one.iterdir())[:30]] for side in (0, 1)]
    count = round(0.05 * len(files[0]))
    other = files[1][:: len(files[1]) // count][:count]
    chosen = [(file, 0, False) for file in files[0][count:]] + [(file, 0, True) for file in other]
    chosen += [(file, 1, False) for file in files[1] if file not in other]
    inputs, labels, marked = [], [], set()
    for number, (file, label, has_mark) in enumerate(chosen):
        image = Image.open(file).convert("RGB")
        if has_mark:
            side = min(image.size)
            left = (image.width - side) // 2 + round(0.40 * side)
            top = (image.height - side) // 2 + round(0.76 * side)
            draw = ImageDraw.Draw(image)
            draw.rectangle((left, top, left + round(0.58 * side), top + round(0.17 * side)), fill=(250, 250, 250))
            draw.rectangle((left, top, left + round(0.17 * side), top + round(0.17 * side)), fill=(200, 20, 20))
            font = ImageFont.load_default(size=round(0.12 * side))
            draw.text((left + round(0.2 * side), top + round(0.02 * side)), "stock", fill=(20, 20, 120), font=font)
            marked.add(f"{label}/{number:04}.png")
        path = tmp_path / "photos" / str(label) / f"{number:04}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        image.save(path, compress_level=1)
        inputs.append(model.prepare(image).input)
        labels.append(label)
    tuned, names = _fine_tuned(model, np.stack(inputs), torch.tensor(labels)), ("0", "1")
    mine = l2caf.Model("fine-tuned", tuned, model.preprocess, names)
    result = make_atlas(AtlasRequest(tmp_path / "photos", tmp_path / "atlas"), model=mine)
    first = [one.image for one in result.found.pictures[: round(0.1 * len(chosen))]]
    assert len(marked & set(first)) >= 0.8 * len(marked)


def _fine_tuned(model: l2caf.Model, inputs: np.ndarray, labels: torch.Tensor) -> nn.Module:
    network = model.network
    torch.manual_seed(0)
    network.classifier = nn.Linear(1280, 2)
    with torch.no_grad():
        stored = torch.cat(
            [
                network.blocks(network.bn1(network.conv_stem(torch.from_numpy(inputs[start : start + 8]))))
                for start in range(0, len(inputs), 8)
            ]
        )
    last = nn.Sequential(network.conv_head, network.bn2)
    optimizer = torch.optim.Adam([*last.parameters(), *network.classifier.parameters()], lr=1e-3)
    for _ in range(120):
        some = torch.randint(0, len(stored), (64,))
        scores = network.classifier(last(stored[some]).mean(dim=(2, 3)))
        optimizer.zero_grad()
        nn.functional.cross_entropy(scores, labels[some]).backward()
        optimizer.step()
    return network.eval()
