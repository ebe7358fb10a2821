"""Names for a network's outputs: what they predict, and the way back from what a person types to an index."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import ClassError
from .imports import import_torchvision

if TYPE_CHECKING:
    from torch import Tensor

IMAGENET_CLASSES = 1000


def imagenet_class_names() -> tuple[str, ...]:
    """The 1,000 classes of ImageNet in the usual order, by short names of which no two are equal.

    >>> imagenet_class_names()[207]
    'golden retriever'
    """
    # torchvision's list tells the two cranes and the two maillots apart; others do not.
    return tuple(import_torchvision().models.ResNet50_Weights.IMAGENET1K_V1.meta["categories"])


@dataclass(frozen=True)
class Prediction:
    """What the network takes a photograph for.

    A single output has no others to be weighed against, and nobody says whether it is a logit or a probability: it is
    given as it is, as `score`.

    >>> str(Prediction(1, "dog", 0.394)), str(Prediction(0, "tumour", None, 1.274))
    ('dog, 39%', 'tumour, score 1.27')
    """

    index: int
    name: str
    probability: float | None
    score: float | None = None

    def __str__(self) -> str:
        return f"{self.name}, {f'score {self.score:.3g}' if self.probability is None else percent(self.probability)}"

    def as_dict(self) -> dict[str, int | str | float | None]:
        known: dict[str, int | str | float | None] = {"index": self.index, "name": self.name}
        known["probability"] = self.probability
        return known if self.score is None else {**known, "score": self.score}


def predictions(output: Tensor, class_names: Sequence[str] = ()) -> list[Prediction | None]:
    """The best class of every sample; None where the output is no row of finite scores."""
    if output.ndim not in (1, 2):
        return [None] * len(output)
    scores = output.detach().reshape(len(output), -1)
    finite = scores.isfinite().all(dim=1).tolist()
    best = scores.argmax(dim=1).tolist() if scores.shape[1] else []
    return [
        prediction_of(output, sample, best[sample], class_names) if best and finite[sample] else None
        for sample in range(len(output))
    ]


def prediction_of(output: Tensor, sample: int, index: int, class_names: Sequence[str] = ()) -> Prediction:
    """One class of one sample of an output (B, N) or (B,); names are taken where there is one for each output."""
    scores = output.detach().float().reshape(len(output), -1)[sample : sample + 1]
    name = class_name(class_names if len(class_names) == scores.shape[1] else (), index)
    if scores.shape[1] == 1:
        return Prediction(index, name, None, float(scores[0, 0]))
    return Prediction(index, name, float(probabilities(scores)[0, index]))


def probabilities(output: Tensor) -> Tensor:
    """Scores as probabilities; those of a network that ends in softmax stay as they are."""
    scores = output.detach().float()
    ready = bool((scores >= 0).all()) and bool((scores.sum(dim=1) - 1).abs().max() < 1e-3)
    return scores if ready else scores.softmax(dim=1)


def percent(share: float) -> str:
    """A share as people write it.

    >>> percent(0.394), percent(0.0041), percent(0.9996)
    ('39%', '0.4%', '99.96%')
    """
    if share < 0.0995:
        return f"{100 * share:.1f}%"
    return f"{100 * share:.2f}%" if 0.995 <= share < 0.99995 else f"{100 * share:.0f}%"


def class_name(class_names: Sequence[str], index: int) -> str:
    """What an output is called; one without a name goes by its number.

    >>> class_name(["cat", "dog"], 1), class_name([], 1)
    ('dog', 'class 1')
    """
    return class_names[index] if index < len(class_names) else f"class {index}"


def class_index(class_names: Sequence[str], text: str, *, network: str = "The network") -> int:
    """The class that a person means: "207", "golden retriever", or a part that only one name has.

    A whole name wins over a whole word in a name, and that over any part of one; case does not matter.

    >>> class_index(["tiger cat", "tiger"], "Tiger"), class_index(["tiger cat", "tiger"], "cat")
    (1, 0)
    """
    wanted = " ".join(text.split()).casefold()
    if re.fullmatch(r"[+-]?\d+", wanted):
        return _checked(int(wanted), len(class_names), network)
    if not class_names:
        raise ClassError(
            f"The classes of {network} have no names: give the class {text!r} by its number.", field="class"
        )
    if not wanted:
        raise ClassError("The class is empty: give its number or its name.", field="class")
    names = [name.casefold() for name in class_names]
    word = re.compile(rf"\b{re.escape(wanted)}\b")
    for found in (
        [index for index, name in enumerate(names) if name == wanted],
        [index for index, name in enumerate(names) if word.search(name)],
        [index for index, name in enumerate(names) if wanted in name],
    ):
        if len(found) == 1:
            return found[0]
        if found:
            raise ClassError(
                f"{text!r} fits {len(found)} classes of {network}: say which, {_listed(found, class_names)}.",
                field="class",
            )
    near = difflib.get_close_matches(wanted, names, n=3, cutoff=0.5)
    found = [names.index(name) for name in near]
    hint = f"the nearest are {_listed(found, class_names)}" if found else "give its number or a part of its name"
    raise ClassError(f"{network} has no class {text!r}: {hint}.", field="class")


def _checked(index: int, count: int, network: str) -> int:
    if index < 0 or (count and index >= count):
        highest = f"from 0 to {count - 1}" if count else "from 0 on"
        raise ClassError(f"{network} has no class {index}: its classes are numbered {highest}.", field="class")
    return index


def _listed(found: list[int], class_names: Sequence[str], count: int = 5) -> str:
    shown = ", ".join(f"{class_names[index]} ({index})" for index in found[:count])
    return shown + (", …" if len(found) > count else "")
