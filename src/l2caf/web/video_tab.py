"""The tab for a clip: a long job, with its progress, that can be stopped and keeps nobody from the rest of the page."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import gradio as gr
from PIL import Image

from ..errors import Cancelled, InputError, L2cafError
from ..networks.class_names import percent
from ..rendering.style import Style
from ..tasks.moments import Sampling
from ..tasks.question import Question
from ..tasks.video import Filmed, VideoRequest, VideoResult, explain_clips
from . import markup
from .fields import GENERAL, Faults, Files, uploaded
from .markup import Shown
from .visits import Visit

if TYPE_CHECKING:
    from .page import Host

KINDS = [".mp4", ".webm", ".mkv", ".avi", ".mov", ".m4v", ".gif"]
TOLD_EVERY = 0.25  # seconds between two words of progress
WIDEST = 960  # pixels of a film: wider ones take longer to draw than to explain
WELCOME = markup.empty(
    "Where does it look while time passes?", "Give a clip, or take the sample: a look that wanders from a cat to a cup."
)


class VideoTab:
    """The controls of the tab, and what they do."""

    def __init__(self, host: Host) -> None:
        self.host, self.faults = host, Faults()
        with gr.Row(equal_height=False):
            with gr.Column(scale=2, min_width=300):
                self.clip = Files(label="Clip", file_count="single", type="filepath", height=150, elem_id="clip")
                self.faults.place(GENERAL, "clip", "image")
                self.network = gr.Dropdown(
                    host.models.choices,
                    value=host.models.offered[0],
                    allow_custom_value=True,
                    label="Network",
                    elem_id="video-network",
                )
                self.faults.place("network", "weights")
                self.of_class = gr.Textbox(
                    label="Class",
                    placeholder="leave empty to see what it looks at",
                    elem_id="video-class",
                    max_length=100,
                )
                self.faults.place("class", "classes", "signed")
                self.signed = gr.Checkbox(label="For and against", elem_id="video-signed")
                self.stride = gr.Slider(1, 30, 1, step=1, label="Take every Nth frame", elem_id="stride", buttons=[])
                self.faults.place("stride", "frames", "window", "smooth")
                with gr.Row(elem_classes=["quiet-row"]):
                    self.go = gr.Button("Explain", variant="primary", elem_id="film", min_width=120)
                    self.stop = gr.Button("Stop", elem_id="stop", min_width=80)
                self.take = gr.Button("Take the sample clip", size="sm", elem_id="sample-clip")
            with gr.Column(scale=5, min_width=320):
                self.progress = gr.HTML(elem_id="progress", padding=False)
                self.figure = gr.HTML(WELCOME, elem_id="clip-figure", padding=False)
                with gr.Row(visible=False, elem_classes=["quiet-row"]) as self.found:
                    self.film_file = gr.DownloadButton("Download the film", elem_id="film-file")
                    self.numbers_file = gr.DownloadButton("Download the numbers (.npz)", elem_id="film-numbers")
        self._connect()

    def _connect(self) -> None:
        host = self.host
        asked = [self.clip, self.network, self.of_class, self.signed, self.stride]
        answer = [self.progress, self.figure, self.found, self.film_file, self.numbers_file, *self.faults.slots]
        host.on_long(self.go.click, self.explain, asked, answer, queue="film")
        host.on_long(self.take.click, self.explain_sample, asked, answer, queue="film")
        host.on(self.stop.click, self.end, [], [self.progress])

    def end(self, visit: Visit) -> dict[Any, Any]:
        """Stop the job at the next safe point."""
        visit.stop.set()
        return {}

    def explain(self, visit: Visit, clip: str | None, *asked: Any) -> Iterator[dict[Any, Any]]:
        """Explain an upload, telling how far it is."""
        try:
            if not clip:
                raise InputError("There is no clip: choose a file, or take the sample.", field="clip")
            path = uploaded(clip, home=self.host.home)
            visit.files.add(path)
            least = self.host.limits.check_clip(path)
            yield from self._run(visit, [path], least, *asked)
        except L2cafError as error:
            yield self._failed(visit, error)

    def explain_sample(self, visit: Visit, clip: str | None, *asked: Any) -> Iterator[dict[Any, Any]]:
        """The same with the program's own clip."""
        try:
            yield from self._run(visit, [], 1, *asked)
        except L2cafError as error:
            yield self._failed(visit, error)

    def _failed(self, visit: Visit, error: L2cafError) -> dict[Any, Any]:
        return {self.progress: "", **self.faults.told(visit, error)}

    def _run(
        self, visit: Visit, clips: list[Path], least: int, network: str, of_class: str, signed: bool, stride: int
    ) -> Iterator[dict[Any, Any]]:
        visit.stop.set()  # one job a visitor: an earlier one makes room
        visit.stop = stop = threading.Event()
        yield {self.progress: _bar("waiting", 0, None), **self.faults.cleared(visit)}
        request = VideoRequest(
            clips,
            visit.place("films"),
            self.host.models.choice(network),
            Question(classes=(of_class.strip(),) if of_class.strip() else ()),
            Style(signed=bool(signed)),
            Sampling(stride=max(int(stride), least) if max(int(stride), least) > 1 else None),
            width=None,
            demo=not clips,
        )
        told: queue.Queue[Any] = queue.Queue()
        worker = threading.Thread(target=self._work, args=(request, stop, told), daemon=True)
        worker.start()
        try:
            yield from self._following(visit, told)
        finally:  # a visitor who left needs no film
            stop.set()

    def _following(self, visit: Visit, told: queue.Queue[Any]) -> Iterator[dict[Any, Any]]:
        latest: tuple[Any, ...] | None = None
        while True:
            try:
                item = told.get(timeout=TOLD_EVERY)
            except queue.Empty:
                if latest is not None:
                    yield {self.progress: _bar(*latest)}
                    latest = None
                continue
            if isinstance(item, tuple):
                latest = item
            elif isinstance(item, Cancelled):
                yield {self.progress: '<p class="progress-line" role="status">Stopped.</p>'}
                return
            elif isinstance(item, BaseException):
                raise item
            else:
                yield self._shown(visit, item)
                return
            if told.qsize() == 0 and latest is not None:
                yield {self.progress: _bar(*latest)}
                latest = None

    def _work(self, request: VideoRequest, stop: threading.Event, told: queue.Queue[Any]) -> None:
        def progress(stage: str, done: int, total: int | None, numbers: Any = None) -> None:
            if stop.is_set():
                raise Cancelled("The visitor stopped it.")
            told.put((stage, done, total))

        try:
            with self.host.visits.working():
                model = self.host.models.get(request.network, use="video", progress=progress)
                told.put(explain_clips(request, model=model, progress=progress))
        except BaseException as error:  # noqa: BLE001 - whoever follows it raises it
            told.put(error)

    def _shown(self, visit: Visit, result: VideoResult) -> dict[Any, Any]:
        if not result.written:
            raise result.failed[0].error
        (filmed,) = result.written
        return {
            **self.faults.cleared(visit),
            self.progress: "",
            self.figure: _film(filmed, result),
            self.found: gr.update(visible=True),
            self.film_file: gr.update(value=str(filmed.files.film)),
            self.numbers_file: gr.update(value=str(filmed.files.numbers)),
        }


