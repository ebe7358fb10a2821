"""What one look at a network shows: its calls with a map, whether they reach the output, what the data say of them.

A look is one run on the base of the slabs, with a gradient; the layers that a question needs are then judged by one
run on all slabs (`positions.py`). Both depend on the network and the kind of input, not on the pictures of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import InputError, L2cafError, first_line
from ..numerics import agreeing
from .borrow import Call, Forward, borrowed, forwards_replaced, watching
from .inputs import Arguments, Select, position_axes, select_output
from .layout import Layout, natural, proposals
from .places import EveryCall
from .positions import Answers, Finding, Verdict, find, responses_for, verdict_on
from .slabs import Base, Slabs
from .tape import differentiable_recurrence

AT_ONCE = 1 << 22  # numbers of input that are run at once: a batch of photographs, but one volume after the other
# Where more run at once, each row takes longer on a processor, half as long again with 17 photographs: what the layers
# give no longer fits into its caches. A few rows at once still tell whether they are mixed.
AT_ONCE_FAST, FEWEST = 1 << 19, 3
SOME = 64  # numbers that are looked at before all of them are
OUTPUT = -1  # stands for the network's own output among the numbers of the calls


@dataclass(frozen=True)
class Seen:
    """One call of one module that gave numbers in which a map may be; `alive` are the tokens, or any, with a gradient.

    `call` is None for all calls of a module that is called once per frame, joined as rows of one batch. `alive` is None
    where no gradient came through, which proves nothing.
    """

    name: str
    kind: str
    call: int | None
    shape: tuple[int, ...]
    alive: tuple[bool, ...] | None = None

    def is_alive(self, layout: Layout | None = None) -> bool:
        """Whether the gradient reaches the positions of a layout, or where none is given, more than a few."""
        if self.alive is None:
            return False
        return any(self._tokens(layout) or self.alive) if layout else 8 * sum(self.alive) >= len(self.alive)

    def is_one_token(self, layout: Layout | None) -> bool:
        """Whether the gradient reaches a single one of a layout's tokens, as that of a class."""
        return sum(self._tokens(layout)) == 1

    def _tokens(self, layout: Layout | None) -> tuple[bool, ...]:
        """For the tokens of a layout, whether the gradient reaches them; none where that is not known."""
        if layout is None or layout.kind != "tokens" or self.alive is None or len(self.alive) == 1:
            return ()
        return self.alive[layout.prefix : len(self.alive) - layout.suffix]


@dataclass
class Survey:
    """What is known of the calls of a network for one kind of input; no module and no input is in it."""

    seen: tuple[Seen, ...]
    calls: dict[str, int]
    axes: dict[int, int]
    rows: int  # of the run that showed it
    output: tuple[int, ...]
    base: Base
    inputs_written: bool
    is_finite: bool = True
    findings: dict[int, Finding] = field(default_factory=dict)
    reaching: dict[int, bool] = field(default_factory=dict)

    _layouts: dict[tuple[int, ...], list[Layout]] = field(default_factory=dict)

    def layouts(self, shape: tuple[int, ...]) -> list[Layout]:
        """The layouts that a shape allows."""
        if shape not in self._layouts:
            self._layouts[shape] = list(proposals(shape, self.axes, self.rows))
        return self._layouts[shape]

    def guess(self, shape: tuple[int, ...]) -> Layout | None:
        """The layout that shapes alone suggest."""
        return natural(shape, self.layouts(shape), self.axes)

    def shape(self, number: int) -> tuple[int, ...]:
        return self.output if number == OUTPUT else self.seen[number].shape


FRAMES_FIRST = (
    "its rows are all samples of the first frame, then those of the next, so that a sample's frames stand apart;"
    " fold them sample by sample, with clip.flatten(0, 1), or loop over the frames"
)


