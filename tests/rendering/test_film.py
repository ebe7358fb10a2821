"""Films and strips: every frame in its place and at its time, in a file that plays everywhere, whole or not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from PIL import Image

from clip_files_for_tests import corners_of, number_of, numbered
from l2caf.clips import open_clip
from l2caf.errors import ExtraError, FileError, InputError
from l2caf.rendering.film import filming
from l2caf.rendering.filmstrip import Moment, Series, Thinned, banner, curve_of, filmstrip

FRAMES = [numbered(number) for number in range(40)]
TIMES = [number * 0.04 + 0.5 * (number > 20) for number in range(40)]  # it stands still in the middle


def write(path: Path, frames: list[Any], times: list[float], until: float | None = None) -> Path:
    with filming(path, until=until) as film:
        for frame, time in zip(frames, times, strict=False):
            film.add(frame, time)
    return path


@pytest.mark.parametrize("ending", [".mp4", ".gif"])
def test_frames_and_times_come_back(ending: str, tmp_path: Path) -> None:
    clip = open_clip(write(tmp_path / f"film{ending}", FRAMES, TIMES))
    frames = list(clip)
    assert [number_of(frame.pixels) for frame in frames] == list(range(40))
    assert [frame.time for frame in frames] == pytest.approx(TIMES, abs=1e-4)
    assert corners_of(frames[0].pixels) == ["red", "green", "blue", "white"]


def test_an_mp4_plays_everywhere(tmp_path: Path) -> None:
    odd = [numbered(number, width=97, height=63) for number in range(5)]
    path = write(tmp_path / "film.mp4", odd, TIMES, until=2)
    content = path.read_bytes()
    assert content.index(b"moov") < content.index(b"mdat")  # it begins to play before all of it is there
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        assert (stream.codec_context.name, stream.codec_context.pix_fmt) == ("h264", "yuv420p")
        assert (stream.width, stream.height) == (98, 64)
        assert float(stream.duration * stream.time_base) == pytest.approx(2, abs=1e-3)
        assert all(packet.pts == packet.dts for packet in container.demux(stream) if packet.size)


def test_colors_of_a_film(tmp_path: Path) -> None:
    colors = [(250, 10, 10), (20, 200, 60), (30, 40, 240), (128, 128, 128), (0, 0, 0), (255, 255, 255)]
    flat = [np.full((32, 48, 3), color, np.uint8) for color in colors]
    for frame, color in zip(open_clip(write(tmp_path / "film.mp4", flat, TIMES)), colors, strict=True):
        assert abs(frame.pixels[16, 24].astype(int) - color).max() <= 4


@pytest.mark.parametrize("size", [(2, 2), (7, 5), (1, 1)])
@pytest.mark.parametrize("ending", [".mp4", ".gif"])
def test_tiny_films_of_one_frame(size: tuple[int, int], ending: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"film{ending}", [Image.new("RGB", size)], [0])
    assert open_clip(path).count == 1


def test_a_gif_leaves_out_frames_that_no_browser_shows_in_time(tmp_path: Path) -> None:
    fast = [number / 200 for number in range(20)]
    with Image.open(write(tmp_path / "film.gif", FRAMES[:20], fast)) as gif:
        assert 4 <= gif.n_frames <= 6
        assert gif.info["duration"] >= 20


@pytest.mark.parametrize("ending", [".mp4", ".gif"])
@pytest.mark.parametrize("stop", [KeyboardInterrupt, ValueError])
def test_after_an_interruption_nothing_is_left(ending: str, stop: type[BaseException], tmp_path: Path) -> None:
    def interrupted() -> None:
        with filming(tmp_path / f"film{ending}") as film:
            film.add(FRAMES[0], 0)
            film.add(FRAMES[1], 1)
            raise stop

    with pytest.raises(stop):
        interrupted()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("frames", "times", "message"),
    [
        ([FRAMES[0], FRAMES[1][:32]], [0, 1], "different sizes"),
        (FRAMES[:2], [1, 1], "cannot follow"),
        ([np.zeros((4, 4), np.uint8)], [0], "height, width, 3"),
        ([np.zeros((4, 4, 3))], [0], "bytes"),
        ([], [], "without a frame"),
    ],
)
def test_frames_that_make_no_film(frames: list[Any], times: list[float], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        write(tmp_path / "film.mp4", frames, times)
    assert list(tmp_path.iterdir()) == []


def test_names_that_are_no_film(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileError, match=r"\.mp4 or \.gif"):
        write(tmp_path / "film.xyz", FRAMES, TIMES)
    monkeypatch.setitem(__import__("sys").modules, "av", None)
    with pytest.raises(ExtraError, match="pip install av"):
        write(tmp_path / "film.mp4", FRAMES, TIMES)


def test_a_strip_shows_each_moment_above_its_map() -> None:
    red, green = (Image.new("RGB", (80, 60), color) for color in ("red", "lime"))
    strip = np.asarray(filmstrip([Moment(0, red, (green,)), Moment(0.5, red, (green,))], heading="clip.mp4"))
    is_red = (strip == (255, 0, 0)).all(axis=2)
    is_green = (strip == (0, 255, 0)).all(axis=2)
    assert np.flatnonzero(is_red.any(axis=1)).max() < np.flatnonzero(is_green.any(axis=1)).min()
    assert (is_red.any(axis=0) == is_green.any(axis=0)).all()
    with pytest.raises(InputError, match="no frames"):
        filmstrip([])


@pytest.mark.parametrize("length", [1, 2, 7, 8, 9, 16, 17, 100, 1000])
def test_some_of_a_stream_evenly(length: int) -> None:
    thinned = Thinned(8)
    for number in range(length):
        if thinned.wants:
            thinned.keep(number)
        thinned.count += 1
        assert len(thinned.kept) <= 32
    chosen = thinned.chosen()
    assert len(chosen) == min(8, length)
    assert chosen[0] == 0
    assert chosen[-1] >= 0.85 * (length - 1)
    gaps = np.diff(chosen)
    assert length < 9 or gaps.max() <= 2 * gaps.min()


def test_curves_and_banners() -> None:
    broken = np.array([0, 1, np.nan, 2, 3.0])
    curve = curve_of([Series("cat", broken, broken / 3), Series("dog", broken, 1 - broken / 3)], title="sure", even=0.5)
    assert curve.width == 1200
    assert len(np.unique(np.asarray(curve).reshape(-1, 3), axis=0)) > 20
    assert curve_of([], title="sure", unknown="nothing is known", width=300).width == 300
    for text in ("", "a", "a very long text that no banner of this width can hold in one line"):
        assert banner(120, 20, text, "12.5 s").size == (120, 20)
