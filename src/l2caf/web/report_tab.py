"""The tab for an evaluation: its images by score, one method against another."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr
from PIL import Image

from ..errors import InputError, L2cafError
from ..images import open_image
from ..localization import boxes_of
from ..methods.table import METHODS
from ..rendering.marks import Box, draw_boxes
from ..rendering.style import Style
from ..tasks.browse import ORDERS, Browsed, BrowseRequest, Scored, browse, runs_in
from ..tasks.look import LookRequest, look
from ..tasks.question import Question
from . import markup
from .fields import GENERAL, Faults
from .markup import Shown
from .visits import Visit

if TYPE_CHECKING:
    from .page import Host

LISTED = 200  # images in the list
HEIGHT = 420  # pixels of a picture on the screen
TRUTH, OURS = "#ffffff", "#ff4fd8"  # white and pink, as in the report
NONE = markup.empty(
    "No evaluation was given.",
    "Start the page with one:  l2caf serve --report RUN --pictures IMAGES",
    "RUN is the folder that 'l2caf evaluate' wrote, IMAGES where its images lie.",
)
WELCOME = markup.empty("Which images does a method find hard?", "Choose an evaluation.")


class ReportTab:
    """The controls of the tab, and what they do."""

    def __init__(self, host: Host, tab: Any) -> None:
        self.host, self.faults, self.tab = host, Faults(), tab
        # By name: a visitor names no folder of this machine.
        self.runs = {_name(run, folder): run for folder in host.reports for run in runs_in(folder)}
        names = list(self.runs)
        with gr.Row(equal_height=False):
            with gr.Column(scale=2, min_width=300, visible=bool(names)):
                self.run = gr.Dropdown(names, value=None, label="Evaluation", elem_id="run")
                self.faults.place(GENERAL, "run")
                self.ours = gr.Dropdown([], label="Method", elem_id="report-ours")
                self.theirs = gr.Dropdown([], label="against", elem_id="report-theirs")
                self.faults.place("method")
                self.order = gr.Radio(
                    [(words, key) for key, words in ORDERS.items()], value="worst", label="By IoU", elem_id="order"
                )
                self.image = gr.Dropdown([], label="Image", elem_id="report-image", filterable=True)
                with gr.Row(elem_classes=["quiet-row"]):
                    self.before = gr.Button("Previous", elem_id="previous", min_width=80)
                    self.after = gr.Button("Next", elem_id="next", min_width=80)
                self.faults.place("pictures", "image", "order")
            with gr.Column(scale=5, min_width=320):
                self.figure = gr.HTML(WELCOME if names else NONE, elem_id="report-figure", padding=False)
                self.list = gr.HTML(elem_id="report-list", padding=False)
        self._connect()

    def _connect(self) -> None:
        host = self.host
        asked = [self.run, self.ours, self.theirs, self.order, self.image]
        answer = [self.figure, self.list, self.ours, self.theirs, self.image, *self.faults.slots]
        host.on(self.run.input, self.faults.guard(self.open), [self.run], answer, heavy=True)
        if self.runs:
            host.on(self.tab.select, self.faults.guard(self.enter), [], [*answer, self.run], heavy=True)
        for control in (self.ours, self.theirs, self.order):
            host.on(control.input, self.faults.guard(self.sort), asked, answer, heavy=True)
        host.on(self.image.input, self.faults.guard(self.show), asked, answer, heavy=True, latest=True)
        for button, step in ((self.before, -1), (self.after, 1)):
            host.on(button.click, self.faults.guard(self._stepping(step)), asked, answer, heavy=True)

    def enter(self, visit: Visit) -> dict[Any, Any]:
        """Show the first evaluation to whoever opens the tab."""
        if visit.browsed is not None:
            return {}
        first = next(iter(self.runs))
        return {**self.open(visit, first), self.run: gr.update(value=first)}

    def open(self, visit: Visit, name: str) -> dict[Any, Any]:
        """Read an evaluation and show its hardest image."""
        if name not in self.runs:
            raise InputError("There is no such evaluation here: take one of the list.", field="run")
        visit.browsed = found = browse(BrowseRequest(self.runs[name], self.host.pictures))
        methods = [(METHODS.title(key), key) for key in found.methods]
        ours, theirs = found.methods[0], found.methods[min(1, len(found.methods) - 1)]
        return {
            self.ours: gr.update(choices=methods, value=ours),
            self.theirs: gr.update(choices=methods, value=theirs),
            **self._listed(found, ours, theirs, "worst"),
        }

    def sort(self, visit: Visit, name: str, ours: str, theirs: str, order: str, image: str) -> dict[Any, Any]:
        """Sort the images anew, and show the first."""
        return {} if visit.browsed is None else self._listed(visit.browsed, ours, theirs, order)

    def _listed(self, found: Browsed, ours: str, theirs: str, order: str) -> dict[Any, Any]:
        scored = found.ranked(ours, theirs, order=order)
        if not scored:
            raise InputError("No image of this evaluation has a box under both methods: choose others.", field="method")
        names = [one.image for one in scored[:LISTED]]
        return {
            self.image: gr.update(choices=names, value=names[0]),
            self.figure: self._figures(found, scored[0], ours, theirs),
            self.list: _table(scored[:LISTED], ours, theirs),
        }

    def show(self, visit: Visit, name: str, ours: str, theirs: str, order: str, image: str) -> dict[Any, Any]:
        """Show one image."""
        if visit.browsed is None:
            return {}
        scored = {one.image: one for one in visit.browsed.ranked(ours, theirs, order=order)}
        if image not in scored:
            raise InputError("There is no such image in this evaluation: take one of the list.", field="image")
        return {self.figure: self._figures(visit.browsed, scored[image], ours, theirs)}

    def _stepping(self, step: int) -> Any:
        def move(visit: Visit, name: str, ours: str, theirs: str, order: str, image: str) -> dict[Any, Any]:
            if visit.browsed is None:
                return {}
            names = [one.image for one in visit.browsed.ranked(ours, theirs, order=order)][:LISTED]
            place = names.index(image) if image in names else 0
            there = names[min(max(place + step, 0), len(names) - 1)]
            return {**self.show(visit, name, ours, theirs, order, there), self.image: gr.update(value=there)}

        return move

    def _figures(self, found: Browsed, one: Scored, ours: str, theirs: str) -> str:
        """The image under both methods: white the object, pink the box of the map."""
        try:
            file = found.file(one.image)
        except L2cafError as error:
            return markup.empty(one.image, f"IoU {one.ours:.2f} and {one.theirs:.2f}", str(error))
        shown, said = [], ["White: the object. Pink: the box of the map, at 20 % of its maximum."]
        photograph = open_image(file)
        for method, iou in ((ours, one.ours), (theirs, one.theirs)):
            try:
                picture = self._mapped(found, one.image, method, photograph, file.name)
            except L2cafError as error:
                picture = _boxed(found, one.image, method, photograph)
                said.append(str(error))
            title = f"{METHODS.title(method)}: IoU {iou:.2f}"
            shown.append(Shown(picture, title, f"{one.image} under {title}"))
        return markup.section(one.image) + markup.figures(shown) + markup.notes(dict.fromkeys(said))

    def _mapped(self, found: Browsed, image: str, method: str, photograph: Image.Image, name: str) -> Image.Image:
        """The map as it was measured, made anew, with its box and the object's."""
        row = found.rows[image][method]
        assert row.overlap is not None
        layer, view = found.settings.get("layer"), str(found.settings.get("view", "crop"))
        choice = self.host.models.choice(found.network, layer=layer, view=view)
        model = self.host.models.get(choice)
        entry = METHODS[method]
        about = row.label if row.label is not None else (row.top or (None,))[0]
        classes = (about,) if entry.about == "class" and about is not None else ()
        answer = look(LookRequest(photograph, name, choice, Question(method, classes)), model=model)
        (drawn,) = answer.pictures(Style(), height=HEIGHT)
        heat = answer.shown.maps[0].heat
        across, down = drawn.picture.width / heat.shape[1], drawn.picture.height / heat.shape[0]
        boxes = [(box, TRUTH) for box in row.overlap.truth]
        boxes += [(box, OURS) for box in boxes_of(heat, (found.settings["thresholds"][found.place],)).tolist()]
        return draw_boxes(drawn.picture, [_scaled(box, across, down, color) for box, color in boxes])


