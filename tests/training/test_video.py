"""Training on clips: it learns what moves, goes on where it was, and fails well."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import l2caf
from l2caf import datasets
from l2caf.cli.app import run as cli
from l2caf.datasets import Dataset
from l2caf.errors import Cancelled, DatasetError, FileError, InputError, WeightsError
from l2caf.networks.clip_embedding import ClipNetwork, clip_backbone, read_clip_embedding, save_clip_embedding
from l2caf.networks.clip_preparation import ClipPreparation
from l2caf.preprocessing import Preprocessing
from l2caf.retrieval.scores import recalled, retrieve
from l2caf.tasks import train as task
from l2caf.tasks.moving_shapes import KINDS, moving_clip, write_clips
from l2caf.training.trainer import follow
from l2caf.training.video.job import CHECKPOINT
from l2caf.training.video.recipe import VideoRecipe
from l2caf.training.video.views import ClipViews

FOUR = ("disc-left", "disc-right", "disc-up", "disc-down")
# A small part of the backbone on small frames, so that a training takes seconds.
QUICK = VideoRecipe(
    layer="blocks.2", size=48, views=1, dimension=16, iterations=6, measure_every=3, patience=100, held_out=0.4, each=4
)


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("moving")
    assert len([*write_clips(root, each=10, kinds=FOUR, length=3, side=64)]) == 40
    return root


@pytest.fixture(scope="module")
def four(clips: Path) -> Dataset:
    return datasets.read("clips", clips)


def log_of(out: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((out / "log.json").read_text())
    return document


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network that tells four directions apart."""
    root = tmp_path_factory.mktemp("more")
    assert len([*write_clips(root, each=24, kinds=FOUR, length=3, side=64)]) == 96
    recipe = replace(QUICK, size=64, motion=True, iterations=60, measure_every=20, each=8, held_out=0.25)
    return follow(recipe, datasets.read("clips", root), tmp_path_factory.mktemp("trained"), device="cpu").checkpoint


def test_held_out_clips_are_found_far_above_chance(trained: Path) -> None:
    log = log_of(trained.parent)
    assert log["best"]["recall_at_1"] >= 0.75  # of four kinds chance finds 0.25
    assert log["best"]["recall_at_1"] > log["before"]["pooled"] + 0.2
    assert len(log["held_out"]) == 24


def test_its_checkpoint_opens_as_any_other(trained: Path, four: Dataset) -> None:
    model = l2caf.load(str(trained))
    assert model.clip is not None
    assert (model.clip.frames, model.clip.channels_first, model.clip.spread) == (3, False, True)
    assert model.embedding
    assert model.normalized
    network, config = read_clip_embedding(trained)
    assert (config.frames, config.layer, config.classes) == (3, "blocks.2", tuple(sorted(FOUR)))
    inputs = torch.from_numpy(ClipPreparation(model.preprocess, model.clip).prepare_file(four.samples[0].path).input)
    with torch.inference_mode():
        assert torch.equal(network(inputs[None]), model.network(inputs[None]))
        more = network(inputs[None, [0, 0, 1, 1, 2, 2]])  # any number of frames
    assert more.shape == (1, 16)
    with pytest.raises(InputError, match="takes clips"):
        network(inputs)


def test_the_trunk_is_the_backbone_as_it_was(trained: Path) -> None:
    network, _ = read_clip_embedding(trained)
    whole = l2caf.load().network.state_dict()
    assert all(torch.equal(value, whole[name]) for name, value in network.trunk.state_dict().items())


def test_every_frame_has_a_map_at_the_end_of_the_shallow_cnn(trained: Path) -> None:
    model = l2caf.load(str(trained))
    made = [moving_clip(kind, 500, length=3, side=64) for kind in FOUR[:2]]
    inputs = torch.stack([torch.stack([_input(model, frame) for frame in one.frames]) for one in made])
    heatmap = l2caf.explain(model.network, inputs)
    assert heatmap.layer == "shallow"
    assert heatmap.axes == ("sample", "frame", "y", "x")
    assert heatmap.maps.shape == (2, 3, 64, 64)
    assert torch.allclose(heatmap.frame_weights.sum(dim=1).float(), torch.ones(2))


