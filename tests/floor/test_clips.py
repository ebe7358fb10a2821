"""Clips of every kind: all frames, in order, upright, at their times; or one sentence."""

from __future__ import annotations

import gc
import shutil
import subprocess
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from clip_files_for_tests import corners_of, number_of, numbered, turned, write_clip, write_folder
from l2caf.clips import Clip, clip_files, open_clip, read, spread
from l2caf.errors import ClipError, ExtraError, InputError

FRAMES = [numbered(number) for number in range(12)]
REAL = Path("/work/shared/data/clips")
HELD = {  # the frames in each, counted by decoding them; four of the files announce one more
    "RATRACE_wave_f_nm_np1_fr_goo_37.avi": 72,
    "SchoolRulesHowTheyHelpUs_wave_f_nm_np1_ba_med_0.avi": 74,
    "TrumanShow_wave_f_nm_np1_fr_med_26.avi": 48,
    "dashcam-highway.mp4": 221,
    "dashcam-traffic.mp4": 38,
    "hmdb51_Turnk_r_Pippi_Michel_cartwheel_f_cm_np2_le_med_6.avi": 83,
    "v_SoccerJuggling_g23_c01.avi": 240,
    "v_SoccerJuggling_g24_c01.avi": 251,
}
KINDS = {
    "H.264 in mp4": ("clip.mp4", {}),
    "VP9 in webm": ("clip.webm", {"codec": "libvpx-vp9"}),
    "H.264 in mkv, which tells no duration": ("clip.mkv", {"options": {"live": "1"}}),
    "MPEG-4 in avi, with frames out of order": ("clip.avi", {"codec": "mpeg4"}),
    "gif": ("clip.gif", {"codec": "gif", "pixels": "rgb8"}),
    "10 bits": ("clip.mkv", {"codec": "libx265", "pixels": "yuv420p10le"}),
    "lossless, 4:4:4": ("clip.mkv", {"codec": "ffv1", "pixels": "yuv444p"}),
    "without an index": ("clip.ts", {}),
    "metadata that is no UTF-8": ("clip.avi", {"codec": "mpeg4", "metadata": {"title": "Pippi Långstrump, français"}}),
    "a suffix that says nothing": ("clip.bin", {"format": "mp4"}),
}


def frames_of(clip: Clip) -> list[int]:
    return [number_of(frame.pixels) for frame in clip]


@pytest.mark.parametrize("kind", KINDS)
def test_all_frames_in_order_and_upright(kind: str, tmp_path: Path) -> None:
    name, settings = KINDS[kind]
    clip = open_clip(write_clip(tmp_path / name, FRAMES, **settings))
    assert frames_of(clip) == list(range(12))
    assert clip.count == 12
    first = next(iter(clip))
    assert first.pixels.shape == (64, 96, 3)
    assert first.pixels.dtype == np.uint8
    assert corners_of(first.pixels) == ["red", "green", "blue", "white"]
    assert [frame.time for frame in clip] == pytest.approx([number / 10 for number in range(12)], abs=0.011)


def test_colors_survive(tmp_path: Path) -> None:
    clip = open_clip(write_clip(tmp_path / "clip.mkv", FRAMES[:2], codec="ffv1", pixels="yuv444p"))
    for frame, planted in zip(clip, FRAMES, strict=False):
        assert abs(frame.pixels.astype(int) - planted).max() <= 4


def test_a_folder_of_frames_goes_by_its_numbers(tmp_path: Path) -> None:
    clip = open_clip(write_folder(tmp_path / "frames", FRAMES))
    assert (clip.announced, clip.rate, frames_of(clip)) == (12, None, list(range(12)))
    assert [frame.time for frame in clip][:3] == [0, 0.04, 0.08]


def test_variable_frame_rate_keeps_its_times(tmp_path: Path) -> None:
    times = [0, 0.1, 0.15, 0.9, 1.0, 2.5]
    clip = open_clip(write_clip(tmp_path / "clip.mp4", FRAMES[:6], times=times))
    assert [frame.time for frame in clip] == pytest.approx(times, abs=2e-3)


