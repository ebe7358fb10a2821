"""Clips through networks: which frames are seen, where the maps lie, what is written, and how it fails."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import l2caf
from clip_files_for_tests import number_of, numbered, write_clip, write_folder
from l2caf.cli import main
from l2caf.clips import Clip, ClipInput, Frame, open_clip
from l2caf.errors import Cancelled, ClipError, InputError, NetworkError
from l2caf.images import open_image
from l2caf.networks.clip_input import with_clip_input
from l2caf.networks.model import Model
from l2caf.preprocessing import OwnPreprocessing, Preprocessing
from l2caf.tasks.moments import Asked, Moment, Sampling, smoothed
from l2caf.tasks.pooling import pooling_note, slot_shares
from l2caf.tasks.question import Question
from l2caf.tasks.video import VideoRequest, explain_clips

NETS = """
import torch
from torch import nn

def build():
    torch.manual_seed(0)
    head = [nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(4, 3)]
    return nn.Sequential(nn.Conv3d(3, 4, (2, 32, 32), stride=(2, 32, 32)), nn.ReLU(), *head)
"""
SIDE, LENGTH = 96, 12
PREPARE = Preprocessing((64, 64), (72, 72), mean=(0, 0, 0), std=(1, 1, 1))


def moving(length: int = LENGTH, *, shown: range | None = None) -> list[np.ndarray]:
    """A red square that wanders over a grey clip, wider than high; in the frames of `shown` alone."""
    frames = []
    for number in range(length):
        frame = np.full((SIDE, 2 * SIDE, 3), 100, np.uint8)
        if shown is None or number in shown:
            x0, y0, x1, y1 = square(number, length)
            frame[y0:y1, x0:x1] = (255, 0, 0)
        frames.append(frame)
    return frames


def square(number: int, length: int = LENGTH) -> tuple[int, int, int, int]:
    left = 56 + round(64 * number / max(1, length - 1))
    return left, 36, left + 20, 56


class Colors(nn.Module):
    """A class for each colour: how much of it there is in cells of 8 × 8 pixels, less the others."""

    def __init__(self, dimensions: int = 2) -> None:
        super().__init__()
        conv, cell = (nn.Conv2d, (8, 8)) if dimensions == 2 else (nn.Conv3d, (2, 8, 8))
        self.cells = conv(3, 3, cell, stride=cell, bias=False)
        self.active = nn.ReLU()
        self.score = nn.Linear(3, 3)
        with torch.no_grad():
            own = torch.eye(3).reshape(3, 3, *[1] * dimensions)
            self.cells.weight.copy_(own.expand_as(self.cells.weight) / self.cells.weight[0, 0].numel())
            self.score.weight.copy_(60 * torch.eye(3) - 20)
            self.score.bias.zero_()

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        active: torch.Tensor = self.active(self.cells(images))
        return self.score(active.flatten(2).mean(dim=2))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.eye = nn.Sequential(nn.Conv2d(3, 8, 8, stride=8), nn.ReLU())
        self.memory = nn.LSTM(8, 6, batch_first=True)

    def forward(self, clips: torch.Tensor) -> torch.Tensor:
        seen = self.eye(clips.flatten(0, 1)).mean(dim=(2, 3))
        return self.memory(seen.unflatten(0, clips.shape[:2]))[0][:, -1]


def model(network: nn.Module | None = None, **known: Any) -> Model:
    names = ("red", "green", "blue")
    return Model("cells", (network or Colors()).eval(), PREPARE, **{"class_names": names, **known})


def asked(of: Model, sampling: Sampling | None = None, **question: Any) -> Asked:
    method = Question(**question).settled(of).as_method(of)
    return Asked(of, method, sampling=sampling or Sampling())


def hottest(moment: Moment) -> tuple[int, int]:
    """Where the map is hottest on the frame as it is, (x, y)."""
    heat = moment.heats[0].laid(moment.frame.pixels).heat
    y, x = np.unravel_index(int(heat.argmax()), heat.shape)
    return int(x), int(y)


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    return write_clip(tmp_path / "clip.mkv", moving(), codec="ffv1", pixels="yuv444p")


class TestMaps:
    def test_a_picture_network_follows_what_moves(self, clip: Path) -> None:
        moments = list(asked(model(), Sampling(batch=5)).moments(open_clip(clip)))
        assert [round(one.frame.time, 3) for one in moments] == [round(number / 10, 3) for number in range(LENGTH)]
        for number, moment in enumerate(moments):
            x, y = hottest(moment)
            x0, y0, x1, y1 = square(number)
            assert x0 <= x < x1, number
            assert y0 <= y < y1, number
            assert moment.prediction is not None
            assert moment.prediction.name == "red"
            assert moment.share is None

    def test_batches_give_what_single_frames_give(self, clip: Path) -> None:
        several, alone = (list(asked(model(), Sampling(batch=size)).moments(open_clip(clip))) for size in (5, 1))
        for one, other in zip(several, alone, strict=True):
            assert one.heats[0].fine == pytest.approx(other.heats[0].fine, abs=1e-5)

    def test_a_clip_network_follows_what_moves_and_weighs_its_frames(self, tmp_path: Path) -> None:
        path = write_clip(tmp_path / "clip.mkv", moving(shown=range(4, 8)), codec="ffv1", pixels="yuv444p")
        takes = ClipInput(LENGTH, channels_first=True)
        asking = asked(model(Colors(3), clip=takes), classes=["red"])
        moments = list(asking.moments(open_clip(path)))
        assert len(moments) == LENGTH
        assert asking.notes == []
        shares = [moment.share[0] for moment in moments if moment.share]
        assert np.mean(shares) == pytest.approx(1)
        assert 4 <= int(np.argmax(shares)) < 8
        assert min(shares[4:8]) > 5 * max(shares[0], shares[-1])
        for number in (5, 6):
            x0, y0, x1, y1 = square(number)
            x, y = hottest(moments[number])
            assert x0 - 8 <= x < x1 + 8  # a slot of time has two frames, and the square moves
            assert y0 <= y < y1

    def test_a_recurrent_network_sees_frames_spread_over_the_clip(self, clip: Path) -> None:
        of = model(Recurrent(), class_names=(), clip=ClipInput(3, spread=True))
        asking = asked(of)
        moments = list(asking.moments(open_clip(clip)))
        assert [round(one.frame.time, 3) for one in moments] == [0.2, 0.6, 1.0]
        assert asking.found.per_frame
        assert [float(one.heats[0].grid.max()) for one in moments] == pytest.approx([1, 1, 1])
        assert sum(one.share[0] for one in moments if one.share) == pytest.approx(3)
        assert [one.first for one in moments] == [True, False, False]

    @pytest.mark.parametrize("takes", [None, ClipInput(4, channels_first=True)])
    def test_what_only_a_function_of_the_users_prepares_is_shown_as_it_made_it(
        self, takes: ClipInput | None, clip: Path
    ) -> None:
        own = OwnPreprocessing(lambda picture: PREPARE(picture))
        asking = asked(replace(model(Colors(2 if takes is None else 3), clip=takes), preprocess=own))
        moment = next(asking.moments(open_clip(clip)))
        assert moment.frame.pixels.shape == (64, 64, 3)
        assert hottest(moment)[0] in range(2, 18)  # the square, in pixels of the input
        assert "own function knows" in asking.notes[0]

    def test_smoothed_maps_are_means_of_their_neighbours(self, clip: Path) -> None:
        plain = list(asked(model()).moments(open_clip(clip)))
        mean = list(smoothed(iter(plain), 3))
        assert [one.frame.time for one in mean] == [one.frame.time for one in plain]
        for number, one in enumerate(mean):
            near = np.mean([other.heats[0].fine for other in plain[max(0, number - 1) : number + 2]], axis=0)
            assert one.heats[0].fine == pytest.approx(near / near.max(), abs=1e-6)
        assert len(list(smoothed(plain[:2], 9))) == 2

    def test_no_further_than_a_batch_is_read_ahead(self, clip: Path) -> None:
        read = Counter[str]()

        class Counted(Clip):
            def frames(self, damaged: Any = None) -> Iterator[Frame]:
                for frame in super().frames():
                    read["frames"] += 1
                    yield frame

        moments = asked(model(), Sampling(batch=3)).moments(Counted(clip))
        for number in range(1, LENGTH + 1):
            next(moments)
            assert read["frames"] <= number + 3


class TestWindows:
    @pytest.mark.parametrize(
        ("sampling", "frames"),
        [
            (Sampling(frames=5), [*range(12)]),
            (Sampling(frames=5, stride=2), [0, 2, 4, 6, 8, 10]),
            (Sampling(frames=4, window="middle"), [4, 5, 6, 7]),
            (Sampling(frames=3, window="middle", stride=2), [2, 4, 6]),
            (Sampling(frames=3, window="spread"), [2, 6, 10]),
            (Sampling(frames=40), [*range(12)]),
            (Sampling(frames=40, window="spread"), [*range(12)]),
        ],
    )
    @pytest.mark.parametrize("fixed", [False, True])
    def test_which_frames_are_shown(self, sampling: Sampling, frames: list[int], fixed: bool, tmp_path: Path) -> None:
        path = write_clip(tmp_path / "clip.mp4", [numbered(number) for number in range(12)])
        takes = ClipInput(sampling.frames if fixed else None, channels_first=True)
        asking = asked(model(Colors(3), clip=takes), sampling)
        windows = list(asking.windows(open_clip(path), takes))
        shown = [frame for window in windows for frame in window.frames[window.start : window.stop]]
        assert [number_of(frame.pixels) for frame in shown] == frames
        lengths = {len(window.frames) for window in windows}
        assert lengths == ({sampling.frames} if fixed else {min(sampling.frames or 0, len(frames))})
        expected = asking.shown(open_clip(path))
        assert expected is not None
        assert expected >= len(frames)
        assert any("stands still" in note for note in asking.notes) == (fixed and sampling.frames == 40)

    def test_the_rate_that_a_network_was_trained_on(self, clip: Path) -> None:
        asking = asked(model(Colors(3), clip=ClipInput(4, channels_first=True, rate=5)))
        windows = list(asking.windows(open_clip(clip), ClipInput(4, channels_first=True, rate=5)))
        times = [[round(frame.time, 2) for frame in window.frames] for window in windows]
        assert times == [[0, 0.2, 0.4, 0.6], [0.4, 0.6, 0.8, 1.0]]  # the last one reaches back
        assert windows[1][1:] == (2, 4)

    @pytest.mark.parametrize(
        ("settings", "field"),
        [
            ({"frames": 0}, "frames"),
            ({"stride": 0}, "stride"),
            ({"batch": 0}, "batch"),
            ({"window": "all"}, "window"),
            ({"window": "spread", "stride": 2}, "stride"),
        ],
    )
    def test_settings_that_are_none(self, settings: dict[str, Any], field: str) -> None:
        with pytest.raises(InputError) as caught:
            Sampling(**settings)
        assert caught.value.field == field

    def test_a_network_of_a_fixed_length_says_so(self, clip: Path) -> None:
        asking = asked(model(Colors(3), clip=ClipInput(4, channels_first=True)), Sampling(frames=6))
        with pytest.raises(InputError, match="takes 4 frames"):
            next(asking.moments(open_clip(clip)))

    def test_a_map_that_is_empty_says_why(self, clip: Path) -> None:
        deaf = Colors()
        deaf.score.weight.data.zero_()
        asking = asked(model(deaf))
        assert not any(moment.heats[0].fine.any() for moment in asking.moments(open_clip(clip)))
        assert asking.notes == [
            "Where the map is empty, it is unmoved: nothing that is filtered here moves the output."
        ]


class TestHowANetworkTakesClips:
    FRAME = Image.new("RGB", (96, 80), "red")

    def test_one_for_pictures_is_left_so(self) -> None:
        assert with_clip_input(model(), self.FRAME).clip is None

    @pytest.mark.parametrize(("network", "first"), [(Colors(3), True), (Recurrent(), False)])
    def test_it_is_tried_out(self, network: nn.Module, first: bool) -> None:
        found = with_clip_input(model(network), self.FRAME)
        assert found.clip == ClipInput(16, channels_first=first, spread=not first)
        assert "16 frames at once" in found.assumed["clip"]
        assert with_clip_input(model(network), self.FRAME, frames=5).clip.frames == 5  # type: ignore[union-attr]

    def test_what_it_says_of_itself_is_believed(self) -> None:
        known = ClipInput(3)
        assert with_clip_input(model(Recurrent(), clip=known), self.FRAME).clip is known

    def test_one_that_takes_neither_is_refused(self) -> None:
        with pytest.raises(NetworkError, match="neither single pictures nor"):
            with_clip_input(model(nn.Sequential(nn.Flatten(), nn.Linear(5, 3))), self.FRAME)


class TestPooling:
    @staticmethod
    def head(pool: nn.Module) -> Any:
        torch.manual_seed(0)
        network = nn.Sequential(nn.Conv3d(3, 4, (2, 8, 8), stride=(2, 8, 8)), nn.ReLU(), pool, nn.Flatten(2))
        network = nn.Sequential(network, _Mean(), nn.Linear(4, 3)).eval()
        return l2caf.record(network, torch.rand(1, 3, 8, 32, 32), layer="0.1").head

    def test_pooling_that_overlaps_counts_the_ends_half(self) -> None:
        head = self.head(nn.AvgPool3d((2, 4, 4), stride=1))
        assert slot_shares(head) == pytest.approx([0.5, 1, 1, 0.5], rel=1e-3)
        note = pooling_note(head, 8)
        assert note is not None
        assert "1 to 2 count 0.5 times" in note
        assert "7 to 8 count 0.5 times" in note

    def test_of_plain_pooling_there_is_nothing_to_say(self) -> None:
        head = self.head(nn.AdaptiveAvgPool3d(1))
        assert slot_shares(head) == pytest.approx([1, 1, 1, 1], rel=1e-3)
        assert pooling_note(head, 8) is None


class _Mean(nn.Module):
    def forward(self, columns: torch.Tensor) -> torch.Tensor:
        return columns.mean(dim=2)


class TestFiles:
    def test_all_that_is_written(self, clip: Path, tmp_path: Path) -> None:
        told: list[tuple[str, int, int | None]] = []
        result = explain_clips(
            VideoRequest([clip], tmp_path / "out", question=Question(top=2)),
            model=model(),
            progress=lambda stage, done, total, numbers=None: told.append((stage, done, total)),  # type: ignore[misc]
        )
        (one,) = result.written
        assert told[-1] == ("explaining clip.mkv", LENGTH, LENGTH)
        assert (one.frames, one.together, one.layer, str(*one.outcomes)) == (LENGTH, None, "active", "exact")
        assert [(seen.name, seen.share) for seen in one.seen] == [("red", 1)]
        frames = list(open_clip(one.files.film))
        assert len(frames) == LENGTH
        assert [frame.time for frame in frames] == pytest.approx([number / 10 for number in range(LENGTH)], abs=2e-3)
        assert frames[0].pixels.shape[1] == 4 * SIDE  # two maps side by side
        for picture in (one.files.strip, one.files.curve):
            assert open_image(picture).width > 500
        with np.load(one.files.numbers) as numbers:
            assert numbers["weights"].shape == (LENGTH, 2, 8, 8)
            assert np.square(numbers["weights"][:, 0]).sum(axis=(1, 2)) == pytest.approx(np.ones(LENGTH), abs=1e-4)
            assert numbers["probabilities"].shape == (LENGTH, 2)
            assert numbers["times"] == pytest.approx([number / 10 for number in range(LENGTH)], abs=2e-3)
            assert numbers["crop"] == pytest.approx([53.3, 5.3, 138.7, 90.7], abs=0.1)
            assert numbers["names"][0] == "red"
        assert json.loads(json.dumps(result.as_dict()))["clips"][0]["frames"] == LENGTH

    def test_the_maps_lie_on_the_film_where_the_square_is(self, clip: Path, tmp_path: Path) -> None:
        from l2caf.rendering.style import Style

        style = Style(cmap="gray", alpha=1)
        request = VideoRequest([clip], tmp_path / "film.mp4", style=style, question=Question(classes=["red"]))
        explain_clips(request, model=model())
        for number, frame in enumerate(open_clip(tmp_path / "film.mp4")):
            seen = frame.pixels[10:85, 56:136].min(axis=2).astype(int)  # white is hot, red is not
            y, x = np.unravel_index(int(seen.argmax()), seen.shape)
            x0, y0, x1, y1 = square(number)
            assert x0 - 2 <= x + 56 <= x1 + 2
            assert y0 - 2 <= y + 10 <= y1 + 2

    @pytest.mark.parametrize("stop", [KeyboardInterrupt, Cancelled])
    def test_stopped_half_way_no_file_is_left(self, stop: type[BaseException], clip: Path, tmp_path: Path) -> None:
        def progress(stage: str, done: int, total: int | None, numbers: Any = None) -> None:
            if done == 7:
                raise stop

        with pytest.raises(stop):
            explain_clips(VideoRequest([clip], tmp_path / "out"), model=model(), progress=progress)
        assert list((tmp_path / "out").iterdir()) == []

    def test_bad_clips_are_skipped_and_the_rest_goes_on(self, clip: Path, tmp_path: Path) -> None:
        bad = tmp_path / "bad.mp4"
        bad.write_text("no clip", "utf-8")
        frames = write_folder(tmp_path / "frames", moving(3))
        skipped: list[Any] = []
        request = VideoRequest([bad, clip, frames], tmp_path / "out")
        result = explain_clips(request, model=model(), skipped=skipped.append)
        assert [one.file for one in result.written] == [clip, frames]
        assert [one.file for one in result.failed] == [bad] == [one.file for one in skipped]
        assert result.failed[0].as_dict()["error"].startswith(f"'{bad}' is no clip")

    def test_of_a_damaged_clip_what_is_left_is_shown_and_said(self, tmp_path: Path) -> None:
        whole = write_clip(tmp_path / "whole.avi", moving(), codec="mjpeg", pixels="yuvj420p")
        cut = tmp_path / "cut.avi"
        cut.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
        (one,) = explain_clips(VideoRequest([cut], tmp_path / "out"), model=model()).written
        assert 0 < one.frames < LENGTH
        assert any("cut off" in note or "damaged" in note for note in one.notes)

    def test_our_own_films_are_not_taken_for_clips(self, clip: Path, tmp_path: Path) -> None:
        request = VideoRequest([tmp_path], tmp_path / "out")
        for _ in range(2):
            assert [one.file for one in explain_clips(request, model=model()).written] == [clip]

    def test_questions_have_films_of_their_own(self, tmp_path: Path) -> None:
        frames, of = write_folder(tmp_path / "frames", moving(1)), model()
        for question in (Question(), Question(classes=["red"]), Question(classes=["blue"])):
            explain_clips(VideoRequest([frames], tmp_path / "out", question=question), model=of)
        names = sorted(path.name for path in (tmp_path / "out").glob("*.mp4"))
        assert names == ["frames-l2caf-blue.mp4", "frames-l2caf-prediction.mp4", "frames-l2caf-red.mp4"]

    @pytest.mark.parametrize(
        ("made", "field"),
        [
            (lambda clip, out: VideoRequest([], out), "clip"),
            (lambda clip, out: VideoRequest([clip], out, demo=True), "demo"),
            (lambda clip, out: VideoRequest([clip], out, smooth=0), "smooth"),
            (lambda clip, out: VideoRequest([clip], out, width=3), "width"),
            (lambda clip, out: VideoRequest([clip, clip.parent], out / "film.mp4"), "out"),
            (lambda clip, out: VideoRequest([clip], out / "film.png"), "out"),
            (lambda clip, out: VideoRequest([clip], out, question=Question(classes=["cat"])), "class"),
        ],
    )
    def test_requests_that_cannot_be(
        self, made: Callable[[Path, Path], VideoRequest], field: str, clip: Path, tmp_path: Path
    ) -> None:
        write_clip(tmp_path / "other.mp4", moving(2))
        with pytest.raises(InputError) as caught:
            explain_clips(made(clip, tmp_path / "out"), model=model())
        assert caught.value.field == field

    def test_maps_of_a_clip_network_are_not_smoothed(self, clip: Path, tmp_path: Path) -> None:
        of = model(Colors(3), clip=ClipInput(4, channels_first=True))
        with pytest.raises(InputError, match="a time of their own"):
            explain_clips(VideoRequest([clip], tmp_path / "out", smooth=3), model=of)


class TestTheCommand:
    @pytest.fixture(autouse=True)
    def _here(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "nets.py").write_text(NETS, "utf-8")

    def test_the_demonstration(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["video", "--demo", "--stride", "20", "--gif", "--width", "160", "--json"]) == 0
        (one,) = json.loads(capsys.readouterr().out)["clips"]
        assert one["frames"] == 3
        seen = {found["name"] for found in one["seen"]}
        assert "espresso" in seen
        assert any("cat" in name for name in seen)
        assert one["outcomes"] == {"exact": 3}
        with Image.open(one["film"]) as film:
            assert film.n_frames == 3
            assert film.width == 160

    def test_a_clip_network_of_ones_own(self, clip: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert (
            main(["video", str(clip), "--network", "nets.py:build", "--frames", "6", "--class", "1", "--signed"]) == 0
        )
        printed = capsys.readouterr()
        assert "1 clip explained" in printed.out
        assert "exact" in printed.out
        assert "6 frames at once" in printed.err

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            ("video", "Usage"),
            ("video missing.mp4", "does not exist"),
            ("video clip.mkv --window all", "--window: There is no window 'all'"),
            ("video clip.mkv --smooth 0", "--smooth"),
            ("video clip.mkv --demo", "--demo: The demonstration makes its own clip"),
            ("video clip.mkv --out film.png", "--out"),
            ("video nets.py", "is no clip that can be read"),
        ],
    )
    def test_faults_in_one_sentence(
        self, words: str, said: str, clip: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(words.split()) == 2
        printed = capsys.readouterr()
        assert said in " ".join((printed.err + printed.out).split())
        assert "Traceback" not in printed.err


class TestHeatmaps:
    def heatmap(self, samples: int = 1) -> tuple[l2caf.Heatmap, np.ndarray]:
        frames = np.stack(moving(4))
        inputs = torch.stack([PREPARE(Image.fromarray(frame)) for frame in frames], dim=1)
        return l2caf.explain(Colors(3).eval(), inputs[None].repeat(samples, 1, 1, 1, 1)), frames

    @pytest.mark.parametrize("ending", ["mp4", "gif"])
    def test_films(self, ending: str, tmp_path: Path) -> None:
        heatmap, frames = self.heatmap()
        path = heatmap.save(tmp_path / f"film.{ending}", frames, preprocess=PREPARE, fps=5)
        assert [frame.time for frame in open_clip(path)] == pytest.approx([0, 0.2, 0.4, 0.6], abs=1e-3)
        clip = write_clip(tmp_path / "clip.mp4", moving(4))
        listed = [Image.fromarray(frame) for frame in frames]
        for given in (listed, torch.from_numpy(frames), frames / 255, str(clip), clip):
            assert open_clip(heatmap.save(tmp_path / f"x.{ending}", given, preprocess=PREPARE)).count == 4
        assert open_clip(heatmap.save(tmp_path / f"alone.{ending}")).count == 4

    def test_of_a_recurrent_network(self, tmp_path: Path) -> None:
        frames = np.stack(moving(4))
        inputs = torch.stack([PREPARE(Image.fromarray(frame)) for frame in frames])[None]
        heatmap = l2caf.explain(Recurrent().eval(), inputs)
        assert open_clip(heatmap.save(tmp_path / "film.mp4", frames, preprocess=PREPARE)).count == 4
        assert open_image(heatmap.save(tmp_path / "strip.png", frames, preprocess=PREPARE)).width > 500

    def test_a_strip_of_frames_and_planes_of_a_volume(self, tmp_path: Path) -> None:
        heatmap, frames = self.heatmap()
        strip = open_image(heatmap.save(tmp_path / "strip.png", frames, preprocess=PREPARE))
        planes = open_image(heatmap.save(tmp_path / "planes.png", np.zeros((4, 64, 64), np.float32)))
        red = [(np.asarray(one) == (255, 0, 0)).all(axis=2).any() for one in (strip, planes)]
        assert red == [True, False]  # the frames themselves stand on the strip

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"image": np.zeros((3, 64, 64, 3), np.uint8)}, "has 3 frames, and the network saw 4"),
            ({"image": np.zeros((4, 96, 192, 3), np.uint8)}, "add preprocess="),
            ({"image": 3}, "give \\(T, height, width, 3\\)"),
            ({"image": "missing.mp4"}, "does not exist"),
            ({"fps": 0}, "frames per second"),
            ({"which": 1}, "1 map per sample"),
            ({"contuors": True}, "did you mean contours|no setting"),
        ],
    )
    def test_faults(self, settings: dict[str, Any], message: str, tmp_path: Path) -> None:
        heatmap, _ = self.heatmap()
        with pytest.raises(InputError, match=message):
            heatmap.save(tmp_path / "film.mp4", **settings)
        assert list(tmp_path.iterdir()) == []

    def test_of_several_clips_one_is_chosen(self, tmp_path: Path) -> None:
        heatmap, frames = self.heatmap(2)
        with pytest.raises(InputError, match="choose it with index="):
            heatmap.save(tmp_path / "film.mp4", frames, preprocess=PREPARE)
        heatmap.save(tmp_path / "film.mp4", frames, 1, preprocess=PREPARE)

    def test_what_does_not_move_is_no_film(self, tmp_path: Path) -> None:
        still = l2caf.explain(Colors().eval(), torch.rand(1, 3, 64, 64))
        with pytest.raises(InputError, match="does not move"):
            still.save(tmp_path / "film.mp4")
        assert still.save(tmp_path / "still.gif").exists()


def test_a_clip_of_no_length_is_told(tmp_path: Path) -> None:
    empty = tmp_path / "empty.mp4"
    empty.touch()
    result = explain_clips(VideoRequest([empty], tmp_path / "out"), model=model())
    assert isinstance(result.failed[0].error, ClipError)
    assert "0 bytes" in result.nothing(where="above")


@pytest.mark.parametrize(
    ("name", "takes", "size", "resized"),
    [
        ("r3d_18", ClipInput(None, channels_first=True, rate=15), (112, 112), (128, 171)),
        ("mvit_v2_s", ClipInput(16, channels_first=True, rate=7.5), (224, 224), (256, 256)),
    ],
)
def test_torchvision_networks_for_clips_say_how_they_take_them(
    name: str, takes: ClipInput, size: tuple[int, int], resized: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    from l2caf.networks.from_torchvision import Torchvision

    # To fill it with random numbers takes longer than all of the test.
    monkeypatch.setattr("l2caf.networks.from_torchvision._bare", lambda *given, **settings: nn.Identity())
    found = Torchvision().load(f"torchvision:{name}", pretrained=False)
    assert found.clip == takes
    assert (found.preprocess.input_size, found.preprocess.resize_size) == (size, resized)  # type: ignore[attr-defined]
    assert (len(found.class_names), found.class_names[0], found.assumed) == (400, "abseiling", {})
