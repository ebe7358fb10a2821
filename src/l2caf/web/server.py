"""The page on the air: where it listens, who may come in, and what is left when it closes: nothing."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import urlsplit

from ..errors import ExtraError, InputError, L2cafError
from ..tasks.samples import sample
from .limits import Limits

T = TypeVar("T")
HERE = "127.0.0.1"
PORT = 7860
PATIENCE = 60  # seconds for what is being done when the page closes
LOOPBACK = ("localhost", "127.0.0.1", "[::1]", "::1")


@dataclass(frozen=True)
class ServeRequest:
    """Where the page listens, and what it offers.

    host       an address of this machine; any but its own loopback needs `auth`
    port       0 for any that is free
    auth       who may come in: name and password
    networks   offered beside the default: names, checkpoints, code of one's own
    gallery    a folder of pictures to match with
    reports    folders of evaluations, or a folder of such folders
    pictures   where the images of those evaluations lie
    root_path  the address of the page behind a proxy
    """

    host: str = HERE
    port: int = PORT
    auth: tuple[tuple[str, str], ...] = ()
    networks: Sequence[str] = ()
    device: str = "auto"
    gallery: Path | None = None
    reports: Sequence[Path] = ()
    pictures: Path | None = None
    limits: Limits = field(default_factory=Limits)
    root_path: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise InputError(f"There is no port {self.port}: give one from 1 to 65535, or 0 for any.", field="port")
        if not self.is_local and not self.auth:
            raise InputError(
                f"At {self.host} others can reach the page: say who may come in, by a name and a password.",
                field="auth",
            )
        for name in ("gallery", "pictures"):
            folder = getattr(self, name)
            if folder is not None and not folder.is_dir():
                raise InputError(f"'{folder}' is no folder: give one.", field=name)
        for folder in self.reports:
            if not folder.is_dir():
                raise InputError(f"'{folder}' is no folder: give that of an evaluation.", field="report")

    @property
    def is_local(self) -> bool:
        """Whether nobody but this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return False

    @property
    def known_names(self) -> tuple[str, ...] | None:
        """The names by which a page of this machine alone may be called; None for any."""
        behind = urlsplit(self.root_path).hostname
        return (*LOOPBACK, self.host, *([behind] if behind else [])) if self.is_local else None


def read_auth(texts: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Names and passwords as they are typed.

    >>> read_auth(["ann:a:b"])
    (('ann', 'a:b'),)
    """
    found = []
    for text in texts:
        name, colon, password = text.partition(":")
        if not (name and colon and password):
            raise InputError("Nobody can come in by that: give a name, a colon and a password.", field="auth")
        found.append((name, password))
    return tuple(found)


class Server:
    """A page that is served until it is closed; then all that its visitors left is removed.

    >>> with Server(ServeRequest(port=0)) as server:  # doctest: +SKIP
    ...     print(server.address)
    """

    def __init__(self, request: ServeRequest) -> None:
        self.request = request
        self._warming: threading.Thread | None = None
        self._home = Path(tempfile.mkdtemp(prefix="l2caf-page-"))
        # Read when gradio makes its controls: uploads and what is made of them lie nowhere else.
        self._before = {name: os.environ.get(name) for name in _SETTINGS}
        os.environ.update({**_SETTINGS, "GRADIO_TEMP_DIR": str(self._home)})
        try:
            self._page = _in_a_loop(self._built)
        except BaseException:
            self._tidy()
            raise

    def _built(self) -> Any:
        _import_gradio()
        from .models import Models
        from .page import Host, build
        from .visits import Visits

        given = self.request
        self.visits = Visits(self._home)
        self.models = Models(given.networks, device=given.device)
        self.host = Host(
            self._home, self.visits, self.models, given.limits, given.gallery, given.reports, given.pictures
        )
        return build(self.host)

    @property
    def home(self) -> Path:
        """The folder of everything that visitors leave."""
        return self._home

    def open(self, *, in_browser: bool = False) -> str:
        """Begin to serve; the address of the page."""
        try:
            self.address = _in_a_loop(lambda: self._launched(in_browser))
        except OSError as error:
            given = self.request
            raise InputError(
                f"Nothing can listen at {given.host}, port {given.port}: give another port, or 0 for any.", field="port"
            ) from error
        self._warming = threading.Thread(target=self._warm, daemon=True)
        self._warming.start()
        return self.address

    def _launched(self, in_browser: bool) -> str:
        import gradio
        from starlette.middleware import Middleware

        from .guard import Guard
        from .page import WORDS, style_sheet
        from .theme import theme

        given = self.request
        self._page.queue(default_concurrency_limit=4, max_size=400, api_open=False)
        _, address, _ = self._page.launch(
            server_name=given.host.strip("[]"),
            server_port=given.port or _free_port(given.host.strip("[]")),
            auth=list(given.auth) or None,
            root_path=given.root_path or None,
            max_file_size=given.limits.upload_bytes,
            allowed_paths=[],
            app_kwargs={
                "middleware": [Middleware(Guard, hosts=given.known_names)],
                "docs_url": None,
                "redoc_url": None,
                "openapi_url": None,
            },
            inbrowser=in_browser,
            theme=theme(),
            css=style_sheet(),
            footer_links=[],
            i18n=gradio.I18n(en=WORDS),
            share=False,
            quiet=True,
            show_error=False,
            enable_monitoring=False,
            ssr_mode=False,
            pwa=False,
            mcp_server=False,
            prevent_thread_lock=True,
        )
        return str(address)

    def _warm(self) -> None:
        """Load the network that is offered first and ask it once, so that nobody waits for that."""
        from ..tasks.look import LookRequest, look

        with suppress(L2cafError):  # whoever asks it is told
            choice = self.models.choice(self.models.offered[0])
            look(LookRequest(sample("cup"), network=choice), model=self.models.get(choice))

    def wait(self) -> None:
        """Serve until somebody stops it, by Ctrl-C or as a service is stopped."""
        before = None
        with suppress(ValueError):  # signals belong to the main thread
            before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            with suppress(KeyboardInterrupt):
                threading.Event().wait()
        finally:
            if before is not None:
                signal.signal(signal.SIGTERM, before)

    def close(self) -> None:
        """Stop serving, and remove all that visitors left."""
        if self._warming is not None:  # torch is not left alone in a process that ends
            self._warming.join()
        self.visits.end_all()
        self._page.close(verbose=False)
        self.visits.rest(PATIENCE)
        self.visits.end_all()  # what began in the meantime
        self._tidy()

    def _tidy(self) -> None:
        shutil.rmtree(self._home, ignore_errors=True)
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    def __enter__(self) -> Server:
        try:
            self.open()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


# Nothing is told to anybody, and nothing is asked of the network.
_SETTINGS = {
    "GRADIO_TEMP_DIR": "",
    "GRADIO_ANALYTICS_ENABLED": "False",
    "GRADIO_ANALYTICS_CACHE_FREQUENCY": "1000000000",  # of a summary that nobody reads, and every event waits for
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "GRADIO_SSR_MODE": "False",
    "GRADIO_MCP_SERVER": "False",
}


def _in_a_loop(act: Callable[[], T]) -> T:
    """Do something in an event loop: elsewhere gradio makes loops of its own, which it never closes."""

    async def within() -> T:
        return act()

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(within())
    return act()


def _free_port(host: str) -> int:
    import socket

    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def _import_gradio() -> Any:
    """Bring gradio, which only the page needs."""
    try:
        import gradio
    except ImportError as error:
        raise ExtraError("The page needs gradio: pip install 'gradio>=6'.") from error
    return gradio
