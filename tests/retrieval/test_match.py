"""Why two pictures match: planted patches, exactness, and galleries of every bad kind."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from embeddings_for_tests import colours_file, patches
from l2caf.cli.app import run
from l2caf.errors import Cancelled, ImageError, InputError
from l2caf.images import image_files
from l2caf.networks.catalogue import load
from l2caf.networks.embedding import EmbeddingConfig, EmbeddingNetwork, save_embedding
from l2caf.networks.model import Model
from l2caf.rendering.marks import fitted, font
from l2caf.rendering.style import Style
from l2caf.retrieval.embed import Embedding
from l2caf.retrieval.index import Gallery, open_gallery
from l2caf.retrieval.match import match
from l2caf.tasks import match as match_task
from l2caf.tasks.match import contrast_title

RED, GREEN, BLUE = (255, 0, 0), (0, 255, 0), (0, 0, 255)
LEFT, RIGHT = (0, 8), (48, 40)  # where the query has its red and its green patch


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A query with a red and a green patch; a gallery of pictures with one patch each, elsewhere."""
    folder = tmp_path_factory.mktemp("made")
    colours_file(folder)
    patches(folder / "query.png", (LEFT, RED), (RIGHT, GREEN))
    patches(folder / "gallery" / "001.Red_One" / "a.png", ((40, 0), RED))
    patches(folder / "gallery" / "002.Green_One" / "b.png", ((0, 48), GREEN), ((16, 48), BLUE))
    patches(folder / "gallery" / "003.Blue_One" / "c.png", ((24, 24), BLUE))
    patches(folder / "gallery" / "003.Blue_One" / "d.png", ((8, 40), BLUE))
    return folder


def _model(made: Path, function: str = "build") -> Model:
    return load(f"{made / 'colours.py'}:{function}").as_embedding()


def _gallery(made: Path, model: Model) -> Gallery:
    return open_gallery(made / "gallery", image_files(made / "gallery"), Embedding().on(model))


def _share(heat: NDArray[np.float32], corner: tuple[int, int], size: int = 16) -> float:
    """How much of a map's energy lies on a patch, with the half cell by which it is smoothed."""
    x, y = corner
    inside = heat[max(0, y - 4) : y + size + 4, max(0, x - 4) : x + size + 4]
    return float((inside**2).sum() / (heat**2).sum())


def test_the_map_lies_on_the_patch_that_two_pictures_share(made: Path) -> None:
    model = _model(made)
    found = match(model, made / "query.png", _gallery(made, model), top=4)
    pairs = {Path(pair.name).stem: pair for pair in found.pairs}
    assert {"a", "b"} == {Path(pair.name).stem for pair in found.pairs[:2]}
    assert all(pair.of_query.outcome == pair.of_neighbour.outcome == "exact" for pair in found.pairs)
    assert _share(pairs["a"].of_query.shown, LEFT) > 0.95
    assert _share(pairs["b"].of_query.shown, RIGHT) > 0.95
    assert _share(pairs["a"].of_neighbour.shown, (40, 0)) > 0.95
    assert _share(pairs["b"].of_neighbour.shown, (0, 48)) > 0.9  # its blue patch has no part in it


def test_the_contrast_tells_what_speaks_for_either(made: Path) -> None:
    model = _model(made)
    found = match(model, made / "query.png", _gallery(made, model), top=4)
    assert found.contrast is not None
    ours, theirs = (Path(found.pairs[rank - 1].name).stem for rank in (found.contrast.ours, found.contrast.theirs))
    places = {"a": LEFT, "b": RIGHT}
    assert {ours, theirs} == {"a", "b"}
    heat = found.contrast.seen.heat
    assert _share(heat.clip(min=0), places[ours]) > 0.95
    assert _share(heat.clip(max=0), places[theirs]) > 0.95