# Where the upper left corner's colour goes, clockwise: the list begins with what is seen in the upper left.
@pytest.mark.parametrize(
    ("matrix", "seen", "size"),
    [
        ((0, 1, -1, 0), ["white", "red", "green", "blue"], (96, 64)),  # a quarter clockwise
        ((-1, 0, 0, -1), ["blue", "white", "red", "green"], (64, 96)),
        ((0, -1, 1, 0), ["green", "blue", "white", "red"], (96, 64)),
        ((-1, 0, 0, 1), ["green", "red", "white", "blue"], (64, 96)),  # mirrored
        ((0, 1, 1, 0), ["red", "white", "blue", "green"], (96, 64)),  # mirrored along the diagonal
        ((0, 0, 0, 0), ["red", "green", "blue", "white"], (64, 96)),  # no rotation at all: left as it is
    ],
)
def test_turned_clips_are_shown_upright(
    matrix: tuple[int, ...], seen: list[str], size: tuple[int, int], tmp_path: Path
) -> None:
    clip = open_clip(turned(write_clip(tmp_path / "clip.mp4", FRAMES[:3]), matrix))
    for frame in clip:
        assert frame.pixels.shape[:2] == size
        assert corners_of(frame.pixels) == seen


def test_odd_sizes(tmp_path: Path) -> None:
    odd = [numbered(number, width=97, height=63) for number in range(3)]
    clip = open_clip(write_clip(tmp_path / "clip.mkv", odd, codec="ffv1", pixels="yuv444p"))
    assert [frame.pixels.shape for frame in clip] == [(63, 97, 3)] * 3


def test_pixels_that_are_not_square_become_so(tmp_path: Path) -> None:
    clip = open_clip(write_clip(tmp_path / "clip.mp4", FRAMES[:3], aspect=Fraction(4, 3)))
    assert next(iter(clip)).pixels.shape == (64, 128, 3)
    assert frames_of(clip) == [0, 1, 2]


def test_transparency_lies_on_white(tmp_path: Path) -> None:
    clear = [np.dstack([one, np.full((64, 96, 1), 255, np.uint8)]) for one in FRAMES[:2]]
    for one in clear:
        one[24:40, :, 3] = 0
    clip = open_clip(write_clip(tmp_path / "clip.mov", clear, codec="png", pixels="rgba"))
    for frame in clip:
        assert (frame.pixels[30, 40] == 255).all()
        assert corners_of(frame.pixels) == ["red", "green", "blue", "white"]


def test_a_single_frame(tmp_path: Path) -> None:
    clip = open_clip(write_clip(tmp_path / "clip.mp4", FRAMES[5:6]))
    assert (frames_of(clip), clip.count) == ([5], 1)


def test_what_is_left_of_a_clip_that_was_cut_off(tmp_path: Path) -> None:
    faststart = {"movflags": "faststart"}  # the index comes first, so that a beginning can be played
    whole = write_clip(tmp_path / "whole.mp4", FRAMES, codec="mjpeg", pixels="yuvj420p", container_options=faststart)
    cut = tmp_path / "cut.mp4"
    cut.write_bytes(whole.read_bytes()[: whole.stat().st_size * 3 // 4])
    told: list[str] = []
    numbers = [number_of(frame.pixels) for frame in open_clip(cut).frames(told.append)]
    assert numbers == list(range(len(numbers)))
    assert 0 < len(numbers) < 12
    assert any("cut off" in sentence or "damaged" in sentence for sentence in told)
    assert all("cut.mp4" in sentence for sentence in told)


def test_what_is_left_of_a_damaged_clip(tmp_path: Path) -> None:
    # Every frame stands for itself, so that a damaged one takes no other with it.
    whole = write_clip(tmp_path / "whole.mkv", FRAMES, codec="mjpeg", pixels="yuvj420p")
    content = bytearray(whole.read_bytes())
    places = [place for place in range(len(content) - 1) if content[place : place + 2] == b"\xff\xd8"]
    assert len(places) >= 12
    content[places[4] : places[5] - 40] = bytes(places[5] - 40 - places[4])  # the next one's header stays
    damaged = tmp_path / "damaged.mkv"
    damaged.write_bytes(bytes(content))
    told: list[str] = []
    numbers = [number_of(frame.pixels) for frame in open_clip(damaged).frames(told.append)]
    assert numbers == [number for number in range(12) if number != 4]
    assert len(told) == 1
    assert "damaged" in told[0]


def empty(folder: Path) -> Path:
    (folder / "clip.mp4").touch()
    return folder / "clip.mp4"


def no_clip(folder: Path) -> Path:
    (folder / "clip.mp4").write_text("not a clip at all", "utf-8")
    return folder / "clip.mp4"


def without_its_index(folder: Path) -> Path:
    """An mp4 has its index at the end unless it is told otherwise."""
    whole = write_clip(folder / "clip.mp4", FRAMES)
    whole.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    return whole


def no_frames(folder: Path) -> Path:
    whole = write_clip(folder / "clip.mkv", FRAMES, codec="mjpeg", pixels="yuvj420p")
    content = whole.read_bytes()
    whole.write_bytes(content[: content.index(b"\xff\xd8")])
    return whole


def sound(folder: Path) -> Path:
    import av

    path = folder / "sound.wav"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("pcm_s16le", rate=8000, layout="mono")
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 800), np.int16), "s16", "mono")
        frame.rate = 8000
        container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def two_sizes(folder: Path) -> Path:
    return write_folder(folder / "frames", [FRAMES[0], FRAMES[1][:32]])


