"""How long does a map take, beside a plain forward pass, other tools, and the paper's own procedure?"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from l2caf import Auto, ClassOblivious, ClassSpecific, GradientDescent, Prediction, UnitL2, explain
from l2caf.heads.recorded import RecordedHead
from l2caf.methods.attention_filter import pose
from l2caf.networks.imports import import_torchvision
from l2caf.recording.replay import Replay

from .row import Row, Times, side_by_side
from .subjects import batch, lite, torchvision_network

# From the second call on, at batch 1 and 16: class-oblivious, five classes together.
BARS = {1: (1.12, 1.05), 16: (1.05, 1.03)}
ROUNDS = {1: 41, 16: 7}


def rows() -> list[Row]:
    found = []
    networks = {
        "EfficientNet-Lite0": lite(),
        "MobileNetV2": torchvision_network("mobilenet_v2"),
        "ResNet-50": torchvision_network("resnet50"),
    }
    for name, network in networks.items():
        for size in (16, 1):
            found += _against_others(name, network, batch(size))
    found += _small_network()
    found += _two_layers(lite(), batch(1))
    vgg = torchvision_network("vgg16")
    found += _against_the_vanilla_form(lite(), batch(1))
    found += _against_the_paper("EfficientNet-Lite0", lite(), batch(1), rounds=7)
    found += _against_the_paper("VGG-16", vgg, batch(1), rounds=1)
    found += _through_the_frontier(vgg, batch(1))
    return found


def _against_others(name: str, network: nn.Module, images: Tensor) -> list[Row]:
    """Processor time of one thread, which other work on the machine disturbs least."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return [*_over_forward(name, network, images), *_beside_other_tools(name, network, images)]
    finally:
        torch.set_num_threads(threads)


def _over_forward(name: str, network: nn.Module, images: Tensor) -> list[Row]:
    """Whole calls beside forward passes. Apart from the other tools: a backward pass through everything leaves memory
    and caches in such a state that whoever comes next pays for it."""
    size = len(images)
    for_oblivious, for_five = BARS[size]
    asked: dict[str, tuple[Callable[[], Any], float | None]] = {
        "class-oblivious": (lambda: explain(network, images).maps, for_oblivious),
        "class-specific, top 5 together": (
            lambda: explain(network, images, objective=ClassSpecific(top=5)).maps,
            for_five,
        ),
        "class-specific, one class": (lambda: explain(network, images, objective=ClassSpecific()).maps, None),
        "prediction": (lambda: explain(network, images, objective=Prediction()).maps, None),
    }
    runs = {"forward": lambda: _forward(network, images)} | {what: run for what, (run, _) in asked.items()}
    times = side_by_side(runs, rounds=ROUNDS[size], clock=time.thread_time)
    found = [_ratio(times, f"{name}, batch {size}: {what} ÷ forward", what, bar) for what, (_, bar) in asked.items()]
    more = times.ratio("prediction", "forward") - times.ratio("class-oblivious", "forward")
    what = f"{name}, batch {size}: prediction ÷ forward, above class-oblivious by"
    return [*found, Row(what, f"{more:+.3f}", "≤ 0.02", more <= 0.02, {"more": more})]


def _beside_other_tools(name: str, network: nn.Module, images: Tensor) -> list[Row]:
    ours: dict[str, Callable[[], Any]] = {
        "oblivious": lambda: explain(network, images).maps,
        "one class": lambda: explain(network, images, objective=ClassSpecific()).maps,
    }
    size, found = len(images), []
    candidates = {**ours, **_other_tools(network, images)}
    times = side_by_side(candidates, rounds=ROUNDS[size], warm_up=1, clock=time.thread_time)
    for tool, bar in (("pytorch-grad-cam", 2.0), ("torch-cam", 1.05), ("captum", 1.05)):
        for kind in ours:
            factor = times.ratio(tool, kind)
            found.append(
                Row(
                    f"{name}, batch {size}: {tool} GradCAM ÷ l2caf ({kind})",
                    f"{factor:.2f} ({times.spread(tool, kind)})",
                    f"≥ {bar:g}",
                    factor >= bar,
                    {
                        "ratio": factor,
                        "tool_ms": times.milliseconds(tool),
                        "l2caf_ms": times.milliseconds(kind),
                    },
                )
            )
    return found