@pytest.mark.parametrize("normalized", [True, False])
def test_the_filter_is_each_positions_part_of_the_similarity(tmp_path: Path, normalized: bool) -> None:
    torch.manual_seed(0)
    trunk = torch.nn.Sequential(torch.nn.Conv2d(3, 6, 16, stride=16), torch.nn.ReLU())
    network = EmbeddingNetwork(trunk, channels=6, dimension=5).eval()
    generator = np.random.default_rng(0)
    for number in range(6):
        noise = generator.integers(0, 256, (64, 64, 3), dtype=np.uint8)
        Image.fromarray(noise).save(tmp_path / f"{number}.png")
    from l2caf.preprocessing import Preprocessing

    prepare = Preprocessing(input_size=(64, 64), resize_size=(64, 64), fit="squash")
    model = Model("small", network, prepare, embedding=True, normalized=normalized)
    gallery = open_gallery(tmp_path, image_files(tmp_path), Embedding().on(model))
    found = match(model, tmp_path / "0.png", gallery, top=3, contrast=(1, 2))
    assert "0.png" not in [pair.name for pair in found.pairs]
    places = {name: place for place, name in enumerate(gallery.index.names)}
    vectors = gallery.index.vectors
    ours, theirs = (vectors[places[found.pairs[rank].name]] for rank in (0, 1))
    image = prepare(Image.open(tmp_path / "0.png"))[None]
    with torch.no_grad():
        columns = network.trunk(image)[0].flatten(1)  # (C, positions)
        for heat, target in (
            (found.pairs[0].of_query.heat, ours - vectors.mean(axis=0)),
            (found.contrast.seen.heat if found.contrast else None, ours - theirs),
        ):
            parts = torch.from_numpy(target) @ network.embed.weight @ columns
            wanted = torch.nn.functional.interpolate(
                parts.reshape(1, 1, 4, 4), (64, 64), mode="bilinear", align_corners=False
            )[0, 0]
            assert heat == pytest.approx((wanted / wanted.abs().max()).numpy(), abs=1e-4)
            # And they add up to the whole similarity, but for the bias.
            whole = (network(image)[0] - network.embed.bias) @ torch.from_numpy(target)
            assert float(parts.mean()) == pytest.approx(float(whole), abs=1e-5)


class TestGalleries:
    def test_of_one_picture(self, made: Path, tmp_path: Path) -> None:
        patches(tmp_path / "one.png", ((40, 0), RED))
        model = _model(made)
        gallery = open_gallery(tmp_path, image_files(tmp_path), Embedding().on(model))
        found = match(model, made / "query.png", gallery, top=5)
        assert len(found.pairs) == 1
        assert found.contrast is None
        assert _share(found.pairs[0].of_neighbour.shown, (40, 0)) > 0.95

    def test_with_nothing_but_the_query(self, made: Path, tmp_path: Path) -> None:
        query = patches(tmp_path / "one.png", ((40, 0), RED))
        model = _model(made)
        with pytest.raises(InputError, match="nothing but"):
            match(model, query, open_gallery(tmp_path, [query], Embedding().on(model)))

    def test_empty_or_unreadable(self, made: Path, tmp_path: Path) -> None:
        model = _model(made)
        with pytest.raises(ImageError, match="no images"):
            open_gallery(tmp_path, [], Embedding().on(model))
        (tmp_path / "bad.png").write_bytes(b"no picture")
        with pytest.raises(InputError, match="None of the 1 pictures"):
            open_gallery(tmp_path, [tmp_path / "bad.png"], Embedding().on(model))

    def test_the_index_is_kept_until_a_file_changes(self, made: Path, tmp_path: Path) -> None:
        model, cache = _model(made), tmp_path / "cache.npz"
        folder = tmp_path / "gallery"
        patches(folder / "a.png", (LEFT, RED))
        calls: list[int] = []

        def opened() -> Gallery:
            files, tell = image_files(folder), lambda stage, done, *_: calls.append(done)
            return open_gallery(folder, files, Embedding().on(model), cache=cache, progress=tell)

        first = opened()
        assert calls == [1]
        assert (opened().index.vectors == first.index.vectors).all()
        assert calls == [1]
        patches(folder / "b.png", (RIGHT, GREEN))
        assert opened().index.names == ("a.png", "b.png")
        assert calls == [1, 2]

    def test_a_cancelled_index_is_not_kept(self, made: Path, tmp_path: Path) -> None:
        def stop(stage: str, *_: object) -> None:
            raise Cancelled(stage)

        cache = tmp_path / "cache.npz"
        files, spec = image_files(made / "gallery"), Embedding().on(_model(made))
        with pytest.raises(Cancelled, match="embedding"):
            open_gallery(made / "gallery", files, spec, cache=cache, progress=stop)
        assert not cache.exists()


