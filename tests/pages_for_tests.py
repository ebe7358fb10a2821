"""The pages of the documentation as something that runs: their Python, and their commands, from top to bottom."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import re
import shlex
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from l2caf.cli.app import app
from l2caf.cli.app import run as command_line
from l2caf.table import Table

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "CONTRIBUTING.md", *(f"docs/{page.name}" for page in sorted(ROOT.glob("docs/*.md"))))
# What people read beside them: notebooks run as the book is built, and the reference is made from docstrings.
READ = (
    *PAGES,
    *sorted(
        str(page.relative_to(ROOT)) for part in ("notebooks", "reference") for page in ROOT.glob(f"docs/{part}/*.md")
    ),
)
LANGUAGES = ("python", "console", "text", "bibtex")
FILE = re.compile(r"# src/(l2caf/\S+)\.py\n")
LINE = re.compile(r"# a line of (\w+) in src/(l2caf/\S+)\.py\n")
# A block that is not run says why in the line above it; its words are checked all the same.
NOT_RUN = re.compile(r"<!-- not run: (.+) -->\n$")
# A directive of the book, ```{name}, is none of the blocks: the book's own build runs or refuses it.
_FENCED = re.compile(r"^```(\w*|\{[\w-]+\}[^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# What runs the tests must not be taken away from them; SciPy looks whether Sphinx is being imported, and then uses it.
_RUNNERS = ("hypothesis", "packaging", "psutil", "pytest", "pytest-cov", "pytest-xdist", "sphinx")


@dataclass(frozen=True)
class Block:
    """A fenced block: where it stands, its language, and why it is not run, if it is not."""

    place: str
    language: str
    text: str
    not_run: str | None

    def commands(self) -> Iterator[list[str]]:
        """The words of each command, in the order in which a shell would run them."""
        for line in self.text.splitlines():
            if line.startswith("$ "):
                words = shlex.split(line.removeprefix("$ "), comments=True)
                while "&&" in words:
                    yield words[: words.index("&&")]
                    words = words[words.index("&&") + 1 :]
                yield words


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str) -> Iterator[Block]:
    text = read(page)
    for found in _FENCED.finditer(text):
        if found[1].startswith("{"):
            continue
        reason = NOT_RUN.search(text[: found.start()])
        yield Block(
            f"{page}:{text.count(chr(10), 0, found.start()) + 2}", found[1], found[2], reason[1] if reason else None
        )


def prose(page: str) -> str:
    """A page without its blocks."""
    return _FENCED.sub("", read(page))


# Prepares one command, and gives the words that it is given beside its own.
Cheap = Callable[[pytest.MonkeyPatch, list[str]], list[str]]


class Page:
    """A page in a folder of its own, with what it has installed so far and nothing else."""

    def __init__(self, scratch: Path, patch: pytest.MonkeyPatch, make_commands_cheap: Cheap) -> None:
        self.scratch, self.patch, self.make_commands_cheap = scratch, patch, make_commands_cheap
        self.names: dict[str, Any] = {"__name__": "page"}
        self.added: list[tuple[str, str]] = []
        self.ran = 0
        self.installed: list[str] = []
        # A dataclass looks for the module that it was defined in.
        patch.setitem(sys.modules, "page", ModuleType("page"))
        patch.chdir(scratch)

    def run(self, page: str, after: Callable[[Block], None] = lambda block: None) -> None:
        """Run the page from top to bottom; `after` is told of each block when it has run."""
        with self.patch.context() as patch:
            self._hide(patch)
            for block in blocks(page):
                if block.language == "console":
                    for words in block.commands():
                        self._command(words, block)
                        if wanted := pip_installs(words):
                            self.installed += wanted
                            patch.undo()
                            self._hide(patch)
                elif block.language == "python" and block.not_run is None:
                    self._python(block)
                after(block)

    def _hide(self, patch: pytest.MonkeyPatch) -> None:
        for module in hidden_modules(self.installed):
            patch.setitem(sys.modules, module, None)

    def _command(self, words: list[str], block: Block) -> None:
        tool, *rest = words
        if tool == "make":
            assert all(target in make_targets() for target in rest), f"{block.place}: {words}"
        elif tool == "pip":
            check_pip(words, block.place)
        elif tool == "l2caf":
            check_words(rest, block.place)
            if block.not_run is None:
                with self.patch.context() as patch:
                    more = self.make_commands_cheap(patch, rest)
                    assert command_line([*map(self._here, rest), *more]) == 0, f"{block.place}: {shlex.join(words)}"
                self.ran += 1
        else:
            assert tool in ("cd", "git", "python", "torchrun"), f"{block.place}: nobody checks {tool}"

    def _python(self, block: Block) -> None:
        self.ran += 1
        text = self._here(block.text)
        if found := FILE.match(text):
            self._add_module(module_name(found[1]), text, block.place)
        elif found := LINE.match(text):
            self._add_line(found[1], module_name(found[2]), text[found.end() :])
        else:
            exec(compile(text, block.place, "exec"), self.names)

    def _here(self, text: str) -> str:
        """Data sets lie in /data in the docs."""
        return re.sub(r"(?<!\w)/data\b", str(self.scratch / "data"), text)

    def _add_module(self, name: str, text: str, place: str) -> None:
        assert importlib.util.find_spec(name) is None, f"{place} would overwrite {name}"
        package, _, own = name.rpartition(".")
        module = ModuleType(name)
        module.__package__ = package
        self.patch.setitem(sys.modules, name, module)
        self.patch.setattr(importlib.import_module(package), own, module, raising=False)
        exec(compile(text, place, "exec"), vars(module))

    def _add_line(self, table: str, home: str, line: str) -> None:
        module = importlib.import_module(home)
        entry = eval(line.strip().removesuffix(","), vars(module))
        there = getattr(module, table)
        if isinstance(there, Table):
            assert entry.key not in there
            self.patch.setitem(there._entries, entry.key, entry)
            assert entry.load().__module__ == entry.home.partition(":")[0]
            self.added.append((table, entry.key))
        else:
            self.patch.setattr(module, table, (*there, entry))
            self.added.append((table, entry))


def module_name(path: str) -> str:
    return path.removesuffix("/__init__").replace("/", ".")


def check_words(words: list[str], place: str) -> None:
    """A command line that ours would understand: the command, its options and their values."""
    command: Any = typer.main.get_command(app)
    while hasattr(command, "get_command"):
        if not words:  # the group itself, as running text names it
            return
        assert command.get_command(None, words[0]), f"{place}: there is no command {words[0]}"
        command, words = command.get_command(None, words[0]), words[1:]
    if not words:  # the command itself, as running text names it
        return
    try:
        command.make_context(command.name, list(words))
    except typer.Exit:  # --help
        pass
    except Exception as error:  # noqa: BLE001 - the parser's own errors differ from version to version of typer
        pytest.fail(f"{place}: {words}: {error}")


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):.*##", read("Makefile"), re.MULTILINE))


def pip_installs(words: list[str]) -> list[str]:
    """What a pip command asks for; nothing for other commands."""
    if words[:2] != ["pip", "install"]:
        return []
    return [
        word
        for word, before in zip(words[2:], words[1:], strict=False)
        if word[0] != "-" and before not in ("-c", "-r")
    ]


def check_pip(words: list[str], place: str) -> None:
    """What is asked for exists: extras of ours from the checkout (we are on no index), others as they are called."""
    for file in (word for word, before in zip(words[1:], words, strict=False) if before in ("-c", "-r")):
        assert (ROOT / file).is_file(), f"{place}: there is no {file}"
    for wanted in pip_installs(words):
        if wanted.startswith("."):
            unknown = _extras(wanted) - set(_project()["optional-dependencies"])
            assert not unknown, f"{place}: there are no extras {unknown}"
        else:
            assert not wanted.startswith("l2caf"), f"{place}: {wanted} is on no package index"
            importlib.metadata.version(Requirement(wanted).name)


def hidden_modules(installed: Iterable[str]) -> set[str]:
    """The modules that a plain install, with what a page tells people to install, does not have: those of all other
    extras. They are there for the tests, so that a page that forgot to name one would go unnoticed."""
    kept = set(_RUNNERS)
    for wanted in (".", *installed):
        if wanted.startswith("."):
            kept |= _closure("l2caf", frozenset(_extras(wanted)))
        else:
            kept |= _closure(Requirement(wanted).name, frozenset())
    extras = {
        canonicalize_name(Requirement(line).name)
        for lines in _project()["optional-dependencies"].values()
        for line in lines
    }
    tops = {
        module
        for module, owners in importlib.metadata.packages_distributions().items()
        if {canonicalize_name(owner) for owner in owners} <= extras - kept - {"l2caf"}
    }
    return tops | {name for name in sys.modules if name.partition(".")[0] in tops}


def _extras(wanted: str) -> set[str]:
    found = re.fullmatch(r"\.\[(.+)\]", wanted)
    return {canonicalize_name(name.strip()) for name in found[1].split(",")} if found else set()


@cache
def _project() -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads(read("pyproject.toml"))["project"]
    return project


@cache
def _closure(name: str, extras: frozenset[str]) -> frozenset[str]:
    """A distribution with all that it needs, by what is installed here."""
    found, waiting = set(), [(canonicalize_name(name), extras)]
    while waiting:
        distribution, wanted = waiting.pop()
        if (distribution, wanted) in found:
            continue
        found.add((distribution, wanted))
        for requirement in map(Requirement, _requirements(distribution)):
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *wanted)):
                waiting.append((canonicalize_name(requirement.name), frozenset(requirement.extras)))
    return frozenset(distribution for distribution, _ in found)


def _requirements(distribution: str) -> list[str]:
    if distribution == "l2caf":  # as the checkout has it, not as it was once installed
        needed: list[str] = list(_project()["dependencies"])
        for extra, lines in _project()["optional-dependencies"].items():
            needed += [f"{line}; extra == '{extra}'" for line in lines]
        return needed
    try:
        return importlib.metadata.requires(distribution) or []
    except importlib.metadata.PackageNotFoundError:  # for another system
        return []
