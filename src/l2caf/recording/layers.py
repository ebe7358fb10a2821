"""Finding the layer where the filter sits: shapes propose, the data decide, never class names."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from ..errors import LayerError, NetworkError
from .borrow import borrowed, unwrap
from .inputs import Arguments, Inputs, Select, is_plain
from .knowledge import knowledge_of
from .layout import Layout
from .mismatch import mismatch_told
from .positions import Verdict
from .survey import OUTPUT, Look, Survey

FIRST = 8  # calls of a kind that are judged before all others: the default is nearly always among the last


@dataclass(frozen=True)
class Layer:
    """One call of one module whose output holds a map, with the layout of that map.

    `verdict` tells what was seen when the input was changed slab by slab: "confirmed" where the map's positions answer
    to the input beneath them, "undecided" where that could not be told, with `why`. `reaches` tells whether the
    network's output changes at all when the map does: the patch tokens after the last attention of a classifier that
    reads only its class token, for one, reach nothing. `inputs_written` tells whether the network writes into its
    inputs. `input` names the argument that the map belongs to.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    layout: Layout
    call: int | None = 0
    calls: int = 1
    reaches: bool = True
    inputs_written: bool = False
    input: str = "0"
    verdict: Verdict = Verdict.CONFIRMED
    agreement: float = 1.0
    why: str = ""
    note: str = ""  # what is to be said of a map of this layer

    def __str__(self) -> str:
        if self.calls == 1:
            return self.name
        which = f"{self.calls} calls" if self.call is None else f"call {self.call + 1} of {self.calls}"
        return f"{self.name} ({which})"

    @property
    def is_called_per_frame(self) -> bool:
        """Whether the map is that of all calls of the module, one per frame of a clip."""
        return self.call is None


def usable_layers(
    network: nn.Module, inputs: Inputs, *, output: Select = None, of: str | int | None = None
) -> list[Layer]:
    """List the layers whose output holds a map of an input, in the order in which they finish.

    `of` names the input, where there are several; layers whose positions do not answer to it are left out.

    >>> import torch
    >>> network = torch.nn.Sequential(
    ...     torch.nn.Conv2d(3, 8, 4, stride=4), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
    ... )
    >>> [(layer.name, layer.layout.grid) for layer in usable_layers(network, torch.rand(1, 3, 32, 32))]
    [('0', (8, 8))]
    """
    plain = unwrap(network)
    with borrowed(plain):
        arguments = Arguments.of(inputs, explained=of)
        found: list[Layer] = []
        with mismatch_told(plain, arguments):
            for name in _inputs(arguments):
                finder = _Finder(plain, arguments.about(name), output)
                found = finder.all()
                if found:
                    break
        return found


def find_layer(
    network: nn.Module,
    arguments: Arguments,
    layer: str | nn.Module | None,
    *,
    call: int | None = None,
    select: Select = None,
    layout: Layout | None = None,
) -> Layer:
    """Turn a name, a module or nothing into a layer; nothing means the last one whose map reaches the output.

    Where no input is named, the first that such a layer answers to is explained.
    """
    faults: list[LayerError] = []
    with borrowed(network):
        for name in _inputs(arguments):
            finder = _Finder(network, arguments.about(name), select)
            try:
                if layer is not None:
                    found = finder.named(layer if isinstance(layer, str) else _name_of(network, layer), call, layout)
                else:
                    found = finder.default(layout)
                    found = found if call is None else finder.named(found.name, call, layout)
                return found if call is not None else _of_several(found)
            except LayerError as fault:
                faults.append(fault)
    raise faults[0]


def _of_several(layer: Layer) -> Layer:
    """A layer with a note where nobody asked for one of its calls and it has several that are no frames in order."""
    if layer.calls == 1 or layer.call is None:
        return layer
    note = (
        f"layer {layer.name!r} runs {layer.calls} times in a pass, not once for each frame in order, and this is the"
        f" map of call {layer.call} alone: call=[0, …, {layer.calls - 1}] gives one for each"
    )
    return replace(layer, note="; ".join(filter(None, (layer.note, note))))


