"""The command line, end to end: what it writes, what it says, and how it fails."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from commands_for_tests import Run
from l2caf.cli.app import COMMANDS
from l2caf.tasks.samples import sample, two_objects

PATIENCE = 600  # seconds until a process is taken for stuck: a busy machine needs many

NETS = """
import torch
from torch import nn

def trunk():
    torch.manual_seed(0)
    return [nn.Conv2d(3, 8, 5, stride=8), nn.ReLU()]

def straight():
    return nn.Sequential(*trunk(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))

def curved():
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4)]
    return nn.Sequential(*trunk(), *head)

class Chatty(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = straight()

    def forward(self, images):
        print("hello from the network")
        return {"scores": self.inner(images), "other": 1}

def chatty():
    return Chatty()

class Picky(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = straight()

    def forward(self, images):
        return self.inner(images).reshape(-1, 5)

def picky():
    return Picky()

class Empty(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = straight()

    def forward(self, images):
        return self.inner(images) * float("nan")

def empty():
    return Empty()
"""

# Where neither the network nor names of classes matter.
OWN = ("--network", "nets.py:straight", "--classifier")


@pytest.fixture
def cat(tmp_path: Path) -> Path:
    path = tmp_path / "cat.png"
    sample("cat").save(path)
    return path


def document(result: tuple[int, str, str], *, code: int = 0) -> Any:
    """The JSON of a run: all of stdout, nothing else there."""
    assert result[0] == code, result
    return json.loads(result[1])


def files_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


class TestExplain:
    def test_one_photograph(self, run: Run, cat: Path, tmp_path: Path) -> None:
        code, out, err = run("explain", cat, "--out", "maps")
        assert code == 0
        assert files_in(tmp_path / "maps") == {"cat-l2caf-prediction.png"}
        for word in ("tiger cat, 39%", "bn2", "Exact", "exact", "cat-l2caf-prediction.png", "1 photograph explained"):
            assert word in out
        assert "Traceback" not in err
        with Image.open(tmp_path / "maps" / "cat-l2caf-prediction.png") as picture:
            assert min(picture.size) > 400

    def test_json_says_how_it_was_found(self, run: Run, cat: Path, tmp_path: Path) -> None:
        found = document(run("explain", cat, "--top", 2, "--npy", "--out", "maps", "--json"))
        (image,) = found["images"]
        assert found["network"] == "tf_efficientnet_lite0"
        assert image["predicted"]["name"] == "tiger cat"
        assert image["predicted"]["probability"] == pytest.approx(0.39, abs=0.02)
        assert [one["class"]["name"] for one in image["maps"]] == ["tiger cat", "Egyptian cat"]
        assert {one["outcome"] for one in image["maps"]} == {"exact"}
        assert image["solver"] == "Exact"
        assert image["endpoint"] == "output"
        maps = np.load(image["npy"])
        assert maps.shape == (2, 224, 224)
        assert maps.min() >= 0
        assert maps.max() == pytest.approx(1)
        assert all(Path(picture).is_file() for picture in image["pictures"])

    def test_folder_with_good_and_bad_files(self, run: Run, cat: Path, tmp_path: Path) -> None:
        folder = tmp_path / "photos"
        (folder / "deeper").mkdir(parents=True)
        for number in range(3):
            sample("cup").resize((64 + number, 64)).save(folder / f"{number}.jpg")
        sample("cat").resize((40, 90)).convert("L").save(folder / "deeper" / "0.png")  # the same stem again
        (folder / "text.png").write_text("no picture")
        whole = (folder / "0.jpg").read_bytes()
        (folder / "cut.jpg").write_bytes(whole[: len(whole) // 2])
        (folder / "empty.png").touch()
        arguments = ("explain", folder, cat, "missing.png", "--batch", 2, "--out", "maps")
        found = document(run(*arguments, "--json"), code=1)
        assert len(found["images"]) == 5
        assert {Path(one["file"]).name for one in found["failed"]} == {
            *("text.png", "cut.jpg", "empty.png", "missing.png")
        }
        pictures = [picture for one in found["images"] for picture in one["pictures"]]
        assert len(set(pictures)) == 5
        assert files_in(tmp_path / "maps") == {"index.html", *(Path(picture).name for picture in pictures)}
        code, out, err = run(*arguments)
        assert code == 1
        assert "5 photographs explained, 4 skipped" in out
        assert err.count("skipped:") == 4

    def test_batches_change_nothing(self, run: Run, tmp_path: Path) -> None:
        for name in ("cat", "cup", "rocket"):
            sample(name).save(tmp_path / f"{name}.png")
        files = [tmp_path / f"{name}.png" for name in ("cat", "cup", "rocket")]
        maps = []
        for batch in (1, 3):
            found = document(run("explain", *files, "--npy", "--batch", batch, "--out", f"by{batch}", "--json"))
            maps.append([np.load(one["npy"]) for one in found["images"]])
        for alone, together in zip(*maps, strict=True):
            np.testing.assert_allclose(alone, together, atol=2e-4)

    @pytest.mark.parametrize(
        ("options", "solver"),
        [
            ((*OWN, "--filter", "l1"), "Riemannian"),
            (("--filter", "softmax", "--class", "tabby"), "Riemannian"),
            ((*OWN, "--filter", "gaussian"), "Riemannian"),
            ((*OWN, "--solver", "gradient-descent", "--seed", 3), "GradientDescent"),
            ((*OWN, "--solver", "riemannian", "--top", 1), "Riemannian"),
            (("--solver", "exact", "--class", 282, "--class", "espresso"), "Exact"),
            ((*OWN, "--published", "--contours", "--cmap", "viridis"), "Exact"),
            ((*OWN, "--signed", "--box"), "Exact"),
            ((*OWN, "--method", "cam"), None),
            ((*OWN, "--method", "gradcam", "--top", 2, "--signed"), None),
            (("--method", "gradcam-abs", "--class", "lens cap", "--box"), None),
            pytest.param(("--layer", "blocks.5"), "Riemannian", marks=pytest.mark.endurance),
            ((*OWN, "--view", "whole"), "Exact"),
        ],
    )
    def test_every_option(self, run: Run, cat: Path, options: tuple[object, ...], solver: str | None) -> None:
        (image,) = document(run("explain", cat, *options, "--json"))["images"]
        assert image["solver"] == solver
        assert all(one["outcome"] in ("exact", "converged", "step_limit", None) for one in image["maps"])
        assert all(Path(picture).is_file() for picture in image["pictures"])

    def test_bare_pictures_one_a_class(self, run: Run, cat: Path, tmp_path: Path) -> None:
        run("explain", cat, "--bare", "--class", "tabby", "--class", "espresso", "--out", "maps")
        assert files_in(tmp_path / "maps") == {f"cat-l2caf-tabby-espresso-{index}.png" for index in (281, 967)}
        with Image.open(tmp_path / "maps" / "cat-l2caf-tabby-espresso-281.png") as picture:
            assert picture.size == (448, 448)

    def test_own_network_that_prints_and_returns_a_dict(self, run: Run, cat: Path) -> None:
        named = ("explain", cat, "--network", "nets.py:chatty", "--json")
        refused = document(run(*named), code=2)["error"]
        assert refused.startswith("--output: The network returns a dict")
        assert "with --output, by its key" in refused  # not output=, which is Python's
        result = run(*named, "--output", "scores")
        (image,) = document(result)["images"]
        assert image["predicted"]["name"].startswith("class ")
        assert "hello from the network" in result[2]

    def test_a_map_of_nothing_says_so(self, run: Run, cat: Path) -> None:
        (image,) = document(run("explain", cat, "--network", "nets.py:empty", "--json"))["images"]
        assert image["predicted"] is None
        assert image["maps"][0]["outcome"] == "non_finite"
        assert image["maps"][0]["loss"] is None

    def test_our_own_pictures_are_not_explained_again(self, run: Run, cat: Path, tmp_path: Path) -> None:
        network = ("--network", "nets.py:straight", "--json")
        first = document(run("explain", tmp_path, "--out", tmp_path / "maps", *network))
        again = document(run("explain", tmp_path, "--out", tmp_path / "maps", *network))
        assert [one["file"] for one in first["images"]] == [one["file"] for one in again["images"]]
        assert "--out" in document(run("explain", tmp_path, "--out", tmp_path, *network), code=2)["error"]


class TestOtherCommands:
    def test_compare(self, run: Run, cat: Path, tmp_path: Path) -> None:
        code, out, _ = run("compare", cat, "--class", "tabby", "--out", "sheet.png")
        assert code == 0
        assert "sheet.png" in out
        with Image.open(tmp_path / "sheet.png") as picture:
            assert picture.width > 900

    def test_compare_leaves_a_note_where_a_method_does_not_fit(self, run: Run, cat: Path) -> None:
        found = document(run("compare", cat, "--network", "nets.py:curved", "--json"))
        fits = {one["method"]: one["fits"] for one in found["methods"]}
        assert not fits.pop("CAM")
        assert all(fits.values())
        assert Path(found["picture"]).is_file()

    @pytest.mark.parametrize("options", [(), ("--class", "espresso")])
    def test_animate(self, run: Run, cat: Path, options: tuple[str, ...]) -> None:
        found = document(run("animate", cat, "--frames", 12, *options, "--out", "film.gif", "--json"))
        assert found["loss"][1] < found["loss"][0]
        assert found["agreement"]["cosine"] > 0.999
        with Image.open("film.gif") as film:
            assert film.format == "GIF"
            assert 9 <= film.n_frames <= 12
            assert film.n_frames == found["frames"]

    def test_networks(self, run: Run) -> None:
        code, out, _ = run("networks")
        assert code == 0
        assert "efficientnet_lite0" in out
        assert {one["name"] for one in document(run("networks", "vgg16", "--json"))} >= {
            *("torchvision:vgg16", "timm:vgg16")
        }
        assert "zzz" in document(run("networks", "zzz", "--json"), code=2)["error"]

    def test_layers(self, run: Run) -> None:
        code, out, _ = run("layers", "efficientnet_lite0")
        assert code == 0
        assert "bn2  (default)" in out
        found = document(run("layers", "nets.py:straight", "--json"))
        assert found["default"] == "1"
        assert [one["grid"] for one in found["layers"]] == [[28, 28], [28, 28]]

    def test_layers_of_untrained_branches_reach_the_output(self, run: Run) -> None:
        found = document(run("layers", "timm:resnet18", "--json"))
        assert found["default"] == "layer4"
        assert all(one["reaches_output"] for one in found["layers"])

    @pytest.mark.slow
    def test_demo(self, run: Run, tmp_path: Path) -> None:
        found = document(run("demo", "--out", "demo", "--json"))
        pictures = {Path(one["picture"]).name for one in found["pictures"]}
        assert files_in(tmp_path / "demo") == pictures
        assert len(pictures) == 6
        shares = next(one["measured"] for one in found["pictures"] if "two-objects" in one["picture"])
        ours = [share for name, share in shares.items() if "published" not in name]
        assert len(ours) == 2
        assert min(ours) >= 0.8
        assert len(shares) == 4


@pytest.mark.parametrize("options", [("--view", "whole"), ()])
def test_each_class_lies_on_its_own_object(run: Run, tmp_path: Path, options: tuple[str, ...]) -> None:
    two_objects().save(tmp_path / "both.png")
    classes = ("--class", "tiger cat", "--class", "espresso")
    (image,) = document(run("explain", "both.png", *classes, *options, "--npy", "--json"))["images"]
    left, right = np.load(image["npy"]).astype(np.float64) ** 2
    middle = left.shape[1] // 2
    assert left[:, :middle].sum() / left.sum() >= 0.8
    assert right[:, middle:].sum() / right.sum() >= 0.8


class TestFaults:
    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (("explain", "none.png"), "'none.png' does not exist"),
            (("explain", "cat.png", "--network", "efficientnet_lite"), "efficientnet_lite0"),
            (("explain", "cat.png", "--layer", "blocks.9"), "blocks."),
            (("explain", "cat.png", "--class", "1000"), "from 0 to 999"),
            (("explain", "cat.png", "--class", "tigre cat"), "tiger cat"),
            (("explain", "cat.png", "--network", "nets.py:straight", "--class", "4"), "4 classes"),
            (("explain", "cat.png", "--network", "nets.py:picky"), "failed on an input"),
            (("explain", "cat.png", "--network", "nets.py:curved", "--solver", "exact"), "no exact solution"),
            (("explain", "cat.png", "--network", "nets.py:curved", "--method", "cam"), "CAM needs a head"),
            (("explain", "cat.png", "--class", "1", "--top", "2"), "--top: Classes are named"),
            (("explain", "cat.png", "--top", "1001"), "the network has 1000"),
            (
                ("explain", "cat.png", "--method", "cam", "--filter", "l1"),
                "--filter: Filters, solvers and the published form belong to l2caf",
            ),
            (
                ("explain", "cat.png", "--filter", "l3"),
                "--filter: There is no filter 'l3': take one of l2, l1, softmax",
            ),
            (("explain", "cat.png", "--cmap", "viridas"), "viridis"),
            (("explain", "cat.png", "--device", "abacus"), "no device"),
            (("explain", "cat.png", "--weights", "none.pth"), "none.pth"),
            (("explain", "cat.png", "--out", "nets.py"), "--out: 'nets.py' cannot be made: end the name"),
            (("explain", "cat.png", "--top", "0"), "--top: 0 asks for no class"),
            (("explain", "cat.png", "--method", "gradcan"), "--method: There is no method 'gradcan': the nearest"),
            (("match", "cat.png", ".", "--top", "0"), "--top: 0 asks for no neighbour"),
            (("match", "cat.png", ".", "--contrast", "1"), "--contrast: 1 names no two neighbours"),
            (("sanity", "--stages", "1"), "--stages: 1 is no cascade"),
            (("sanity", "--method", "cum"), "--method: There is no method 'cum': the nearest"),
            (("explain", "cat.png", "--bogus"), "--bogus"),
            (("explain", "nets.py"), "not an image"),
            (("compare", "nets.py"), "not an image"),
            (("animate", "cat.png", "--class", "no such thing at all"), "no class"),
            (("layers", "nets.py:nothing"), "no function 'nothing'"),
            (("bogus",), "bogus"),
        ],
    )
    def test_one_sentence_and_exit_code_2(self, run: Run, cat: Path, arguments: tuple[str, ...], words: str) -> None:
        assert cat.is_file()
        before = files_in(Path.cwd())
        code, out, err = run(*arguments)
        assert code == 2
        assert out == ""
        assert words in err
        assert err.startswith("error: ")
        assert len(err.strip().splitlines()) == 1
        assert words in document(run(*arguments, "--json"), code=2)["error"]
        made = files_in(Path.cwd()) - before - {"__pycache__"}
        assert made <= {"l2caf-out"}
        assert not files_in(Path("l2caf-out"))

    def test_none_went_well(self, run: Run, tmp_path: Path) -> None:
        for name in "ab":
            (tmp_path / f"{name}.png").write_text("no picture")
        code, out, err = run("explain", "a.png", "b.png", "--network", "nets.py:straight")
        assert code == 2
        assert out == ""
        assert err.count("skipped:") == 2
        assert "None of the 2 photographs" in err
        found = document(run("explain", "a.png", "b.png", "--network", "nets.py:straight", "--json"), code=2)
        assert "None of the 2 photographs" in found["error"]
        assert len(found["failed"]) == 2

    def test_nothing_half_written_when_the_disk_fails(
        self, run: Run, cat: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: object, **__: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(Image.Image, "save", full)
        code, _, err = run("explain", cat, "--network", "nets.py:straight", "--out", "maps")
        assert code == 2
        assert "No space left" in err
        assert not files_in(tmp_path / "maps")


class TestAsProgram:
    """What only a process of its own shows."""

    def start(self, *arguments: object, **options: Any) -> subprocess.Popen[str]:
        return self.launch("-m", "l2caf", *arguments, **options)

    def launch(self, *words: object, **options: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            **options,
        )

    @pytest.mark.parametrize("command", ["", *COMMANDS])
    def test_help_is_quick_and_has_examples(self, run: Run, command: str) -> None:
        code, out, _ = run(*filter(None, [command]), "--help")
        assert code == 0
        assert "Examples" in out
        assert f"l2caf {command or 'demo'}" in out

    def test_help_needs_no_torch(self) -> None:
        program = (
            "import sys\n"
            "from l2caf.cli import main\n"
            f"for command in [[], *([name] for name in {COMMANDS!r})]:\n"
            "    main([*command, '--help'])\n"
            "assert not {'torch', 'numpy', 'PIL', 'matplotlib'} & set(sys.modules)"
        )
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)

    def test_one_document_on_stdout(self, tmp_path: Path, cat: Path) -> None:
        process = self.start("explain", cat, tmp_path / "none.png", "--json", cwd=tmp_path)
        out, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 1, err
        assert len(json.loads(out)["images"]) == 1
        assert "none.png" in err

    @pytest.mark.skipif(os.name == "nt", reason="signals are otherwise there")
    def test_ctrl_c_leaves_only_whole_files(self, tmp_path: Path) -> None:
        folder = tmp_path / "photos"
        folder.mkdir()
        sample("cup").resize((90, 60)).save(folder / "0.jpg")
        for number in range(1, 300):
            (folder / f"{number}.jpg").write_bytes((folder / "0.jpg").read_bytes())
        # Whoever started the tests may have had SIGINT ignored, as a shell does for work in the background.
        interruptible = (
            "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
            "from l2caf.cli import main; sys.exit(main())"
        )
        words = ["-c", interruptible, "explain", folder, "--out", tmp_path / "maps", "--batch", 4]
        process = self.launch(*words, cwd=tmp_path)
        deadline = time.monotonic() + PATIENCE
        while len(files_in(tmp_path / "maps")) < 5:
            assert time.monotonic() < deadline
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 130
        assert "Stopped" in err
        assert "Traceback" not in err
        (notes,) = (tmp_path / "maps").glob(".*")  # from which the same command goes on
        assert notes.name.startswith(".explained-")
        for path in (tmp_path / "maps").glob("[!.]*"):
            assert path.suffix == ".png"
            with Image.open(path) as picture:
                picture.load()
