"""A run is plain data, done block by block anywhere: here, elsewhere, in halves, cancelled and gone on with."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

import squares
from l2caf import datasets
from l2caf.datasets import Sample
from l2caf.datasets.loading import Batch
from l2caf.errors import Cancelled, FileError, InputError, LayerError, NetworkError
from l2caf.evaluation.localization import Localization
from l2caf.evaluation.measurements import Mapped
from l2caf.evaluation.retrieval import Retrieval
from l2caf.networks.model import Model
from l2caf.rendering.style import Style
from l2caf.retrieval.embed import Embedding, embed
from l2caf.runs.executor import Executor, Local, run
from l2caf.runs.rows import ROWS, Row
from l2caf.runs.spec import WORKS, ModelSpec, RunSpec
from l2caf.runs.work import Block, Built, Work, out_of_memory
from l2caf.tasks.explain import ExplainRequest, explain_photographs
from l2caf.tasks.network_choice import NetworkChoice
from l2caf.tasks.photographs import Photographs
from l2caf.tasks.question import Question

WORK = Localization(("l2caf", "gradcam"))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return squares.folder(tmp_path_factory.mktemp("made"), count=10)


@pytest.fixture(scope="module")
def samples(made: Path) -> Sequence[Sample]:
    """Ten pictures; the second cannot be read."""
    found = datasets.read("manifest", made / "boxes.csv").samples
    (made / "01.png").write_bytes(b"no picture")
    return found


def spec_of(made: Path, work: Work = WORK, *, embedding: bool = False) -> RunSpec:
    return RunSpec.of(work, ModelSpec(f"{made / 'bright.py'}:build", embedding=embedding))


class Elsewhere(Executor):
    """Each block in a process of its own, which gets nothing but the pickled specification and the block."""

    code = "import pickle, sys; spec, block = pickle.load(sys.stdin.buffer); rows = spec.build()(block); " + (
        "sys.stdout.buffer.write(pickle.dumps(rows))"
    )

    def map(self, spec: RunSpec | Built, blocks: Sequence[Block]) -> Iterator[tuple[int, list[Row]]]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        for block in blocks:
            done = subprocess.run(
                [sys.executable, "-c", self.code],
                input=pickle.dumps((spec, block)),
                stdout=subprocess.PIPE,
                env=environment,
                check=True,
            )
            yield block.number, pickle.loads(done.stdout)


class Nowhere(Executor):
    """Refuses every block."""

    def map(self, spec: RunSpec | Built, blocks: Sequence[Block]) -> Iterator[tuple[int, list[Row]]]:
        raise AssertionError("nothing was left to do")


def test_every_work_of_the_table_is_one() -> None:
    for key, entry in WORKS.items():
        assert issubclass(entry.load(), Work)
        assert entry.load().key == key


PHOTOGRAPHS = Photographs(Question(classes=(3, "cat")), Style(box=True), "out", select="scores")


@pytest.mark.parametrize("work", [WORK, Retrieval(), Embedding(), PHOTOGRAPHS])
def test_a_specification_pickles_and_is_json(made: Path, work: Work) -> None:
    spec = spec_of(made, work)
    assert spec.plan == work
    assert RunSpec.from_dict(json.loads(json.dumps(spec.as_dict()))) == spec
    spec.build()
    sent = pickle.dumps(spec)
    assert len(sent) < 1000  # the network stays behind
    assert pickle.loads(sent) == spec
    assert pickle.loads(sent).plan == work


@pytest.mark.slow
def test_another_process_gives_the_same_rows(made: Path, samples: Sequence[Sample], tmp_path: Path) -> None:
    here = run(spec_of(made), samples, tmp_path / "here", size=5)
    there = run(spec_of(made), samples, tmp_path / "there", size=5, executor=Elsewhere())
    assert here.blocks_done == there.blocks_done == 0
    assert (tmp_path / "there" / ROWS).read_bytes() == (tmp_path / "here" / ROWS).read_bytes()
    rows = list(here.rows())
    assert [row["image"] for row in rows if "error" in row] == ["01.png"]
    assert len(rows) == 1 + 9 * 2


@pytest.mark.slow
def test_another_process_makes_the_same_index(made: Path, samples: Sequence[Sample]) -> None:
    spec = spec_of(made, Embedding(), embedding=True)
    here, there = embed(spec, samples, size=5), embed(spec, samples, size=5, executor=Elsewhere())
    assert here.names == there.names
    assert len(here) == 9
    assert (here.vectors == there.vectors).all()
    assert here.bad == there.bad
    assert [(bad.index, bad.name) for bad in here.bad] == [(1, "01.png")]


@pytest.mark.slow
def test_another_process_explains_and_draws_the_same(made: Path, samples: Sequence[Sample], tmp_path: Path) -> None:
    def explained(name: str, executor: Executor) -> dict[str, object]:
        network = NetworkChoice(f"{made / 'bright.py'}:build", view="whole", device="cpu")
        files = [sample.path for sample in samples[:4]]
        question = Question(classes=(1, 2))
        request = ExplainRequest(files, tmp_path / name, network, question, Style(signed=True), npy=True, batch=2)
        document = explain_photographs(request, executor=executor).as_dict()
        assert len(document["images"]) == 3
        assert [one["file"] for one in document["failed"]] == [str(made / "01.png")]
        return json.loads(json.dumps(document).replace(str(tmp_path / name), "OUT"))

    assert explained("here", Local()) == explained("there", Elsewhere())
    here, there = (
        {file.name: file.read_bytes().partition(b"<footer>")[0] for file in (tmp_path / name).iterdir()}
        for name in ("here", "there")
    )  # a page's footer tells when it was made
    assert len(here) == 7  # pictures and maps of three, and the page that lists them
    assert here == there


@dataclass(frozen=True)
class Tight(Localization):
    """Runs out of memory with more than three pictures; it says so in one way of several."""

    said: str = "cuda"

    def measure(self, model: Model, batch: Batch) -> list[Mapped]:
        if len(batch) > 3:
            errors: Mapping[str, Exception] = {
                "cuda": torch.cuda.OutOfMemoryError("CUDA out of memory."),
                "cpu": RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 7 bytes."),
                "python": MemoryError(),
            }
            raise NetworkError("It failed.") from errors[self.said]
        return super().measure(model, batch)


@pytest.mark.parametrize("said", ["cuda", "cpu", "python"])
def test_a_batch_that_does_not_fit_is_halved(made: Path, samples: Sequence[Sample], tmp_path: Path, said: str) -> None:
    model = spec_of(made).build().model
    run(WORK.on(model), samples, tmp_path / "whole", size=8)
    run(Tight(WORK.methods, said=said).on(model), samples, tmp_path / "halved", size=8)
    assert (tmp_path / "halved" / ROWS).read_bytes() == (tmp_path / "whole" / ROWS).read_bytes()


def test_one_picture_that_does_not_fit_is_told(made: Path, samples: Sequence[Sample], tmp_path: Path) -> None:
    class Never(Localization):
        def measure(self, model: Model, batch: Batch) -> list[Mapped]:
            raise MemoryError

    model = spec_of(made).build().model
    with pytest.raises(NetworkError, match="does not fit in memory with one picture"):
        run(Never(("cam",)).on(model), samples, tmp_path, size=4)
    assert not out_of_memory(RuntimeError("shapes cannot be multiplied"))


def test_cancelled_it_goes_on_to_the_same_end(made: Path, samples: Sequence[Sample], tmp_path: Path) -> None:
    told: list[tuple[str, int, int | None, dict[str, float]]] = []

    def stopping(stage: str, done: int, total: int | None, numbers: Mapping[str, float] = {}) -> None:
        told.append((stage, done, total, dict(numbers)))
        if done == 6:
            raise Cancelled("enough")

    spec = spec_of(made)
    run(spec, samples, tmp_path / "whole", size=3)
    with pytest.raises(Cancelled):
        run(spec, samples, tmp_path / "cut", size=3, progress=stopping)
    assert told == [
        ("measuring", 0, 10, {}),
        ("measuring", 3, 10, {"l2caf": 100.0, "gradcam": 100.0}),
        ("measuring", 6, 10, {"l2caf": 100.0, "gradcam": 100.0}),
    ]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("l2caf-loading")]
    whole, cut = ((tmp_path / name / ROWS) for name in ("whole", "cut"))
    assert cut.read_text().count('{"block":') == 2  # all that was finished is on disk
    assert whole.read_bytes().startswith(cut.read_bytes())
    seen = []
    run(spec, samples, tmp_path / "cut", size=3, progress=lambda stage, done, total, numbers: seen.append(done))
    assert seen == [6, 9, 10]
    assert cut.read_bytes() == whole.read_bytes()
    run(spec, samples, tmp_path / "cut", size=3, executor=Nowhere())
    assert cut.read_bytes() == whole.read_bytes()


def test_what_differs_is_named(
    made: Path, samples: Sequence[Sample], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(spec: RunSpec | Built, some: Sequence[Sample] = samples, *, size: int = 5) -> str:
        with pytest.raises(FileError, match="holds a run that differs in") as caught:
            run(spec, some, tmp_path, size=size, executor=Nowhere())
        assert caught.value.field == "out"
        return str(caught.value).split("differs in ")[1].split(":")[0]

    run(spec_of(made), samples, tmp_path, size=5)
    assert refused(spec_of(made, Localization(("cam",)))) == "methods"
    assert refused(spec_of(made), samples[:-1]) == "files ('09.png' is gone)"
    moved = [Sample(samples[0].path, samples[0].name, 2, samples[0].boxes), *samples[1:]]
    assert refused(spec_of(made), moved) == "the annotations of '00.png'"
    assert refused(spec_of(made), size=4) == "batch"
    trained = spec_of(made).build()
    with torch.no_grad():
        trained.model.network.scores.bias += 1
    assert refused(trained) == "weights"
    monkeypatch.setattr("l2caf.runs.work.code_version", lambda: "9.9")
    assert refused(spec_of(made)) == "code"


def test_a_run_that_came_to_nothing_stands_in_nobodys_way(
    made: Path, samples: Sequence[Sample], tmp_path: Path
) -> None:
    with pytest.raises(LayerError):
        run(spec_of(made, Localization(WORK.methods, layer="nowhere")), samples, tmp_path, size=5)
    run(spec_of(made), samples, tmp_path, size=5)
    run(spec_of(made), samples, tmp_path, size=5, executor=Nowhere())


def test_a_refused_run_leaves_the_other_ones_rows_as_they_are(
    made: Path, samples: Sequence[Sample], tmp_path: Path
) -> None:
    run(spec_of(made), samples, tmp_path, size=5)
    rows = tmp_path / ROWS
    rows.write_bytes(rows.read_bytes() + b'{"image": "half')  # as another process writes it
    before = rows.read_bytes()
    with pytest.raises(FileError, match="differs in methods"):
        run(spec_of(made, Localization(("cam",))), samples, tmp_path, size=5)
    assert rows.read_bytes() == before


def test_the_hash_of_an_identity_follows_its_parts(made: Path, samples: Sequence[Sample]) -> None:
    one = spec_of(made).identity(samples)
    assert one.hash == spec_of(made).identity(samples).hash
    assert one.hash != spec_of(made, Localization(("cam",))).identity(samples).hash
    assert one.hash != spec_of(made).identity(samples[1:]).hash


def test_settings_that_make_no_run(made: Path, samples: Sequence[Sample], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Batches of 0"):
        run(spec_of(made), samples, tmp_path, size=0)
    with pytest.raises(InputError, match="There is no work 'localization': the nearest are localisation"):
        RunSpec("localization", ModelSpec("x")).plan  # noqa: B018
    with pytest.raises(InputError, match="-1 workers"):
        list(Local(workers=-1).map(spec_of(made), [Block(0, tuple(samples))]))