class Look:
    """A network on loan, looked at with one kind of input."""

    def __init__(self, network: nn.Module, arguments: Arguments, select: Select) -> None:
        self.network = network
        self.arguments = arguments
        self.select = select
        self._names = {module: name for name, module in network.named_modules()}
        self._again: dict[int, Tensor] = {}
        self._frames_first: set[int] = set()
        self._slabs_of: dict[tuple[Base, tuple[int, ...]], Slabs] = {}

    def survey(self) -> Survey:
        """Run the network once on a base, with a gradient, and note every call that may hold a map."""
        problem: Exception | None = None
        not_finite: tuple[Survey, dict[int, Tensor]] | None = None
        for base in Base:
            for rows in dict.fromkeys((1, self.arguments.batch)):
                try:
                    found = self._look(base, rows)
                except Exception as error:  # noqa: BLE001 - a network may refuse noise, or one sample, in any way
                    problem = problem or error
                    continue
                if found.is_finite:
                    return found
                not_finite = not_finite or (found, self._again)
        if not_finite is not None:  # the outcome of each sample says so
            found, self._again = not_finite
            return found
        # Neither will do: the batch as it is says what is wrong, in the network's own words.
        main = self.arguments.main
        try:
            with forwards_replaced({}), torch.no_grad():
                returned = self.arguments.map(Tensor.clone).call(self.network)
        except Exception as error:
            if main.is_floating_point() and main.ndim > 2:
                raise
            raise InputError(
                f"No input has a map to explain: the network fails on one of shape {tuple(main.shape)} and type "
                f"{main.dtype} ({first_line(error)}): give what it takes, such as a floating-point batch of shape "
                "(1, 3, 224, 224)."
            ) from error
        select_output(returned, self.select, self.arguments.batch)
        raise problem or L2cafError("The network could not be looked at.")

    def _look(self, base: Base, rows: int) -> Survey:
        """One look."""
        main = self.arguments.main
        slabs = Slabs.of(main, tuple(position_axes(main)), base)
        self._slabs_of[base, tuple(position_axes(main))] = slabs
        inputs = slabs.base.repeat(rows, *[1] * (main.ndim - 1))
        noted: list[tuple[Seen, Tensor]] = []
        versions: dict[tuple[str, int], int] = {}  # by call: several may return one tensor, and write into it between
        calls: dict[str, int] = {}

        def returned_from(call: Call, output: Any) -> None:
            name = self._names[call.module]
            calls[name] = call.index + 1
            if isinstance(output, Tensor) and output.is_floating_point() and output.layout == torch.strided:
                noted.append((Seen(name, type(call.module).__name__, call.index, tuple(output.shape)), output))
                versions[name, call.index] = 0 if output.is_inference() else output._version

        differentiable = inputs.clone().requires_grad_() * 1 if inputs.is_floating_point() else inputs.clone()
        given = self.arguments.with_rows(differentiable)
        before = given.versions()
        try:
            layers = self._layers()
            with (
                forwards_replaced(watching(layers, returned=returned_from)),
                torch.enable_grad(),
                differentiable_recurrence(layers),
            ):
                returned = given.call(self.network)
        except RuntimeError:
            # What writes into views, for one, runs only where no gradient is asked for.
            noted.clear()
            calls.clear()
            given = self.arguments.with_rows(inputs.clone())
            before = given.versions()
            with forwards_replaced(watching(self._layers(), returned=returned_from)), torch.no_grad():
                returned = given.call(self.network)
        output = select_output(returned, self.select, rows)
        per_frame = _called_per_frame(noted, calls, rows, set(position_axes(main).values()))
        shapes = [one.shape for one, _ in noted]
        shapes += [(calls[name] * rows, *tensors[0].shape[1:]) for name, tensors in per_frame.items()]
        axes = _axes_in_use(main, rows, shapes)
        allowed = {shape: next(proposals(shape, axes, rows), None) is not None for shape in dict.fromkeys(shapes)}
        usable = [(one, tensor) for one, tensor in noted if allowed[one.shape]]
        alive = _alive(output, [tensor for _, tensor in usable])
        seen: list[Seen] = []
        self._again = {}

        def is_as_it_was(name: str, call: int, tensor: Tensor) -> bool:  # what follows may have written into it
            return tensor.is_inference() or tensor._version == versions[name, call]

        for (one, tensor), felt in zip(usable, alive, strict=True):
            if one.call is not None and is_as_it_was(one.name, one.call, tensor):
                self._again[len(seen)] = tensor.detach()
            seen.append(replace(one, alive=felt))
            if one.name not in per_frame or one.call != calls[one.name] - 1:
                continue
            tensors = per_frame[one.name]
            shape = (len(tensors) * rows, *one.shape[1:])
            if allowed[shape]:
                felts = [felt for (other, _), felt in zip(usable, alive, strict=True) if other.name == one.name]
                together = None if None in felts else tuple(map(any, zip(*felts, strict=True)))
                if all(is_as_it_was(one.name, call, tensor) for call, tensor in enumerate(tensors)):
                    self._again[len(seen)] = EveryCall.of(self.network, len(tensors)).joined(tensors).detach()  # type: ignore[union-attr]
                seen.append(Seen(one.name, one.kind, None, shape, together))
        return Survey(
            seen=tuple(seen),
            calls=calls,
            axes=axes,
            rows=rows,
            output=tuple(_as_map(output, axes).shape),
            base=base,
            inputs_written=given.versions() != before,
            is_finite=bool(output.isfinite().all()),
        )

    def _layers(self) -> list[nn.Module]:
        with borrowed(self.network) as loan:
            # What computes a weight is no layer, though its output may have the shape of a map.
            return [
                module
                for module in loan.modules
                if module is not self.network and "parametrizations" not in self._names[module].split(".")
            ]

    def judge(self, survey: Survey, numbers: Iterable[int], layout: Layout | None = None) -> dict[int, Finding]:
        """Find out about calls by one run on all slabs; `layout` is how they are said to be laid out."""
        wanted = list(numbers)
        layouts = {one: [layout] if layout else survey.layouts(survey.shape(one)) for one in wanted}
        answers = self._answers(survey, layouts)
        # What was written into cannot be compared with itself, but what came before can, and what comes next.
        mixed = False
        for number in sorted(answers, reverse=True):
            mixed = answers[number].depends_on_others if number in self._again else mixed
            answers[number].depends_on_others = mixed
        found = {}
        laid_out = {
            survey.shape(number): [one.layout]
            for number, one in survey.findings.items()
            if one.verdict is Verdict.CONFIRMED and one.layout is not None
        }
        for number in wanted:
            guess = layout or survey.guess(survey.shape(number))
            answer = answers.get(number)
            if answer is None:
                why = "the network could not be run on changed inputs"
                found[number] = Finding(Verdict.UNDECIDED if guess else Verdict.REFUTED, guess, why=why)
            elif layout is not None and not (answer.why_not or answer.is_independent):
                judged = answer.judge(layout)
                found[number] = verdict_on(answer, judged, sure=judged.is_sure)
            else:
                shape = survey.shape(number)
                # Where a layer of the same shape has shown how it is laid out, this one is mostly laid out alike.
                known = laid_out.get(shape)
                if known is not None:
                    found[number] = find(answer, known, survey.axes, guess, search=False)
                if known is None or found[number].verdict is not Verdict.CONFIRMED:
                    found[number] = find(answer, layouts[number], survey.axes, guess, search=known is None)
                if known is None and found[number].verdict is Verdict.CONFIRMED:
                    laid_out[shape] = [one for one in (found[number].layout,) if one is not None]
        for number in self._frames_first.intersection(found):
            found[number] = Finding(Verdict.REFUTED, found[number].layout, why=FRAMES_FIRST)
        for number in self._feeding_themselves(survey, found):
            why = "what it gives for a frame depends on what it gave for the frames before"
            found[number] = Finding(Verdict.REFUTED, found[number].layout, why=why)
        return found

    def _has_frames_first(self, number: int, output: Tensor, folded: int) -> bool:
        """Whether a call's rows are those of all samples for the first frame, then for the next: by the base's own."""
        again = self._again.get(number)
        if again is None or len(again) != folded:
            return False
        by_frame = output[:: len(output) // folded]
        return bool(agreeing(by_frame, again, slack=10).all()) and not bool(
            agreeing(output[:folded], again, slack=10).all()
        )

    def _feeding_themselves(self, survey: Survey, found: dict[int, Finding]) -> list[int]:
        """Those of the layers called per frame whose next call sees what the last one gave, as a state that is a map.

        A filter on one frame would change the maps of the later ones, so that these cannot be taken as they are.
        """
        joined = [
            (number, one.layout.of_one_frame)
            for number, one in found.items()
            if number != OUTPUT
            and survey.seen[number].call is None
            and one.verdict is not Verdict.REFUTED
            and one.layout is not None
        ]
        base = self._slabs(survey).base
        size = max(1, AT_ONCE // base.numel() - 1)
        feeding: list[int] = []
        for start in range(0, len(joined), size):
            some = joined[start : start + size]
            moved: set[int] = set()
            changing: dict[str, dict[int, list[Callable[[Tensor], Tensor]]]] = {}
            for row, (number, layout) in enumerate(some, start=1):
                weigh = _weighing(layout, row, len(some) + 1)
                for call in range(survey.calls[survey.seen[number].name]):
                    change = _noting_and_weighing(weigh, row, number, moved)
                    changing.setdefault(survey.seen[number].name, {}).setdefault(call, []).append(change)
            modules = {module: self._names[module] for module in self._layers() if self._names[module] in changing}
            replaced = {module: _changing(module.forward, changing[name]) for module, name in modules.items()}
            rows = base.repeat(len(some) + 1, *[1] * (base.ndim - 1))
            try:
                with forwards_replaced(replaced), torch.no_grad():
                    self.arguments.with_rows(rows).call(self.network)
            except Exception:  # noqa: BLE001 - it may refuse such a batch in any way
                continue
            feeding += sorted(moved)
        return feeding

    def _answers(self, survey: Survey, layouts: dict[int, list[Layout]]) -> dict[int, Answers]:
        """What the positions of these calls answer to; fewer where the network does not run on changed inputs."""
        slabs = self._slabs(survey)
        numbers = slabs.base.numel()
        fits = max(1, min(AT_ONCE // numbers, max(FEWEST, AT_ONCE_FAST // numbers)))
        even = -(-len(slabs) // -(-len(slabs) // fits))  # so that no batch is filled up for nothing
        # A network may run on whole batches of one size alone, or call its layers once per sample.
        for size in dict.fromkeys((even, 1, self.arguments.batch)):
            responses = {number: responses_for(slabs, choice) for number, choice in layouts.items() if choice}
            try:
                whole = self._run_on(slabs, size, survey, responses)
            except Exception:  # noqa: BLE001 - it may refuse such a batch in any way
                continue
            if whole:
                return {
                    number: Answers(survey.shape(number), found, self._again.get(number))
                    for number, found in responses.items()
                }
        return {}

    def _run_on(self, slabs: Slabs, size: int, survey: Survey, responses: dict[int, list[Any]]) -> bool:
        """Run the slabs in batches of a size; tell whether every call was there in each, with a row for each."""
        numbers = {(survey.seen[one].name, survey.seen[one].call): one for one in responses if one != OUTPUT}
        modules = [module for module in self._layers() if any(self._names[module] == name for name, _ in numbers)]
        for start in range(0, len(slabs), size):
            stop = min(start + size, len(slabs))
            rows = slabs.rows(start, stop)
            if stop - start < size == self.arguments.batch and start:  # a whole batch, where the network takes no other
                rows = torch.cat([rows, slabs.base.repeat(size - (stop - start), *[1] * (rows.ndim - 1))])
            met: set[int] = set()
            frames: dict[str, list[Tensor]] = {}

            def note(
                number: int, output: Tensor, rows: Tensor = rows, kept: int = stop - start, met: set[int] = met
            ) -> None:
                folded = survey.shape(number)[0] // survey.rows
                if output.shape[0] == folded * len(rows) and output.shape[1:] == survey.shape(number)[1:]:
                    met.add(number)
                    if folded > 1 and len(rows) > 1 and self._has_frames_first(number, output, folded):
                        self._frames_first.add(number)
                    for response in responses[number]:
                        response.note(output[: folded * kept])

            def returned_from(
                call: Call,
                output: Any,
                note: Callable[[int, Tensor], None] = note,
                frames: dict[str, list[Tensor]] = frames,
            ) -> None:
                name = self._names[call.module]
                number = numbers.get((name, call.index))
                if number is not None and isinstance(output, Tensor):
                    note(number, output)
                number = numbers.get((name, None))
                if number is None or not isinstance(output, Tensor):
                    return
                frames.setdefault(name, []).append(output.clone())  # what follows may write into it
                if len(frames[name]) == survey.calls[name]:
                    joined = EveryCall.of(call.module, survey.calls[name]).joined(frames.pop(name))
                    if joined is not None:
                        note(number, joined)

            with forwards_replaced(watching(modules, returned=returned_from)), torch.no_grad():
                returned = self.arguments.with_rows(rows).call(self.network)
            if OUTPUT in responses:
                note(OUTPUT, _as_map(select_output(returned, self.select, len(rows)), survey.axes))
            if met != set(responses):
                return False
        return True

    def moved_by(self, survey: Survey, numbers: Sequence[int]) -> dict[int, bool]:
        """Whether the output changes when a call's positions are weighed at random: one run, a row for each call."""
        layouts = {number: survey.findings[number].layout for number in numbers}
        changes = [
            _weighing(layout if survey.seen[number].call is not None else layout.of_one_frame, row, len(numbers) + 1)
            for row, (number, layout) in enumerate(layouts.items(), start=1)
            if layout is not None
        ]
        changed = self._changed_by(survey, numbers, changes, self._slabs(survey).base)
        return dict.fromkeys(numbers, True) if changed is None else dict(zip(numbers, changed, strict=True))

    def carries_all(self, survey: Survey, numbers: Sequence[int]) -> dict[int, bool]:
        """Whether the output stays when the input is another and a call's output is as before: a row for each call."""
        changes = [_keeping_the_first(row, len(numbers) + 1) for row in range(1, len(numbers) + 1)]
        changed = self._changed_by(survey, numbers, changes, self._slabs(survey).other)
        return {number: changed is not None and not changed[place] for place, number in enumerate(numbers)}

    def _slabs(self, survey: Survey) -> Slabs:
        key = survey.base, tuple(survey.axes)
        if key not in self._slabs_of:
            main = self.arguments.main
            self._slabs_of[key] = Slabs.of(main, tuple(position_axes(main)), survey.base, survey.axes)
        return self._slabs_of[key]

    def _changed_by(
        self, survey: Survey, numbers: Sequence[int], changes: Sequence[Callable[[Tensor], Tensor]], given: Tensor
    ) -> list[bool] | None:
        """Whether the network, given one row as often as there are calls, tells it from the base: one run.

        In each of these rows one call's output is changed; None where the network cannot be run like that.
        """
        rows = torch.cat([self._slabs(survey).base, given.repeat(len(numbers), *[1] * (given.ndim - 1))])
        changing: dict[str, dict[int, list[Callable[[Tensor], Tensor]]]] = {}
        for number, change in zip(numbers, changes, strict=True):
            one = survey.seen[number]
            for call in range(survey.calls[one.name]) if one.call is None else [one.call]:
                changing.setdefault(one.name, {}).setdefault(call, []).append(change)
        modules = {module: self._names[module] for module in self._layers() if self._names[module] in changing}
        replaced = {module: _changing(module.forward, changing[name]) for module, name in modules.items()}
        try:
            with forwards_replaced(replaced), torch.no_grad():
                returned = self.arguments.with_rows(rows).call(self.network)
            output = select_output(returned, self.select, len(rows)).reshape(len(rows), -1).double()
        except Exception:  # noqa: BLE001 - it may refuse such a batch in any way
            return None
        rounding = 1e-6 * output[0].abs().amax()
        changed: list[bool] = ((output[1:] - output[0]).abs().amax(dim=1) > rounding).tolist()
        return changed


def _as_map(output: Tensor, axes: dict[int, int]) -> Tensor:
    """An output with an axis of channels also where it is one number per pixel, as a depth is."""
    return output.unsqueeze(1) if output.ndim == 3 and len(axes) == 2 else output


def _weighing(layout: Layout, row: int, rows: int) -> Callable[[Tensor], Tensor]:
    def weigh(output: Tensor) -> Tensor:
        weights = torch.ones(rows, layout.positions)
        weights[row] = torch.rand(layout.positions, generator=torch.Generator().manual_seed(0))
        return layout.weigh(output, weights.to(output.device))

    return weigh


def _noting_and_weighing(
    weigh: Callable[[Tensor], Tensor], row: int, number: int, moved: set[int]
) -> Callable[[Tensor], Tensor]:
    """Weigh a row of what a call gives, and note its number where that row differs from the first already."""

    def change(output: Tensor) -> Tensor:
        if not bool(agreeing(output[row : row + 1], output[:1])):
            moved.add(number)
        return weigh(output)

    return change


def _keeping_the_first(row: int, rows: int) -> Callable[[Tensor], Tensor]:
    def keep(output: Tensor) -> Tensor:
        folded = len(output) // rows
        kept = output.clone()
        kept[row * folded : (row + 1) * folded] = output[:folded]
        return kept

    return keep


def _changing(forward: Forward, changes: dict[int, list[Callable[[Tensor], Tensor]]]) -> Forward:
    calls = 0

    def changed(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        output = forward(*args, **kwargs)
        for change in changes.get(calls, ()):
            output = change(output)
        calls += 1
        return output

    return changed


def _called_per_frame(
    noted: Sequence[tuple[Seen, Tensor]], calls: dict[str, int], rows: int, lengths: set[int]
) -> dict[str, list[Tensor]]:
    """What the calls of each module returned that is called as often as an axis of the input is long, always alike."""
    found: dict[str, list[Tensor]] = {}
    for one, tensor in noted:
        if calls[one.name] > 1 and calls[one.name] in lengths:
            found.setdefault(one.name, []).append(tensor)
    return {
        name: tensors
        for name, tensors in found.items()
        if len(tensors) == calls[name] and len({one.shape for one in tensors}) == 1 and len(tensors[0]) == rows
    }


def _axes_in_use(main: Tensor, rows: int, shapes: Iterable[tuple[int, ...]]) -> dict[int, int]:
    """The input's axes with positions; those of two or three only where a layer has a row of the batch for each."""
    axes = position_axes(main)
    folded = {shape[0] // rows for shape in shapes if shape and shape[0] % rows == 0}
    longest = max(axes.values(), default=0)
    return {axis: length for axis, length in axes.items() if length > 3 or length in folded or longest <= 3}


def _alive(output: Tensor, tensors: list[Tensor]) -> list[tuple[bool, ...] | None]:
    """For each tensor, which of its tokens, or whether any of it, has a gradient of the output; None: there is none."""
    asked = [tensor for tensor in tensors if tensor.requires_grad]
    if not asked or not output.requires_grad:
        return [None] * len(tensors)
    projection = torch.randn(output.shape, generator=torch.Generator().manual_seed(0)).to(output)
    try:
        gradients = iter(torch.autograd.grad(output, asked, projection, allow_unused=True))
    except RuntimeError:  # a network that is not differentiable as it runs here
        return [None] * len(tensors)
    found: list[tuple[bool, ...] | None] = []
    for tensor in tensors:
        gradient = next(gradients) if tensor.requires_grad else None
        if gradient is None:
            found.append(None)
        elif gradient.ndim == 3:
            found.append(tuple((gradient != 0).any(dim=2).any(dim=0).tolist()))
        else:
            found.append((_is_anything(gradient),))
    return found


def _is_anything(values: Tensor) -> bool:
    """Whether any number is not zero: as good as always, one of the first."""
    if values.is_contiguous() and bool(values.view(-1)[:SOME].any()):
        return True
    return bool(values.any())
