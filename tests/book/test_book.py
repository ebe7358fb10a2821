"""The book builds without a warning, leads nowhere that is not there, and needs nothing from elsewhere.

One build serves all tests of this file: pages, reference, and the notebooks, which run as it is built.
"""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote

import pytest
import typer

import l2caf
from l2caf.cli.app import app as command_line

pytest.importorskip("myst_nb", reason="the book is built where the extra `docs` is installed")

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
NOTEBOOKS = ("classifier", "clip", "evaluation", "retrieval")
# What a browser fetches by itself, beside what a reader may click on.
FETCHED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "video": "src"}


class Page(HTMLParser):
    """The links, the anchors and what is fetched of one page."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file, self.links, self.anchors, self.fetched = file, [], set(), []
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if FETCHED.get(tag) in given and given.get("rel") not in ("canonical", "search", "next", "prev", "index"):
            self.fetched.append(given[FETCHED[tag]])


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build it as `make docs` does."""
    out = tmp_path_factory.mktemp("book") / "html"
    recipe = re.search(r"^docs:.*\n\t\$\(BIN\)/python (.+)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert recipe is not None
    words = [str(out) if word == "build/docs" else word for word in recipe[1].split()]
    assert "-W" in words
    done = subprocess.run([sys.executable, *words], cwd=ROOT, env=os.environ.copy(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    return out


@pytest.fixture(scope="module")
def pages(book: Path) -> dict[Path, Page]:
    return {file: Page(file) for file in book.rglob("*.html")}


def test_every_page_is_in_the_book(book: Path) -> None:
    for page in written():
        assert (book / page).with_suffix(".html").is_file()


def test_notebooks_ran_to_their_end(book: Path) -> None:
    assert {file.stem for file in (DOCS / "notebooks").iterdir()} == {*NOTEBOOKS}
    for name in NOTEBOOKS:
        cells = (DOCS / "notebooks" / f"{name}.md").read_text("utf-8").count("```{code-cell}")
        shown = (book / "notebooks" / f"{name}.html").read_text("utf-8")
        assert shown.count("cell_input") >= cells > 3
        assert "cell_output" in shown
        assert "<img" in shown
        assert "Traceback" not in shown
        assert "site-packages" not in shown  # what a library says of this machine is nothing for readers


def test_links_and_anchors_lead_somewhere(pages: dict[Path, Page]) -> None:
    checked = 0
    for page in pages.values():
        for link in page.links:
            if re.match(r"[a-z]+:", link):
                continue
            path, _, anchor = link.partition("#")
            target = (page.file.parent / unquote(path)).resolve() if path else page.file
            assert target.is_file(), f"{page.file.name}: {link}"
            if anchor and target in pages:
                assert unquote(anchor) in pages[target].anchors, f"{page.file.name}: {link}"
            checked += 1
    assert checked > 1000


def test_nothing_is_fetched_from_elsewhere(book: Path, pages: dict[Path, Page]) -> None:
    for page in pages.values():
        for source in page.fetched:
            assert not re.match(r"(https?:)?//", source), f"{page.file.name}: {source}"
    for sheet in book.rglob("*.css"):
        assert not re.search(r"url\(\s*['\"]?(https?:)?//", sheet.read_text("utf-8")), sheet.name
        assert not re.search(r"@import\s+['\"](https?:)?//", sheet.read_text("utf-8")), sheet.name


def test_formulas_are_in_the_page(book: Path) -> None:
    shown = (book / "exact-solutions.html").read_text("utf-8")
    assert shown.count('<svg class="formula"') > 40
    assert 'aria-label="' in shown
    assert not re.search("<script[^>]+mathjax", shown, re.IGNORECASE)


def documented(book: Path) -> dict[str, str]:
    """Each object of the reference, and its page."""
    from sphinx.util.inventory import InventoryFile

    with (book / "objects.inv").open("rb") as file:
        inventory = InventoryFile.load(file, "", os.path.join)
    return {
        name: item[2] if isinstance(item, tuple) else item.uri
        for kind, items in inventory.items()
        if kind.startswith("py:")
        for name, item in items.items()
    }


def test_every_public_name_is_in_the_reference(book: Path) -> None:
    found = documented(book)
    for name in l2caf.__all__:
        assert f"l2caf.{name}" in found, f"docs/reference/ has no {name}: add it to the page that it belongs to"
        assert not found[f"l2caf.{name}"].startswith("reference/modules/")
    modules = own("modules")
    for room in l2caf._ROOMS:
        importlib.import_module(f"l2caf.{room}")
        assert f"l2caf.{room}" in found
        assert (book / "reference" / "modules" / f"{room}.html").is_file()
        for module in modules.modules_of(room):
            for name in modules.public_names(module):
                assert f"{module.__name__}.{name}" in found or name in l2caf.__all__


def own(name: str) -> ModuleType:
    """An extension of the book."""
    sys.path.insert(0, str(DOCS / "_ext"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.pop(0)


def test_every_command_and_option_is_in_the_reference(book: Path) -> None:
    shown = (book / "reference" / "commands.html").read_text("utf-8")
    for words, command in own("commands").commands(typer.main.get_command(command_line)):
        assert f"<h2>{words}<" in shown
        for parameter in command.params:
            assert parameter.hidden or parameter.name == "help" or all(name in shown for name in parameter.opts)
    assert "[bold]" not in shown
    assert "[dim]" not in shown


def test_assistants_find_every_page(book: Path) -> None:
    text = (book / "llms.txt").read_text("utf-8")
    listed = re.findall(r"^- \[.+?\]\((.+?)\): \S", text, re.MULTILINE)
    assert len(listed) == len(set(listed))
    names = {page.removeprefix("_sources/").rpartition(".")[0] for page in listed}
    assert names == {
        *(str(page.with_suffix("")) for page in written()),
        *(f"reference/modules/{room}" for room in l2caf._ROOMS),
        "reference/commands",
    }
    for page in listed:
        assert (book / page).is_file()
        assert page.endswith(".html") or "literalinclude" not in (book / page).read_text("utf-8")
    assert "l2caf.load(" in text


def written() -> Iterator[Path]:
    """The pages that people wrote."""
    for page in sorted(DOCS.rglob("*.md")):
        yield page.relative_to(DOCS)
