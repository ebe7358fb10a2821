"""Pictures, facts and words as HTML: whatever comes from outside is escaped here."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import NamedTuple

from PIL import Image

QUALITY = 90


class Shown(NamedTuple):
    """A picture, the line under it, and what it shows, for those who do not see it."""

    picture: Image.Image
    caption: str
    told: str


def figures(shown: Sequence[Shown], kind: str = "") -> str:
    """Pictures side by side, below one another where there is no room.

    kind   tiles: small ones; wide: each takes all the room; map-last: where there is little room the last comes first
    """
    several = "".join(_figure(one) for one in shown)
    return f'<div class="{kind if kind == "tiles" else f"figures of-{min(len(shown), 3)} {kind}"}">{several}</div>'


def pair(first: Shown, second: Shown) -> str:
    """Two pictures that belong together, one below the other; side by side where all else is stacked."""
    return f'<div class="pair">{_figure(first)}{_figure(second)}</div>'


def _figure(one: Shown) -> str:
    source, told, caption = embedded(one.picture), escape(one.told, quote=True), escape(one.caption)
    width, height = one.picture.size
    below = f"<figcaption>{caption}</figcaption>" if caption else ""
    return f'<figure><img src="{source}" alt="{told}" width="{width}" height="{height}">{below}</figure>'


def embedded(picture: Image.Image) -> str:
    """A picture inside the page: no file of it is left anywhere."""
    stream = io.BytesIO()
    picture.convert("RGB").save(stream, "JPEG", quality=QUALITY, subsampling=0)
    return "data:image/jpeg;base64," + base64.b64encode(stream.getvalue()).decode()


def facts(pairs: Mapping[str, str]) -> str:
    """Names and values in small print."""
    rows = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in pairs.items())
    return f'<dl class="facts">{rows}</dl>'


def empty(heading: str, *lines: str) -> str:
    """What stands where nothing is to be seen yet."""
    text = "".join(f"<p>{escape(line)}</p>" for line in lines)
    return f'<div class="empty"><p class="lead">{escape(heading)}</p>{text}</div>'


def notes(lines: Iterable[str]) -> str:
    """What a person should know when looking at a result."""
    return "".join(f'<p class="note">{escape(line)}</p>' for line in lines)


def code(text: str, *, of: str, name: str) -> str:
    """Text to copy; it can be scrolled by keys."""
    label = escape(name, quote=True)
    return f'<pre class="code" id="{of}" tabindex="0" role="region" aria-label="{label}">{escape(text)}</pre>'


def section(text: str) -> str:
    """The heading of a part of a tab."""
    return f"<h2>{escape(text)}</h2>"
