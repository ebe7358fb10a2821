"""The tab for a picture among others: its neighbours, and what in either speaks for the match."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr
from PIL import Image

from ..errors import InputError
from ..images import save_picture
from ..rendering.style import Style
from ..tasks.match import MatchRequest, contrast_drawn, contrast_title, drawn_on, find_matches, pair_title
from ..tasks.samples import SAMPLES, sample
from . import markup
from .fields import GENERAL, Faults, Files, Photograph, uploaded, without_places
from .markup import Shown
from .visits import Visit

if TYPE_CHECKING:
    from ..retrieval.match import Seen
    from .page import Host

HEIGHT = 288  # pixels of a picture on the screen
NOTHING = "no place speaks for it beyond what all share"
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
                self.query = Photograph(
                    label="Query", type="filepath", sources=["upload", "clipboard"], height=220, elem_id="query"
                )
                self.faults.place(GENERAL, "query", "image")
                self.source = gr.Radio(
                    offered, value=offered[0], label="Compare it with", visible=len(offered) > 1, elem_id="source"
                )
                self.gallery = Files(
                    label="Pictures to compare with",
                    file_count="multiple",
                    type="filepath",
                    height=150,
                    visible=not host.gallery,
                    elem_id="gallery",
                )
                self.faults.place("gallery")
                self.take = gr.Button("Take the samples", size="sm", elem_id="match-samples")
                self.network = gr.Dropdown(
                    host.models.choices,
                    value=host.models.offered[0],
                    allow_custom_value=True,
                    label="Network",
                    info="for a classifier, its pooled features are compared",
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
        """The middle of the cat, among both sides of every sample."""
        query, files = visit.place("cat-middle.jpg"), []
        save_picture(_part(sample("cat"), 0.5), query)
        for name in SAMPLES:
            for side, place in (("left", 0.0), ("right", 1.0)):
                files.append(str(visit.place(f"{name}-{side}.jpg")))
                save_picture(_part(sample(name), place), Path(files[-1]))
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
            above = _shown(pair.of_query, matches.view, style, f"in the query, for #{pair.rank}")
            rows.append(markup.pair(above, _shown(pair.of_neighbour, pair.view, style, name)))
        found_so = ['<div class="pairs">' + "".join(rows) + "</div>"]
        apart = contrast_drawn(matches)
        if apart is not None:
            title = contrast_title(matches).replace("\n", ", ")
            found_so.append(
                markup.section("One rather than another") + markup.figures([Shown(apart, title, f"The query, {title}")])
            )
        said = [f"{found.gallery} pictures compared, by {matches.unit}: {found.compares}."]
        said += [str(one.error) for one in found.failed]
        told = markup.notes(without_places(one) for one in said)
        return {self.figure: "".join(found_so) + told}


def _shown(seen: Seen, view: Image.Image, style: Style, title: str) -> Shown:
    """One picture of a pair with its map; where nothing speaks for the pair, the picture as it is and a word."""
    view = _small(view)
    if seen.outcome.shows_nothing or (seen.empty and not style.signed):
        return Shown(view, f"{title}: {NOTHING}", f"{title}: {NOTHING}")
    return Shown(drawn_on(seen, view, style), title, f"What makes the two alike, {title}")


def _small(view: Image.Image) -> Image.Image:
    if view.height <= HEIGHT:
        return view
    return view.resize((max(1, round(view.width * HEIGHT / view.height)), HEIGHT))


def _part(picture: Image.Image, place: float) -> Image.Image:
    """A square of 0.7 of the height, from the left edge (0) to the right (1)."""
    side = round(0.7 * picture.height)
    left, top = round(place * (picture.width - side)), (picture.height - side) // 2
    return picture.crop((left, top, left + side, top + side))


def _short(*words: str) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:12]
