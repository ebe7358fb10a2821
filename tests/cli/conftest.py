"""The command line as a person has it: in a folder of its own, with networks in `nets.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands_for_tests import NETS, Run
from l2caf.cli import main


@pytest.fixture
def run(
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Run:
    """Run a command; gives exit code, stdout, stderr. nets.py is what the module calls NETS, or the tiny network."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "nets.py").write_text(getattr(request.module, "NETS", NETS))

    def call(*arguments: object) -> tuple[int, str, str]:
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call
