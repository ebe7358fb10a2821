"""One version, bounds that are tested as such, and a wheel that holds what it must and works on its own."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import l2caf

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "l2caf"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


# The version


def test_the_version_stands_in_one_place() -> None:
    assert "version" in PROJECT["project"]["dynamic"]
    assert ROOT / PROJECT["tool"]["hatch"]["version"]["path"] == PACKAGE / "__init__.py"
    assert importlib.metadata.version("l2caf") == l2caf.__version__, "installed before the version changed: run make"


def test_the_command_says_the_version() -> None:
    done = subprocess.run([sys.executable, "-m", "l2caf", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"l2caf {l2caf.__version__}\n"


def test_what_people_read_names_the_version() -> None:
    assert f"\n## [{l2caf.__version__}]" in (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert f'\nversion: "{l2caf.__version__}"\n' in (ROOT / "CITATION.cff").read_text("utf-8")


# The bounds


def pins(name: str) -> dict[str, str]:
    lines = (ROOT / name).read_text("utf-8").splitlines()
    found = [re.fullmatch(r"([\w.-]+)==(\S+)", line) for line in lines if line and not line.startswith("#")]
    assert all(found), f"{name} pins one version a line"
    return {normal(match[1]): match[2] for match in found if match}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def bounds(*extras: str) -> dict[str, str]:
    """The lower bound of every requirement, those of the project's own extras among them."""
    asked = [*PROJECT["project"]["dependencies"]] if not extras else []
    for extra in extras:
        asked += PROJECT["project"]["optional-dependencies"][extra]
    found = {}
    for requirement in asked:
        own = re.fullmatch(r"l2caf\[([\w,]+)\]", requirement)
        if own:
            found |= bounds(*own[1].split(","))
            continue
        match = re.fullmatch(r"([\w.-]+)(?:\[[\w,]+\])?>=([\w.]+)", requirement)
        assert match, f"{requirement} has no lower bound, or more than one"
        found[normal(match[1])] = match[2]
    return found


def numbers(version: str) -> list[int]:
    """1.11 and 1.11.0 are one version.

    >>> numbers("1.11.0"), numbers("1.10")
    ([1, 11], [1, 10])
    """
    found = [int(part) for part in version.split(".")]
    while found and not found[-1]:
        found.pop()
    return found


def test_the_lowest_versions_are_those_that_are_admitted() -> None:
    admitted = {name: numbers(version) for name, version in (bounds() | bounds("test")).items()}
    assert {name: numbers(version) for name, version in pins("constraints-lowest.txt").items()} == admitted


def test_the_pinned_versions_are_admitted() -> None:
    pinned = pins("constraints.txt")
    for name, version in (bounds() | bounds("dev")).items():
        assert numbers(pinned[name]) >= numbers(version), name


# The wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built by the backend that is installed already, so that it needs no package index."""
    pytest.importorskip("hatchling", reason="the backend comes with the developer's install")
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (found,) = folder.glob("*.whl")
    return found


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    assert wheel.name == f"l2caf-{l2caf.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        entries = archive.read(f"l2caf-{l2caf.__version__}.dist-info/entry_points.txt").decode()
    sources = {path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert names == {f"l2caf/{path.relative_to(PACKAGE).as_posix()}" for path in sources}
    assert {"l2caf/py.typed", "l2caf/evaluation/published.json", "l2caf/cli/app.py"} <= names
    assert "l2caf = l2caf.cli:main" in entries


@pytest.mark.slow
def test_the_wheel_works_away_from_the_checkout(wheel: Path, tmp_path: Path) -> None:
    """Unpacked into a folder of its own; `make dist-test` installs it into an empty environment."""
    home = tmp_path / "home"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(home)
    environment = os.environ | {"PYTHONPATH": str(home)}

    def run(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert Path(run("-c", "import l2caf; print(l2caf.__file__)").strip()).is_relative_to(home)
    assert run("-m", "l2caf", "--version") == f"l2caf {l2caf.__version__}\n"
    run("-c", "from l2caf.tasks.samples import sample; sample('cup').save('cup.png')")
    run("-m", "l2caf", "explain", "cup.png", "--out", "maps")
    assert list((tmp_path / "maps").glob("*.png"))
    run("-c", "from l2caf.evaluation.published import published; assert published()")
