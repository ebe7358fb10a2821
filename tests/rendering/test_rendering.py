"""Pictures, checked pixel by pixel where it matters."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from skimage import data

from l2caf.errors import FileError, InputError
from l2caf.files import write_whole
from l2caf.images import save_picture
from l2caf.rendering.animation import convergence_frames, save_gif
from l2caf.rendering.grid import grid
from l2caf.rendering.marks import Box, fitted, font
from l2caf.rendering.overlay import colorize, overlay
from l2caf.rendering.scene import Scene
from l2caf.rendering.signals import signal_picture
from l2caf.rendering.volumes import Drawing


def spot(size: int = 7, row: int = 1, column: int = 5) -> np.ndarray:
    heat = np.zeros((size, size))
    heat[row, column] = 1
    return heat


def grey_image(width: int = 70, height: int = 70) -> Image.Image:
    return Image.new("RGB", (width, height), (128, 128, 128))


class TestOverlay:
    def test_hot_where_the_heat_is_and_untouched_where_it_is_not(self) -> None:
        photograph = data.chelsea()
        picture = np.asarray(overlay(photograph, spot())).astype(int)
        changed = np.abs(picture - photograph).sum(axis=2)
        height, width = changed.shape
        middle = (height * 3 // 14, width * 11 // 14)
        assert changed[middle] == pytest.approx(changed.max(), rel=0.5)
        assert picture[middle][0] > picture[middle][2] + 60, "the hottest colour is red"
        assert changed[height // 2 :, : width // 2].max() == 0

    def test_no_heat_and_no_opacity_leave_the_image(self) -> None:
        photograph = data.coffee()
        assert np.array_equal(overlay(photograph, np.zeros((7, 7))), photograph)
        assert np.array_equal(overlay(photograph, spot(), alpha=0), photograph)

    def test_bytes_never_wrap(self) -> None:
        ramp = np.linspace(0, 1, 256)[None].repeat(4, axis=0)
        for level in (0, 255):
            flat = np.full((4, 256, 3), level, np.uint8)
            picture = np.asarray(overlay(flat, ramp, cmap="gray", alpha=1)).astype(int)
            assert (np.abs(np.diff(picture[0, :, 0])) <= 3).all(), "a wrap would be a jump"
            assert picture[0, 0, 0] == level
            assert picture[0, -1, 0] == 255

    @pytest.mark.parametrize("size", [(1, 1), (10_000, 50), (3, 400), (224, 224)])
    def test_the_picture_has_the_size_of_the_image(self, size: tuple[int, int]) -> None:
        assert overlay(grey_image(*size), spot(), contours=True).size == size

    @pytest.mark.parametrize("shape", [(9, 9), (9, 9, 1), (9, 9, 3), (9, 9, 4)])
    def test_arrays_of_bytes_and_floats_agree(self, shape: tuple[int, ...]) -> None:
        pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
        assert np.array_equal(overlay(pixels, spot()), overlay(pixels / 255, spot()))

    def test_signed_heat_has_two_colours_on_grey(self) -> None:
        heat = spot(row=3, column=1) - spot(row=3, column=5)
        picture = np.asarray(overlay(data.coffee(), heat, signed=True)).astype(int)
        height, width, _ = picture.shape
        warm, cool = picture[height // 2, width * 3 // 14], picture[height // 2, width * 11 // 14]
        assert warm[0] > warm[2] + 60
        assert cool[2] > cool[0] + 60
        assert np.ptp(picture[:20], axis=2).max() == 0
        plain = np.asarray(colorize(heat, signed=True))
        assert plain[0, 0].tolist() == [255, 255, 255]
        assert plain[3, 1].tolist() == [255, 0, 20]

    def test_the_inputs_stay(self) -> None:
        image, heat = grey_image(), spot()
        overlay(image, heat, contours=True, boxes=[(1, 1, 9, 9)])
        assert image.getextrema() == ((128, 128),) * 3
        assert np.array_equal(heat, spot())

    @pytest.mark.parametrize(
        ("heat", "fault"),
        [
            (np.full((7, 7), np.nan), "NaN"),
            (np.full((7, 7), np.inf), "NaN or infinite"),
            (np.zeros((2, 7, 7)), "shape"),
            (np.zeros(7), "shape"),
            (np.zeros((0, 7)), "shape"),
            (np.full((7, 7), 3.0), "divide"),
            (np.full((7, 7), -0.5), "signed=True"),
        ],
    )
    def test_bad_heat(self, heat: np.ndarray, fault: str) -> None:
        with pytest.raises(InputError, match=fault):
            overlay(grey_image(), heat)

    @pytest.mark.parametrize(
        ("image", "fault"),
        [
            (np.zeros((3, 20, 20)), r"\(3, 20, 20\)"),
            (np.zeros((20, 20, 3), np.int64), "int64"),
            (np.full((20, 20, 3), 2.0), "normalisation"),
            (np.full((20, 20, 3), np.nan), "normalisation"),
        ],
    )
    def test_bad_image(self, image: np.ndarray, fault: str) -> None:
        with pytest.raises(InputError, match=fault):
            overlay(image, spot())

    def test_bad_options(self) -> None:
        with pytest.raises(InputError, match="viridis"):
            overlay(grey_image(), spot(), cmap="viridsi")
        with pytest.raises(InputError, match="alpha"):
            overlay(grey_image(), spot(), alpha=1.5)
        with pytest.raises(InputError, match="levels"):
            overlay(grey_image(), spot(), contours=(0.5, 2))


class TestMarks:
    def test_a_box_covers_exactly_its_own_pixels_between_dark_rims(self) -> None:
        picture = np.asarray(overlay(grey_image(), np.zeros((7, 7)), boxes=[Box(10, 20, 30, 50, "#ff0000")]))
        expected = np.full((70, 70, 3), 128, np.uint8)
        expected[19:51, 9:31] = 0x10
        expected[20:50, 10:30] = (255, 0, 0)
        expected[21:49, 11:29] = 0x10
        expected[22:48, 12:28] = 128
        assert np.array_equal(picture, expected)

    def test_a_box_as_large_as_the_picture_is_seen_on_all_sides(self) -> None:
        picture = np.asarray(overlay(grey_image(), np.zeros((7, 7)), boxes=[(0, 0, 70, 70)]))
        inner = picture[1:-1, 1:-1]  # inside of the dark rim
        for side in (inner[0], inner[-1], inner[:, 0], inner[:, -1]):
            assert (side == 255).all()

    @pytest.mark.parametrize(
        ("box", "fault"),
        [
            ((5, 5, 5, 9), "empty"),
            ((80, 5, 90, 9), "outside"),
            ((1, 2, 3), "no box"),
            ((1, 2, np.nan, 4), "NaN"),
            (Box(1, 2, 9, 9, "reddish"), "no colour"),
        ],
    )
    def test_bad_boxes(self, box: tuple, fault: str) -> None:
        with pytest.raises(InputError, match=fault):
            overlay(grey_image(), spot(), boxes=[box])

    def test_a_label_is_written_in_the_colour_of_its_box(self) -> None:
        bare = overlay(grey_image(200, 200), np.zeros((7, 7)), boxes=[Box(50, 90, 180, 180, "#ff0000")])
        named = overlay(grey_image(200, 200), np.zeros((7, 7)), boxes=[Box(50, 90, 180, 180, "#ff0000", "cat")])
        difference = np.argwhere((np.asarray(bare) != np.asarray(named)).any(axis=2))
        assert difference[:, 0].max() < 92
        assert difference[:, 1].min() >= 50

    def test_contours_run_where_the_heat_crosses_the_level(self) -> None:
        ramp = np.linspace(0, 1, 101)[None].repeat(40, axis=0)
        image = Image.new("RGB", (101, 40), (90, 90, 90))
        row = np.asarray(overlay(image, ramp, alpha=0, contours=(0.3, 0.7)))[20, :, 0].astype(int)
        bright = np.flatnonzero(row > 170)
        assert set(np.round(bright, -1)) == {30, 70}


class TestGrid:
    def test_cells_lie_side_by_side_on_white(self) -> None:
        red, blue = Image.new("RGB", (50, 40), "red"), Image.new("RGB", (80, 40), "blue")
        sheet = np.asarray(grid([[red, blue], [blue]], cell_height=40))
        assert (sheet[0] == 255).all()
        assert (sheet[-1] == 255).all()
        assert (sheet == (255, 0, 0)).all(axis=2).sum() == 50 * 40
        assert (sheet == (0, 0, 255)).all(axis=2).sum() == 2 * 80 * 40

    def test_texts_add_room_and_are_written(self) -> None:
        cell = grey_image()
        bare = grid([[cell, cell]])
        full = grid(
            [[cell, None]],
            titles=[["a title that is far too long for its picture, " * 5, ""]],
            column_titles=["left", "right"],
            row_labels=["row"],
            heading="Heading",
            caption="A caption. " * 30,
        )
        assert full.width > bare.width
        assert full.height > bare.height + 60
        assert np.asarray(full)[:30].min() < 60, "the heading is dark on white"

    def test_a_word_of_a_label_is_not_cut_off(self) -> None:
        short, long = (
            grid([[grey_image()]], row_labels=[word], cell_height=150).width for word in ("a", "Grad-CAM-abs")
        )
        assert long - short == math.ceil(font(12, bold=True).getlength("Grad-CAM-abs")) - 75

    def test_extreme_pictures_fit(self) -> None:
        sheet = grid([[grey_image(10_000, 50), grey_image(1, 1), grey_image(50, 10_000)]], cell_height=100)
        assert sheet.width < 700
        assert sheet.height < 150

    def test_lines_fit_their_width(self) -> None:
        letters = font(14)
        for text in ("word " * 40, "Donaudampfschifffahrtsgesellschaft" * 3, "short", "", "two\nlines"):
            lines = fitted(text, letters, width=120)
            assert len(lines) <= 2
            assert all(letters.getlength(line) <= 120 for line in lines)
        assert fitted("word " * 40, letters, width=120)[-1].endswith("…")
        assert fitted("two\nlines", letters, width=120) == ["two", "lines"]

    @pytest.mark.parametrize(
        ("rows", "options", "fault"),
        [
            ([], {}, "no pictures"),
            ([[]], {}, "no pictures"),
            ([[None]], {"titles": [["a", "b"]]}, "titles"),
            ([[None]], {"column_titles": ["a", "b"]}, "2 titles"),
            ([[None]], {"row_labels": []}, "0 labels"),
            ([[None]], {"cell_height": 3}, "room"),
        ],
    )
    def test_bad_grids(self, rows: list, options: dict, fault: str) -> None:
        with pytest.raises(InputError, match=fault):
            grid(rows, **options)


class TestSignalsAndVolumes:
    def test_a_signal_is_coloured_where_its_heat_is(self) -> None:
        heat = np.array([0, 0, 0, 0, 1.0, 0, 0, 0])
        picture = signal_picture(np.zeros(100), heat, size=(400, 150))
        assert picture.size == (400, 150)
        row = np.asarray(picture)[30].astype(int)
        coloured = np.flatnonzero(np.ptp(row, axis=1) > 80)
        assert 200 < coloured.min() < coloured.max() < 300

    def test_several_channels_and_signed_heat(self) -> None:
        assert signal_picture(np.eye(3, 50), np.linspace(-1, 1, 5), signed=True).size == (800, 260)

    def test_a_volume_shows_heat_in_its_own_slice(self) -> None:
        heat = np.zeros((5, 4, 4), np.float32)
        heat[4] = 1
        frames = Drawing(Scene.of_input(np.full((5, 20, 20), 0.5)), heat).frames()
        assert [bool((np.ptp(np.asarray(frame).astype(int), axis=2) > 50).any()) for frame in frames] == [False] * 4 + [
            True
        ]

    def test_bad_input(self) -> None:
        with pytest.raises(InputError, match="signal"):
            signal_picture(np.zeros((2, 3, 4)), [0.5])
        with pytest.raises(InputError, match="shape"):
            signal_picture(np.zeros(9), np.zeros((3, 3)))
        with pytest.raises(InputError, match="volume"):
            Scene.of_input(np.zeros((3, 4)))


class TestAnimation:
    def frames(self, count: int = 6) -> list[Image.Image]:
        cat = Image.fromarray(data.chelsea()).resize((90, 60))
        return [overlay(cat, spot(column=5) * (number + 1) / count) for number in range(count)]

    def test_still_parts_stay_bit_equal(self, tmp_path: Path) -> None:
        path = save_gif(self.frames(), tmp_path / "new" / "film.gif", milliseconds=100, hold=700)
        with Image.open(path) as film:
            assert (film.n_frames, film.size, film.info["loop"]) == (6, (90, 60), 0)
            shown, durations = [], []
            for number in range(6):
                film.seek(number)
                durations.append(film.info["duration"])
                shown.append(np.asarray(film.convert("RGB")).astype(int))
        assert durations == [100] * 5 + [700]
        assert all(np.array_equal(frame[:, :20], shown[0][:, :20]) for frame in shown)
        assert not np.array_equal(shown[0], shown[-1])
        error = np.abs(shown[-1] - np.asarray(self.frames()[-1]))
        assert error.mean() < 6

    def test_white_and_black_stay_clean(self, tmp_path: Path) -> None:
        frame = Image.fromarray(data.coffee()).resize((90, 60))
        frame.paste("white", (0, 0, 20, 20))
        frame.paste("black", (20, 0, 40, 20))
        with Image.open(save_gif([frame], tmp_path / "one.gif")) as film:
            shown = np.asarray(film.convert("RGB"))
        assert (shown[:20, :20] == 255).all()
        assert (shown[:20, 20:40] == 0).all()

    def test_the_curve_grows_and_the_axes_stand_still(self) -> None:
        pictures = self.frames(3)
        frames = convergence_frames(pictures, np.exp(-np.arange(21.0)), steps=[0, 10, 20])
        assert len({frame.size for frame in frames}) == 1
        curves = [np.asarray(frame).astype(int)[:, 90:] for frame in frames]
        red = [(curve[:, :, 0] - curve[:, :, 1] > 90).sum() for curve in curves]
        assert red[0] < red[1] < red[2]
        assert all(np.array_equal(curve[:, :25], curves[0][:, :25]) for curve in curves)

    def test_bad_input(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="no frames"):
            save_gif([], tmp_path / "a.gif")
        with pytest.raises(InputError, match="sizes"):
            save_gif([grey_image(3, 3), grey_image(4, 4)], tmp_path / "a.gif")
        with pytest.raises(InputError, match="20 milliseconds"):
            save_gif([grey_image()], tmp_path / "a.gif", milliseconds=1)
        with pytest.raises(InputError, match="as many steps"):
            convergence_frames([grey_image()], [1.0], steps=[3])
        with pytest.raises(InputError, match="finite"):
            convergence_frames([grey_image()], [np.nan], steps=[0])
        assert list(tmp_path.iterdir()) == []


class TestFiles:
    def test_an_error_leaves_what_was_there(self, tmp_path: Path) -> None:
        path = tmp_path / "map.npy"
        path.write_text("old")

        def write_half(error: type[BaseException]) -> None:
            with write_whole(path) as temporary:
                temporary.write_text("half")
                raise error

        for error in (RuntimeError, KeyboardInterrupt):
            with pytest.raises(error):
                write_half(error)
        assert path.read_text() == "old"
        assert list(tmp_path.iterdir()) == [path]

    def test_the_file_appears_at_the_end(self, tmp_path: Path) -> None:
        path = tmp_path / "a" / "b" / "map.npy"
        with write_whole(path) as temporary:
            np.save(temporary, np.arange(3))
            assert not path.exists()
            assert temporary.parent == path.parent
        assert np.load(path).tolist() == [0, 1, 2]
        assert list(path.parent.iterdir()) == [path]

    def test_places_that_cannot_be_written(self, tmp_path: Path) -> None:
        blocker = tmp_path / "file"
        blocker.write_text("I am no folder")
        for path in (blocker / "map.png", tmp_path, Path("/proc/nowhere/map.png")):
            with pytest.raises(FileError) as caught, write_whole(path) as temporary:
                temporary.write_text("x")
            assert str(path) in str(caught.value)
            assert ";" in str(caught.value)
        assert blocker.read_text() == "I am no folder"

    def test_the_suffix_names_the_format(self, tmp_path: Path) -> None:
        for suffix, kind in ((".png", "PNG"), (".JPG", "JPEG"), (".webp", "WEBP")):
            with Image.open(save_picture(grey_image(), tmp_path / f"picture{suffix}")) as image:
                assert image.format == kind
        with pytest.raises(FileError, match=r"\.png"):
            save_picture(grey_image(), tmp_path / "picture.xyz")


def test_rendering_needs_no_torch() -> None:
    modules = "animation colors figures grid marks overlay signals style".split()
    imports = "; ".join(f"import l2caf.rendering.{name}" for name in modules)
    code = f"import sys; {imports}; assert not {{'torch', 'matplotlib.pyplot'}} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