def test_a_clip_by_its_path(trained: Path, four: Dataset) -> None:
    model = l2caf.load(str(trained))
    paths = [sample.path for sample in four.samples[:2]]
    heatmap = model.explain(paths, frames="together")
    assert heatmap.maps.shape == (2, 3, 64, 64)
    assert heatmap.crops is not None
    assert heatmap.crops[0].image_size == (64, 64)
    with pytest.raises(InputError, match="takes clips: give their paths"):
        model.explain([])


def _input(model: Any, frame: Any) -> torch.Tensor:
    made: torch.Tensor = model.preprocess(Image.fromarray(frame))
    return made


@pytest.mark.endurance
def test_the_map_follows_what_moves(tmp_path: Path) -> None:
    """On clips that are none of the training's: their kind is found, and the peak lies on the moving shape."""
    assert len([*write_clips(tmp_path / "clips", each=40, length=3)]) == 320
    recipe = VideoRecipe(size=128, views=2, iterations=400)
    made = follow(recipe, datasets.read("clips", tmp_path / "clips"), tmp_path / "out", device="cpu").checkpoint
    model = l2caf.load(str(made))
    new = [moving_clip(kind, 1000 + number, length=3) for number in range(6) for kind in KINDS]
    inputs = torch.stack([torch.stack([_input(model, frame) for frame in one.frames]) for one in new])
    labels = [one.kind for one in new]
    with torch.inference_mode():
        found = retrieve(model.network(inputs).numpy(), labels, normalized=True, top=1)
    assert recalled(found, labels, rank=1).mean() > 0.6  # of eight kinds chance finds 0.125
    heatmap = l2caf.explain(model.network, inputs[:24])
    slack = new[0].frames.shape[1] / heatmap.weights.shape[-1] / 2  # half a cell
    crop = model.preprocess.crop(Image.fromarray(new[0].frames[0]))
    inside = []
    for maps, one in zip(heatmap.maps, new, strict=False):
        for heat, (x0, y0, x1, y1) in zip(maps, one.boxes, strict=True):
            row, column = divmod(int(heat.argmax()), heat.shape[1])
            x, y = crop.point_to_image(column + 0.5, row + 0.5)
            inside.append(x0 - slack <= x <= x1 + slack and y0 - slack <= y <= y1 + slack)
    assert np.mean(inside) > 0.8  # a box with its slack is a tenth of a frame


def test_interrupted_and_resumed_is_the_same_run(four: Dataset, tmp_path: Path) -> None:
    for stopped in (("storing features", 30), ("training", 4)):

        def stop(words: str, done: int, *_: object, at: tuple[str, int] = stopped) -> None:
            if (words, done) == at:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            follow(QUICK, four, tmp_path / "parts", device="cpu", progress=stop)
    told: list[str] = []
    follow(QUICK, four, tmp_path / "parts", device="cpu", progress=lambda words, *_: told.append(words))
    assert set(told) == {"training"}  # the features were kept
    follow(QUICK, four, tmp_path / "whole", device="cpu")
    parts, whole = log_of(tmp_path / "parts"), log_of(tmp_path / "whole")
    assert parts["losses"] == whole["losses"]
    assert [{**line, "seconds": 0} for line in parts["curve"]] == [{**line, "seconds": 0} for line in whole["curve"]]
    ours, theirs = (read_clip_embedding(tmp_path / name / CHECKPOINT)[0].state_dict() for name in ("parts", "whole"))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    with pytest.raises(FileError, match="a run that differs in frames"):
        follow(replace(QUICK, frames=2), four, tmp_path / "whole", device="cpu")


def test_a_frame_that_changes_is_another_run(clips: Path, tmp_path: Path) -> None:
    root = shutil.copytree(clips, tmp_path / "clips")
    follow(QUICK, datasets.read("clips", root), tmp_path / "out", device="cpu", minutes=0)
    shutil.copy(root / FOUR[0] / "000" / "000.jpg", root / FOUR[0] / "001" / "001.jpg")
    with pytest.raises(FileError, match=r"the contents of 'disc-left/001'"):
        follow(QUICK, datasets.read("clips", root), tmp_path / "out", device="cpu")