def _small_network() -> list[Row]:
    """A network that takes half a millisecond: what is left is what we add."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for before, after in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.ReLU()]
    network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)).eval()
    image = torch.rand(1, 3, 64, 64)
    times = side_by_side(
        {"forward": lambda: _forward(network, image), "oblivious": lambda: explain(network, image).maps},
        rounds=201,
        clock=time.thread_time,
    )
    more = times.milliseconds("oblivious") - times.milliseconds("forward")
    forward = times.milliseconds("forward")
    return [
        Row(
            f"a network of {forward:.1f} ms on 64 pixels, batch 1: explain(net, x) takes longer by",
            f"{more:.2f} ms",
            "≤ 1 ms",
            more <= 1,
            {"forward_ms": forward, "more_ms": more},
        )
    ]


def _two_layers(network: nn.Module, image: Tensor) -> list[Row]:
    layer = explain(network, image).layer
    other = network.get_submodule(layer)
    names = [layer, list(dict(other.named_modules(prefix=layer)))[-1]]  # its own last part gives the same map
    times = side_by_side(
        {
            "one": lambda: explain(network, image, layer=layer),
            "two": lambda: explain(network, image, layer=names),
        },
        rounds=31,
    )
    outcome = [str(heatmap.solved.outcome[0]) for heatmap in explain(network, image, layer=names)]  # type: ignore[union-attr]
    ratio = times.ratio("two", "one")
    what = f"EfficientNet-Lite0, batch 1: two layers at once ({' and '.join(outcome)}) ÷ one"
    return [Row(what, f"{ratio:.2f} ({times.spread('two', 'one')})", "≤ 1.05", ratio <= 1.05, {"ratio": ratio})]


def _ratio(times: Times, what: str, one: str, bar: float | None) -> Row:
    ratio = times.ratio(one, "forward")
    details = {"ratio": ratio, "ms": times.milliseconds(one), "forward_ms": times.milliseconds("forward")}
    low, high = times.between(one, "forward")
    measured = f"{ratio:.3f} ({low:.3f}-{high:.3f})"
    return Row(what, measured, f"≤ {bar:.2f}" if bar else "", None if bar is None else ratio <= bar, details)


def _forward(network: nn.Module, images: Tensor) -> Tensor:
    with torch.inference_mode():
        output: Tensor = network(images)
        return output


def _other_tools(network: nn.Module, images: Tensor) -> dict[str, Callable[[], Any]]:
    import_torchvision()  # they import it, and on some machines it must be helped
    from captum.attr import LayerGradCam
    from pytorch_grad_cam import GradCAM as PytorchGradCam
    from pytorch_grad_cam.utils.model_targets import ClassifierOutputTarget
    from torchcam.methods import GradCAM as TorchCam

    layer = network.get_submodule(explain(network, images[:1]).layer)
    classes = _forward(network, images).argmax(1).tolist()
    grad_cam = PytorchGradCam(model=network, target_layers=[layer])
    captum = LayerGradCam(network, layer)
    targets = [ClassifierOutputTarget(index) for index in classes]

    def torch_cam() -> Any:
        with TorchCam(network, layer) as extractor:
            return extractor(classes, network(images))

    return {
        "pytorch-grad-cam": lambda: grad_cam(input_tensor=images, targets=targets),
        "torch-cam": torch_cam,
        "captum": lambda: captum.attribute(images, target=torch.tensor(classes)),
    }


def _against_the_paper(name: str, network: nn.Module, image: Tensor, *, rounds: int) -> list[Row]:
    """Beside the paper's procedure in its fast form; what takes a minute is run in fewer rounds."""
    paper = GradientDescent()
    replay = Replay(network, image)

    def solve(solver: Auto | GradientDescent) -> Any:
        return solver.search(pose(RecordedHead(replay), UnitL2(), ClassOblivious())[0])

    ours = side_by_side(
        {
            "forward": lambda: _forward(network, image),
            "whole": lambda: explain(network, image).maps,
            "solving": lambda: solve(Auto()),
        },
        rounds=9,
    )
    theirs = side_by_side(
        {"whole": lambda: explain(network, image, solver=paper).maps, "solving": lambda: solve(paper)},
        rounds=rounds,
        warm_up=1 if rounds > 1 else 0,
    )
    steps = int(solve(paper).steps[0])
    measured = "" if rounds > 1 else ", of one run"
    found = []
    for part, what, bar in (
        ("whole", f"the paper's procedure, fast form ({steps} steps{measured}) ÷ l2caf, {name}, one image", 30),
        ("solving", f"the same, {name}, solving alone (everything after the network's own run)", 100),
    ):
        ratio = theirs.milliseconds(part) / ours.milliseconds(part)
        details = {"ratio": ratio, "ms": ours.milliseconds(part), "paper_ms": theirs.milliseconds(part)}
        found.append(Row(what, f"{ratio:.1f}", f"≥ {bar}", ratio >= bar, details))
    forwards = theirs.milliseconds("whole") / ours.milliseconds("forward")
    return [*found, Row(f"the paper's procedure ÷ forward, {name}", f"{forwards:.0f}", details={"ratio": forwards})]


def _against_the_vanilla_form(network: nn.Module, image: Tensor) -> list[Row]:
    times = side_by_side(
        {
            "ours": lambda: explain(network, image).maps,
            "vanilla": lambda: explain(network, image, solver=GradientDescent(vanilla=True)).maps,
        },
        rounds=7,
        warm_up=1,
    )
    ratio = times.ratio("vanilla", "ours")
    return [
        Row(
            "the paper's procedure, vanilla form (the whole network in every step) ÷ l2caf, EfficientNet-Lite0",
            f"{ratio:.0f}",
            details={"ratio": ratio, "vanilla_ms": times.milliseconds("vanilla")},
        )
    ]


def _through_the_frontier(network: nn.Module, image: Tensor) -> list[Row]:
    times = side_by_side(
        {"forward": lambda: _forward(network, image), "oblivious": lambda: explain(network, image).maps},
        rounds=9,
    )
    head = RecordedHead(Replay(network, image))
    frontier = head.frontier
    name = head.name_of(frontier[1].cut) if frontier else "none"
    ratio = _ratio(times, f"VGG-16, one image, class-oblivious ÷ forward, frontier at {name}", "oblivious", 5.0)
    return [ratio]
