"""`llms.txt`: every page with its first sentence, for assistants.

Each leads to the page as it was written, in Markdown, or, where that only names what is shown, as it is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes


def in_order(environment: Any, name: str, seen: set[str]) -> Iterator[str]:
    """The pages as the contents list them."""
    if name not in seen:
        seen.add(name)
        yield name
        for below in environment.toctree_includes.get(name, []):
            yield from in_order(environment, below, seen)


def line(environment: Any, name: str) -> str:
    tree = environment.get_doctree(name)
    paragraph = next((one.astext() for one in tree.findall(nodes.paragraph)), "")
    sentence = " ".join(paragraph.split()).split(". ")[0].rstrip(".:")
    source = Path(environment.doc2path(name))
    told = re.search(r"literalinclude|\bauto(class|module|function)\b", source.read_text(encoding="utf-8"))
    place = f"{name}.html" if told else f"_sources/{name}{source.suffix}"
    return f"- [{environment.titles[name].astext()}]({place}): {sentence}"


def example(environment: Any) -> str:
    """The first block of code of the first page."""
    tree = environment.get_doctree(environment.config.root_doc)
    return next(block.astext() for block in tree.findall(nodes.literal_block))


def write(app: Any, error: Exception | None) -> None:
    if error is not None or app.builder.format != "html":
        return
    environment = app.env
    pages = in_order(environment, app.config.root_doc, set())
    heading = f"# {app.config.project}\n\n> {app.config.html_short_title}"
    text = f"{heading}\n\n```python\n{example(environment)}\n```\n\n## Pages\n"
    listed = "\n".join(line(environment, name) for name in pages)
    (Path(app.outdir) / "llms.txt").write_text(f"{text}\n{listed}\n", encoding="utf-8")


def setup(app: Any) -> dict[str, Any]:
    app.connect("build-finished", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
