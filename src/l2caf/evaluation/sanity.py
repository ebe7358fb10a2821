"""Do maps depend on what the network has learnt? The randomisation tests of Adebayo et al. (2018).

The network is randomised from the logits layer down to its first layer, and the maps of every stage are
compared with those of the trained network. A map that does not change was never about the network. What
"changed" means is measured, not assumed: `control` is how alike the maps of *different* images are under the
trained network.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ..errors import InputError, L2cafError, MethodError, NetworkError, OutputError
from ..heads.head import Head
from ..heatmap import Heatmap
from ..methods.attention_filter import AttentionFilter, as_objective
from ..methods.method import Method
from ..methods.table import METHODS, MethodEntry
from ..networks.untrained import measure_statistics
from ..progress import Progress, silent
from ..recorder import record
from ..recording.borrow import unwrap
from ..recording.inputs import Select
from .randomize import STAGES, Stage, cascade, randomize
from .similarity import SIMILARITIES
from .verdicts import MethodSanity, Sanity

Floats = npt.NDArray[np.float32]
MakesMethod = Callable[[Sequence[int]], Method]
"""From one class per image, the trained network's own, to a method."""

COMPARED = 64  # pixels per side at which maps are compared: finer than most grids, and coarse enough to be quick
TOGETHER = 16  # images that run at once


def sanity_check(
    network: nn.Module,
    inputs: Tensor,
    *,
    methods: Sequence[str] | Mapping[str, MakesMethod] = METHODS.default_in("evaluate"),
    seeds: int = 3,
    stages: int | Sequence[Stage] | None = STAGES,
    layer: str | None = None,
    select: Select = None,
    progress: Progress = silent,
) -> Sanity:
    """Randomise a copy of the network stage by stage and measure how alike the maps stay.

    `inputs` is (images, channels, height, width) with two images or more. `methods` are names, or functions
    that make a method from the classes that the trained network predicts. `stages` is how many points the
    cascade has (None: every layer), or the points themselves as `cascade` gives them. `progress` is told of
    every stage of every seed. The network that is given is not touched: all is done to a copy.
    """
    makers = _makers(methods)
    if inputs.ndim != 4 or len(inputs) < 2:
        raise InputError("The check compares maps of different images: give a batch of two or more.")
    if seeds < 1:
        raise InputError(f"{seeds} seeds randomise nothing: give 1 or more.", field="seeds")
    plan = cascade(network, inputs, stages=stages) if stages is None or isinstance(stages, int) else stages
    trial = _Trial(_copied(unwrap(network)), inputs, makers, layer, select)
    for seed in range(seeds):
        trial.begin(seed)
        for number, stage in enumerate(plan, start=1):
            trial.randomize(stage)
            progress("randomising", seed * len(plan) + number, len(plan) * seeds)
    return trial.report(tuple(plan), seeds)


class _Trial:
    """A copy of a network on its way down the cascade, and what has been measured on the way."""

    def __init__(
        self,
        network: nn.Module,
        inputs: Tensor,
        makers: Mapping[str, MakesMethod],
        layer: str | None,
        select: Select,
    ) -> None:
        self.network, self.inputs, self.select = network, inputs, select
        self.trained = {name: value.clone() for name, value in network.state_dict().items()}
        self.layer, self.call = layer, None
        heads = self._heads()
        found = heads[0].layer
        # A random network may suggest another layer; the maps must come from the same one.
        self.layer, self.call = found.name, found.call
        self.affine = all(head.is_affine for head in heads)
        self.methods, self.refused = _fitting(makers, heads)
        self.before = {name: _looked(methods, heads) for name, methods in self.methods.items()}
        self.rows: dict[str, list[list[_Row]]] = {name: [] for name in self.methods}
        self.seen: dict[str, list[Floats]] = {name: [views.shown[0]] for name, views in self.before.items()}
        self.random: list[nn.Module] = []
        self.seed = 0

    def begin(self, seed: int) -> None:
        """Give the copy its trained weights back."""
        self.network.load_state_dict(self.trained)
        self.seed, self.random = seed, []
        for rows in self.rows.values():
            rows.append([])

    def randomize(self, stage: Stage) -> None:
        """Go one stage down, and compare."""
        first = stage.depth - len(stage.adds)
        self.random += randomize(self.network, stage.adds, first=first, seed=self.seed)
        measure_statistics(self.network, self.random, self.inputs)
        heads = self._heads()
        for name, methods in list(self.methods.items()):
            try:
                views = _looked(methods, heads)
            except (MethodError, OutputError) as error:  # it fitted the trained network, but not this one
                self._give_up(name, f"with {stage.depth} random layers it says: {error}")
                continue
            self.rows[name][-1].append(_compared(self.before[name], views))
            if self.seed == 0:
                self.seen[name].append(views.shown[0])

    def _give_up(self, name: str, why: str) -> None:
        self.refused[name] = why
        del self.methods[name], self.seen[name]
        if not self.methods:
            raise MethodError(f"No method goes all the way down the cascade; {name}: {why}")

    def report(self, plan: tuple[Stage, ...], seeds: int) -> Sanity:
        return Sanity(
            layer=str(self.layer),
            stages=plan,
            seeds=seeds,
            images=len(self.inputs),
            methods={name: self._measured(name) for name in self.methods},
            refused=self.refused,
            maps={name: np.stack(maps) for name, maps in self.seen.items()},
        )

    def _measured(self, name: str) -> MethodSanity:
        rows = self.rows[name]
        control = _control(self.before[name])
        return MethodSanity(
            similarity={kind: np.array([[row.values[kind] for row in seed] for seed in rows]) for kind in control},
            control=control,
            empty=np.array([[row.empty for row in seed] for seed in rows]),
            is_oblivious=_is_oblivious(self.methods[name][0]),
            head_is_affine=self.affine,
            endpoint=self.before[name].endpoint,
        )

    def _heads(self) -> list[Head]:
        return [
            record(self.network, batch, layer=self.layer, call=self.call, output=self.select).head
            for batch in self.inputs.split(TOGETHER)
        ]


