"""Browser windows on the page, and a note of every request that would leave the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page


class Desk:
    """Browser windows of one test; each is a visitor of its own."""

    def __init__(self, browser: Browser, address: str) -> None:
        self.browser, self.address = browser, address
        self.windows: list[BrowserContext] = []
        self.left: list[str] = []
        self.complaints: list[str] = []

    def page(self, *, width: int = 1280, height: int = 900) -> Page:
        window = self.browser.new_context(viewport={"width": width, "height": height}, accept_downloads=True)
        self.windows.append(window)
        window.grant_permissions(["clipboard-read", "clipboard-write"])
        # Whatever would leave the machine is noted before it can.
        window.route(lambda url: not url.startswith(self.address), self._refuse)
        page = window.new_page()
        page.set_default_timeout(30_000)
        page.on("request", self._note)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", self._hear)
        page.goto(self.address)
        page.wait_for_selector("#sample-cat")
        return page

    def _note(self, request: Any) -> None:
        if not request.url.startswith((self.address, "data:", "blob:")):
            self.left.append(request.url)

    def _refuse(self, route: Any) -> None:
        self.left.append(route.request.url)
        route.abort()

    def _hear(self, message: Any) -> None:
        if "Content Security Policy" in message.text or "violates" in message.text:
            self.left.append(message.text)

    def close(self) -> None:
        for window in self.windows:
            window.close()