def nothing(folder: Path) -> Path:
    (folder / "empty").mkdir()
    return folder / "empty"


BAD = {
    empty: "is empty \\(0 bytes\\)",
    no_clip: "is no clip that can be read",
    without_its_index: "was cut off",
    no_frames: "clip",
    sound: "holds no pictures",
    two_sizes: "bring the frames of a clip to one size",
    nothing: "neither clips nor frames",
    lambda folder: folder / "missing.mp4": "does not exist",
}


@pytest.mark.parametrize("made", BAD)
def test_what_cannot_be_read_is_told_in_one_sentence(made, tmp_path: Path) -> None:
    with pytest.raises(ClipError, match=BAD[made]) as caught:
        list(open_clip(made(tmp_path)))
    assert "\n" not in str(caught.value)


def test_clips_of_a_folder(tmp_path: Path) -> None:
    write_clip(tmp_path / "b.mp4", FRAMES[:2])
    write_clip(tmp_path / "a.mp4", FRAMES[:2])
    frames = write_folder(tmp_path / "frames", FRAMES[:2])
    assert clip_files([tmp_path, frames]) == [tmp_path / "a.mp4", tmp_path / "b.mp4", frames]
    with pytest.raises(ClipError, match="does not exist"):
        clip_files([tmp_path / "missing"])


def test_frames_at_places(tmp_path: Path) -> None:
    path = write_clip(tmp_path / "clip.mp4", FRAMES)
    assert [number_of(frame.pixels) for frame in open_clip(path).at([7, 0, 7])] == [7, 0, 7]
    with pytest.raises(ClipError, match="no frame 12: it holds 12"):
        open_clip(path).at([3, 12])
    assert [number_of(one) for one in read(path, frames=3)] == [2, 6, 10]
    assert [number_of(one) for one in read(path, frames=24)] == sorted([*range(12)] * 2)
    assert read(path).shape == (12, 64, 96, 3)


@pytest.mark.parametrize("frames", [0, -1, True, 2.5, "3"])
def test_numbers_of_frames_that_are_none(frames: object) -> None:
    with pytest.raises(InputError, match="whole number above 0"):
        spread(10, frames)  # type: ignore[arg-type]


def test_a_clip_that_is_left_early_is_closed(tmp_path: Path) -> None:
    path = write_clip(tmp_path / "clip.mp4", FRAMES)
    frames = iter(open_clip(path))
    assert number_of(next(frames).pixels) == 0
    frames.close()  # type: ignore[attr-defined]
    gc.collect()
    held = [one for one in Path("/proc/self/fd").glob("*") if one.is_symlink()] if sys.platform == "linux" else []
    assert str(path) not in {str(one.readlink()) for one in held if one.is_symlink()}


def test_without_pyav_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_clip(tmp_path / "clip.mp4", FRAMES[:1])
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(ExtraError, match="pip install av"):
        open_clip(path)
    with pytest.raises(ClipError, match="is a int"):
        open_clip(3)  # type: ignore[arg-type]


@pytest.mark.dataset
@pytest.mark.skipif(not REAL.is_dir(), reason="the clips are not here")
@pytest.mark.parametrize("name", HELD)
def test_real_clips(name: str) -> None:
    clip = open_clip(REAL / name)
    times = [frame.time for frame in clip]
    assert len(times) == clip.count == HELD[name]
    assert times[0] == 0
    assert np.diff(times) == pytest.approx(1 / clip.rate, rel=0.05)


