"""A run is known by its contents: whatever decides its rows is refused in the same folder when it has changed."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import squares
import stripes
from classifier_for_tests import ClassifierRecipe
from l2caf import datasets
from l2caf.cli.app import run as cli
from l2caf.datasets import Dataset, Sample
from l2caf.errors import FileError
from l2caf.evaluation.localization import Localization
from l2caf.networks.model import Model
from l2caf.preprocessing import Preprocessing, as_preprocess
from l2caf.retrieval.embed import Embedding
from l2caf.retrieval.index import CACHE
from l2caf.runs.contents import PIECE, contents_of
from l2caf.runs.executor import run
from l2caf.runs.rows import ABOUT, ROWS
from l2caf.training.trainer import follow

Say = Callable[..., tuple[int, str]]


@pytest.fixture
def made(tmp_path: Path) -> Path:
    return squares.folder(tmp_path / "made", count=8)


@pytest.fixture
def evaluated(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Say:
    """Evaluate into one and the same folder; gives the exit code and what was said on stderr."""

    def call(*more: str, boxes: Path = made / "boxes.csv") -> tuple[int, str]:
        arguments = ["evaluate", "manifest", str(boxes), "--network", f"{made / 'bright.py'}:build", "--batch", "4"]
        code = cli([*arguments, "-m", "l2caf", "--out", str(tmp_path / "out"), *more])
        return code, capsys.readouterr().err

    assert call()[0] == 0
    assert call()[0] == 0  # the same again is gone on with
    return call


def write_network(made: Path, code: str) -> None:
    """Write it as if it were later: Python compares whole seconds before it takes what it compiled from a file."""
    path = made / "bright.py"
    later = path.stat().st_mtime + 10
    path.write_text(code)
    os.utime(path, (later, later))


def assert_refused(result: tuple[int, str], *words: str) -> None:
    code, said = result
    assert code == 2, said
    assert "holds a run that differs in" in said
    assert "choose another folder, or remove that one" in said
    for word in words:
        assert word in said.split("differs in")[1], said
    assert said.count("\n") == 1


class TestEvaluate:
    def test_another_folder_with_pictures_of_the_same_names(self, evaluated: Say, made: Path, tmp_path: Path) -> None:
        other = tmp_path / "other"
        shutil.copytree(made, other)
        assert evaluated(boxes=other / "boxes.csv")[0] == 0  # a copy is the same
        Image.fromarray(np.full((64, 64, 3), 9, np.uint8)).save(other / "03.png")
        assert_refused(evaluated(boxes=other / "boxes.csv"), "the contents of '03.png'")

    def test_a_picture_that_was_edited_in_its_place(self, evaluated: Say, made: Path) -> None:
        for number in range(3):
            path = made / f"{number:02}.png"
            Image.open(path).transpose(Image.Transpose.FLIP_TOP_BOTTOM).save(path)
        assert_refused(evaluated(), "the contents of '00.png' and 2 more")

    def test_boxes_that_were_corrected(self, evaluated: Say, made: Path) -> None:
        lines = (made / "boxes.csv").read_text().splitlines()
        lines[2] = "01.png,1,0,0,9,9"
        (made / "boxes.csv").write_text("\n".join(lines))
        assert_refused(evaluated(), "the annotations of '01.png'")

    def test_files_that_came_and_went(self, evaluated: Say, made: Path) -> None:
        lines = (made / "boxes.csv").read_text()
        (made / "new.png").write_bytes((made / "00.png").read_bytes())
        (made / "boxes.csv").write_text(lines + "new.png,0,1,1,9,9\n")
        assert_refused(evaluated(), "files ('new.png' is new)")
        (made / "boxes.csv").write_text("\n".join(lines.splitlines()[:-2]) + "\n")
        assert_refused(evaluated(), "files ('06.png' and 1 more are gone)")

    def test_the_same_files_in_another_order(self, evaluated: Say, made: Path) -> None:
        head, *lines = (made / "boxes.csv").read_text().splitlines()
        (made / "boxes.csv").write_text("\n".join([head, *reversed(lines)]))
        assert_refused(evaluated(), "the order of the files")

    def test_other_weights_in_a_file_of_the_same_name(self, made: Path, tmp_path: Path, evaluated: Say) -> None:
        weights, out = tmp_path / "weights.pth", ("--out", str(tmp_path / "weighed"))
        torch.save({"scores.weight": torch.full((6, 3), 0.25), "scores.bias": torch.zeros(6)}, weights)
        assert evaluated("--weights", str(weights), *out)[0] == 0
        assert_refused(evaluated(*out), "weights")
        torch.save({"scores.weight": torch.full((6, 3), 0.5), "scores.bias": torch.zeros(6)}, weights)
        assert_refused(evaluated("--weights", str(weights), *out), "weights")

    @pytest.mark.parametrize(
        ("before", "after", "word"),
        [
            ("self.mean(self.pool(x))", "self.mean(self.pool(x) ** 2)", "network code"),
            ("nn.AvgPool2d(8)", "nn.MaxPool2d(8)", "modules"),
            ("mean=(0, 0, 0)", "mean=(1, 0, 0)", "preprocessing"),
        ],
    )
    def test_code_of_ones_own_under_the_same_name(
        self, evaluated: Say, made: Path, before: str, after: str, word: str
    ) -> None:
        assert before in squares.BUILDER
        write_network(made, squares.BUILDER.replace(before, after))
        assert_refused(evaluated(), word)

    def test_what_the_builder_reads_from_elsewhere(self, evaluated: Say, made: Path, tmp_path: Path) -> None:
        """A tensor that is not saved with the weights, and a plain setting: neither is in any file of code."""
        reading = squares.BUILDER.replace(
            "        torch.manual_seed(0)\n",
            "        import json, pathlib\n"
            f"        told = json.loads(pathlib.Path({str(tmp_path / 'told.json')!r}).read_text())\n"
            "        self.register_buffer('scale', torch.tensor(told['scale']), persistent=False)\n"
            "        self.kept, self.power = torch.tensor(told['kept']), told['power']\n"
            "        torch.manual_seed(0)\n",
        )
        write_network(made, reading)
        told, out = {"scale": 1.0, "kept": [1.0], "power": 1}, ("--out", str(tmp_path / "told"))
        (tmp_path / "told.json").write_text(json.dumps(told))
        assert evaluated(*out)[0] == 0
        for other in ({"scale": 2.0}, {"kept": [2.0]}, {"power": 2}):
            (tmp_path / "told.json").write_text(json.dumps({**told, **other}))
            assert_refused(evaluated(*out), "modules")

    def test_another_network_that_happens_to_have_the_same_weights(self, evaluated: Say, made: Path) -> None:
        shutil.copy(made / "bright.py", made / "copy.py")
        assert_refused(evaluated("--network", f"{made / 'copy.py'}:build"), "network")

    def test_settings(self, evaluated: Say) -> None:
        assert_refused(evaluated("--view", "squash"), "view")
        assert_refused(evaluated("-m", "cam", "--classes", "labels"), "labels_are_classes")
        assert_refused(evaluated("--batch", "3"), "batch")
        assert_refused(evaluated("--layer", "mean"), "layer")
        assert_refused(evaluated("--protocol", "retrieval", "--classifier"), "work")
        assert_refused(evaluated("--limit", "4"), "files ('01.png' and 3 more are gone)")

    def test_another_version_of_this_library_or_of_torch(self, evaluated: Say, monkeypatch: pytest.MonkeyPatch) -> None:
        with monkeypatch.context() as patch:
            patch.setattr("l2caf.runs.work.code_version", lambda: "9.9")
            assert_refused(evaluated(), "code")
        monkeypatch.setattr("torch.__version__", "9.9")
        assert_refused(evaluated(), "code")

    def test_a_refusal_changes_nothing(self, evaluated: Say, made: Path, tmp_path: Path) -> None:
        before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
        assert set(before) == {ROWS, ABOUT, "results.json", "report.html"}
        assert evaluated("-m", "cam")[0] == 2
        assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before

    def test_results_of_a_run_whose_rows_were_removed_do_not_stay(self, evaluated: Say, tmp_path: Path) -> None:
        (tmp_path / "out" / ROWS).unlink()
        assert evaluated("--layer", "nowhere")[0] == 2
        assert not (tmp_path / "out" / "results.json").exists()
        assert not (tmp_path / "out" / "report.html").exists()


def bright(made: Path) -> Model:
    from l2caf.networks.catalogue import load

    return load(f"{made / 'bright.py'}:build")


def samples_of(made: Path) -> Sequence[Sample]:
    return datasets.read("manifest", made / "boxes.csv").samples


class TestInHand:
    """A network that is held in memory, as in a loop of training."""

    def test_weights_that_were_changed_in_place(self, made: Path, tmp_path: Path) -> None:
        model, samples = bright(made), samples_of(made)
        work = Localization(("l2caf",)).on(model)
        run(work, samples, tmp_path / "out")
        run(work, samples, tmp_path / "out")
        model.network.scores.weight.data.add_(1)  # this way torch itself does not count the change
        with pytest.raises(FileError, match="differs in weights:"):
            run(work, samples, tmp_path / "out")

    def test_what_a_forward_pass_leaves_behind_is_no_other_network(self, made: Path, tmp_path: Path) -> None:
        model, samples = bright(made), samples_of(made)

        def count(module: torch.nn.Module, inputs: object) -> None:
            module.calls = getattr(module, "calls", 0) + 1

        model.network.register_forward_pre_hook(count)
        work = Localization(("l2caf",)).on(model)
        run(work, samples, tmp_path / "out")
        assert model.network.calls > 0
        run(work, samples, tmp_path / "out")

    def test_class_names_and_hooks(self, made: Path, tmp_path: Path) -> None:
        model, samples = bright(made), samples_of(made)
        run(Localization(("l2caf",)).on(model), samples, tmp_path / "out")
        named = replace(model, class_names=tuple("abcdef"))
        with pytest.raises(FileError, match="differs in class names:"):
            run(Localization(("l2caf",)).on(named), samples, tmp_path / "out")
        model.network.pool.register_forward_hook(lambda module, inputs, output: -output)
        with pytest.raises(FileError, match="differs in modules and network code:"):
            run(Localization(("l2caf",)).on(replace(model)), samples, tmp_path / "out")

    def test_a_preprocessing_of_ones_own_is_known_by_what_it_does(self, made: Path, tmp_path: Path) -> None:
        def sized(size: int) -> Model:  # the same code, another number in its closure
            prepare = Preprocessing(input_size=(size, size), resize_size=(size, size))
            return Model("own", torch.nn.Flatten(), as_preprocess(lambda image: prepare(image)), embedding=True)

        samples = samples_of(made)
        run(Embedding().on(sized(8)), samples, tmp_path / "out")
        run(Embedding().on(sized(8)), samples, tmp_path / "out")
        with pytest.raises(FileError, match="differs in preprocessing:"):
            run(Embedding().on(sized(16)), samples, tmp_path / "out")

    def test_to_ask_a_random_preprocessing_draws_no_number_of_the_callers(self) -> None:
        def noisy(image: Image.Image) -> torch.Tensor:
            return torch.rand(3, 8, 8)

        torch.manual_seed(3)
        expected = torch.rand(2)
        torch.manual_seed(3)
        first, again = (Model("own", torch.nn.Flatten(), as_preprocess(noisy)).identity for _ in range(2))
        assert first == again
        assert torch.equal(torch.rand(2), expected)


class TestContents:
    def test_any_byte_of_a_small_or_uncompressed_file_counts(self, tmp_path: Path) -> None:
        for name, size in (("small.jpg", 3 * PIECE), ("large.bmp", 10 * PIECE), ("large.tif", 10 * PIECE)):
            path = tmp_path / name
            stored = bytearray(np.random.default_rng(0).bytes(size))
            path.write_bytes(stored)
            before = contents_of(path)
            for place in (0, size // 3, size // 2, size - 1):
                changed = bytearray(stored)
                changed[place] ^= 1
                path.write_bytes(changed)
                assert contents_of(path) != before, (name, place)

    @pytest.mark.parametrize("ending", ["png", "jpg", "webp"])
    def test_one_pixel_of_a_large_picture_counts(self, tmp_path: Path, ending: str) -> None:
        pixels = np.random.default_rng(0).integers(0, 256, (600, 600, 3), dtype=np.uint8)
        path = tmp_path / f"large.{ending}"
        Image.fromarray(pixels).save(path, quality=95)
        assert path.stat().st_size > 3 * PIECE
        before = contents_of(path)
        pixels[200, 300] ^= 64
        Image.fromarray(pixels).save(path, quality=95)
        assert contents_of(path) != before

    def test_a_file_that_cannot_be_read_and_one_that_was_mended(self, tmp_path: Path) -> None:
        path = tmp_path / "a.png"
        gone = contents_of(path)
        path.mkdir()
        folder = contents_of(path)
        path.rmdir()
        path.write_bytes(b"")
        assert len({gone, folder, contents_of(path)}) == 3


class TestIndex:
    """`match` keeps the vectors of its gallery in the folder that it writes to."""

    @pytest.fixture
    def matched(self, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Say:
        def call(*more: str) -> tuple[int, str]:
            network = ("--network", f"{made / 'bright.py'}:build")
            out = ("--out", str(tmp_path / "out"), "--json")
            code = cli(["match", str(made / "00.png"), str(made), *network, *out, *more])
            return code, capsys.readouterr().out

        return call

    def test_a_picture_that_changed_is_embedded_anew(self, matched: Say, made: Path, tmp_path: Path) -> None:
        code, said = matched("--top", "1")
        assert code == 0
        nearest = Path(json.loads(said)["neighbours"][0]["file"])
        kept = (tmp_path / "out" / CACHE).read_bytes()
        assert matched("--top", "1") == (0, said)
        assert (tmp_path / "out" / CACHE).read_bytes() == kept
        far = next(path for path in sorted(made.glob("*.png")) if path.name not in ("00.png", nearest.name))
        nearest.write_bytes(far.read_bytes())
        code, said = matched("--top", "1")
        assert code == 0
        assert (tmp_path / "out" / CACHE).read_bytes() != kept

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            ("torch.rand(6, 3) * 0.1", "torch.rand(6, 3) * 0.3"),
            ("self.mean(self.pool(x))", "self.mean(self.pool(x) ** 2)"),
            ("mean=(0, 0, 0)", "mean=(1, 0, 0)"),
        ],
    )
    def test_another_network_of_the_same_name(self, matched: Say, made: Path, before: str, after: str) -> None:
        assert matched()[0] == 0
        write_network(made, squares.BUILDER.replace(before, after))
        code, said = matched()
        assert code == 2
        assert "was made by another network" in json.loads(said)["error"]

    def test_a_network_that_counts_its_calls_is_known_again(self, matched: Say, made: Path) -> None:
        counting = squares.BUILDER.replace(
            "        torch.manual_seed(0)\n",
            "        self.register_buffer('calls', torch.zeros(()))\n        torch.manual_seed(0)\n",
        ).replace("    def forward(self, x):\n", "    def forward(self, x):\n        self.calls += 1\n")
        write_network(made, counting)
        assert matched()[0] == 0
        assert matched()[0] == 0


class TestTraining:
    @pytest.fixture
    def data(self, tmp_path: Path) -> Dataset:
        return stripes.dataset(tmp_path / "pictures", size=24)

    def test_other_pictures_of_the_same_names(self, data: Dataset, tmp_path: Path) -> None:
        out, recipe = tmp_path / "out", ClassifierRecipe()
        follow(recipe, data, out, device="cpu")
        follow(recipe, data, out, device="cpu")
        path = data.samples[0].path
        Image.fromarray(np.zeros((24, 24, 3), np.uint8)).save(path)
        with pytest.raises(FileError, match=f"differs in the contents of '{data.samples[0].name}':"):
            follow(recipe, data, out, device="cpu")

    def test_other_labels_and_other_files(self, data: Dataset, tmp_path: Path) -> None:
        out, recipe = tmp_path / "out", ClassifierRecipe()
        follow(recipe, data, out, device="cpu")
        first, second, *rest = data.samples
        swapped = replace(data, samples=(replace(first, label=1), second, *rest))
        with pytest.raises(FileError, match="differs in the annotations of"):
            follow(recipe, swapped, out, device="cpu")
        turned = replace(data, samples=(second, first, *rest))
        with pytest.raises(FileError, match="differs in the order of the files"):
            follow(recipe, turned, out, device="cpu")

    def test_another_version_of_this_library(
        self, data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        follow(ClassifierRecipe(), data, tmp_path / "out", device="cpu")
        monkeypatch.setattr("l2caf.training.trainer.code_version", lambda: "9.9")
        with pytest.raises(FileError, match="differs in code:"):
            follow(ClassifierRecipe(), data, tmp_path / "out", device="cpu")

    @pytest.mark.slow
    def test_a_backbone_of_other_weights(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from l2caf.training.retrieval import job
        from l2caf.training.retrieval.recipe import RetrievalRecipe

        data = stripes.dataset(tmp_path / "pictures", size=32)
        recipe = RetrievalRecipe(iterations=1, dimension=4, freeze="trunk", views=1)
        follow(recipe, data, tmp_path / "out", device="cpu")
        real = job.load_backbone

        def other(name: str) -> object:
            backbone = real(name)
            with torch.no_grad():
                next(backbone.trunk.parameters()).mul_(1.5)
            return backbone

        monkeypatch.setattr(job, "load_backbone", other)
        with pytest.raises(FileError, match="differs in weights:"):
            follow(recipe, data, tmp_path / "out", device="cpu")
