"""The tab for a picture among others: its neighbours, and what in either speaks for the match."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr

from ..errors import InputError
from ..images import save_picture
from ..rendering.style import Style
from ..tasks.match import MatchRequest, contrast_drawn, contrast_title, drawn_on, find_matches, pair_title
from ..tasks.samples import SAMPLES, sample
from . import markup
from .fields import GENERAL, Faults, taking_files, uploaded
from .markup import Shown
from .visits import Visit

if TYPE_CHECKING:
    from .page import Host

HEIGHT = 288  # pixels of a picture on the screen
LIKE_CAT = 224  # pixels of a part of the cat, which the sample query is
UPLOADED, OFFERED = "pictures that I upload", "the gallery of this page"
WELCOME = markup.empty(
    "Why do two pictures match?",
    "Give a query and pictures to compare it with, or take the samples.",
    "Below each neighbour stands what in either picture makes it like the other.",
)


class MatchTab:
    """The controls of the tab, and what they do."""

    def __init__(self, host: Host) -> None:
        self.host, self.faults = host, Faults()
        offered = [OFFERED, UPLOADED] if host.gallery else [UPLOADED]
        with gr.Row(equal_height=False):
            with gr.Column(scale=2, min_width=300):
                self.query = taking_files(
                    gr.Image(
                        label="Query", type="filepath", sources=["upload", "clipboard"], height=220, elem_id="query"
                    )
                )
                self.faults.place(GENERAL, "query", "image")
                self.source = gr.Radio(
                    offered, value=offered[0], label="Compare it with", visible=len(offered) > 1, elem_id="source"
                )
                self.gallery = taking_files(
                    gr.File(
                        label="Pictures to compare with",
                        file_count="multiple",
                        type="filepath",
                        height=150,
                        visible=not host.gallery,
                        elem_id="gallery",
                    )
                )
                self.faults.place("gallery")
                self.take = gr.Button("Take the samples", size="sm", elem_id="match-samples")
                self.network = gr.Dropdown(
                    host.models.choices,
                    value=host.models.offered[0],
                    allow_custom_value=True,
                    label="Network",
                    info="of a classifier the pooled features are compared",
                    elem_id="match-network",
                )
                self.faults.place("network", "weights")
                self.top = gr.Slider(1, 10, 4, step=1, label="Neighbours", elem_id="top", buttons=[])
                self.find = gr.Button("Find matches", variant="primary", elem_id="find")
            with gr.Column(scale=5, min_width=320):
                self.figure = gr.HTML(WELCOME, elem_id="matches", padding=False)
                with gr.Column(visible=False) as self.found:
                    with gr.Row(elem_classes=["quiet-row"]):
                        self.ours = gr.Dropdown([], label="What speaks for neighbour", elem_id="ours", min_width=120)
                        self.theirs = gr.Dropdown([], label="rather than for", elem_id="theirs", min_width=120)
                    self.faults.place("contrast", "top")
                    with gr.Row(elem_classes=["quiet-row"]):
                        self.alpha = gr.Slider(
                            0, 1, Style().alpha, step=0.05, label="Opacity", elem_id="match-alpha", buttons=[]
                        )
                        self.signed = gr.Checkbox(label="Also what speaks against a pair", elem_id="match-signed")
        self._connect()

    def _connect(self) -> None:
        host = self.host
        asked = [self.query, self.source, self.gallery, self.network, self.top, self.alpha, self.signed]
        answer = [self.figure, self.found, self.ours, self.theirs, *self.faults.slots]
        # A gallery is embedded for as long as it takes; pictures do not wait for it.
        host.on(self.find.click, self.faults.guard(self.search), asked, answer, heavy=True, queue="match")
        host.on(
            self.take.click,
            self.faults.guard(self.search_samples),
            asked,
            [*answer, self.query, self.gallery, self.source],
            heavy=True,
            queue="match",
        )
        for rank in (self.ours, self.theirs):
            told = [*asked, self.ours, self.theirs]
            host.on(rank.input, self.faults.guard(self.contrast), told, answer, heavy=True, queue="match")
        style = [self.alpha, self.signed]
        for control in (self.alpha, self.signed):
            host.on(control.input, self.draw, style, [self.figure], latest=True)
        if host.gallery:
            host.on(self.source.input, self.choose, [self.source], [self.gallery])

    def choose(self, visit: Visit, source: str) -> dict[Any, Any]:
        return {self.gallery: gr.update(visible=source == UPLOADED)}

    def search(self, visit: Visit, *asked: Any) -> dict[Any, Any]:
        """Find the neighbours, and explain each."""
        return self._search(visit, *asked)

    def _search(
        self,
        visit: Visit,
        query: str | None,
        source: str,
        files: Sequence[str] | None,
        network: str,
        top: int,
        alpha: float,
        signed: bool,
        contrast: tuple[int, int] | None = None,
    ) -> dict[Any, Any]:
        if not query:
            raise InputError("There is no query: drop a picture, or take the samples.", field="query")
        file = uploaded(query, home=self.host.home)
        visit.files.add(file)
        self.host.limits.open_image(file)
        choice = self.host.models.choice(network)
        model = self.host.models.get(choice, use="match")
        if source == OFFERED and self.host.gallery is not None:
            folder, index = self.host.gallery, self.host.home / f"gallery-{_short(choice.network)}"
        else:
            folder = self._gathered(visit, files)
            index = visit.folder / f"index-{_short(choice.network, *(one.name for one in sorted(folder.iterdir())))}"
        request = MatchRequest(file, folder, index, choice, int(top), contrast)
        visit.matches = find_matches(request, model=model)
        pairs = visit.matches.matches.pairs
        ranks = [(f"#{pair.rank}", pair.rank) for pair in pairs]
        shown = visit.matches.matches.contrast
        theirs = None if shown is None or shown.theirs > len(pairs) else shown.theirs
        return {
            **self.draw(visit, alpha, signed),
            self.found: gr.update(visible=True),
            self.ours: gr.update(choices=ranks, value=shown.ours if shown else None),
            self.theirs: gr.update(choices=ranks, value=theirs),
        }

    def _gathered(self, visit: Visit, files: Sequence[str] | None) -> Path:
        """The uploaded pictures in one folder, each looked at before it is used."""
        limits = self.host.limits
        if not files:
            raise InputError("There is nothing to compare with: upload pictures, or take the samples.", field="gallery")
        if len(files) > limits.files:
            raise InputError(f"{len(files)} pictures are too many here: give at most {limits.files}.", field="gallery")
        folder = visit.place("gallery")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for number, text in enumerate(files, start=1):
            path = uploaded(text, home=self.host.home)
            visit.files.add(path)
            limits.check_picture(path)
            name = folder / path.name
            shutil.copyfile(path, name if not name.exists() else folder / f"{number}-{path.name}")
        return folder

    def search_samples(self, visit: Visit, *asked: Any) -> dict[Any, Any]:
        """A part of the cat among the sample photographs."""
        cat = sample("cat")
        left, top = (cat.width - LIKE_CAT) // 2, (cat.height - LIKE_CAT) // 2
        query = visit.place("cat-part.png")
        save_picture(cat.crop((left, top, left + LIKE_CAT, top + LIKE_CAT)), query)
        files = []
        for name in SAMPLES:
            files.append(str(visit.place(f"{name}.jpg")))
            save_picture(sample(name), Path(files[-1]))
        made = self._search(visit, str(query), UPLOADED, files, *asked[3:])
        shown = {self.query: str(query), self.gallery: gr.update(value=files, visible=True)}
        return {**made, **shown, self.source: gr.update(value=UPLOADED)}

    def contrast(self, visit: Visit, *told: Any) -> dict[Any, Any]:
        """Tell two neighbours apart."""
        query, source, files, network, top, alpha, signed, ours, theirs = told
        if visit.matches is None or ours is None or theirs is None:
            return {}
        ranks = int(ours), int(theirs)
        return self._search(visit, query, source, files, network, top, alpha, signed, ranks)

    def draw(self, visit: Visit, alpha: float, signed: bool) -> dict[Any, Any]:
        """Draw again what was found."""
        if visit.matches is None:
            return {}
        found = visit.matches
        matches, style = found.matches, Style(alpha=float(alpha), signed=bool(signed))
        style.check()
        if found.is_of_clips:
            raise InputError("This network compares clips, and the page pictures: choose another.", field="network")
        rows = []
        for pair in matches.pairs:
            name = pair_title(pair, matches.unit).replace("\n", ", ")
            rows.append(
                markup.figures(
                    [
                        Shown(
                            drawn_on(pair.of_query, _small(matches.view), style),
                            f"in the query, for #{pair.rank}",
                            f"What in the query makes it like {name}",
                        ),
                        Shown(
                            drawn_on(pair.of_neighbour, _small(pair.view), style),
                            name,
                            f"What in the neighbour makes it like the query: {name}",
                        ),
                    ]
                )
            )
        apart = contrast_drawn(matches)
        if apart is not None:
            title = contrast_title(matches).replace("\n", ", ")
            rows.append(markup.section("Told apart") + markup.figures([Shown(apart, title, f"The query, {title}")]))
        said = [f"{found.gallery} pictures compared, by {matches.unit}: {found.compares}."]
        said += [str(one.error) for one in found.failed]
        told = markup.notes(one.replace(str(visit.folder), "").replace(str(self.host.home), "") for one in said)
        return {self.figure: '<div class="pairs">' + "".join(rows) + "</div>" + told}


def _small(view: Any) -> Any:
    if view.height <= HEIGHT:
        return view
    return view.resize((max(1, round(view.width * HEIGHT / view.height)), HEIGHT))


def _short(*words: str) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:12]
