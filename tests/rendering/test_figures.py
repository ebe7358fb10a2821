"""Pictures one would show to others: opacity, colours, figures for papers, planes of volumes, legends."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from l2caf.errors import FileError, InputError
from l2caf.heatmap import Heatmap
from l2caf.rendering.grid import grid
from l2caf.rendering.legend import legend, with_legend
from l2caf.rendering.marks import draw_boxes, fitted, font
from l2caf.rendering.overlay import overlay
from l2caf.rendering.style import Style

PHOTOGRAPH = Image.new("RGB", (96, 96), (90, 90, 90))


def _heatmap(*, maps: int = 1, signed: bool = False) -> Heatmap:
    weights = torch.zeros(1, maps, 4, 4)
    weights[:, :, 1, 2] = 1
    if signed:
        weights[:, :, 3, 0] = -0.8
    return Heatmap(weights if maps > 1 else weights[:, 0], (96, 96), "layer", "method", keeps_sign=signed)


def _volume_heatmap() -> tuple[Heatmap, np.ndarray]:
    weights = torch.zeros(1, 4, 4, 4)
    weights[0, 3, 1, 2] = 1
    return Heatmap(weights, (16, 24, 32), "layer", "method"), np.zeros((16, 24, 32), np.float32)


def _changed(picture: Image.Image, under: Image.Image = PHOTOGRAPH) -> np.ndarray:
    return np.abs(np.asarray(picture).astype(int) - np.asarray(under).astype(int)).sum(axis=2)


class TestOptions:
    def test_alpha_is_how_much_of_the_picture_is_hidden(self) -> None:
        heatmap = _heatmap()
        assert not _changed(heatmap.overlay(PHOTOGRAPH, alpha=0)).any()
        faint, full = (_changed(heatmap.overlay(PHOTOGRAPH, alpha=alpha)).max() for alpha in (0.3, 0.9))
        assert full > 2 * faint > 0

    def test_cmap_names_a_colour_map(self) -> None:
        picture = _heatmap().overlay(PHOTOGRAPH, cmap="gray", alpha=1)
        red, green, blue = picture.getpixel((60, 36))
        assert red == green == blue > 240

    @pytest.mark.parametrize(
        ("option", "said"),
        [
            ({"colormap": "jet"}, "no setting 'colormap'"),
            ({"opacity": 0.5}, "no setting 'opacity'"),
            ({"alpha": "half"}, "The alpha is 'half'; choose one from 0"),
            ({"alpha": 2}, "The alpha is 2; choose one from 0"),
            ({"cmap": 3}, "cmap is a int; give a colour map"),
            ({"cmap": "viridsi"}, "try viridis"),
            ({"width": 0}, "cannot be 0 pixels wide"),
            ({"slice": 3}, "no setting 'slice'"),
            ({"dpi": "fine"}, "The dpi is 'fine'; give pixels per inch"),
        ],
    )
    @pytest.mark.parametrize("name", ["where.png", "where.svg"])
    def test_what_is_no_option_is_named_with_the_remedy(
        self, tmp_path: Path, name: str, option: dict, said: str
    ) -> None:
        with pytest.raises(InputError, match=re.escape(said.split(":")[0])):
            _heatmap().save(tmp_path / name, PHOTOGRAPH, **option)
        assert not (tmp_path / name).exists()

    def test_width_and_dpi_of_a_picture(self, tmp_path: Path) -> None:
        with Image.open(_heatmap().save(tmp_path / "a.png", PHOTOGRAPH, width=300, dpi=300)) as saved:
            assert saved.size == (300, 300)
            assert saved.info["dpi"] == pytest.approx((300, 300), abs=0.1)

    def test_boxes_grow_with_the_picture(self) -> None:
        bare = _heatmap().overlay(PHOTOGRAPH, width=192)
        boxed = _heatmap().overlay(PHOTOGRAPH, width=192, boxes=[(10, 20, 40, 50)])
        rows, columns = np.nonzero(_changed(boxed, bare))
        assert (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1) == (19, 39, 81, 101)  # with its rim


class TestColours:
    def test_a_box_is_seen_on_every_heat_and_every_grey(self) -> None:
        """Green vanished on the green of turbo: the line or its rim must differ from whatever lies under it."""
        ramp = np.linspace(0, 1, 200, dtype=np.float32)[None].repeat(60, axis=0)
        for grey in (0, 128, 255):
            picture = overlay(np.full((60, 200), grey, np.uint8), ramp, alpha=1)
            boxed = draw_boxes(picture, [(20, 10, 180, 50)])
            before, after = np.asarray(picture).astype(int), np.asarray(boxed).astype(int)
            contrast = np.abs(after - before).sum(axis=2)[9:12, 25:175].max(axis=0)  # rim, line, rim
            assert contrast.min() > 200, f"hardly to be seen on grey {grey}: {contrast.min()}"

    def test_a_coarse_map_is_drawn_without_diamonds(self) -> None:
        """The outline of one hot cell between linear ramps is a diamond; a round one has more of its area outside."""
        heatmap = _heatmap()
        drawn = np.asarray(heatmap.overlay(Image.new("RGB", (96, 96)), cmap="gray", alpha=1))[:, :, 0].astype(float)
        y, x = np.mgrid[:96, :96] - np.array([35.5, 59.5])[:, None, None]
        outline = drawn > 128
        reach = np.abs(x[outline]).max()
        corner = (np.abs(x) + np.abs(y))[outline].max()
        assert corner > 1.25 * reach  # 1 for a diamond, √2 for a circle
        assert drawn.max() > 250

    def test_a_smooth_drawing_stays_within_the_map(self) -> None:
        """Bicubic curves overshoot: nothing may be drawn where the map is 0 all around, nor beyond its maximum."""
        heat = np.zeros((5, 5), np.float32)
        heat[2, 2] = 1
        weights = torch.from_numpy(heat)[None]
        drawn = np.asarray(Heatmap(weights, (100, 100), "", "").overlay(np.zeros((100, 100), np.uint8)))
        assert not drawn[:18].any()
        assert not drawn[:, 82:].any()

    def test_the_two_colours_of_a_sign_have_a_legend(self, tmp_path: Path) -> None:
        heatmap = _heatmap(signed=True)
        with Image.open(heatmap.save(tmp_path / "signed.png", PHOTOGRAPH, signed=True)) as saved:
            picture = np.asarray(saved.convert("RGB")).astype(int)
        assert picture.shape[0] > 96
        below = picture[96:]
        assert ((below[:, :, 2] - below[:, :, 0]) > 150).any()  # blue, against
        assert ((below[:, :, 0] - below[:, :, 2]) > 150).any()  # red, for
        bare = heatmap.save(tmp_path / "bare.png", PHOTOGRAPH, signed=True, legend=False)
        with Image.open(bare) as saved:
            assert saved.size == (96, 96)

    @pytest.mark.parametrize("width", [20, 96, 900])
    def test_a_legend_fits_under_any_picture(self, width: int) -> None:
        picture = Image.new("RGB", (width, 40), "blue")
        assert with_legend(picture, signed=False).width == width

    def test_a_legend_fades_to_white_at_zero(self) -> None:
        strip = np.asarray(legend(signed=True))
        line = strip[strip.shape[0] // 2].astype(int)
        coloured = np.nonzero(np.ptp(line, axis=1) > 60)[0]
        middle = (coloured.min() + coloured.max()) // 2
        assert line[middle].min() > 220

    def test_a_class_that_is_hardly_seen_is_drawn_faint(self) -> None:
        heat = np.eye(8, dtype=np.float32)
        full, faint = (_changed(Style().draw(PHOTOGRAPH, heat, faint=faint)).max() for faint in (False, True))
        assert 0 < faint < 0.5 * full


class TestFigures:
    def test_a_pdf_has_letters_and_lines(self, tmp_path: Path) -> None:
        path = _heatmap(maps=2).save(tmp_path / "where.pdf", PHOTOGRAPH, contours=True, box=True)
        content = path.read_bytes()
        assert content.startswith(b"%PDF")
        assert b"/FontDescriptor" in content
        assert b"/DCTDecode" not in content  # no JPEG

    def test_an_svg_has_letters_boxes_and_outlines_as_such(self, tmp_path: Path) -> None:
        path = _heatmap().save(
            tmp_path / "where.svg", PHOTOGRAPH, contours=True, boxes=[(3, 4, 50, 60)], title="a $5 cat"
        )
        content = path.read_text()
        assert "a $5 cat" in content
        assert content.count("<image") == 1
        bare = _heatmap().save(tmp_path / "bare.svg", PHOTOGRAPH).read_text()
        assert content.count("<path") > bare.count("<path") + 2

    @pytest.mark.parametrize("ending", [".pdf", ".svg"])
    def test_the_same_figure_is_the_same_file(self, tmp_path: Path, ending: str) -> None:
        first, second = (_heatmap().save(tmp_path / f"{n}{ending}", PHOTOGRAPH).read_bytes() for n in range(2))
        assert first == second

    def test_dpi_decides_how_large_a_figure_is(self, tmp_path: Path) -> None:
        photograph = Image.new("RGB", (960, 960))
        widths = []
        for dpi in (100, 200):
            content = _heatmap().save(tmp_path / f"{dpi}.svg", photograph, dpi=dpi).read_text()
            found = re.search(r'width="([\d.]+)pt"', content)
            assert found
            widths.append(float(found[1]))
        assert widths[0] == pytest.approx(72 * 9.6, rel=0.05)
        assert widths[1] == pytest.approx(72 * 4.8, rel=0.05)

    def test_a_map_is_drawn_on_the_axes_of_ones_own_figure(self) -> None:
        from matplotlib.figure import Figure

        own = Figure().subplots()
        axes = _heatmap().plot(PHOTOGRAPH, ax=own, box=True, legend=True, title="where")
        assert axes is own
        assert axes.get_title() == "where"
        (box,) = axes.patches
        assert box.get_width() > 20
        assert len(axes.figure.axes) == 2
        assert _heatmap().plot(PHOTOGRAPH).images

    def test_what_is_no_axes(self) -> None:
        with pytest.raises(InputError, match="give matplotlib axes"):
            _heatmap().plot(PHOTOGRAPH, ax="left")

    @pytest.mark.parametrize("name", ["x", "x.eps", "x.docx"])
    def test_a_format_that_there_is_not(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(FileError, match="names no picture format"):
            _heatmap().save(tmp_path / name, PHOTOGRAPH)


class TestVolumes:
    def test_three_planes_go_through_the_peak(self, tmp_path: Path) -> None:
        heatmap, volume = _volume_heatmap()
        with Image.open(heatmap.save(tmp_path / "planes.png", volume)) as saved:
            picture = np.asarray(saved.convert("RGB")).astype(int)
        hot = (picture[:, :, 0] > 140) & (picture[:, :, 2] < 60)
        columns = np.nonzero(hot.any(axis=0))[0]
        assert (np.diff(columns) > 20).sum() == 2  # one hot spot in each of three pictures

    @pytest.mark.parametrize(
        ("plane", "size"), [(14, (32, 24)), (("y", 9), (32, 16)), (("x", 20), (24, 16)), (-2, (32, 24))]
    )
    def test_one_plane(self, plane: int | tuple[str, int], size: tuple[int, int]) -> None:
        heatmap, volume = _volume_heatmap()
        drawn = heatmap.overlay(volume, slice=plane)
        assert drawn.width / drawn.height == pytest.approx(size[0] / size[1], rel=0.01)
        assert np.asarray(drawn).max() > 100  # the heat is in this plane
        assert not np.asarray(heatmap.overlay(volume, slice=0)).any()  # and not in that one

    def test_a_tensor_with_a_channel_is_a_volume_too(self) -> None:
        heatmap, volume = _volume_heatmap()
        drawn = heatmap.overlay(torch.from_numpy(volume)[None, None], slice=14)
        assert np.array_equal(np.asarray(drawn), np.asarray(heatmap.overlay(volume, slice=14)))

    def test_spacing_gives_a_plane_its_true_proportions(self) -> None:
        heatmap, volume = _volume_heatmap()
        drawn = heatmap.overlay(volume, slice=("y", 9), spacing=(4, 1, 1))
        assert drawn.width / drawn.height == pytest.approx(32 / 64, rel=0.01)

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"slice": 16}, "There are 16 planes along z"),
            ({"slice": ("t", 3)}, "names no plane"),
            ({"slice": 2.5}, "names no plane"),
            ({"spacing": (1, 1)}, "give three lengths"),
            ({"width": 200}, "no setting 'width'"),
            ({"montage": "axial"}, "'axial' names no planes; give a number along z"),
            ({"montage": 0}, "0 slices cannot be shown"),
            ({"montage": (3, 4)}, "give True, or such as"),
            ({"window": (1, 1)}, "give two values, black and white"),
            ({"boxes": [(0, 0, 4, 4)]}, "is no box of a volume"),
        ],
    )
    def test_planes_that_there_are_not(self, options: dict, said: str) -> None:
        heatmap, volume = _volume_heatmap()
        with pytest.raises(InputError, match=said):
            heatmap.overlay(volume, **options)

    @pytest.mark.parametrize("picture", [PHOTOGRAPH, np.zeros((4, 4), np.float32), np.zeros((2, 16, 24, 32))])
    def test_what_has_another_shape_is_not_what_the_network_saw(self, picture: object) -> None:
        with pytest.raises(InputError, match=r"the network's input was \(16, 24, 32\): give the volume"):
            _volume_heatmap()[0].overlay(picture)

    def test_a_signal_is_drawn_under_its_heat(self, tmp_path: Path) -> None:
        heatmap = Heatmap(torch.rand(1, 7), (70,), "layer", "method")
        assert heatmap.save(tmp_path / "signal.png", np.sin(np.arange(70) / 9)).exists()


class TestTitles:
    @staticmethod
    def _lines(picture: Image.Image, above: int) -> int:
        """Lines of dark letters in the rows above the pictures."""
        ink = (np.asarray(picture.convert("L"))[:above] < 128).any(axis=1)
        return int((np.diff(ink.astype(int)) == 1).sum())

    def test_a_title_that_is_a_little_too_long_is_set_smaller(self) -> None:
        sheet = grid([[PHOTOGRAPH]], titles=[["golden retriever, 93.1 %"]], cell_height=224)
        assert self._lines(sheet, sheet.height - 224 - 14) == 1

    def test_a_title_of_two_lines_leaves_no_word_alone(self) -> None:
        letters = font(16)
        text = "soft-coated wheaten terrier puppy"
        width = int(letters.getlength("soft-coated wheaten terrier")) + 2
        first, second = fitted(text, letters, width=width)
        assert f"{first} {second}" == text
        assert len(second.split()) == 2