def test_a_list_of_clips(clips: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = shutil.copytree(clips, tmp_path / "clips")
    rows = [f"clips/{kind}/{number:03},{kind}" for kind in FOUR[:2] for number in range(4)]
    table = tmp_path / "some.csv"
    table.write_text("\n".join(["file,label", *rows]))
    listed = datasets.read("clips", table)
    assert [sample.label for sample in listed.samples] == [0] * 4 + [1] * 4
    assert dict(listed.class_names) == {0: "disc-left", 1: "disc-right"}
    given = ["train", "video", str(table), "--layer", "blocks.2", "--size", "48", "--views", "1", "--iterations", "1"]
    assert cli([*given, "--device", "cpu", "--out", str(tmp_path / "out"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert Path(document["checkpoint"]).is_file()
    assert document["settings"]["clips"] == 8
    (root / "manifest.csv").write_text("file,label\ndisc-left/000,a\ndisc-up/001,b\n")
    assert len(datasets.read("clips", root)) == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("file\nx", "line 1: there is no column 'label'"),
        ("file,label\nnone.mp4,a", "line 2: there is no clip"),
        ("file,label\nclip,", "line 2: a clip needs a file and a label"),
        ("file,label\nclip,a\nclip,b", "line 3: 'clip' stands above with another label"),
        ("file,label\n", "lists no clips"),
    ],
)
def test_bad_lists(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "clip").mkdir()
    (tmp_path / "list.csv").write_text(text)
    with pytest.raises(DatasetError, match=words):
        datasets.read("clips", tmp_path / "list.csv")


def test_bad_folders(clips: Path, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"does not exist; give the folder that holds one sub-folder of clips"):
        datasets.read("clips", tmp_path / "nowhere")
    (tmp_path / "empty" / "a").mkdir(parents=True)
    with pytest.raises(DatasetError, match=r"a' holds no clips"):
        datasets.read("clips", tmp_path / "empty")
    with pytest.raises(DatasetError, match="has no sub-folders"):
        datasets.read("clips", tmp_path / "empty" / "a")
    one = shutil.copytree(clips / FOUR[0], tmp_path / "one" / "only")
    with pytest.raises(DatasetError, match="one class, which leaves nothing to tell apart"):
        follow(QUICK, datasets.read("clips", one.parent), tmp_path / "out", device="cpu")
    shutil.copytree(clips / FOUR[1] / "000", tmp_path / "one" / "lonely" / "000")
    with pytest.raises(DatasetError, match="'lonely' has one clip, which makes no pair: add clips"):
        follow(QUICK, datasets.read("clips", one.parent), tmp_path / "out", device="cpu")


def test_clips_that_cannot_be_read_are_left_out_and_short_ones_taken(clips: Path, tmp_path: Path) -> None:
    root = tmp_path / "clips"
    for kind in FOUR[:2]:
        for number in range(3):
            shutil.copytree(clips / kind / f"{number:03}", root / kind / f"{number:03}")
    (root / FOUR[0] / "broken.mp4").write_bytes(b"no clip at all")
    (root / FOUR[0] / "nothing.mp4").write_bytes(b"")
    (root / FOUR[1] / "002" / "001.jpg").unlink()
    (root / FOUR[1] / "002" / "002.jpg").unlink()  # one frame of the three that the network is shown
    data = datasets.read("clips", root)
    result = follow(replace(QUICK, iterations=1), data, tmp_path / "out", device="cpu")
    assert sorted(result.bad) == ["disc-left/broken.mp4", "disc-left/nothing.mp4"]
    assert all("again" in reason for reason in result.bad.values())
    assert result.settings["clips"] == 6


def test_files_of_moving_pictures_train_as_folders_of_frames_do(tmp_path: Path) -> None:
    pytest.importorskip("av")
    from clip_files_for_tests import write_clip

    for kind in FOUR[:2]:
        for number in range(2):
            (tmp_path / "clips" / kind).mkdir(parents=True, exist_ok=True)
            write_clip(tmp_path / "clips" / kind / f"{number}.mp4", list(moving_clip(kind, number, side=64).frames))
    data = datasets.read("clips", tmp_path / "clips")
    result = follow(replace(QUICK, iterations=1, views=3), data, tmp_path / "out", device="cpu")
    assert not result.bad
    assert len(result.losses) == 1


def test_views_of_a_clip() -> None:
    views = ClipViews(Preprocessing(), 3)
    assert views.places(90, 0, key=(1,)) == [15, 45, 75]
    for number in range(1, 20):
        places = views.places(90, number, key=(1, 2))
        assert [place // 30 for place in places] == [0, 1, 2]  # each in its own third
        assert places == views.places(90, number, key=(1, 2))
    assert views.places(1, 3, key=(0,)) == [0, 0, 0]


def test_a_view_shows_the_same_part_of_every_frame(tmp_path: Path) -> None:
    still = moving_clip("disc-up", 0, length=1, side=64)
    folder = replace(still, frames=np.repeat(still.frames, 6, axis=0)).save(tmp_path / "still")
    made = ClipViews(Preprocessing((32, 32), (32, 32)), 3).of(folder, range(4), key=(0, 1))
    assert made.shape == (4, 3, 3, 32, 32)
    for view in made:
        assert torch.equal(view[0], view[1])
        assert torch.equal(view[0], view[2])
    assert torch.equal(made[0], made[1])
    assert not torch.equal(made[0], made[2])


def test_bad_recipes_and_layers() -> None:
    for name in ("frames", "iterations", "views"):
        with pytest.raises(InputError, match=f"{name} is 0"):
            VideoRecipe(**{name: 0})
    with pytest.raises(InputError, match=r"no layer 'blocks.9' to end at: take auto, or one of"):
        clip_backbone("tf_efficientnet_lite0", "blocks.9", size=48)
    with pytest.raises(InputError, match="too small for a map"):
        clip_backbone("tf_efficientnet_lite0", size=8)


def test_the_backbone_ends_where_places_are_told() -> None:
    backbone = clip_backbone("tf_efficientnet_lite0", size=96)
    assert (backbone.layer, backbone.channels) == ("blocks.4", 112)
    whole = l2caf.load().network
    inputs = torch.rand(1, 3, 96, 96)
    seen: list[torch.Tensor] = []
    with torch.no_grad(), whole.blocks[4].register_forward_hook(lambda *call: seen.append(call[2])):
        whole(inputs)
        assert torch.allclose(backbone.trunk(inputs), seen[0], atol=1e-5)


def test_broken_checkpoints(trained: Path, tmp_path: Path) -> None:
    network, config = read_clip_embedding(trained)
    other = save_clip_embedding(tmp_path / "other.safetensors", network, replace(config, hidden=7))
    with pytest.raises(WeightsError, match="does not fit ClipNetwork"):
        l2caf.load(str(other))


def test_frames_of_another_size_are_brought_to_the_grid() -> None:
    network = ClipNetwork(torch.nn.Conv2d(3, 4, 8, stride=8), channels=4, grid=(4, 4), dimension=5)
    assert network(torch.rand(1, 2, 3, 48, 64)).shape == (1, 5)


def test_the_demonstration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(task, "DEMO_CLIPS", 2)

    def stop(words: str, done: int, *_: object) -> None:
        if done == 3:
            raise Cancelled("enough")

    with pytest.raises(Cancelled):
        task.demo_data(tmp_path / "out", progress=stop)
    given = ["train", "video", "--demo", "--layer", "blocks.2", "--size", "48", "--views", "1", "--iterations", "1"]
    assert cli([*given, "--held-out", "0", "--device", "cpu", "--out", str(tmp_path / "out")]) == 0
    made = datasets.read("clips", tmp_path / "out" / "clips")
    assert len(made) == 2 * len(KINDS)
    assert "network:" in capsys.readouterr().out
    assert cli(["train", "video", "--out", str(tmp_path / "none")]) == 2
    assert "either a folder of data or --demo" in capsys.readouterr().err
