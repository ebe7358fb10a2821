"""An index is checked when it is read: names, vectors, and the network that made it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import squares
from l2caf.cli.app import run as cli
from l2caf.errors import InputError
from l2caf.retrieval.index import CACHE, Index

Tamper = Callable[[dict[str, Any], np.ndarray], tuple[Any, Any] | None]


def rewritten(path: Path, change: Tamper) -> None:
    """Write an index again with something about it changed, as a whole archive that numpy reads."""
    with np.load(path) as file:
        about, vectors = json.loads(str(file["about"])), np.array(file["vectors"])
    changed = change(about, vectors) or (about, vectors)
    with path.open("wb") as opened:
        np.savez(opened, about=np.array(json.dumps(changed[0])), vectors=changed[1])


def put(key: str, value: Any) -> Tamper:
    return lambda about, vectors: about.update({key: value})


def without(key: str) -> Tamper:
    return lambda about, vectors: about.pop(key) and None


def at(place: tuple[int, ...], value: float) -> Tamper:
    def change(about: dict[str, Any], vectors: np.ndarray) -> None:
        vectors[place] = value

    return change


NAMES = [f"{number}.png" for number in range(6)]
TAMPERED: dict[str, tuple[Tamper, str]] = {
    "a name too few": (put("names", NAMES[:-1]), "5 names for 6 vectors"),
    "a name twice": (put("names", [*NAMES[:-1], NAMES[0]]), "names stand there twice"),
    "a name that is no text": (put("names", [*NAMES[:-1], 7]), "names are no text"),
    "names that are no list": (put("names", "abcdef"), "its names cannot be read"),
    "no names": (without("names"), "its names cannot be read"),
    "no identity": (put("identity", None), "its identity cannot be read"),
    "normalized that is no truth": (put("normalized", "no"), "its normalized cannot be read"),
    "no stamp and no network": (
        lambda about, vectors: about.update(stamp=1, network=2),
        "its network and stamp cannot",
    ),
    "NaN": (at((2, 1), np.nan), "hold NaN or infinity"),
    "infinity": (at((2, 1), np.inf), "hold NaN or infinity"),
    "a vector that is too long": (at((2, 1), 3.0), "not of length 1"),
    "vectors of another kind": (lambda about, vectors: (about, vectors.astype(np.float64)), "are float64, not float32"),
    "whole numbers": (lambda about, vectors: (about, vectors.astype(np.int8)), "are int8, not float32"),
    "texts": (lambda about, vectors: (about, vectors.astype("U5")), "are <U5, not float32"),
    "a flat row": (lambda about, vectors: (about, vectors.ravel()), r"the shape \(24,\), not"),
    "vectors of no number": (lambda about, vectors: (about, vectors[:, :0]), r"the shape \(6, 0\), not"),
    "nothing": (lambda about, vectors: ({**about, "names": []}, vectors[:0]), r"the shape \(0, 4\), not"),
    "about that is a list": (lambda about, vectors: ([about], vectors), "does not say what it holds"),
    # These would pass for a good one.
    "names that changed places": (put("names", [NAMES[1], NAMES[0], *NAMES[2:]]), "not as it was written"),
    "vectors that changed places": (lambda about, vectors: (about, vectors[::-1]), "not as it was written"),
    "another name": (put("names", [*NAMES[:-1], "x.png"]), "not as it was written"),
    "another network": (put("identity", "other"), "not as it was written"),
    "another kind of comparison": (put("normalized", False), "not as it was written"),
}


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    vectors = np.random.default_rng(0).normal(size=(6, 4))
    return Index.of(vectors, NAMES, normalized=True, identity="me", network="mine", stamp="s").save(tmp_path / "index")


@pytest.mark.parametrize("what", TAMPERED)
def test_what_is_wrong_is_told(kept: Path, what: str) -> None:
    change, words = TAMPERED[what]
    rewritten(kept, change)
    with pytest.raises(InputError, match=rf"is a damaged index \(.*{words}.*\): remove it, and it is made anew\.$"):
        Index.load(kept)


def test_written_again_as_it_was_it_is_good(kept: Path) -> None:
    rewritten(kept, lambda about, vectors: None)
    assert Index.load(kept).names == tuple(NAMES)


def test_a_vector_of_length_zero_is_one(tmp_path: Path) -> None:
    path = Index.of([[0.0, 0.0], [3.0, 4.0]], ["dark", "light"], normalized=True).save(tmp_path / "index")
    assert Index.load(path).vectors.tolist() == [[0.0, 0.0], [pytest.approx(0.6), pytest.approx(0.8)]]


def test_every_cut_and_every_flipped_byte_is_noticed(kept: Path) -> None:
    """Whatever is refused is refused with our sentence, and whatever is not, is unchanged."""
    stored, before = kept.read_bytes(), Index.load(kept)
    draw = np.random.default_rng(0)
    for length in (0, 1, 30, len(stored) // 2, len(stored) - 1):
        kept.write_bytes(stored[:length])
        with pytest.raises(InputError, match="index"):
            Index.load(kept)
    refused: list[str] = []
    for place in draw.integers(0, len(stored), 300):
        changed = bytearray(stored)
        changed[place] ^= 1 << int(draw.integers(8))
        kept.write_bytes(changed)
        try:
            again = Index.load(kept)
        except InputError as error:
            refused.append(str(error))
        else:
            assert again.names == before.names
            assert (again.vectors == before.vectors).all()
    assert len(refused) > 150
    assert all("remove it, and it is made anew" in said for said in refused)


class TestMatch:
    @pytest.fixture
    def made(self, tmp_path: Path) -> Path:
        return squares.folder(tmp_path / "made", count=6)

    @pytest.fixture
    def matched(self, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[[], tuple[int, str]]:
        def call() -> tuple[int, str]:
            network = ("--network", f"{made / 'bright.py'}:build", "--top", "2", "--out", str(tmp_path / "out"))
            code = cli(["match", str(made / "00.png"), str(made), *network])
            return code, capsys.readouterr().err

        assert call()[0] == 0
        return call

    def test_a_damaged_index_is_told_and_made_anew(
        self, matched: Callable[[], tuple[int, str]], tmp_path: Path
    ) -> None:
        path = tmp_path / "out" / CACHE
        rewritten(path, at((0, 0), np.nan))
        code, said = matched()
        assert code == 2
        assert "is a damaged index (some of its vectors hold NaN or infinity): remove it" in said
        assert said.count("\n") == 1
        path.unlink()
        assert matched()[0] == 0

    def test_names_of_other_files_are_not_looked_up(
        self, matched: Callable[[], tuple[int, str]], made: Path, tmp_path: Path
    ) -> None:
        """An index that is whole, with the stamp of these files, but about others."""
        path = tmp_path / "out" / CACHE
        kept = Index.load(path)
        other = Index.of(
            kept.vectors, [f"x{name}" for name in kept.names], normalized=kept.normalized, identity=kept.identity,
            network=kept.network, stamp=kept.stamp,
        )  # fmt: skip
        other.save(path)
        assert matched()[0] == 0
        assert Index.load(path).names == kept.names

    def test_a_link_to_nothing_in_the_gallery_is_left_out(
        self, matched: Callable[[], tuple[int, str]], made: Path
    ) -> None:
        (made / "broken.png").symlink_to(made / "nowhere.png")
        code, said = matched()
        assert code == 0
        assert said.startswith("skipped: ")
        assert "broken.png" in said
