"""Files from anywhere: none runs code, none leads out of its folder, and every damaged one is answered in a sentence.

A sample of the mutations runs every day; all of them with `make endurance`.
"""

from __future__ import annotations

import io
import pickle
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

import l2caf
from l2caf import datasets
from l2caf.datasets.dataset import open_sample
from l2caf.errors import L2cafError
from l2caf.features.stored import stored
from l2caf.files import printable
from l2caf.images import open_image
from l2caf.networks.weights import load_weights
from l2caf.retrieval.index import Index
from l2caf.signals import read_signal
from networks_for_tests import pooled

RAN: list[str] = []


def run_me(name: str) -> str:
    RAN.append(name)
    return name


class Hostile:
    """Unpickled, it calls a function of these tests."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __reduce__(self) -> tuple[Callable[[str], str], tuple[str]]:
        return run_me, (self.name,)


def test_the_hostile_pickle_would_run() -> None:
    """Else the tests below would show nothing."""
    RAN.clear()
    pickle.loads(pickle.dumps(Hostile("plain")))
    assert RAN == ["plain"]
    RAN.clear()


def hostile_checkpoint(path: Path) -> Path:
    torch.save({"state_dict": {"weight": torch.zeros(2)}, "extra": Hostile("checkpoint")}, path)
    return path


def hostile_pickle(path: Path) -> Path:
    path.write_bytes(pickle.dumps(Hostile("pickle")))
    return path


def hostile_array(path: Path) -> Path:
    values = np.empty(2, dtype=object)
    values[:] = [Hostile("array"), 1]
    if path.suffix == ".npz":
        np.savez(path, vectors=values, about=np.array("{}"))
    else:
        np.save(path, values, allow_pickle=True)
    return path


READERS: dict[str, tuple[Callable[[Path], Path], str, Callable[[Path], Any]]] = {
    "checkpoint": (hostile_checkpoint, "a.pth", lambda path: load_weights(pooled(), path)),
    "pickle as weights": (hostile_pickle, "a.pt", lambda path: load_weights(pooled(), path)),
    "pickle as safetensors": (hostile_pickle, "a.safetensors", lambda path: load_weights(pooled(), path)),
    "network": (hostile_pickle, "a.safetensors", lambda path: l2caf.load(str(path))),
    "index": (hostile_array, "a.npz", Index.load),
    "features": (hostile_array, "a.npy", lambda path: [one.part(0, 2) for one in stored(path)]),
    "archive of features": (
        hostile_array,
        "b.npz",
        lambda path: [one.part(0, 2) for one in stored(path, key="vectors")],
    ),
    "signal": (hostile_array, "a.npy", read_signal),
    "pickle as a picture": (hostile_pickle, "a.png", open_image),
}


@pytest.mark.parametrize("name", READERS)
def test_no_file_runs_code(name: str, tmp_path: Path) -> None:
    make, file, read = READERS[name]
    RAN.clear()
    with pytest.raises(L2cafError) as raised:
        read(make(tmp_path / file))
    assert RAN == []
    assert_is_a_sentence(raised.value)


def assert_is_a_sentence(error: L2cafError) -> None:
    said = str(error)
    assert said
    assert "\n" not in printable(said)  # as doors show it
    assert len(said) < 900


def test_an_archive_leads_out_of_no_folder(tmp_path: Path) -> None:
    """Names inside an archive are keys, and nothing is unpacked."""
    path = tmp_path / "in" / "a.npz"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("../out.npy", "/tmp/l2caf-out.npy", "vectors.npy"):
            values = io.BytesIO()
            np.save(values, np.zeros((2, 3, 4, 4), np.float32))
            archive.writestr(name, values.getvalue())
    stored(path, key="vectors")
    with pytest.raises(L2cafError):
        Index.load(path)
    assert [file.name for file in tmp_path.rglob("*")] == ["in", "a.npz"]


def mutated(data: bytes, generator: random.Random) -> bytes:
    """Bytes changed, cut out, doubled, swapped or appended, a few at a time."""
    values = bytearray(data)
    for _ in range(generator.randint(1, 8)):
        place = generator.randrange(max(1, len(values)))
        kind = generator.randrange(6)
        if kind == 0 and values:
            values[place % len(values)] = generator.randrange(256)
        elif kind == 1:
            del values[place : place + generator.randint(1, 64)]
        elif kind == 2:
            values[place:place] = values[place : place + generator.randint(1, 64)]
        elif kind == 3:
            values[place:place] = generator.randbytes(generator.randint(1, 16))
        elif kind == 4:
            values = values[:place]
        else:
            values[place : place + 4] = generator.choice(
                [b"\xff\xff\xff\xff", b"\x00\x00\x00\x00", b"\x7f\xff\xff\xff"]
            )
    return bytes(values)


def pictures() -> dict[str, bytes]:
    generator = np.random.default_rng(0)
    image = Image.fromarray(generator.integers(0, 256, (24, 20, 3)).astype(np.uint8))
    found = {}
    for name, options in (
        ("jpg", {}),
        ("png", {}),
        ("webp", {}),
        ("gif", {}),
        ("bmp", {}),
        ("tiff", {"compression": "tiff_lzw"}),
    ):
        stream = io.BytesIO()
        exif = Image.Exif()
        exif[0x0112] = 6
        image.save(stream, "JPEG" if name == "jpg" else name.upper(), exif=exif.tobytes(), **options)
        found[name] = stream.getvalue()
    return found


MANIFEST = "file,label,x0,y0,x1,y1\none.png,1,5,6,15,16\ntwo.png,3,0,0,10,20\n"


def fuzz_pictures_and_manifests(count: int, folder: Path, seed: int) -> None:
    generator = random.Random(seed)
    kinds = pictures()
    folder.mkdir(exist_ok=True)
    for name in ("one.png", "two.png"):
        (folder / name).write_bytes(kinds["png"])
    for number in range(count):
        if number % 4 == 3:
            path = folder / "boxes.csv"
            path.write_bytes(mutated(MANIFEST.encode(), generator))
            try:
                for sample in datasets.read("manifest", path).samples:
                    open_sample(sample)
            except L2cafError as error:
                assert_is_a_sentence(error)
            continue
        name = generator.choice(list(kinds))
        path = folder / f"picture.{name}"
        path.write_bytes(mutated(kinds[name], generator))
        try:
            found = open_image(path)
        except L2cafError as error:
            assert_is_a_sentence(error)
        else:
            assert found.mode == "RGB"
            assert found.width * found.height <= Image.MAX_IMAGE_PIXELS  # type: ignore[operator]


def fuzz_checkpoints_and_indexes(count: int, folder: Path, seed: int) -> None:
    generator = random.Random(seed)
    network = pooled()
    folder.mkdir(exist_ok=True)
    torch.save(network.state_dict(), folder / "good.pth")
    save_file(network.state_dict(), folder / "good.safetensors")
    vectors = np.random.default_rng(0).random((4, 3)).astype(np.float32)
    Index(vectors, ("a", "b", "c", "d"), normalized=False, identity="i", network="n", stamp="s").save(
        folder / "good.npz"
    )
    for number in range(count):
        suffix = (".pth", ".safetensors", ".npz")[number % 3]
        path = folder / f"mutated{suffix}"
        path.write_bytes(mutated((folder / f"good{suffix}").read_bytes(), generator))
        try:
            if suffix == ".npz":
                Index.load(path)
            else:
                load_weights(pooled(), path)
        except L2cafError as error:
            assert_is_a_sentence(error)


def test_mutated_pictures_and_manifests_are_read_or_refused(tmp_path: Path) -> None:
    fuzz_pictures_and_manifests(400, tmp_path / "fuzz", seed=1)


def test_mutated_checkpoints_and_indexes_are_read_or_refused(tmp_path: Path) -> None:
    fuzz_checkpoints_and_indexes(90, tmp_path / "fuzz", seed=2)


@pytest.mark.endurance
def test_ten_thousand_mutated_pictures_and_manifests(tmp_path: Path) -> None:
    fuzz_pictures_and_manifests(10_000, tmp_path / "fuzz", seed=3)


@pytest.mark.endurance
def test_a_thousand_mutated_checkpoints_and_indexes(tmp_path: Path) -> None:
    fuzz_checkpoints_and_indexes(1_000, tmp_path / "fuzz", seed=4)