def look_at(network: nn.Module, arguments: Arguments, layers: Sequence[str | nn.Module], select: Select) -> None:
    """Find out about several layers at once, where what is found out is kept."""
    with borrowed(network):
        finder = _Finder(network, arguments.about(_inputs(arguments)[0]), select)
        names = {one if isinstance(one, str) else _name_of(network, one) for one in layers}
        finder.judge([number for number, one in enumerate(finder.survey.seen) if one.name in names])


def _inputs(arguments: Arguments) -> list[str]:
    """The inputs to try, in order."""
    return arguments.explainable if arguments.explained is None else [arguments.main_name]


class _Finder:
    """The layers of one network for one of its inputs."""

    def __init__(self, network: nn.Module, arguments: Arguments, select: Select) -> None:
        self.network = network
        self.arguments = arguments
        self.look = Look(network, arguments, select)
        self.survey = self._known(select)

    def _known(self, select: Select) -> Survey:
        """Look at the network once: what a look shows depends on its modules, the input's shape and what is asked."""
        if not is_plain(select):
            return self.look.survey()  # to keep it would keep all that the function refers to
        known = knowledge_of(self.network)
        key = (self.arguments.signature(), self.arguments.main_name, select)
        # What reaches the output depends on weights too: a branch that starts at zero does only once it is trained.
        tensors = (*self.network.parameters(), *self.network.buffers())
        # A tensor of inference mode counts no versions; what writes into it goes unnoticed, as it does in torch itself.
        versions = [(tensor.data_ptr(), 0 if tensor.is_inference() else tensor._version) for tensor in tensors]
        kept: tuple[Any, Survey] | None = known.get("survey", key)
        if kept is not None and kept[0] == versions:
            return kept[1]
        fresh = self.look.survey()
        if kept is not None and [one.shape for one in kept[1].seen] == [one.shape for one in fresh.seen]:
            # Where positions are does not change with training; what could not be told may be clear by now.
            decided = {n: one for n, one in kept[1].findings.items() if one.verdict is not Verdict.UNDECIDED}
            fresh.findings.update(decided)
        known.put("survey", key, (versions, fresh))
        return fresh

    def all(self) -> list[Layer]:
        """Every call whose positions answer to the input, or may."""
        numbers = range(len(self.survey.seen))
        self.judge(numbers)
        held = [number for number in numbers if self._verdict(number) is not Verdict.REFUTED]
        self._reach(held)
        return [self._layer(number) for number in held]

    def named(self, name: str, call: int | None, layout: Layout | None) -> Layer:
        """The call of a module by its name."""
        seen = self.survey.seen
        matches = [number for number, one in enumerate(seen) if one.name == name]
        if layout is not None:
            matches = [number for number in matches if layout.fits(seen[number].shape)]
            if not matches:
                raise LayerError(self._misfit(name, layout), field="layout")
        if not matches:
            raise LayerError(self._why_not(name))
        calls = self.survey.calls[name]
        if call is not None:
            numbers = {number: one for number in matches if (one := seen[number].call) is not None}
            wanted = [number for number, one in numbers.items() if call in (one, one - calls)]
            if not wanted:  # as everywhere in Python, -1 is the last
                self.judge(matches)
                raise LayerError(self._no_such_call(name, call, matches), field="call")
            matches = wanted
        if layout is not None:
            layout = self._completed(layout, seen[matches[-1]].shape)
            self.survey.findings.update(self.look.judge(self.survey, matches, layout))
        else:
            self.judge(matches)
        good = [number for number in matches if self._verdict(number) is Verdict.CONFIRMED]
        fair = [number for number in matches if self._verdict(number) is Verdict.UNDECIDED]
        if not (good or fair):
            raise LayerError(self._refuted(matches[-1], layout))
        chosen = (good or fair)[-1]
        self._reach([chosen])
        return self._layer(chosen)

    def default(self, layout: Layout | None = None) -> Layer:
        """The last call that is confirmed and reaches the output; of a dense predictor, the last of the coarsest."""
        survey = self.survey
        if layout is not None:
            raise LayerError("A layout belongs to a layer: name that with layer=, too.", field="layout")
        if len(survey.calls) < 2 and not survey.seen:
            raise LayerError(
                "No module inside this network is called when it runs, as in an exported graph, so no layer can be "
                "found: give the network from before torch.export."
            )
        if not survey.seen:
            raise LayerError(
                "No layer of this network has a spatial map: the filter needs a convolutional or token layer with "
                "more than one position, so give an input that is large enough, or another network.",
            )
        numbers = list(range(len(survey.seen)))
        alive = [number for number in numbers if survey.seen[number].is_alive()]
        touched = [number for number in numbers if any(survey.seen[number].alive or ())] or numbers
        stream = [number for number in alive if survey.seen[number].shape == survey.seen[touched[-1]].shape]
        cut = [number for number in numbers if survey.seen[number].alive is None]
        group = sorted({*alive[-FIRST:], *stream[-FIRST:], *cut[-FIRST:], touched[-1]})
        dense = self._output_is_map()
        found = None if dense else self._last(group, touched[-1])
        if found is None or self._has_lost_an_axis(found):
            found = self._last(numbers, touched[-1], dense=dense)
        if found is None:
            raise LayerError(self._none(numbers))
        return self._layer(found)

    def _last(self, numbers: Sequence[int], touched: int, *, dense: bool = False) -> int | None:
        """The default among these calls, or None."""
        found = self._last_map(numbers, touched, dense=dense)
        if found is None or dense or self._is_clear(found) or not self._is_lost_after(found, numbers):
            return found
        # Place is lost little by little: what is left of it here tells less of where than of how far it is gone.
        clear = [number for number in numbers if number < found and self._is_clear(number)]
        self._reach(clear)
        clear = self._with_most_axes([number for number in clear if self.survey.reaching[number]])
        if clear and not self._has_lost_an_axis(clear[-1]):
            return clear[-1]
        return found if len(numbers) == len(self.survey.seen) else None  # a clear one further up is better

    def _is_clear(self, number: int) -> bool:
        """Whether positions answer to a part of the input, around their own places."""
        finding = self.survey.findings[number]
        return finding.verdict is Verdict.CONFIRMED and finding.locality is not None and finding.locality.is_clear

    def _is_lost_after(self, number: int, numbers: Sequence[int]) -> bool:
        """Whether a later call of a map that reaches the output answers no longer to places of the input."""
        guessed = [n for n in numbers if n > number and self.survey.guess(self.survey.shape(n)) is not None]
        refuted = [n for n in guessed if self._verdict(n) is Verdict.REFUTED and self.survey.seen[n].is_alive()]
        return bool(refuted) and not any(self._is_clear(n) for n in guessed)

    def _last_map(self, numbers: Sequence[int], touched: int, *, dense: bool = False) -> int | None:
        """The last call with a map that reaches the output, or None."""
        self.judge(numbers)
        for verdict in (Verdict.CONFIRMED, Verdict.UNDECIDED):
            if verdict is Verdict.UNDECIDED and len(numbers) < len(self.survey.seen):
                return None  # a confirmed one further up is better
            held = [number for number in numbers if self._verdict(number) is verdict]
            if dense and held:
                held = self._bottleneck(held)
            self._reach(held)
            reaching = self._with_most_axes([number for number in held if self.survey.reaching[number]])
            # A map of which one token alone is read says nothing but that: behind the last attention, of a class.
            reaching = [number for number in reaching if not self._is_one_token(number)] or reaching
            # Where the last map reaches nothing, go back along the stream of the same size to one that does.
            stream = [number for number in reaching if self._is_alike(number, touched)]
            if touched in reaching:
                return reaching[-1]
            if stream:
                return stream[-1]
            if reaching and self._is_part_of(reaching[-1], touched):
                carrying = self._last_that_carries_all(reaching)
                if carrying is None and len(numbers) < len(self.survey.seen):
                    return None  # one further up may
                return reaching[-1] if carrying is None else carrying
            if reaching:
                return reaching[-1]
            if held and len(numbers) == len(self.survey.seen):
                return held[-1]  # nothing moves the output, which the outcome will say
        return None

    def _is_part_of(self, number: int, other: int) -> bool:
        """Whether an output has the shape of another with fewer channels, as a branch that is joined to others."""
        shape, whole, finding = (
            self.survey.seen[number].shape, self.survey.seen[other].shape, self.survey.findings[number]
        )  # fmt: skip
        axis = 1 if finding.layout is not None and finding.layout.kind == "channels_first" else len(shape) - 1
        return len(shape) == len(whole) and all(
            mine < theirs if place == axis else mine == theirs
            for place, (mine, theirs) in enumerate(zip(shape, whole, strict=True))
        )

    def _last_that_carries_all(self, numbers: Sequence[int]) -> int | None:
        """The last of these through which all passes that the output hears of the input, or None.

        Where the last map of all cannot be taken, what comes before it may be one branch of several: its map would show
        where a part of the network looked.
        """
        for stop in range(len(numbers), 0, -2 * FIRST):
            some = numbers[max(0, stop - 2 * FIRST) : stop]
            carrying = self.look.carries_all(self.survey, some)
            found = [number for number in some if carrying[number]]
            if found:
                return found[-1]
        return None

    def _is_one_token(self, number: int) -> bool:
        return self.survey.seen[number].is_one_token(self.survey.findings[number].layout)

    def _is_alike(self, number: int, other: int) -> bool:
        """Whether two calls give maps of the same grid and channels, whichever way a tensor holds them."""

        def held(number: int) -> tuple[object, ...]:
            shape, finding = self.survey.seen[number].shape, self.survey.findings[number]
            if finding.layout is None or finding.verdict is not Verdict.CONFIRMED:
                return ()
            return finding.layout.shape, shape[1 if finding.layout.kind == "channels_first" else -1]

        same = self.survey.seen[number].shape == self.survey.seen[other].shape
        return same or held(number) == held(other) != ()

    def _has_lost_an_axis(self, number: int) -> bool:
        layout = self.survey.findings[number].layout
        lengths = self.survey.axes.values()
        # Of two short axes, one is of colours.
        wide = sum(length > 3 for length in lengths) + any(1 < length <= 3 for length in lengths)
        return layout is not None and sum(cells > 1 for cells in layout.shape) < wide

    def _with_most_axes(self, numbers: list[int]) -> list[int]:
        """Those whose map has lost no axis of the input: scores per frame say when, and not where any more."""

        def axes(number: int) -> int:
            layout = self.survey.findings[number].layout
            return 0 if layout is None else sum(cells > 1 for cells in layout.shape)

        most = max(map(axes, numbers), default=0)
        return [number for number in numbers if axes(number) == most]

    def _bottleneck(self, numbers: list[int]) -> list[int]:
        """Of a dense predictor's layers, those of the coarsest grid; where it looked shows there.

        Its last layers of the coarsest grid may be its answer before it is enlarged, with a channel for each of the
        output's: that is what is to be explained.
        """

        def layout(number: int) -> Layout:
            found = self.survey.findings[number].layout
            assert found is not None
            return found

        coarsest = min(layout(number).positions for number in numbers)
        numbers = [number for number in numbers if layout(number).positions == coarsest]
        answer = self.survey.findings[OUTPUT].layout
        assert answer is not None
        channels = self.survey.output[1 if answer.kind == "channels_first" else -1]

        def is_answer(number: int) -> bool:
            shape = self.survey.seen[number].shape
            return shape[1 if layout(number).kind == "channels_first" else -1] == channels

        kept = list(numbers)
        while kept and is_answer(kept[-1]):
            kept.pop()
        return kept or numbers

    def _output_is_map(self) -> bool:
        if len(self.survey.output) < 3 or not self.survey.layouts(self.survey.output):
            return False
        # With the layers, as of a dense predictor all are to be judged: another run on all slabs costs as much as this.
        self.judge([OUTPUT, *range(len(self.survey.seen))])
        return self._verdict(OUTPUT) is Verdict.CONFIRMED

    def judge(self, numbers: Sequence[int]) -> None:
        """Find out about these calls, as far as it is not known."""
        unknown = [number for number in numbers if number not in self.survey.findings]
        if unknown:
            self.survey.findings.update(self.look.judge(self.survey, unknown))

    def _reach(self, numbers: Sequence[int]) -> None:
        """Ask the gradient, and where it is silent the output itself."""
        reaching, unknown = self.survey.reaching, []
        for number in numbers:
            if number not in reaching:
                if self.survey.seen[number].is_alive(self.survey.findings[number].layout):
                    reaching[number] = True
                else:
                    unknown.append(number)
        for start in range(0, len(unknown), 2 * FIRST):
            reaching.update(self.look.moved_by(self.survey, unknown[start : start + 2 * FIRST]))

    def _verdict(self, number: int) -> Verdict:
        return self.survey.findings[number].verdict

    def _layer(self, number: int) -> Layer:
        one, finding = self.survey.seen[number], self.survey.findings[number]
        assert finding.layout is not None
        return Layer(
            name=one.name,
            kind=one.kind,
            shape=one.shape[1:],
            layout=finding.layout,
            call=one.call,
            calls=self.survey.calls[one.name],
            reaches=self.survey.reaching.get(number, True),
            inputs_written=self.survey.inputs_written,
            input=self.arguments.main_name,
            verdict=finding.verdict,
            agreement=finding.agreement,
            why=finding.why,
            note=self._note(number),
        )

    def _note(self, number: int) -> str:
        """What is to be said of a map whose positions answer to much of the input."""
        finding = self.survey.findings[number]
        if finding.locality is None or finding.locality.is_clear:
            return ""
        clear = [n for n in range(number) if n in self.survey.findings and self._is_clear(n)]
        better = f": {self.survey.seen[clear[-1]].name!r} is the last layer that keeps them apart" if clear else ""
        return f"layer {self.survey.seen[number].name!r} tells places apart but little, as {finding.locality}{better}"

    def _completed(self, layout: Layout, shape: tuple[int, ...]) -> Layout:
        """A layout that somebody gave, with the input's axes that it runs along where these were not said."""
        if layout.along is not None:
            return layout
        for one in self.survey.layouts(shape):
            if (one.kind, one.shape, one.order, one.prefix, one.suffix) == (
                layout.kind, layout.shape, layout.order, layout.prefix, layout.suffix,
            ):  # fmt: skip
                return one
        axes = tuple(self.survey.axes)[-len(layout.shape) :]
        if len(axes) < len(layout.shape):
            raise LayerError(
                f"A grid of {len(layout.shape)} axes needs as many axes of the input, and this one has "
                f"{len(self.survey.axes)} with positions: give another grid.",
                field="layout",
            )
        return Layout(layout.kind, layout.grid, layout.prefix, layout.frames, layout.suffix, layout.order, axes)

    def _why_not(self, name: str) -> str:
        usable = list(dict.fromkeys(one.name for one in self.survey.seen))
        near = usable[-3:]  # of a layer that there is, those before it; a name like its own says nothing
        if name not in dict(self.network.named_modules()):
            near = difflib.get_close_matches(name, usable, n=3, cutoff=0.3) or near
            fault = f"There is no layer {name!r}"
        elif name not in self.survey.calls:
            fault = f"Layer {name!r} is not called when the network runs"
        else:
            fault = f"The output of layer {name!r} has no spatial map"
        return f"{fault}; the nearest usable ones are {', '.join(near) or 'none'}."

    def _no_such_call(self, name: str, call: int, matches: list[int]) -> str:
        numbers = [n for n in matches if self.survey.seen[n].call is not None]
        with_map = [str(self.survey.seen[n].call) for n in numbers if self._verdict(n) is not Verdict.REFUTED]
        return (
            f"Layer {name!r} is called {self.survey.calls[name]} times and has a spatial map in call "
            f"{', '.join(with_map) or 'none'}, not {call}: choose one of these."
        )

    def _refuted(self, number: int, layout: Layout | None) -> str:
        one, finding = self.survey.seen[number], self.survey.findings[number]
        read = "" if finding.layout is None else f" as {described(finding.layout)}"
        input_ = self.arguments.main_name
        if layout is not None:
            better = self.look.judge(self.survey, [number])[number]
            del self.survey.findings[number]  # what somebody said wrongly is not known of the layer
            hint = (
                f"read as {described(better.layout)} it does: leave layout= out"
                if better.verdict is Verdict.CONFIRMED and better.layout is not None
                else "give another layout, or another layer"
            )
        elif finding.locality is not None and not finding.locality.is_local:
            hint = "choose an earlier layer"
        else:
            hint = "choose another layer, or say how it is laid out with layout=Layout(kind, grid=…, prefix=…, order=…)"
        return f"Layer {one.name!r}, {one.shape[1:]}, read{read} is no map of input {input_!r}: {finding.why}; {hint}."

    def _misfit(self, name: str, layout: Layout) -> str:
        shapes = [one.shape[1:] for one in self.survey.seen if one.name == name]
        return (
            f"Layer {name!r} gives {', '.join(map(str, shapes)) or 'no map'}, which is not {described(layout)}: "
            "give a layout of that shape."
        )

    def _none(self, numbers: Sequence[int]) -> str:
        best = max(numbers, key=lambda number: self.survey.findings[number].agreement)
        finding = self.survey.findings[best]
        return (
            f"No layer of this network has positions that answer to input {self.arguments.main_name!r} beneath them, "
            f"so there is no map to draw (the nearest is {self.survey.seen[best].name!r}: {finding.why}): explain "
            "another input with of=, or name a layer and its layout with layer= and layout=."
        )