def _arguments(made: Path, out: Path, *more: str, function: str = "build") -> list[str]:
    given = ["match", str(made / "query.png"), str(made / "gallery"), "--out", str(out)]
    return [*given, "--network", f"{made / 'colours.py'}:{function}", *more]


class TestCommand:
    def test_it_draws_one_figure_and_tells_the_neighbours(
        self, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(_arguments(made, tmp_path, "--top", "3", "--json")) == 0
        document = json.loads(capsys.readouterr().out)
        assert [one["rank"] for one in document["neighbours"]] == [1, 2, 3]
        assert document["neighbours"][0]["cosine"] >= document["neighbours"][1]["cosine"]
        assert {document["contrast"]["for"], document["contrast"]["rather_than"]} == {1, 2}
        assert document == json.loads((tmp_path / "query-match.json").read_text())
        with Image.open(document["picture"]) as picture:
            assert picture.width > 1000
        assert (tmp_path / "gallery.npz").is_file()
        assert run(_arguments(made, tmp_path, "--signed", "--contrast", "2:1")) == 0
        assert "Red_One" in capsys.readouterr().out

    def test_a_pair_that_shows_nothing_is_not_merely_exact(
        self, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(_arguments(made, tmp_path, "--top", "4")) == 0
        rows = [line for line in capsys.readouterr().out.splitlines() if "_One" in line]
        assert len(rows) == 4
        for row in rows:  # the query has red and green, and no blue
            assert row.rstrip().endswith("exact, no place speaks for it" if "Blue" in row else "exact"), row

    def test_an_index_of_another_network_is_refused(
        self, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(_arguments(made, tmp_path)) == 0
        assert run(_arguments(made, tmp_path, function="other")) == 2
        assert "another network" in capsys.readouterr().err

    def test_a_checkpoint_that_compares_by_distance(
        self, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        from l2caf.networks.embedding import load_backbone
        from l2caf.training.retrieval.projection import embedding_before_training

        backbone = load_backbone("efficientnet_lite0", pretrained=False)
        network = embedding_before_training(backbone, 8)
        config = EmbeddingConfig("efficientnet_lite0", 8, normalized=False, preprocessing=backbone.preprocessing)
        path = save_embedding(tmp_path / "small.safetensors", network, config)
        arguments = _arguments(made, tmp_path / "out", "--top", "2", "--json")
        arguments[arguments.index("--network") + 1] = str(path)
        assert run(arguments) == 0
        document = json.loads(capsys.readouterr().out)
        assert document["compared_by"] == "distance"
        assert document["neighbours"][0]["distance"] <= document["neighbours"][1]["distance"]
        explain = ["explain", str(made / "query.png"), "--network", str(path), "--out", str(tmp_path / "out"), "--json"]
        assert run(explain) == 0
        (entry,) = json.loads(capsys.readouterr().out)["images"]
        assert entry["predicted"] is None  # an embedding is no row of scores
        assert entry["maps"][0]["outcome"] == "exact"

    @pytest.mark.parametrize(
        ("place", "value", "words"),
        [
            (1, "colours.py", "not an image"),
            (1, "nowhere.png", "does not exist"),
            (1, "gallery", "is a folder"),
            (2, "empty", "no images"),
            (2, "nowhere", "does not exist"),
        ],
    )
    def test_bad_paths_get_one_sentence(
        self,
        made: Path,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
        place: int,
        value: str,
        words: str,
    ) -> None:
        (made / "empty").mkdir(exist_ok=True)
        arguments = _arguments(made, tmp_path)
        arguments[place] = str(made / value)
        assert run(arguments) == 2
        said = capsys.readouterr().err
        assert words in said
        assert "Traceback" not in said

    @pytest.mark.parametrize(
        ("more", "words"),
        [
            (["--top", "0"], "no neighbour"),
            (["--contrast", "1"], "1:3"),
            (["--contrast", "1:9"], "no neighbour 9"),
            (["--contrast", "2:2"], "from itself"),
        ],
    )
    def test_bad_options_get_one_sentence(
        self, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], words: str
    ) -> None:
        assert run(_arguments(made, tmp_path, *more)) == 2
        assert words in " ".join(capsys.readouterr().err.split())

    def test_bad_files_in_the_gallery_are_named(
        self, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        patches(tmp_path / "gallery" / "a.png", (LEFT, RED))
        (tmp_path / "gallery" / "bad.png").write_bytes(b"no picture")
        arguments = _arguments(made, tmp_path / "out")
        arguments[2] = str(tmp_path / "gallery")
        assert run(arguments) == 0
        assert "bad.png" in capsys.readouterr().err


def test_the_contrast_is_with_another_folder_however_far_down_it_comes(made: Path, tmp_path: Path) -> None:
    patches(tmp_path / "query.png", (LEFT, RED))
    for number in range(3):
        patches(tmp_path / "gallery" / "red" / f"{number}.png", ((8 * number, 0), RED))
    patches(tmp_path / "gallery" / "001.Blue_One" / "b.png", (LEFT, BLUE))
    model = _model(made)
    gallery = open_gallery(tmp_path / "gallery", image_files(tmp_path / "gallery"), Embedding().on(model))
    found = match(model, tmp_path / "query.png", gallery, top=2)
    assert [pair.group for pair in found.pairs] == ["red", "red"]
    assert found.contrast is not None
    assert (found.contrast.theirs, found.contrast.name) == (4, "001.Blue_One/b.png")
    assert contrast_title(found) == "red: for #1\nblue: for Blue One"  # which is not among those shown


def test_a_map_of_nothing_is_not_called_solved(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    captions: list[str] = []
    monkeypatch.setattr(match_task, "grid", lambda rows, **words: captions.append(words["caption"]))
    noted: list[str] = []
    monkeypatch.setattr(match_task, "note", lambda text, size: noted.append(text))
    model = _model(made)
    found = match(model, made / "query.png", _gallery(made, model), top=2)
    match_task.sheet(found, Style())
    assert "solved exactly" in captions[0]
    assert not noted
    nothing = replace(found.pairs[0].of_query, heat=-np.abs(found.pairs[0].of_query.heat))
    assert nothing.empty
    match_task.sheet(replace(found, pairs=(replace(found.pairs[0], of_query=nothing),)), Style())
    assert "solved exactly" not in captions[1]
    assert noted == ["no place speaks for this pair beyond what all of the gallery shares"]


def test_the_title_of_a_pair_keeps_its_score_at_any_width(made: Path) -> None:
    model = _model(made)
    pair = match(model, made / "query.png", _gallery(made, model), top=1).pairs[0]
    long = replace(pair, name="a-folder-with-a-name-that-fits-nowhere-at-all/a.png")
    first, *_ = fitted(match_task._title(long, "distance"), font(17), width=216)
    assert first == f"#1 distance {pair.score:.2f}"
