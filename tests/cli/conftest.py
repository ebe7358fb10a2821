"""The command line as a person has it: in a folder of its own, with the networks of the test module in `nets.py`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from l2caf.cli import main


@pytest.fixture
def run(
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., tuple[int, str, str]]:
    """Run a command; gives exit code, stdout, stderr. What the module calls NETS is there as nets.py."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "nets.py").write_text(getattr(request.module, "NETS", ""))

    def call(*arguments: object) -> tuple[int, str, str]:
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call
