"""Neighbours, R@K and NMI against brute force and scikit-learn; the retrieval protocol on a set of known answer."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from embeddings_for_tests import colours_file
from l2caf.cli.app import run
from l2caf.datasets.dataset import Sample
from l2caf.datasets.splits import part_of
from l2caf.errors import InputError, OutputError
from l2caf.evaluation.published import retrieval_rows
from l2caf.networks.catalogue import load
from l2caf.networks.embedding import EmbeddingNetwork
from l2caf.networks.model import Model
from l2caf.preprocessing import Preprocessing
from l2caf.retrieval.embed import Embedding, embed, vectors_of
from l2caf.retrieval.index import Index
from l2caf.retrieval.scores import RANKS, clusters, contingency, mutual_information, nmi, recalled, retrieve


def _vectors(count: int = 60, size: int = 5, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=(count, size)).astype(np.float32)


def _brute_force(vectors: NDArray[np.float32], *, normalized: bool) -> NDArray[np.int64]:
    given = vectors.astype(np.float64)
    if normalized:
        given = given / np.linalg.norm(given, axis=1, keepdims=True)
    distance = np.linalg.norm(given[:, None] - given[None], axis=2)
    np.fill_diagonal(distance, np.inf)
    return np.argsort(distance, axis=1)


class TestNeighbours:
    @pytest.mark.parametrize("normalized", [True, False])
    def test_all_neighbours_are_those_of_brute_force(self, normalized: bool) -> None:
        vectors = _vectors()
        index = Index.of(vectors, [str(place) for place in range(60)], normalized=normalized)
        found = index.neighbours_of_itself(8)
        assert (found.indices == _brute_force(vectors, normalized=normalized)[:, :8]).all()
        order = np.diff(found.scores, axis=1)
        assert (order <= 1e-6).all() if normalized else (order >= -1e-6).all()

    @pytest.mark.parametrize("normalized", [True, False])
    def test_recall_is_that_of_brute_force_and_of_scikit_learn(self, normalized: bool) -> None:
        from sklearn.neighbors import NearestNeighbors

        vectors, labels = _vectors(), np.random.default_rng(1).integers(0, 6, 60)
        found = retrieve(vectors, labels, normalized=normalized)
        ranked = _brute_force(vectors, normalized=normalized)
        metric = "cosine" if normalized else "euclidean"
        theirs = NearestNeighbors(n_neighbors=8, metric=metric).fit(vectors).kneighbors(return_distance=False)
        for rank in RANKS:
            looped = [any(labels[other] == labels[one] for other in ranked[one, :rank]) for one in range(60)]
            assert recalled(found, labels, rank=rank).tolist() == looped
            scikit = (labels[theirs[:, :rank]] == labels[:, None]).any(axis=1)
            assert recalled(found, labels, rank=rank).mean() == scikit.mean()

    def test_a_copy_of_a_picture_is_its_neighbour_and_it_is_not_its_own(self) -> None:
        vectors = np.repeat(_vectors(3), 12, axis=0)
        found = Index.of(vectors, ["x"] * 36, normalized=True).neighbours_of_itself(4).indices
        assert (found != np.arange(36)[:, None]).all()
        assert (found // 12 == np.arange(36)[:, None] // 12).all()

    def test_fewer_pictures_than_were_asked_for(self) -> None:
        found = retrieve(_vectors(3), [0, 0, 1], normalized=False)
        assert found.indices.shape == (3, 2)
        with pytest.raises(InputError, match="at least two"):
            retrieve(_vectors(1), [0], normalized=False)


class TestClusters:
    @pytest.mark.parametrize("seed", range(5))
    def test_mutual_information_is_that_of_scikit_learn(self, seed: int) -> None:
        from sklearn.metrics import normalized_mutual_info_score

        generator = np.random.default_rng(seed)
        labels = generator.integers(0, 7, 200)
        found = np.where(generator.random(200) < 0.6, labels, generator.integers(0, 9, 200))
        theirs = normalized_mutual_info_score(labels, found, average_method="geometric")
        assert float(mutual_information(contingency(found, labels))) == pytest.approx(theirs, abs=1e-9)

    def test_what_cannot_be_told_apart(self) -> None:
        assert float(mutual_information([[4]])) == 1
        assert float(mutual_information([[2, 2]])) == 0
        assert mutual_information(np.array([[[3, 0], [0, 1]], [[1, 1], [1, 1]]])) == pytest.approx([1, 0])

    def test_clusters_are_found_and_are_the_same_again(self) -> None:
        labels = np.repeat(np.arange(4), 15)
        vectors = _vectors() * 0.05 + np.eye(5, dtype=np.float32)[labels]
        assert nmi(vectors, labels, normalized=True) == pytest.approx(1)
        assert (clusters(_vectors(), 6, normalized=False) == clusters(_vectors(), 6, normalized=False)).all()
        with pytest.raises(InputError, match="61 clusters"):
            clusters(_vectors(), 61, normalized=False)


class TestIndex:
    def test_it_comes_back_from_disk(self, tmp_path: Path) -> None:
        index = Index.of(_vectors(), [f"{place}.jpg" for place in range(60)], normalized=True, identity="me")
        again = Index.load(index.save(tmp_path / "deep" / "index.npz"))
        assert again.names == index.names
        assert again.normalized
        assert (again.query(_vectors(4, seed=9), 3).indices == index.query(_vectors(4, seed=9), 3).indices).all()

    def test_one_made_by_another_network_is_refused(self, tmp_path: Path) -> None:
        samples = [Sample(_picture(tmp_path / f"{shade}.png", shade), name=str(shade)) for shade in (0, 90, 250)]
        name = colours_file(tmp_path)
        mine, other = (load(f"{name}:{function}").as_embedding() for function in ("build", "other"))
        path = Index.made_by(mine, embed(Embedding().on(mine), samples)).save(tmp_path / "index")
        assert len(Index.load(path, model=mine)) == 3
        with pytest.raises(InputError, match="another network"):
            Index.load(path, model=other)

    @pytest.mark.parametrize("content", [b"", b"no index", b"PK\x03\x04 cut off"])
    def test_rubbish_is_refused(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "index.npz"
        path.write_bytes(content)
        with pytest.raises(InputError, match="no index"):
            Index.load(path)

    def test_a_truncated_one_is_refused(self, tmp_path: Path) -> None:
        path = Index.of(_vectors(), ["x"] * 60, normalized=True).save(tmp_path / "index.npz")
        path.write_bytes(path.read_bytes()[:900])
        with pytest.raises(InputError, match="no index"):
            Index.load(path)

    def test_bad_vectors_and_queries(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="nothing to index"):
            Index.of(np.zeros((0, 4)), [], normalized=True)
        with pytest.raises(InputError, match="NaN"):
            Index.of([[np.nan]], ["x"], normalized=True)
        with pytest.raises(InputError, match="2 names"):
            Index.of([[1.0]], ["x", "y"], normalized=True)
        index = Index.of([[1.0, 0.0]], ["x"], normalized=True)
        with pytest.raises(InputError, match="of 2 numbers"):
            index.query([[1.0]], 1)
        with pytest.raises(InputError, match="0 neighbours"):
            index.query([[1.0, 0.0]], 0)
        with pytest.raises(InputError, match="There is no index"):
            Index.load(tmp_path / "nowhere.npz")


class TestEmbed:
    def test_of_a_classifier_the_pooled_features_are_taken(self) -> None:
        model = load("efficientnet_lite0", pretrained=False)
        images = torch.rand(2, 3, 224, 224)
        with torch.no_grad():
            expected = model.network.forward_features(images).mean(dim=(2, 3))
        made = model.as_embedding()
        assert "pooled features" in made.name
        assert made.embedding
        assert not made.class_names
        assert torch.allclose(vectors_of(made, images), expected, atol=1e-5)

    def test_bad_pictures_are_named_and_the_rest_embedded(self, tmp_path: Path) -> None:
        model = load(f"{colours_file(tmp_path)}:build").as_embedding()
        (tmp_path / "bad.png").write_bytes(b"no picture")
        samples = [Sample(_picture(tmp_path / f"{shade}.png", shade), name=str(shade)) for shade in (40, 90, 250)]
        samples.insert(1, Sample(tmp_path / "bad.png", name="bad"))
        embedded = embed(Embedding().on(model), samples, size=2)
        assert embedded.names == ("40", "90", "250")
        assert embedded.vectors.shape == (3, 4)
        assert embedded.vectors[:, 0] == pytest.approx(np.array([40, 90, 250]) / 255, abs=1e-6)
        assert [bad.name for bad in embedded.bad] == ["bad"]

    def test_an_embedding_that_is_not_finite_is_left_out(self, tmp_path: Path) -> None:
        model = load(f"{colours_file(tmp_path)}:build").as_embedding()
        samples = [Sample(_picture(tmp_path / f"{shade}.png", shade), name=str(shade)) for shade in (0, 255)]

        class Divides(torch.nn.Module):
            def forward(self, images: torch.Tensor) -> torch.Tensor:
                return 1 / images.mean(dim=(2, 3))

        divides = Model("divides", Divides(), model.preprocess, embedding=True)
        found = embed(Embedding().on(divides), samples)
        assert found.names == ("255",)
        assert "NaN or infinity" in found.bad[0].message

    def test_identity_follows_weights_and_how_vectors_are_compared(self, tmp_path: Path) -> None:
        name = f"{colours_file(tmp_path)}:build"
        first, again = (load(name).as_embedding() for _ in range(2))
        assert first.identity == again.identity
        with torch.no_grad():
            again.network.embed.weight[0, 0] += 1e-3
        assert replace(again).identity != first.identity
        assert replace(first, normalized=False).identity != first.identity

    def test_a_network_without_a_vector_a_picture_is_refused(self) -> None:
        model = Model("maps", torch.nn.Conv2d(3, 4, 3), Preprocessing())
        with pytest.raises(OutputError, match="one vector per picture"):
            vectors_of(model.as_embedding(), torch.rand(1, 3, 9, 9))


def _picture(path: Path, shade: int) -> Path:
    Image.fromarray(np.full((64, 64, 3), shade, np.uint8)).save(path)
    return path


SPOILT, LONELY = 8, 4


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty pictures with one square each, in the colour of its class.

    The first four are of classes of their own, so that their neighbour is of another; the next eight have a box that
    is not about their square.
    """
    folder = tmp_path_factory.mktemp("made")
    generator = np.random.default_rng(0)
    lines = ["file,label,x0,y0,x1,y1"]
    for number in range(40):
        pixels = np.zeros((64, 64, 3), dtype=np.uint8)
        x, y = 8 * generator.integers(0, 5, 2)
        pixels[y : y + 24, x : x + 24, number % 3] = 255 - number
        Image.fromarray(pixels).save(folder / f"{number:02}.png")
        label = 100 + number if number < LONELY else number % 3
        if LONELY <= number < LONELY + SPOILT:
            box = "56,0,64,8" if x < 32 else "0,0,8,8"
        else:
            box = f"{x},{y},{x + 24},{y + 24}"
        lines.append(f"{number:02}.png,{label},{box}")
    (folder / "boxes.csv").write_text("\n".join(lines) + "\n")
    colours_file(folder)
    return folder


