"""The page: its tabs, and what they share."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gradio as gr

from ..tasks.samples import SAMPLES, sample
from .limits import Limits
from .match_tab import MatchTab
from .models import Models
from .picture_tab import PictureTab
from .report_tab import ReportTab
from .theme import CSS
from .video_tab import VideoTab
from .visits import Visits

TITLE = "l2caf: where a network looks"
NETWORK, DRAWING = "network", "drawing"  # queues: one for what asks a network, one for what draws what was found
AT_ONCE = {NETWORK: 2, DRAWING: 4}
THUMBNAIL = 144
WORDS = {"common.upload": "Add files"}  # of a button that gradio has no words for, in any language


@dataclass(frozen=True)
class Host:
    """What whoever starts the page gives it, and what all tabs share.

    home      the folder of everything that visitors leave; it goes when the page is closed
    gallery   a folder of pictures to match with
    reports   folders of evaluations
    pictures  where the images of those evaluations lie
    """

    home: Path
    visits: Visits
    models: Models = field(default_factory=Models)
    limits: Limits = field(default_factory=Limits)
    gallery: Path | None = None
    reports: Sequence[Path] = ()
    pictures: Path | None = None

    def on(
        self,
        event: Any,
        act: Callable[..., Any],
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        *,
        heavy: bool = False,
        latest: bool = False,
        queue: str | None = None,
    ) -> Any:
        """Let an event do something for the visit that it comes from.

        heavy   a network is asked: it waits in the queue of those
        latest  of many in quick succession the last one counts
        """

        def handle(request: gr.Request, *given: Any) -> Any:
            with self.visits.working():
                return act(self.visits.of(request.session_hash), *given) or {outputs[0]: gr.skip()}

        line = queue or (NETWORK if heavy else DRAWING)
        mode, shown = "always_last" if latest else "multiple", "minimal" if heavy else "hidden"
        return _queued(event, handle, inputs, outputs, line=line, trigger_mode=mode, show_progress=shown)

    def on_long(
        self,
        event: Any,
        act: Callable[..., Iterator[Any]],
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        *,
        queue: str,
    ) -> Any:
        """Let an event start a long job, which tells now and then how far it is; one at a time in its own queue."""

        def handle(request: gr.Request, *given: Any) -> Iterator[Any]:
            yield from act(self.visits.of(request.session_hash), *given)

        return _queued(event, handle, inputs, outputs, line=queue, trigger_mode="once", show_progress="minimal")


def _queued(event: Any, handle: Any, inputs: Sequence[Any], outputs: Sequence[Any], *, line: str, **manner: Any) -> Any:
    limit = AT_ONCE.get(line, 1)
    asked = {"concurrency_id": line, "concurrency_limit": limit, "api_visibility": "private"}
    return event(handle, list(inputs), list(outputs), **asked, **manner)


def build(host: Host) -> Any:
    """The page, ready to be served."""
    with gr.Blocks(title=TITLE, analytics_enabled=False, delete_cache=(600, 3600), fill_width=True) as page:
        gr.HTML(
            "<h1>l2caf</h1><p>See where a neural network looks.</p>", elem_classes=["masthead"], apply_default_css=False
        )
        with gr.Tabs():
            with gr.Tab("Picture", id="picture"):
                PictureTab(host)
            with gr.Tab("Match", id="match"):
                MatchTab(host)
            with gr.Tab("Video", id="video"):
                VideoTab(host)
            with gr.Tab("Report", id="report") as report:
                ReportTab(host, report)

        def leave(request: gr.Request) -> None:
            host.visits.end(request.session_hash)

        page.unload(leave)
    return page


def style_sheet() -> str:
    """The page's own, with the samples as their buttons show them."""
    return CSS + "".join(
        f"#sample-{name} {{ background-image: url({_thumbnail(name)}) !important; }}\n" for name in SAMPLES
    )


def _thumbnail(name: str) -> str:
    picture = sample(name)
    side = min(picture.size)
    left, top = (picture.width - side) // 2, (picture.height - side) // 2
    stream = io.BytesIO()
    small = picture.crop((left, top, left + side, top + side)).resize((THUMBNAIL, THUMBNAIL))
    small.save(stream, "JPEG", quality=85)
    return "data:image/jpeg;base64," + base64.b64encode(stream.getvalue()).decode()
