"""The paper's timing figure and its sanity checks: what needs no labelled data."""

from __future__ import annotations

import platform
from typing import Any

from .. import datasets
from ..evaluation.published import paper_times
from ..evaluation.reproduction import Measure, Number, Reproduced, Row
from ..methods.table import METHODS
from ..networks.catalogue import DEFAULT
from ..runs.contents import code_version, entries_of
from .reproduce_steps import Steps, names_of, source_of
from .sanity import SanityRequest, check_sanity
from .time import TimeRequest, time_maps

TIMED_NETWORKS = {
    "torchvision:densenet161": "DenseNet-161",
    "torchvision:vgg16": "VGG",
    "torchvision:googlenet": "GoogLeNet",
}
FORMS = ("gradcam", "fast", "vanilla")  # what the paper times
PHOTOGRAPHS = 8  # of a dataset, where one was found
CHECKED = ("l2caf", "l2caf-class", "gradcam")


def timing(steps: Steps) -> Reproduced:
    """Vanilla and fast descent beside Grad-CAM, and the solved filter, which the paper does not have."""
    from ..evaluation.timing import TIMED

    measures = (Measure("seconds", "seconds a frame", "s"), Measure("ratio", "times Grad-CAM's", "times"))
    named = steps.request.networks
    networks = named or (*TIMED_NETWORKS, DEFAULT)
    rows, machine = [], ""
    for network in networks:
        document = _timed(steps, network)
        machine, (found,) = document["machine"], document["networks"]
        seconds, base = found["seconds"], found["seconds"].get("gradcam")
        for form in (*FORMS, "l2caf"):
            if form not in seconds:
                continue
            low, high = found["quartiles"].get(form, (None, None))
            numbers = {"seconds": Number(seconds[form], low, high)}
            numbers |= {"ratio": Number(seconds[form] / base)} if base else {}
            guessed = "extrapolated from a few steps" if form in found["extrapolated"] else ""
            rows.append(Row(TIMED[form], network, numbers, words=guessed))
        if found["weights"] == "random":
            steps.note("weights", f"{network} has random weights, whose descent may take another number of steps.")
    for title, seconds in paper_times().items():
        for form in FORMS:
            numbers = {"seconds": Number(seconds[form]), "ratio": Number(seconds[form] / seconds["gradcam"])}
            rows.append(Row(TIMED[form], title, numbers, ours=False))
    if steps.request.weights is not None:
        steps.note("weights", f"{steps.request.weights} was not read: a step costs the same whatever the weights are.")
    others = [title for name, title in TIMED_NETWORKS.items() if name not in networks]
    steps.note("networks", f"{', '.join([*others, 'VGG-GAP'])}: not timed.")
    steps.note("machine", f"The paper does not name its own, so compare ratios; this one: {machine}.")
    note = "Medians of the rounds, with quartiles, and the same over Grad-CAM's on the same network."
    return steps.done(measures, rows, note=note)


def sanity(steps: Steps) -> Reproduced:
    """How much of a map stays when the network is randomised, layer by layer, by several seeds."""
    measures = (
        Measure("logits", "likeness kept, logits layer random", "share"),
        Measure("all", "likeness kept, all weights random", "share"),
    )
    images = []
    if "imagenet" in steps.found:
        data = datasets.read("imagenet", steps.found["imagenet"]).limit(
            min(steps.request.limit or PHOTOGRAPHS, PHOTOGRAPHS)
        )
        images = [*data.samples]
    rows = []
    for network in steps.request.networks or (DEFAULT,):
        choice = steps.choice(network)
        out = steps.folder / names_of(network)
        request = SanityRequest([sample.path for sample in images], out, choice, CHECKED)
        model = choice.load(steps.told(network))
        known = {"network": model.identity, "images": entries_of(images), "code": code_version()}

        def check(request: SanityRequest = request, model: Any = model, network: str = network) -> dict[str, Any]:
            found = check_sanity(request, model=model, progress=steps.told(network))
            return found.as_dict()

        document = steps.once(out, known, check)
        for name, found in document["methods"].items():
            kept = {key: found[key]["kept"] for key in ("logits", "all")}
            numbers = {key: Number(one["mean"], one["low"], one["high"]) for key, one in kept.items()}
            rows.append(Row(METHODS.title(name), network, numbers, words=found["verdict"]))
        for name, refusal in document["refused"].items():
            steps.note("methods", f"{METHODS.title(name)} on {network}: {refusal}")
        steps.note(
            "data", f"{len(document['photographs'])} photographs of ours; the paper shows maps of a few of its own."
        )
    steps.note("method", "The paper shows maps and gives no numbers: here the whole cascade of layers is measured.")
    note = (
        "1: the maps are as they were; 0: as unlike them as maps of other images. With 95 % intervals. A method passes"
        " where, with all weights random, the whole interval lies below a quarter."
    )
    return steps.done(measures, rows, note=note)


def _timed(steps: Steps, network: str) -> dict[str, Any]:
    out = steps.folder / names_of(network)
    known = {
        "network": network,
        "file": source_of(network),
        "rounds": steps.request.rounds,
        "machine": platform.node(),
        "code": code_version(),
    }

    def measure() -> dict[str, Any]:
        request = TimeRequest([network], out, rounds=steps.request.rounds)
        return time_maps(request, progress=steps.told(network)).as_dict()

    return steps.once(out, known, measure)
