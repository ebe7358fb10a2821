"""Finding the layer where the filter sits, by watching one real run: shapes decide, never class names."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import LayerError, NetworkError
from .borrow import Call, borrowed, forwards_replaced, unwrap, watching
from .inputs import Arguments, Inputs, Select, is_plain, select_output
from .knowledge import knowledge_of
from .layout import Layout, infer_layout


@dataclass(frozen=True)
class Layer:
    """One call of one module whose output holds a map, with the layout of that map.

    `reaches` tells whether the network's output changes at all when the map does: the patch tokens after the last
    attention of a classifier that reads only its class token, for one, reach nothing. `inputs_written` tells whether
    the network writes into its inputs. `input` names the argument that the map belongs to.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    layout: Layout
    call: int = 0
    calls: int = 1
    reaches: bool = True
    inputs_written: bool = False
    input: str = "0"

    def __str__(self) -> str:
        return self.name if self.calls == 1 else f"{self.name} (call {self.call + 1} of {self.calls})"


def usable_layers(network: nn.Module, inputs: Inputs, *, select: Select = None) -> list[Layer]:
    """List the layers whose output holds a map, in the order in which they finish."""
    plain = unwrap(network)
    with borrowed(plain):
        return list(_survey(plain, Arguments.of(inputs), select).layers)


def find_layer(
    network: nn.Module,
    arguments: Arguments,
    layer: str | nn.Module | None,
    *,
    call: int | None = None,
    select: Select = None,
) -> Layer:
    """Turn a name, a module or nothing into a layer; nothing means the last one whose map reaches the output."""
    survey = _survey(network, arguments, select)
    if layer is None:
        found = survey.default()
        layer = found.name
        if call is None:
            return found
    name = layer if isinstance(layer, str) else _name_of(network, layer)
    matches = [candidate for candidate in survey.layers if candidate.name == name]
    if not matches:
        raise LayerError(survey.why_not(network, name))
    if call is None:
        return matches[-1]
    for match in matches:
        if call in (match.call, match.call - match.calls):  # as everywhere in Python, -1 is the last
            return match
    with_map = ", ".join(str(match.call) for match in matches)
    raise LayerError(
        f"Layer {name!r} is called {matches[0].calls} times and has a spatial map in call {with_map}, not {call}: "
        "choose one of these."
    )


@dataclass(frozen=True)
class _Survey:
    """What one run of a network showed."""

    layers: tuple[Layer, ...]
    called: frozenset[str]
    output_is_map: bool

    def default(self) -> Layer:
        if not self.layers:
            raise LayerError(
                "No layer of this network has a spatial map: the filter needs a convolutional or token layer with "
                "more than one position, so give an input that is large enough, or another network."
            )
        layers = self.layers
        if self.output_is_map:
            # The last map of a dense predictor is its answer; where it looked shows at its coarsest layer.
            coarsest = min(layer.layout.positions for layer in layers)
            layers = tuple(layer for layer in layers if layer.layout.positions == coarsest)
        last = layers[-1]
        # Where the last map reaches nothing, go back along the stream of the same shape to one that does.
        reaching = [layer for layer in layers if layer.reaches]
        stream = [layer for layer in reaching if layer.shape == last.shape]
        return (stream or reaching or [last])[-1]

    def why_not(self, network: nn.Module, name: str) -> str:
        usable = [layer.name for layer in self.layers]
        near = difflib.get_close_matches(name, usable, n=3, cutoff=0.3) or usable[-3:]
        names = dict(network.named_modules())
        if name not in names:
            fault = f"There is no layer {name!r}"
        elif name not in self.called:
            fault = f"Layer {name!r} is not called when the network runs"
        else:
            fault = f"The output of layer {name!r} has no spatial map"
        return f"{fault}; the nearest usable ones are {', '.join(near) or 'none'}."