@dataclass(frozen=True)
class _Views:
    """The maps of all images, as they are shown and with their sign; `signed` is None where there is none."""

    shown: Floats
    signed: Floats | None
    endpoint: str  # where the objective was measured, "output" for most


@dataclass(frozen=True)
class _Row:
    """One stage of one seed: a similarity per image for each kind, and the images whose map is empty."""

    values: dict[str, list[float]]
    empty: list[bool]


def _compared(before: _Views, after: _Views) -> _Row:
    values = {
        f"{view}-{measure}": [compare(one, other) for one, other in zip(old, new, strict=True)]
        for view, old, new in _pairs(before, after)
        for measure, compare in SIMILARITIES.items()
    }
    return _Row(values, [not heat.any() for heat in after.shown])


def _control(before: _Views) -> dict[str, npt.NDArray[np.float64]]:
    """How alike each image's map is to those of the other images, on average."""
    found = {}
    for view, maps, _ in _pairs(before, before):
        for measure, compare in SIMILARITIES.items():
            alike = np.full((len(maps), len(maps)), np.nan)
            for i, j in zip(*np.triu_indices(len(maps), 1), strict=True):
                alike[i, j] = alike[j, i] = compare(maps[i], maps[j])
            found[f"{view}-{measure}"] = np.nanmean(alike, axis=1)
    return found


def _pairs(before: _Views, after: _Views) -> list[tuple[str, Floats, Floats]]:
    pairs = [("shown", before.shown, after.shown)]
    if before.signed is not None:
        # A map that has lost its negative part is still one of a signed method.
        pairs.append(("signed", before.signed, after.shown if after.signed is None else after.signed))
    return pairs


def _looked(methods: Sequence[Method], heads: Sequence[Head]) -> _Views:
    heatmaps = [method.on(head) for method, head in zip(methods, heads, strict=True)]
    heatmaps = [replace(heatmap, size=_size(heatmap)) for heatmap in heatmaps]
    signed = torch.cat([heatmap.signed for heatmap in heatmaps])
    solution = heatmaps[0].solution
    return _Views(
        torch.cat([heatmap.maps for heatmap in heatmaps]).cpu().numpy(),
        signed.cpu().numpy() if bool((signed < 0).any()) else None,
        solution.endpoint,
    )


def _size(heatmap: Heatmap) -> tuple[int, ...]:
    if len(heatmap.size) != 2:
        raise MethodError("The check compares pictures: it needs a layer whose map has height and width.")
    return tuple(max(COMPARED, side) for side in heatmap.weights.shape[-2:])


def _fitting(
    makers: Mapping[str, MakesMethod], heads: Sequence[Head]
) -> tuple[dict[str, list[Method]], dict[str, str]]:
    """The methods that can be asked of this network, one per batch, and why the others cannot."""
    fitting: dict[str, list[Method]] = {}
    refused: dict[str, str] = {}
    for name, make in makers.items():
        try:
            made = [make(_predicted(head)) for head in heads]
            _looked(made, heads)
        except (MethodError, OutputError) as error:
            refused[name] = str(error)
        else:
            fitting[name] = made
    if not fitting:
        raise MethodError(next(iter(refused.values())))
    return fitting, refused


def _predicted(head: Head) -> list[int]:
    output = head.output.detach()
    return output.reshape(len(output), -1).argmax(dim=1).tolist() if output.ndim <= 2 else []


def _is_oblivious(method: Method) -> bool:
    """Whether it asks what keeps the output: only such a question needs a head that feels scale."""
    return isinstance(method, AttentionFilter) and as_objective(method.objective).needs_scale


def _makers(methods: Sequence[str] | Mapping[str, MakesMethod]) -> dict[str, MakesMethod]:
    if isinstance(methods, Mapping) and methods:
        return dict(methods)
    return {key: _asked_of(METHODS[key]) for key in METHODS.checked(list(methods))}


def _asked_of(entry: MethodEntry) -> MakesMethod:
    return lambda classes: entry.make(labels=classes)


def _copied(network: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(network).eval()
    except L2cafError:
        raise
    except Exception as error:  # what hangs on a module may refuse to be copied in any way
        raise NetworkError(
            f"This network cannot be copied ({type(error).__name__}: {error}), and only a copy is randomised."
        ) from error