def described(layout: Layout) -> str:
    """A layout in words.

    >>> described(Layout("tokens", (14, 14), prefix=1))
    '1 token and a grid of 14 x 14'
    """
    words = f"a grid of {' x '.join(map(str, layout.grid))}"
    if layout.frames is not None:
        words = f"{layout.frames} frames with {words} each"
    if layout.prefix:
        words = f"{layout.prefix} token{'s' if layout.prefix > 1 else ''} and {words}"
    if layout.suffix:
        words += f" and {layout.suffix} tokens behind it"
    if layout.order is not None:
        words += f" in the order {layout.order}"
    return words + (", channels last" if layout.kind == "channels_last" else "")


def _name_of(network: nn.Module, module: nn.Module) -> str:
    for name, candidate in network.named_modules():
        if candidate is module:
            return name
    raise LayerError(f"The given {type(module).__name__} is no module of this network: name one of its own layers.")


def module_named(network: nn.Module, name: str) -> nn.Module:
    """Return the module of a layer's name."""
    try:
        return network.get_submodule(name)
    except AttributeError as error:
        near = difflib.get_close_matches(name, [one for one, _ in network.named_modules()], n=3)
        hint = f"the nearest are {', '.join(near)}" if near else "network.named_modules() lists them"
        raise NetworkError(f"There is no module {name!r} in this network: {hint}.") from error
