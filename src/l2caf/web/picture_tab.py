"""The tab for one photograph: its map, its classes, and everything that can be asked and drawn of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr

from ..errors import InputError, L2cafError
from ..methods.table import FILTERS, METHODS
from ..preprocessing import VIEWS
from ..rendering.style import Style
from ..tasks.compare import compare
from ..tasks.layers import layers_in
from ..tasks.look import BEST, Look, LookRequest, look, title_of
from ..tasks.question import Question
from ..tasks.samples import SAMPLES, sample, sample_path
from . import markup
from .equivalent import as_command, as_python
from .fields import GENERAL, Faults, Photograph, uploaded
from .markup import Shown
from .visits import Visit

if TYPE_CHECKING:
    from .page import Host

AUTO = "auto"  # the method that suits the network
SHARP, TILE = 448, 224  # pixels of a picture's height on the screen
VIEW_NAMES = dict(zip(VIEWS, ("its centre", "all of it", "all of it, stretched"), strict=True))
WELCOME = markup.empty(
    "Where does a network look?",
    "Drop a photograph, paste one, or take a sample.",
    "Nothing of it is kept.",
)
COPY = "() => navigator.clipboard.writeText(document.getElementById('{of}').innerText)"
# On a telephone what was asked for lies below what asked for it.
SCROLL = "() => { if (innerWidth < 700) document.querySelector('#figure').scrollIntoView({ behavior: 'smooth' }) }"
FETCH = "() => document.querySelector('#{of}').click()"


class PictureTab:
    """The controls of the tab, and what they do."""

    def __init__(self, host: Host) -> None:
        self.host, self.faults = host, Faults()
        self._layers: dict[str, list[tuple[str, str]]] = {}
        with gr.Row(equal_height=False):
            with gr.Column(scale=2, min_width=300):
                self._make_input()
            with gr.Column(scale=5, min_width=320):
                self._make_output()
        self._connect()

    def _make_input(self) -> None:
        self.photograph = Photograph(
            label="Photograph", type="filepath", sources=["upload", "clipboard"], height=260, elem_id="photograph"
        )
        self.faults.place(GENERAL, "image")
        gr.HTML(markup.section("Or take a sample"))
        with gr.Row(elem_classes=["samples"]):
            self.samples = {name: gr.Button(name, elem_id=f"sample-{name}", size="sm") for name in SAMPLES}
        with gr.Accordion("Network and layer", open=False) as self.network_part:
            self.network = gr.Dropdown(
                self.host.models.choices,
                value=self.host.models.offered[0],
                allow_custom_value=True,
                label="Network",
                info="or type timm:NAME, torchvision:NAME",
                elem_id="network",
            )
            self.faults.place("network", "weights", "device", "embedding")
            self.layer = gr.Dropdown(
                [("the last one with a map", "")], value="", allow_custom_value=True, label="Layer", elem_id="layer"
            )
            self.faults.place("layer")
            self.view = gr.Radio(
                [(words, key) for key, words in VIEW_NAMES.items()], value="crop", label="What it is shown"
            )
            self.faults.place("view")
        with gr.Accordion("Method and filter", open=False):
            self.method = gr.Dropdown(
                [("what suits the network", AUTO), *((entry.title, key) for key, entry in METHODS.items())],
                value=AUTO,
                label="Method",
                elem_id="method",
            )
            self.faults.place("method")
            self.filter = gr.Dropdown(
                [(f"{entry.title} ({key})", key) for key, entry in FILTERS.items()],
                value="l2",
                label="Filter of L2-CAF",
                elem_id="filter",
            )
            self.faults.place("filter", "solver")

    def _make_output(self) -> None:
        self.figure = gr.HTML(WELCOME, elem_id="figure")
        self.facts = gr.HTML(elem_id="facts")
        with gr.Column(visible=False) as self.found:
            self.classes = gr.CheckboxGroup(
                [],
                label="What it sees",
                info="Click a class for its map, a second one to see both side by side.",
                elem_id="classes",
            )
            with gr.Row(elem_classes=["quiet-row"], equal_height=True):
                self.other = gr.Textbox(
                    label="Another class",
                    placeholder="a name or a number, then Enter",
                    elem_id="other",
                    scale=2,
                    min_width=220,
                    max_length=100,
                )
                with gr.Column(scale=1, min_width=180):
                    self.signed = gr.Checkbox(label="For and against", value=False, elem_id="signed")
                    self.box = gr.Checkbox(label="Box at the threshold", value=False, elem_id="box")
            self.faults.place("class", "classes", "signed", "top", "published")
            with gr.Row(elem_classes=["quiet-row"]):
                self.alpha = gr.Slider(
                    0, 1, Style().alpha, step=0.05, label="Opacity", elem_id="alpha", buttons=[], min_width=220
                )
                self.threshold = gr.Slider(
                    0.05,
                    0.95,
                    Style().threshold,
                    step=0.05,
                    label="Threshold",
                    elem_id="threshold",
                    buttons=[],
                    min_width=220,
                )
            with gr.Row(elem_classes=["quiet-row"]):
                self.compare = gr.Button("Compare methods", variant="primary", elem_id="compare", min_width=150)
                self.fetch_picture = gr.Button("Download picture", elem_id="fetch-picture", min_width=150)
                self.fetch_numbers = gr.Button("Download .npy", elem_id="fetch-numbers", min_width=150)
            self.picture_file = gr.DownloadButton("The picture", elem_id="picture-file", elem_classes=["away"])
            self.numbers_file = gr.DownloadButton("The numbers", elem_id="numbers-file", elem_classes=["away"])
            self.methods = gr.HTML(elem_id="methods")
            with gr.Accordion("The same in Python and on the command line", open=False):
                self.command = gr.HTML(elem_id="command")
                self.copy_command = gr.Button("Copy the command", size="sm", elem_id="copy-command")
                self.python = gr.HTML(elem_id="python")
                self.copy_python = gr.Button("Copy the Python", size="sm", elem_id="copy-python")

    # What the controls do.

    def _connect(self) -> None:
        host = self.host
        style = [self.alpha, self.threshold, self.box, self.signed]
        asked = [self.network, self.layer, self.view, self.method, self.filter, self.classes, *style]
        drawn = [self.figure, self.command, self.python]
        answer = [*drawn, self.facts, self.classes, self.found, self.methods, self.signed, *self.faults.slots]

        host.on(
            self.photograph.upload,
            self.faults.guard(self.open),
            [self.photograph, *asked],
            [*answer, self.photograph],
            heavy=True,
        )
        host.on(self.photograph.clear, self.faults.guard(self.close), [], [*answer, self.photograph])
        for name, button in self.samples.items():
            take = self.faults.guard(self._taking(name))
            taken = host.on(button.click, take, asked, [*answer, self.photograph], heavy=True)
            taken.success(None, js=SCROLL)
        for control in (self.view, self.method, self.filter):
            host.on(control.input, self.faults.guard(self.ask), asked, answer, heavy=True)
        host.on(self.classes.input, self.faults.guard(self.pick), asked, answer, heavy=True, latest=True)
        host.on(self.layer.input, self.faults.guard(self.ask), asked, answer, heavy=True)
        changed = host.on(self.network.input, self.faults.guard(self.change), asked, [*answer, self.layer], heavy=True)
        layers = [self.layer, *self.faults.slots]
        host.on(changed.success, self.faults.guard(self.list_layers), [self.network, self.view], layers, heavy=True)
        opened = self.network_part.expand
        host.on(opened, self.faults.guard(self.list_layers), [self.network, self.view], layers, heavy=True)
        host.on(self.other.submit, self.faults.guard(self.add), [self.other, *asked], [*answer, self.other], heavy=True)
        for slider in (self.alpha, self.threshold):
            host.on(slider.input, self.draw, style, [*drawn, self.methods], latest=True)
        for box in (self.box, self.signed):
            host.on(box.input, self.draw, style, [*drawn, self.methods], latest=True)
        compared = [self.methods, *self.faults.slots]
        host.on(self.compare.click, self.faults.guard(self.all_methods), asked, compared, heavy=True)
        for button, write, file in (
            (self.fetch_picture, self.write_picture, self.picture_file),
            (self.fetch_numbers, self.write_numbers, self.numbers_file),
        ):
            written = host.on(button.click, self.faults.guard(write), style, [file, *self.faults.slots])
            written.success(None, js=FETCH.format(of=file.elem_id))
        self.copy_command.click(None, js=COPY.format(of="the-command"))
        self.copy_python.click(None, js=COPY.format(of="the-python"))

    def open(self, visit: Visit, path: str | None, *asked: Any) -> dict[Any, Any]:
        """Read an upload and ask about it."""
        made = self.close(visit)
        try:
            file = uploaded(path, home=self.host.home)
            visit.files.add(file)
            visit.photograph, visit.name = self.host.limits.open_image(file), file.name
            return self._first(visit, asked)
        except L2cafError as error:  # what cannot be read is not shown beside the map of another
            taken_back = {} if error.field != "image" else {self.photograph: None}
            return {**made, **self.faults.told(visit, error), **taken_back}

    def _taking(self, name: str) -> Any:
        def take(visit: Visit, *asked: Any) -> dict[Any, Any]:
            visit.photograph, visit.name, visit.look = sample(name), f"{name}.png", None
            file = visit.place(sample_path(name).name)
            file.write_bytes(sample_path(name).read_bytes())
            return {**self._first(visit, asked), self.photograph: str(file)}

        return take

    def _first(self, visit: Visit, asked: Sequence[Any]) -> dict[Any, Any]:
        """The first map of a new photograph: about no class, as those of another are not its own."""
        visit.comparison = None
        network, layer, view, method, filter, _, alpha, threshold, box, _ = asked
        return self.ask(visit, network, layer, view, method, filter, [], alpha, threshold, box, False)

    def close(self, visit: Visit) -> dict[Any, Any]:
        """Nothing is open any more."""
        visit.photograph = visit.look = visit.comparison = None
        return {self.figure: WELCOME, self.facts: "", self.found: gr.update(visible=False), self.methods: ""}

    def ask(
        self,
        visit: Visit,
        network: str,
        layer: str | None,
        view: str,
        method: str,
        filter: str,
        classes: list[str],
        alpha: float,
        threshold: float,
        box: bool,
        signed: bool,
    ) -> dict[Any, Any]:
        """Ask the network, and show what it says."""
        if visit.photograph is None and classes:  # they are shown beside a photograph alone
            raise InputError(
                "The connection was lost, and with it the visit: drop the photograph again.", field="image"
            )
        if visit.photograph is None:
            return {}
        chosen = tuple(int(one) for one in classes[-2:])
        request = LookRequest(
            visit.photograph,
            visit.name,
            self.host.models.choice(network, layer=layer, view=view),
            self._question(method, filter, chosen),
            self.host.limits.seconds,
        )
        was = visit.look
        found = look(request, model=self.host.models.get(request.network))
        visit.look = found
        if was is not None and was.network != found.network:
            visit.comparison, was = None, None
        # Two classes are seen side by side with what speaks against each, unless the visitor says otherwise.
        before = 0 if was is None else len(was.question.classes)
        signed = found.speaks_for_and_against and (signed or (len(chosen) == 2 and before < 2))
        style = _style(alpha, threshold, box, signed)
        made = {
            **self._drawn(visit, style),
            self.facts: _facts(found),
            self.classes: _choices(found, chosen),
            self.signed: gr.update(value=signed, interactive=found.speaks_for_and_against),
        }
        # What need not change is not sent: each control of an answer costs as much as drawing a map.
        return made if was is not None else {**made, self.found: gr.update(visible=True), self.methods: ""}

    def pick(self, visit: Visit, *asked: Any) -> dict[Any, Any]:
        """Ask about the classes that are ticked.

        Ticks are sent back only where they change: those of a visitor who clicked again meanwhile would be undone.
        """
        was, ticked = visit.look, asked[5]
        made = self.ask(visit, *asked)
        if was is not None and visit.look is not None and len(ticked) <= 2 and _listed(was) == _listed(visit.look):
            made.pop(self.classes, None)
        return made

    @staticmethod
    def _question(method: str, filter: str, classes: tuple[int, ...]) -> Question:
        if method == AUTO:
            return Question("l2caf-class" if classes and filter == "l2" else None, classes, filter=filter)
        return Question(method, classes, filter=filter)

    def change(self, visit: Visit, network: str, layer: str, *rest: Any) -> dict[Any, Any]:
        """Another network: its layers and classes are its own."""
        view, method, filter, _, *style = rest
        self.host.models.get(self.host.models.choice(network, view=view))
        made = self.ask(visit, network, "", view, method, filter, [], *style)
        return {**made, self.layer: gr.update(choices=[("the last one with a map", "")], value="")}

    def list_layers(self, visit: Visit, network: str, view: str) -> dict[Any, Any]:
        """Offer the layers that hold a map."""
        choice = self.host.models.choice(network, view=view)
        if choice.network not in self._layers:  # looked for once: it takes seconds
            found = layers_in(self.host.models.get(choice)).layers
            names = dict.fromkeys(one.name for one in reversed(found) if one.reaches)
            self._layers[choice.network] = [("the last one with a map", ""), *((name, name) for name in names)]
        return {self.layer: gr.update(choices=self._layers[choice.network])}

    def add(self, visit: Visit, text: str, *asked: Any) -> dict[Any, Any]:
        """Ask about a class that is not among the best."""
        network, layer, view, method, filter, classes, *style = asked
        model = self.host.models.get(self.host.models.choice(network, view=view))
        model.check_has_classes()
        chosen = str(model.class_index(text))
        kept = [one for one in classes if one != chosen]
        made = self.ask(visit, network, layer, view, method, filter, [*kept, chosen], *style)
        return {**made, self.other: ""}

    def draw(self, visit: Visit, alpha: float, threshold: float, box: bool, signed: bool) -> dict[Any, Any]:
        """Draw again what was found, without asking the network."""
        return {} if visit.look is None else self._drawn(visit, _style(alpha, threshold, box, signed))

    def _drawn(self, visit: Visit, style: Style) -> dict[Any, Any]:
        found = visit.look
        assert found is not None
        drawn = found.pictures(style, height=SHARP)
        shown = [Shown(one.picture, one.title, _told(found, one.title, style)) for one in drawn]
        if len(shown) == 1:
            seen = found.shown.view
            shown = [Shown(seen, title_of(found), f"What the network saw of {visit.name}: {title_of(found)}"), *shown]
        made = {
            self.figure: markup.figures(shown, "map-last" if len(drawn) == 1 else ""),
            self.command: markup.code(as_command(found, style), of="the-command", name="Command line"),
            self.python: markup.code(as_python(found, style), of="the-python", name="Python"),
        }
        if visit.comparison is not None:
            cells = visit.comparison.drawn(replace(style, signed=False), height=TILE)
            tiles = [Shown(picture, title, f"Map of the method {title}") for picture, title in cells]
            made[self.methods] = markup.section("Methods and filters") + markup.figures(tiles, "tiles")
        return made

    def all_methods(self, visit: Visit, *asked: Any) -> dict[Any, Any]:
        """Ask every method and every filter about the same photograph."""
        network, layer, view, _, _, classes, *style = asked
        if visit.photograph is None:
            raise InputError("There is no photograph: drop one, or take a sample.", field="image")
        choice = self.host.models.choice(network, layer=layer, view=view)
        about = int(classes[-1]) if classes else None
        model = self.host.models.get(choice)
        visit.comparison = compare(model, visit.photograph, of_class=about, layer=choice.layer, select=choice.select)
        return {self.methods: self._drawn(visit, _style(*style))[self.methods]}

    def write_picture(self, visit: Visit, *style: Any) -> dict[Any, Any]:
        """A PNG of what is shown, at full size."""
        found = _looked(visit)
        path = visit.place(f"{Path(visit.name).stem}-l2caf.png")
        found.picture(_style(*style)).save(path, compress_level=2)
        return {self.picture_file: gr.update(value=str(path))}

    def write_numbers(self, visit: Visit, *style: Any) -> dict[Any, Any]:
        """The maps as numbers."""
        found = _looked(visit)
        path = visit.place(f"{Path(visit.name).stem}-l2caf.npy")
        path.write_bytes(found.numbers(_style(*style)))
        return {self.numbers_file: gr.update(value=str(path))}


def _looked(visit: Visit) -> Look:
    if visit.look is None:
        raise InputError("Nothing is shown yet: drop a photograph, or take a sample.", field="image")
    return visit.look


def _style(alpha: float, threshold: float, box: bool, signed: bool) -> Style:
    style = Style(alpha=float(alpha), threshold=float(threshold), box=bool(box), signed=bool(signed))
    style.check()
    return style


def _listed(found: Look) -> list[tuple[str, str]]:
    """The best classes, and those that were asked about."""
    listed = list(found.best[:BEST])
    known = {one.index for one in listed}
    listed += [one.about for one in found.shown.maps if one.about is not None and one.about.index not in known]
    return [(str(one), str(one.index)) for one in listed]


def _choices(found: Look, chosen: Sequence[int]) -> Any:
    choices = _listed(found)
    return gr.update(choices=choices, value=[str(one) for one in chosen], visible=bool(choices))


def _told(found: Look, title: str, style: Style) -> str:
    way = "what speaks for and against it" if found.styled(style).signed else "where the network looked"
    return f"Map over {found.request.name}, {way}: {title}"


def _facts(found: Look) -> str:
    """How the map was found, in small print."""
    maps, shown = found.shown.maps, found.shown
    outcomes = ", ".join(dict.fromkeys(one.outcome.replace("_", " ") for one in maps if one.outcome))
    losses = ", ".join(f"{one.loss:.4g}" for one in maps if one.loss is not None)
    pairs = {
        "method": found.question.title,
        "network": found.network,
        "layer": shown.layer,
        "outcome": outcomes or "a formula, nothing to solve",
        "loss": losses,
        "solver": shown.solver,
        "endpoint": shown.endpoint,
        "time": f"{1000 * found.seconds:.0f} ms",
    }
    said = []
    if shown.cut_off:
        said.append(f"The network was shown the centre, {shown.seen:.0%} of the photograph.")
    if any(one.faint for one in maps):
        said.append("Drawn faint: the network hardly sees that class here.")
    said += found.assumed.values()
    return markup.facts({name: value for name, value in pairs.items() if value}) + markup.notes(said)
