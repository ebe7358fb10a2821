"""The same question in Python and on the command line, so that what was found here can be found again anywhere."""

from __future__ import annotations

import shlex

from ..methods.table import FILTERS
from ..networks.catalogue import DEFAULT
from ..rendering.style import Style
from ..tasks.look import Look

WHERE = "where"  # the name of what is written


def as_command(found: Look, style: Style) -> str:
    """A line for a shell, in the folder of the photograph."""
    question, choice = found.question, found.request.network
    words = ["l2caf", "explain", _as_file(found.request.name)]
    words += [] if choice.network == DEFAULT else ["--network", choice.network]
    words += ["--layer", choice.layer] if choice.layer else []
    words += [] if choice.view == "crop" else ["--view", choice.view]
    words += ["--method", question.method or "l2caf"]
    words += [] if question.filter == "l2" else ["--filter", question.filter]
    for one in question.classes:
        words += ["--class", str(one)]
    words += ["--published"] if question.published else []
    drawn = found.styled(style)
    words += ["--signed"] if drawn.signed else []
    words += [] if drawn.alpha == Style().alpha else ["--alpha", f"{drawn.alpha:g}"]
    words += ["--box", "--threshold", f"{drawn.threshold:g}"] if drawn.box else []
    words += ["--bare"] if len(found.shown.maps) == 1 else []
    return shlex.join([*words, "--npy", "--out", f"{WHERE}.png"])


def as_python(found: Look, style: Style) -> str:
    """A script, in the folder of the photograph."""
    choice = found.request.network
    load = "l2caf.load()" if choice.network == DEFAULT else f"l2caf.load({choice.network!r})"
    load += "" if choice.view == "crop" else f".viewed({choice.view!r})"
    asked = [*_asked(found), *([f"layer={choice.layer!r}"] if choice.layer else [])]
    drawn = found.styled(style)
    drawing = ["signed=True"] if drawn.signed else []
    drawing += [] if drawn.alpha == Style().alpha else [f"alpha={drawn.alpha:g}"]
    drawing += [f"box={drawn.threshold:g}"] if drawn.box else []
    file = repr(_as_file(found.request.name))
    lines = [
        "import l2caf",
        "import numpy as np",
        "",
        f"model = {load}",
        f"heatmap = model.explain({', '.join([file, *asked])})",
        # What the network saw, as on the page: without it a heatmap is drawn on the whole photograph.
        f"heatmap.save({', '.join([repr(f'{WHERE}.png'), f'model.view({file})', *drawing])})",
        f"np.save({f'{WHERE}.npy'!r}, heatmap.{'signed[0].cpu()' if drawn.signed else 'numpy()[0]'})",
    ]
    return "\n".join(lines) + "\n"


def _asked(found: Look) -> list[str]:
    """What `explain` is given for the question."""
    question = found.question
    entry = question.entry
    chosen = list(question.classes)
    published = question.published or bool(entry.settings.get("published"))
    about = "" if not chosen else str(chosen[0]) if len(chosen) == 1 else f"classes={chosen}"
    if not entry.is_filter or entry.settings.get("filter"):
        return [f"method={entry.key!r}", *([f"objective=l2caf.ClassSpecific({about})"] if chosen else [])]
    if question.is_about_prediction:
        return ["objective=l2caf.Prediction()"]
    asked = []
    if not question.is_class_oblivious:
        options = ", ".join(filter(None, [about, "published=True" if published else ""]))
        asked.append(f"objective=l2caf.ClassSpecific({options})")
    if question.filter != "l2":
        asked.append(f"filter=l2caf.{FILTERS[question.filter].home.rpartition(':')[2]}()")
    return asked


def _as_file(name: str) -> str:
    """A name that no command takes for an option."""
    return f"./{name}" if name.startswith("-") else name
