"""What stands before every request: nothing is fetched from elsewhere, and no other site speaks for a visitor."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any
from urllib.parse import unquote, urlsplit

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Any, Send], Awaitable[None]]

# A browser loads and sends nothing but from and to the page itself.
POLICY = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self' 'unsafe-inline' 'unsafe-eval'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "media-src 'self' data: blob:",
        "font-src 'self' data:",
        "connect-src 'self' data: blob:",
        "worker-src 'self' blob:",
        "object-src 'none'",
        "base-uri 'self'",
        "form-action 'self'",
        "frame-ancestors 'self'",
    )
)
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
)
# Parts of gradio that this page has no use for: they fetch what an address names, or tell who was here.
_CLOSED = re.compile(
    r"/(?:gradio_api/)?(?:proxy=|file[=/][a-z][a-z0-9+.-]*:/|monitoring|static/fonts/../|deep_link|vibe|mcp|run_history)",
    re.IGNORECASE,
)
_IMMUTABLE = re.compile(r"/(?:assets|static|svelte)/")


class Guard:
    """Refuses what the page never asks for, and says in every answer that nothing else may be loaded.

    hosts   names by which the page may be called; None for any. On one's own machine a foreign name that leads here is
            a trick of a page elsewhere
    """

    def __init__(self, app: App, *, hosts: Iterable[str] | None = None) -> None:
        self.app = app
        self.hosts = None if hosts is None else frozenset(name.lower() for name in hosts)

    async def __call__(self, scope: Scope, receive: Any, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if not self._knows(scope):
            await _refuse(send, 421, b"This page is not known by that name.")
            return
        if self._is_foreign(scope):
            await _refuse(send, 403, b"Another site has nothing to ask here.")
            return
        if _CLOSED.search(unquote(unquote(scope["path"]))):
            await _refuse(send, 404, b"There is nothing here.")
            return
        kept = bool(_IMMUTABLE.search(scope["path"]))

        async def guarded(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                added = [pair for pair in HEADERS if not (kept and pair[0] == b"cache-control")]
                ours = {name for name, _ in added}
                given = [pair for pair in message.get("headers", []) if pair[0].lower() not in ours]
                message = {**message, "headers": [*given, *added]}
            await send(message)

        await self.app(scope, receive, guarded)

    def _knows(self, scope: Scope) -> bool:
        if self.hosts is None:
            return True
        return re.sub(r":\d+$", "", _header(scope, b"host")).lower() in self.hosts

    def _is_foreign(self, scope: Scope) -> bool:
        """Whether a page of another site sends this from the browser of somebody who may come in here.

        A browser keeps the answer from that page, but what was sent would be done. Links that lead here are none of it.
        """
        if scope["method"] in ("GET", "HEAD"):
            return False
        if _header(scope, b"sec-fetch-site").lower() == "cross-site":
            return True
        try:
            sender = urlsplit(_header(scope, b"origin")).hostname
        except ValueError:
            return True
        return sender is not None and self.hosts is not None and sender not in {name.strip("[]") for name in self.hosts}


def _header(scope: Scope, wanted: bytes) -> str:
    found: bytes = next((value for name, value in scope["headers"] if name.lower() == wanted), b"")
    return found.decode("latin-1")


async def _refuse(send: Send, status: int, words: bytes) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), *HEADERS]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": words})