def _boxed(found: Browsed, image: str, method: str, photograph: Image.Image) -> Image.Image:
    """The photograph with the boxes that were measured, where the network is not here to make the map again."""
    overlap = found.rows[image][method].overlap
    assert overlap is not None
    small = photograph.copy()
    small.thumbnail((2 * HEIGHT, HEIGHT))
    share = small.width / photograph.width
    boxes = [(box, TRUTH) for box in overlap.truth_on_photograph]
    boxes += [(box, OURS) for box in overlap.boxes_on_photograph[found.place : found.place + 1]]
    return draw_boxes(small, [_scaled(box, share, share, color) for box, color in boxes])


def _scaled(box: Any, across: float, down: float, color: str) -> Box:
    x0, y0, x1, y1 = box
    return Box(x0 * across, y0 * down, x1 * across, y1 * down, color=color)


def _table(scored: list[Scored], ours: str, theirs: str) -> str:
    heads = ("image", METHODS.title(ours), METHODS.title(theirs), "difference")
    first = "".join(f'<th scope="col"{_number(place)}>{escape(head)}</th>' for place, head in enumerate(heads))
    rows = "".join(
        f"<tr><td>{escape(one.image)}</td>"
        + "".join(f'<td class="number">{value}</td>' for value in _values(one))
        + "</tr>"
        for one in scored
    )
    return (
        '<div class="scrolled" tabindex="0" role="region" aria-label="Scores of the images">'
        f'<table class="scores"><thead><tr>{first}</tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _values(one: Scored) -> tuple[str, str, str]:
    return f"{one.ours:.2f}", f"{one.theirs:.2f}", f"{round(one.apart, 2) + 0.0:+.2f}"


def _number(place: int) -> str:
    return ' class="number"' if place else ""


def _name(run: Path, folder: Path) -> str:
    return run.name if run == folder else f"{folder.name}/{run.name}"