def _bar(stage: str, done: int, total: int | None) -> str:
    words = escape(stage) + (f", {done} of {total}" if total else "")
    filled = f'value="{done}" max="{total}"' if total else ""
    return (
        f'<p class="progress-line">{words}<progress {filled} aria-label="{escape(stage, quote=True)}"></progress></p>'
    )


def _film(filmed: Filmed, result: VideoResult) -> str:
    """The film, its strip and its curve."""
    source = f"gradio_api/file={quote(str(filmed.files.film))}"
    parts = [
        f'<video class="film" controls loop autoplay muted playsinline src="{source}"'
        f' aria-label="The clip with where the network looked"></video>'
    ]
    with Image.open(filmed.files.strip) as picture:  # the curve is in it too
        parts.append(markup.figures([Shown(picture.convert("RGB"), "", "Moments of the clip")], "wide"))
    outcomes = ", ".join(f"{count} {str(outcome).replace('_', ' ')}" for outcome, count in filmed.outcomes.items())
    seen = "; ".join(f"{one.name} in {percent(one.share)} of the frames" for one in filmed.seen[:3])
    pairs = {
        "seen": seen,
        "method": result.method,
        "network": result.network,
        "layer": filmed.layer,
        "frames": str(filmed.frames),
        "outcomes": outcomes,
    }
    facts = markup.facts({name: value for name, value in pairs.items() if value})
    return "".join(parts) + facts + markup.notes(filmed.notes)
