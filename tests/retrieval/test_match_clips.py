"""Why two clips match: a patch planted in one frame is found in that frame, in the query and in the neighbour."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from l2caf.cli.app import run
from l2caf.clips import ClipInput
from l2caf.errors import ClipError, InputError
from l2caf.networks.clip_embedding import ClipConfig, build, clip_backbone, save_clip_embedding
from l2caf.networks.model import Model
from l2caf.preprocessing import Preprocessing
from l2caf.tasks.match import MatchRequest, match_pictures

SIDE, PATCH = 64, 16
RED, GREEN, BLUE = (0, 1, 2)


class ColoursInTime(nn.Module):
    """How much of each colour there is in each of three frames: (B, 3, 3, H, W) -> (B, 9)."""

    def __init__(self) -> None:
        super().__init__()
        self.look = nn.Sequential(nn.AvgPool2d(8), nn.ReLU())
        self.embed = nn.Linear(9, 9, bias=False)
        nn.init.eye_(self.embed.weight)

    def forward(self, clips: Tensor) -> Tensor:
        colours = self.look(clips.flatten(0, 1)).mean(dim=(2, 3))
        made: Tensor = self.embed(colours.unflatten(0, clips.shape[:2]).flatten(1))
        return made


def model(*, normalized: bool = True) -> Model:
    plain = Preprocessing((SIDE, SIDE), (SIDE, SIDE), mean=(0.0,) * 3, std=(1.0,) * 3)
    clip = ClipInput(frames=3, spread=True)
    return Model("colours", ColoursInTime().eval(), plain, embedding=True, normalized=normalized, clip=clip)


def write(folder: Path, *patches: tuple[int, int, tuple[int, int]], frames: int = 3) -> Path:
    """A clip with patches: in which frame, of which colour, where."""
    folder.mkdir(parents=True)
    for number in range(frames):
        pixels = np.full((SIDE, SIDE, 3), 8, np.uint8)
        for frame, colour, (x, y) in patches:
            if frame == number:
                pixels[y : y + PATCH, x : x + PATCH, colour] = 255
        Image.fromarray(pixels).save(folder / f"{number}.png")
    return folder


@pytest.fixture
def made(tmp_path: Path) -> Path:
    write(tmp_path / "query", (1, RED, (0, 8)), (0, BLUE, (40, 40)))
    write(tmp_path / "gallery" / "red-second" / "a", (1, RED, (40, 0)))
    write(tmp_path / "gallery" / "red-first" / "b", (0, RED, (40, 0)))
    write(tmp_path / "gallery" / "green-second" / "c", (1, GREEN, (8, 40)))
    write(tmp_path / "gallery" / "green-last" / "d", (2, GREEN, (8, 40)))
    return tmp_path


@pytest.mark.parametrize("normalized", [True, False])
def test_the_frame_and_the_place_that_two_clips_share(made: Path, normalized: bool) -> None:
    request = MatchRequest(made / "query", made / "gallery", made / "out", top=2)
    result = match_pictures(request, model=model(normalized=normalized))
    best = result.matches.pairs[0]
    assert best.name == "red-second/a"
    for seen, (x, y) in ((best.of_query, (0, 8)), (best.of_neighbour, (40, 0))):
        assert seen.heat.shape == (3, SIDE, SIDE)
        assert np.argmax(seen.frames) == 1
        assert sum(seen.frames) == pytest.approx(1)
        row, column = np.unravel_index(int(seen.heat[1].argmax()), (SIDE, SIDE))
        assert y <= row < y + PATCH
        assert x <= column < x + PATCH
    document = json.loads((made / "out" / "query-match.json").read_text())
    frames = document["neighbours"][0]["in_query"]["frames"]
    assert max(frames, key=lambda frame: frame["weight"])["frame"] == 1
    with Image.open(result.picture) as picture:
        assert picture.width > picture.height / 2


def test_the_index_is_made_anew_when_a_frame_changes(made: Path) -> None:
    request = MatchRequest(made / "query", made / "gallery", made / "out", top=1)
    assert match_pictures(request, model=model()).matches.pairs[0].name == "red-second/a"
    stored = (made / "out" / "gallery.npz").read_bytes()
    match_pictures(request, model=model())
    assert (made / "out" / "gallery.npz").read_bytes() == stored
    shutil.copy(made / "query" / "1.png", made / "gallery" / "green-second" / "c" / "1.png")
    shutil.copy(made / "query" / "0.png", made / "gallery" / "green-second" / "c" / "0.png")
    assert match_pictures(request, model=model()).matches.pairs[0].name == "green-second/c"


def test_clips_that_cannot_be_read_are_left_out(made: Path) -> None:
    (made / "gallery" / "red-first" / "broken.mp4").write_bytes(b"")
    (made / "gallery" / "red-first" / "short").mkdir()
    shutil.copy(made / "query" / "1.png", made / "gallery" / "red-first" / "short" / "1.png")  # shown three times
    request = MatchRequest(made / "query", made / "gallery", made / "out", top=9)
    result = match_pictures(request, model=model())
    assert [one.file.name for one in result.failed] == ["broken.mp4"]
    assert len(result.matches.pairs) == 5


def test_a_clip_needs_a_network_for_clips_and_a_picture_one_for_pictures(made: Path) -> None:
    request = MatchRequest(made / "query", made / "gallery", made / "out")
    pictures = replace(model(), clip=None)
    with pytest.raises(InputError, match=r"is a folder.*colours takes single pictures.*l2caf train video"):
        match_pictures(request, model=pictures)
    with pytest.raises(InputError, match=r"colours takes clips, and '.*0.png' is a picture"):
        match_pictures(replace(request, query=made / "query" / "0.png"), model=model())
    with pytest.raises(ClipError, match=r"does not exist"):
        match_pictures(replace(request, query=made / "none.mp4"), model=model())
    with pytest.raises(InputError, match="is no folder"):
        match_pictures(replace(request, gallery=made / "query" / "0.png"), model=model())


def test_the_command(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    backbone = clip_backbone("tf_efficientnet_lite0", "blocks.4", size=SIDE)
    config = ClipConfig(backbone.name, 8, preprocessing=backbone.preprocessing, layer=backbone.layer, hidden=8)
    torch.manual_seed(0)
    file = save_clip_embedding(made / "clips.safetensors", build(backbone, config), config)
    given = [
        "match",
        str(made / "query"),
        str(made / "gallery" / "red-second"),
        "--network",
        str(file),
        "--device",
        "cpu",
    ]
    assert run([*given, "--top", "1", "--out", str(made / "out")]) == 0
    said = capsys.readouterr().out
    assert "of 3 (" in said
    assert (made / "out" / "query-match.png").is_file()
