"""One run at a time in a folder; a lock that its process left behind holds nobody up."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import squares
import stripes
from classifier_for_tests import ClassifierRecipe
from l2caf.cli.app import run as cli
from l2caf.errors import FileError
from l2caf.runs import lock
from l2caf.runs.lock import LOCK, alone_in
from l2caf.training.trainer import follow

# Holds the folder until a line comes, and says when it has it.
HOLDER = "import sys; from pathlib import Path; from l2caf.runs.lock import alone_in\n" + (
    "with alone_in(Path(sys.argv[1])): print('held', flush=True); sys.stdin.readline()"
)


@pytest.fixture
def holding() -> Iterator[Callable[[Path], subprocess.Popen[str]]]:
    """Start another process that holds a folder."""
    with ExitStack() as stack:

        def start(folder: Path) -> subprocess.Popen[str]:
            command = [sys.executable, "-c", HOLDER, str(folder)]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            stack.callback(_ended, process)
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            return process

        yield start


def _ended(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_another_process_is_kept_out_and_told_by_whom(
    tmp_path: Path, holding: Callable[[Path], subprocess.Popen[str]]
) -> None:
    process = holding(tmp_path)
    with pytest.raises(FileError) as caught, alone_in(tmp_path):
        pass
    said = str(caught.value)
    assert f"is in use by another run (process {process.pid} on {socket.gethostname()}, since 20" in said
    assert said.endswith("wait until that has ended, or choose another folder.")
    assert caught.value.field == "out"
    process.communicate("\n")
    with alone_in(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []  # nothing is left behind


def test_a_killed_run_holds_nobody_up(tmp_path: Path, holding: Callable[[Path], subprocess.Popen[str]]) -> None:
    process = holding(tmp_path)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert (tmp_path / LOCK).exists()  # as it was left
    with alone_in(tmp_path):
        assert json.loads((tmp_path / LOCK).read_text())["process"] == os.getpid()
    assert not (tmp_path / LOCK).exists()


@pytest.mark.parametrize("content", [b"", b"\xff\xfe no json", b"[1, 2]", b'{"process": "x"}'])
def test_a_lock_file_of_any_content_is_no_lock(tmp_path: Path, content: bytes) -> None:
    (tmp_path / LOCK).write_bytes(content)
    with alone_in(tmp_path):
        pass


def test_a_thread_may_come_in_again_and_others_may_not(tmp_path: Path) -> None:
    said: list[BaseException] = []

    def other() -> None:
        try:
            with alone_in(tmp_path):
                pass
        except FileError as error:
            said.append(error)

    with alone_in(tmp_path):
        with alone_in(tmp_path / "." / ".." / tmp_path.name):
            pass
        assert (tmp_path / LOCK).exists()  # the inner one does not open the door for others
        for _ in range(2):
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
    assert ["is in use by another run" in str(error) for error in said] == [True, True]
    other()
    assert len(said) == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_has_no_part_in_it(tmp_path: Path) -> None:
    with alone_in(tmp_path):
        child = os.fork()
        if not child:
            try:
                with alone_in(tmp_path):
                    os._exit(1)
            except FileError:
                os._exit(0)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        with pytest.raises(FileError, match="cannot"), alone_in(tmp_path / LOCK):
            pass


def test_an_error_inside_opens_the_folder_again(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), alone_in(tmp_path):
        raise KeyboardInterrupt
    with alone_in(tmp_path):
        pass


def test_one_that_removes_its_file_while_another_waits_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file that was opened is gone when the lock comes: a lock on it would keep nobody out."""
    real, calls = lock._lock, []

    def late(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == 1:
            (tmp_path / LOCK).unlink()
        real(descriptor)

    monkeypatch.setattr(lock, "_lock", late)
    with alone_in(tmp_path):
        assert len(calls) == 2
        assert (tmp_path / LOCK).exists()


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(descriptor: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(lock, "_lock", none)
    with alone_in(tmp_path):  # alone
        pass
    who = {"host": socket.gethostname(), "since": "today"}
    (tmp_path / LOCK).write_text(json.dumps({"process": os.getppid(), **who}))  # alive
    with pytest.raises(FileError, match=f"process {os.getppid()} on"), alone_in(tmp_path):
        pass
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    (tmp_path / LOCK).write_text(json.dumps({"process": gone.pid, **who}))
    with alone_in(tmp_path):
        pass
    (tmp_path / LOCK).write_text(json.dumps({"process": 1, "host": "elsewhere", "since": "today"}))
    with alone_in(tmp_path):
        pass


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return squares.folder(tmp_path_factory.mktemp("made"), count=4)


@pytest.mark.parametrize("command", ["evaluate", "sanity", "time"])
def test_a_command_is_refused_before_its_network_is_loaded(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    (made / "loud.py").write_text("def build():\n    raise SystemExit('it was loaded')\n")
    network, out = f"{made / 'loud.py'}:build", ("--out", str(tmp_path))
    arguments = {
        "evaluate": ["evaluate", "manifest", str(made / "boxes.csv"), "--network", network],
        "sanity": ["sanity", str(made / "00.png"), "--network", network],
        "time": ["time", network],
    }[command]
    held, over = threading.Event(), threading.Event()

    def hold() -> None:
        with alone_in(tmp_path):
            held.set()
            over.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    try:
        assert cli([*arguments, *out]) == 2
    finally:
        over.set()
        thread.join()
    said = capsys.readouterr().err
    assert said.startswith("error: --out: '")
    assert "is in use by another run (process" in said
    assert said.count("\n") == 1


def test_two_evaluations_at_once(made: Path, tmp_path: Path) -> None:
    """The second of two real commands is refused while the first one measures, and the first ends well."""
    waiting = squares.BUILDER.replace(
        "    def forward(self, x):\n",
        "    def forward(self, x):\n"
        "        import os, pathlib, time\n"
        "        flag = pathlib.Path(os.environ['FLAG'])\n"
        "        flag.touch()\n"
        "        while flag.exists(): time.sleep(0.02)\n",
    )
    (made / "waiting.py").write_text(waiting)
    flag, out = tmp_path / "flag", tmp_path / "out"
    arguments = ["evaluate", "manifest", str(made / "boxes.csv"), "--network", f"{made / 'waiting.py'}:build"]
    command = [sys.executable, "-m", "l2caf", *arguments, "-m", "l2caf", "--out", str(out)]
    environment = {**os.environ, "FLAG": str(flag)}
    first = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    stop = threading.Event()

    def wave_on() -> None:
        while not stop.wait(0.02):
            flag.unlink(missing_ok=True)

    try:
        while not flag.exists():
            assert first.poll() is None
        second = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert second.returncode == 2
        assert f"is in use by another run (process {first.pid} on" in second.stderr
        waving = threading.Thread(target=wave_on)
        waving.start()
        assert first.wait() == 0
        stop.set()
        waving.join()
    finally:
        stop.set()
        first.kill()
        first.communicate()
    assert {path.name for path in out.iterdir()} == {"rows.jsonl", "run.json", "results.json", "report.html"}


def test_training_is_refused_before_its_pictures_are_prepared(tmp_path: Path) -> None:
    data = stripes.dataset(tmp_path / "pictures", size=24)
    stages: list[str] = []
    held, over = threading.Event(), threading.Event()

    def hold() -> None:
        with alone_in(tmp_path / "out"):
            held.set()
            over.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    try:
        with pytest.raises(FileError, match="is in use by another run"):
            follow(
                ClassifierRecipe(), data, tmp_path / "out", device="cpu", progress=lambda *now: stages.append(now[0])
            )
    finally:
        over.set()
        thread.join()
    assert stages == []
    follow(ClassifierRecipe(), data, tmp_path / "out", device="cpu")