def _arguments(made: Path, out: Path, *more: str) -> list[str]:
    network = f"{made / 'colours.py'}:build"
    given = ["evaluate", "manifest", str(made / "boxes.csv"), "--network", network, "--protocol", "retrieval"]
    return [*given, "--view", "squash", "--out", str(out), "--batch", "8", *more]


class TestProtocol:
    def test_a_set_of_known_answer(self, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(_arguments(made, tmp_path / "out")) == 0
        results = json.loads((tmp_path / "out" / "results.json").read_text())
        assert results["images"] == 40
        assert results["retrieval"]["r1"]["value"] == pytest.approx(100 * (40 - LONELY) / 40)
        right = 100 * (40 - LONELY - SPOILT) / 40
        scores = {name: found["loc"]["value"] for name, found in results["methods"].items()}
        # The weights sum to less than zero, so what vanilla Grad-CAM keeps is nothing at all.
        assert scores == pytest.approx({"l2caf": right, "gradcam-abs": right, "gradcam": 0})
        known = {name: found["gt_known"]["value"] for name, found in results["methods"].items()}
        assert known == pytest.approx({"l2caf": right + 10, "gradcam-abs": right + 10, "gradcam": 0})
        margin = next(
            row
            for row in results["differences"]
            if (row["ours"], row["theirs"], row["measure"]) == ("l2caf", "gradcam", "loc")
        )
        assert margin["value"] == pytest.approx(right)
        assert margin["told_apart"]
        page = (tmp_path / "out" / "report.html").read_text()
        assert "R@1" in page
        assert "<script" not in page
        assert "LOC" in capsys.readouterr().out

    def test_cut_off_it_goes_on_to_the_same_end(self, made: Path, tmp_path: Path) -> None:
        assert run(_arguments(made, tmp_path / "whole", "-m", "l2caf")) == 0
        assert run(_arguments(made, tmp_path / "cut", "-m", "l2caf")) == 0
        rows = tmp_path / "cut" / "rows.jsonl"
        rows.write_bytes(rows.read_bytes()[: rows.stat().st_size * 3 // 5])
        (tmp_path / "cut" / "results.json").unlink()
        assert run(_arguments(made, tmp_path / "cut", "-m", "l2caf")) == 0
        for name in ("rows.jsonl", "results.json"):
            assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()

    def test_without_boxes_there_is_no_loc(
        self, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for number in range(12):
            target = tmp_path / "data" / "rgb"[number % 3] / f"{number}.png"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((made / f"{number:02}.png").read_bytes())
        (tmp_path / "data" / "r" / "bad.png").write_bytes(b"no picture")
        arguments = _arguments(made, tmp_path / "out", "--json")
        arguments[1:3] = ["folder", str(tmp_path / "data")]
        assert run(arguments) == 0
        results = json.loads(capsys.readouterr().out)
        assert results["retrieval"]["r1"]["value"] == 100
        assert results["retrieval"]["nmi"]["value"] == pytest.approx(100)
        assert results["methods"] == {}
        assert list(results["bad"]) == ["r/bad.png"]

    @pytest.mark.parametrize(
        ("more", "words"),
        [
            (["--protocol", "magic"], "magic"),
            (["--split", "unseen"], "no halves"),
            (["--split", "nowhere"], "nowhere"),
            (["--split", "held-out"], "names no pictures"),
            (["-m", "cam"], "'cam'"),
            (["--protocol", "localisation", "--split", "seen"], "--split"),
        ],
    )
    def test_bad_arguments_get_one_sentence(
        self, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], words: str
    ) -> None:
        assert run(_arguments(made, tmp_path / "out", *more)) == 2
        said = capsys.readouterr().err
        assert words in said
        assert not (tmp_path / "out" / "results.json").exists()

    def test_another_network_in_the_same_folder_is_refused(
        self, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(_arguments(made, tmp_path / "out", "-m", "l2caf")) == 0
        arguments = _arguments(made, tmp_path / "out", "-m", "l2caf")
        arguments[arguments.index("--network") + 1] = f"{made / 'colours.py'}:other"
        assert run(arguments) == 2
        assert "differs in network" in capsys.readouterr().err

    def test_the_paper_stands_beside_it(self) -> None:
        rows = retrieval_rows("cars", "npair")
        assert [row.loc for row in rows if row.backbone == "ResNet-50"] == [32.42, 61.62, 67.35]
        assert len(retrieval_rows("cub")) == 12
        assert retrieval_rows("folder") == ()


def test_vanilla_grad_cam_of_an_embedding_is_that_of_pytorch_grad_cam() -> None:
    pytest.importorskip("cv2")
    from pytorch_grad_cam import GradCAM as Theirs

    import l2caf

    torch.manual_seed(0)
    network = EmbeddingNetwork(torch.nn.Sequential(torch.nn.Conv2d(3, 8, 5, stride=4), torch.nn.ReLU()), channels=8)
    images = torch.randn(4, 3, 33, 33)
    ours = l2caf.GradCAM(embedding=True)(network, images, layer="trunk")
    with Theirs(model=network, target_layers=[network.trunk]) as theirs:
        expected = torch.as_tensor(theirs(images.clone(), targets=[lambda embedding: embedding.sum()] * 4))
        features = theirs.activations_and_grads.activations[-1]
        slopes = theirs.activations_and_grads.gradients[-1]
    grid = (slopes.mean(dim=(2, 3), keepdim=True) * features).sum(dim=1).clamp_min(0)
    assert float(grid.max()) > 0
    torch.testing.assert_close(ours.weights.clamp_min(0), grid, rtol=1e-4, atol=1e-7)
    # It scales from the least to the largest value, at the grid first and after resizing again.
    resized = torch.nn.functional.interpolate(_stretched(ours.weights.clamp_min(0))[:, None], (33, 33), mode="bilinear")
    torch.testing.assert_close(_stretched(resized[:, 0]), expected, rtol=0, atol=1e-2)


def _stretched(maps: torch.Tensor) -> torch.Tensor:
    maps = maps - maps.amin(dim=(1, 2), keepdim=True)
    return maps / maps.amax(dim=(1, 2), keepdim=True).clamp_min(1e-12)


def test_parts_of_a_dataset(tmp_path: Path) -> None:
    from made_datasets import cub

    root = cub(tmp_path)
    assert [len(part_of("cub", root, part=part, network="x")[0]) for part in (None, "unseen", "seen", "all")] == [
        1, 1, 2, 3,
    ]  # fmt: skip


DATA = Path(os.environ.get("L2CAF_DATA", Path(__file__).parents[3] / "shared" / "data"))


@pytest.mark.dataset
@pytest.mark.slow
@pytest.mark.skipif(not (DATA / "cub-36").is_dir(), reason="the birds are not here")
def test_birds_are_retrieved_and_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["evaluate", "cub", str(DATA / "cub-36"), "--protocol", "retrieval", "--limit", "72", "--json"]
    assert run([*arguments, "--out", str(tmp_path)]) == 0
    results = json.loads(capsys.readouterr().out)
    assert results["classes"] == 18
    assert results["retrieval"]["r1"]["value"] > 45
    assert results["methods"]["l2caf"]["gt_known"]["value"] > 60
