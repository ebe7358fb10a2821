"""Blocks done by Ray's workers: the very rows of the local loop, each once, also where workers die."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import squares
from l2caf import datasets
from l2caf.datasets import Sample
from l2caf.errors import Cancelled, InputError, L2cafError, LayerError
from l2caf.evaluation.localization import Localization
from l2caf.runs.executor import Local, run
from l2caf.runs.ray import NICENESS, Ray
from l2caf.runs.rows import ROWS
from l2caf.runs.spec import ModelSpec, RunSpec
from l2caf.tasks.engine import EngineChoice

ray = pytest.importorskip("ray")
WORK = Localization(("l2caf", "gradcam"))

pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("ignore")]  # what Ray says of itself


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """One cluster for all tests of this file: to start one takes seconds."""
    os.environ.update(NICENESS)
    # Workers find the package and the networks of these tests where this process does.
    paths = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH", ""), str(Path(squares.__file__).parent)]))
    ray.init(
        num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False,
        runtime_env={"env_vars": {"PYTHONPATH": paths}},
    )  # fmt: skip
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return squares.folder(tmp_path_factory.mktemp("made"), count=12)


@pytest.fixture(scope="module")
def samples(made: Path) -> Sequence[Sample]:
    """Twelve pictures; the second cannot be read."""
    found = datasets.read("manifest", made / "boxes.csv").samples
    (made / "01.png").write_bytes(b"no picture")
    return found


def spec_of(made: Path, work: Localization = WORK) -> RunSpec:
    return RunSpec.of(work, ModelSpec(f"{made / 'bright.py'}:build"))


@pytest.fixture(scope="module")
def undisturbed(made: Path, samples: Sequence[Sample], tmp_path_factory: pytest.TempPathFactory) -> bytes:
    out = tmp_path_factory.mktemp("local")
    run(spec_of(made), samples, out, size=2, executor=Local(0))
    return (out / ROWS).read_bytes()


@pytest.mark.usefixtures("cluster")
def test_rows_are_those_of_the_local_loop(
    made: Path, samples: Sequence[Sample], undisturbed: bytes, tmp_path: Path
) -> None:
    run(spec_of(made), samples, tmp_path, size=2, executor=Ray(2))
    assert (tmp_path / ROWS).read_bytes() == undisturbed


@pytest.mark.usefixtures("cluster")
def test_a_worker_that_is_killed_loses_nothing(
    made: Path, samples: Sequence[Sample], undisturbed: bytes, tmp_path: Path
) -> None:
    killed: list[int] = []

    def progress(stage: str, done: int, total: int | None, numbers: object = None) -> None:
        if done >= 2 and len(killed) < 2:
            for process in _workers():
                os.kill(process, signal.SIGKILL)
                killed.append(process)
                break

    run(spec_of(made), samples, tmp_path, size=2, executor=Ray(2), progress=progress)
    assert killed
    assert (tmp_path / ROWS).read_bytes() == undisturbed


def _workers() -> list[int]:
    """The processes of our actors."""
    import psutil

    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if "_Worker" in " ".join(process.cmdline()):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


@pytest.mark.usefixtures("cluster")
def test_a_run_that_was_stopped_is_gone_on_with_by_another_engine(
    made: Path, samples: Sequence[Sample], undisturbed: bytes, tmp_path: Path
) -> None:
    def stop(stage: str, done: int, total: int | None, numbers: object = None) -> None:
        if done >= 4:
            raise Cancelled

    with pytest.raises(Cancelled):
        run(spec_of(made), samples, tmp_path, size=2, executor=Ray(2), progress=stop)
    assert _until_none_is_left()
    run(spec_of(made), samples, tmp_path, size=2, executor=Local(0))
    assert (tmp_path / ROWS).read_bytes() == undisturbed


def _until_none_is_left(seconds: float = 60) -> bool:
    end = time.monotonic() + seconds
    while _workers() and time.monotonic() < end:
        threading.Event().wait(0.2)
    return not _workers()


@pytest.mark.usefixtures("cluster")
def test_an_error_of_ours_arrives_as_it_was_raised(made: Path, samples: Sequence[Sample], tmp_path: Path) -> None:
    work = Localization(("l2caf",), layer="nowhere")
    with pytest.raises(LayerError, match="nowhere"):
        run(spec_of(made, work), samples, tmp_path, size=2, executor=Ray(2))


def test_a_network_in_hand_is_refused(made: Path, samples: Sequence[Sample], tmp_path: Path) -> None:
    built = spec_of(made).build()
    with pytest.raises(InputError, match="cannot be sent"):
        run(built, samples, tmp_path, executor=Ray(1))


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"engine": "spark"}, "engine"),
        ({"workers": 2}, "workers"),
        ({"address": "auto"}, "address"),
        ({"engine": "ray", "workers": 0}, "workers"),
        ({"engine": "ray", "gpus_per_worker": -1.0}, "gpus_per_worker"),
    ],
)
def test_engines_are_checked(options: dict[str, object], field: str) -> None:
    with pytest.raises(L2cafError) as raised:
        EngineChoice(**options).executor()  # type: ignore[arg-type]
    assert raised.value.field == field
