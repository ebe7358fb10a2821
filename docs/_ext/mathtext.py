"""Formulas drawn by matplotlib into the page, as SVG in the colour of the text.

MathJax would come from another host, or be two megabytes of somebody else's in the repository; matplotlib is here
already. Its mathtext is a part of TeX that is large enough for these pages. A screen reader gets the TeX.
"""

from __future__ import annotations

import html
import io
import re
import zlib
from functools import cache
from typing import Any

import matplotlib as mpl
from docutils import nodes
from matplotlib.font_manager import FontProperties
from matplotlib.mathtext import MathTextParser, math_to_image
from sphinx.errors import ExtensionError

SIZE = 10.0  # points; the page scales it to its own


@cache
def drawn(tex: str) -> str:
    """One formula as an <svg> that sits on the line of the text around it."""
    font = FontProperties(size=SIZE, math_fontfamily="stix")
    made = io.BytesIO()
    try:
        with mpl.rc_context({"svg.fonttype": "path", "svg.hashsalt": "l2caf"}):
            depth = math_to_image(f"${tex}$", made, prop=font, format="svg", color="#123456")
        width, height, *_ = MathTextParser("path").parse(f"${tex}$", dpi=72, prop=font)
    except ValueError as error:
        raise ExtensionError(f"matplotlib cannot draw the formula {tex!r}: {error}") from error
    svg = re.sub(r"^.*?(?=<svg)|<metadata>.*?</metadata>", "", made.getvalue().decode(), flags=re.DOTALL)
    box = re.search(r'viewBox="([^"]+)"', svg)
    assert box is not None
    # The glyphs are the same in every formula, but what is in one must not lean on another.
    prefix = f"m{zlib.crc32(tex.encode()):x}-"
    svg = re.sub(r'(id="|href="#|url\(#)', rf"\g<1>{prefix}", svg).replace("#123456", "currentColor")
    opening = (
        f'<svg class="formula" role="img" aria-label="{html.escape(tex)}" viewBox="{box[1]}" overflow="visible"'
        f' style="width:{width / SIZE:.3f}em;height:{height / SIZE:.3f}em;vertical-align:{-depth / SIZE:.3f}em">'
    )
    return opening + re.sub(r"^<svg[^>]*>", "", svg).strip()


def inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(drawn(" ".join(node.astext().split())))
    raise nodes.SkipNode


def block(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="math formula-block">{drawn(" ".join(node.astext().split()))}</div>')
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, Any]:
    app.add_html_math_renderer("mathtext", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