def _survey(network: nn.Module, arguments: Arguments, select: Select) -> _Survey:
    """Look at the network once: what a run shows depends on its modules, the input's shape and what is explained."""
    if not is_plain(select):
        return _look_at_little(network, arguments, select)  # to keep it would keep all that the function refers to
    known = knowledge_of(network)
    key = (arguments.signature(), select)
    # What reaches the output depends on weights too: a branch that starts at zero does only once it is trained.
    # A tensor of inference mode counts no versions; what writes into it goes unnoticed, as it does in torch itself.
    versions = [
        (tensor.data_ptr(), 0 if tensor.is_inference() else tensor._version)
        for tensor in (*network.parameters(), *network.buffers())
    ]
    surveyed: tuple[list[tuple[int, int]], _Survey] | None = known.get("survey", key)
    if surveyed is None or surveyed[0] != versions:
        surveyed = versions, _look_at_little(network, arguments, select)
        known.put("survey", key, surveyed)
    return surveyed[1]


def _look_at_little(network: nn.Module, arguments: Arguments, select: Select) -> _Survey:
    """Look at the first sample alone; where the network cannot run on one sample, at all of them."""
    if arguments.batch > 1:
        try:
            return _look(network, arguments.first(), select)
        except Exception:  # noqa: BLE001 - if it is not for the single sample, it comes again
            pass
    return _look(network, arguments, select)


def _look(network: nn.Module, arguments: Arguments, select: Select) -> _Survey:
    """Run one sample, note every output that holds a map, and ask the gradient which of them reach the output."""
    input_shape = tuple(arguments.main.shape)
    names = {module: name for name, module in network.named_modules()}
    noted: list[tuple[Layer, Tensor]] = []
    calls: dict[str, int] = {}

    def returned_from(call: Call, output: Any) -> None:
        name = names[call.module]
        calls[name] = call.index + 1
        if isinstance(output, Tensor) and output.is_floating_point():
            layout = infer_layout(tuple(output.shape), input_shape)
            if layout is not None:
                layer = Layer(name, type(call.module).__name__, tuple(output.shape[1:]), layout, call.index)
                noted.append((layer, output))

    main = arguments.main
    differentiable = arguments.map(
        lambda tensor: tensor.clone().requires_grad_() * 1 if tensor is main else tensor.clone()
    )
    before = differentiable.versions()
    with borrowed(network) as loan:
        # What computes a weight is no layer, though its output may have the shape of a map.
        layers = [
            module
            for module in loan.modules
            if module is not network and "parametrizations" not in names[module].split(".")
        ]
        try:
            with forwards_replaced(watching(layers, returned=returned_from)), torch.enable_grad():
                returned = differentiable.call(network)
        except RuntimeError:
            # What writes into views, for one, runs only where no gradient is asked for.
            noted.clear()
            calls.clear()
            with forwards_replaced(watching(layers, returned=returned_from)), torch.no_grad():
                differentiable = arguments.map(Tensor.clone)
                before = differentiable.versions()
                returned = differentiable.call(network)
    output = select_output(returned, select, arguments.batch)
    reaching = _reaching(output, [tensor for _, tensor in noted], [layer.layout for layer, _ in noted])
    return _Survey(
        layers=tuple(
            replace(
                layer,
                reaches=reach,
                calls=calls[layer.name],
                inputs_written=differentiable.versions() != before,
                input=arguments.main_name,
            )
            for (layer, _), reach in zip(noted, reaching, strict=True)
        ),
        called=frozenset(calls),
        output_is_map=infer_layout(tuple(output.shape), input_shape) is not None,
    )


def _reaching(output: Tensor, tensors: list[Tensor], layouts: list[Layout]) -> list[bool]:
    """Tell for each map whether the output has a gradient there; where none can be had, give the benefit of doubt."""
    asked = [tensor for tensor in tensors if tensor.requires_grad]
    if not asked or not output.requires_grad:
        return [True] * len(tensors)
    projection = torch.randn(output.shape, generator=torch.Generator().manual_seed(0)).to(output)
    try:
        gradients = iter(torch.autograd.grad(output, asked, projection, allow_unused=True))
    except RuntimeError:  # a network that is not differentiable as it runs here
        return [True] * len(tensors)
    reaches = []
    for tensor, layout in zip(tensors, layouts, strict=True):
        gradient = next(gradients) if tensor.requires_grad else None
        reaches.append(gradient is not None and bool((layout.columns(gradient) != 0).any()))
    return reaches if any(reaches) else [True] * len(tensors)


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
        raise NetworkError(f"There is no module {name!r} in this network.") from error