@pytest.mark.dataset
@pytest.mark.skipif(not REAL.is_dir(), reason="the clips are not here")
@pytest.mark.parametrize("name", HELD)
def test_opencv_sees_the_same_frames(name: str) -> None:
    """Another reader, with another copy of FFmpeg: as many frames, the same ones, in the same order."""
    theirs = list(_by_opencv(REAL / name))
    ours = list(open_clip(REAL / name))
    assert len(ours) == len(theirs)
    for place in (0, 1, 2, 3, len(ours) // 2, len(ours) - 2, len(ours) - 1):
        apart = [abs(ours[place].pixels.astype(int) - theirs[near]).mean() for near in _near(place, len(ours))]
        assert min(apart) == apart[0] < 3


@pytest.mark.parametrize("matrix", [(0, 1, -1, 0), (-1, 0, 0, -1), (0, -1, 1, 0)])
def test_opencv_turns_them_the_same_way(matrix: tuple[int, ...], tmp_path: Path) -> None:
    path = turned(write_clip(tmp_path / "clip.mp4", FRAMES[:2]), matrix)
    for ours, theirs in zip(open_clip(path), _by_opencv(path), strict=True):
        assert corners_of(ours.pixels) == corners_of(theirs)


HAS_FFMPEG = shutil.which("ffmpeg") is not None and shutil.which("ffprobe") is not None
SMALL = (48, 32)


@pytest.mark.dataset
@pytest.mark.skipif(not REAL.is_dir(), reason="the clips are not here")
@pytest.mark.skipif(not HAS_FFMPEG, reason="there is no ffprobe")
@pytest.mark.parametrize("name", HELD)
def test_ffprobe_counts_as_many_and_ffmpeg_shows_the_same_in_the_same_order(name: str) -> None:
    """FFmpeg's own programs: every frame looks like theirs of the same number, and like none beside it better."""
    ours = np.stack([small(frame.pixels) for frame in open_clip(REAL / name)])
    theirs = by_ffmpeg(REAL / name)
    assert len(ours) == len(theirs) == _counted_by_ffprobe(REAL / name)
    apart = [abs(ours[place] - theirs[place]).mean() for place in range(len(ours))]
    assert max(apart) < 4  # two ways of making a picture small
    moving = [place for place in range(1, len(ours)) if abs(theirs[place] - theirs[place - 1]).mean() > 4]
    assert all(apart[place] < abs(ours[place] - theirs[place - 1]).mean() for place in moving)


@pytest.mark.skipif(not HAS_FFMPEG, reason="there is no ffprobe")
@pytest.mark.parametrize("kind", KINDS)
def test_ffprobe_counts_every_kind_alike(kind: str, tmp_path: Path) -> None:
    name, settings = KINDS[kind]
    path = write_clip(tmp_path / name, FRAMES, **settings)
    assert open_clip(path).count == _counted_by_ffprobe(path) == len(by_ffmpeg(path))


@pytest.mark.skipif(not HAS_FFMPEG, reason="there is no ffmpeg")
@pytest.mark.parametrize("matrix", [(0, 1, -1, 0), (-1, 0, 0, -1), (0, -1, 1, 0)])
def test_ffmpeg_turns_them_the_same_way(matrix: tuple[int, ...], tmp_path: Path) -> None:
    path = turned(write_clip(tmp_path / "clip.mp4", FRAMES[:2]), matrix)
    for ours, theirs in zip(open_clip(path), by_ffmpeg(path), strict=True):
        assert corners_of(ours.pixels) == corners_of(theirs)
        assert abs(small(ours.pixels) - theirs).mean() < 6


def small(pixels: np.ndarray) -> np.ndarray:
    return np.asarray(Image.fromarray(pixels).resize(SMALL, Image.Resampling.BOX), np.float32)


def by_ffmpeg(path: Path) -> np.ndarray:
    """All frames as the program shows them, small."""
    shown = f"-fps_mode passthrough -vf scale={SMALL[0]}:{SMALL[1]}:flags=area -f rawvideo -pix_fmt rgb24 -"
    words = ["ffmpeg", "-v", "error", "-i", str(path), *shown.split()]
    raw = subprocess.run(words, capture_output=True, check=True).stdout
    return np.frombuffer(raw, np.uint8).reshape(-1, SMALL[1], SMALL[0], 3).astype(np.float32)


def _near(place: int, count: int) -> list[int]:
    return [place, *(other for other in (place - 1, place + 1) if 0 <= other < count)]


def _by_opencv(path: Path) -> Iterator[np.ndarray]:
    import cv2

    capture = cv2.VideoCapture(str(path))
    while True:
        there, frame = capture.read()
        if not there:
            break
        yield frame[:, :, ::-1]
    capture.release()


def _counted_by_ffprobe(path: Path) -> int:
    words = "ffprobe -v error -select_streams v:0 -count_frames -show_entries stream=nb_read_frames -of csv=p=0"
    done = subprocess.run([*words.split(), str(path)], capture_output=True, check=True, text=True)
    return int(done.stdout.split()[0].strip(","))  # said once per programme of a transport stream
