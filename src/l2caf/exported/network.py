"""`ExportedNetwork`: a file that `l2caf.export` wrote, run by ONNX Runtime, with no torch imported."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from PIL import Image

from ..errors import ClassError, ExtraError, InputError, NetworkError, WeightsError, first_line
from ..images import as_photograph
from ..networks.class_names import class_index
from ..preprocessing import Input, Prepared, check_view
from .answer import Answer
from .card import IMAGES, KEY, MAPS, OUTPUT, Card

About = Literal["output", "class", "prediction"]
Photograph = str | os.PathLike[str] | Image.Image
CPU = ("CPUExecutionProvider",)


def load(
    path: str | os.PathLike[str], *, threads: int | None = None, providers: Sequence[Any] = CPU
) -> ExportedNetwork:
    """Open a file that `l2caf.export` or `l2caf export` wrote.

    threads    that one run takes; None for one per processor
    providers  what ONNX Runtime runs it on, in its own words
    """
    path = Path(path)
    try:
        stored = path.read_bytes()
    except OSError as error:
        raise WeightsError(f"'{path}' cannot be read ({error.strerror}): give a file that l2caf exported.") from error
    session = _session(path, stored, threads, providers)
    known = session.get_modelmeta().custom_metadata_map
    if KEY not in known:
        raise WeightsError(
            f"'{path}' was not exported by l2caf, so it gives no maps: export the network that it was made from, by"
            " l2caf.export or the command of that name."
        )
    return ExportedNetwork(path, session, Card.from_json(known[KEY]), hashlib.sha256(stored).hexdigest()[:16])


def _session(path: Path, stored: bytes, threads: int | None, providers: Sequence[Any]) -> Any:
    runtime = onnxruntime()
    options = runtime.SessionOptions()
    options.log_severity_level = 3  # what it warns of concerns nobody but whoever made the graph
    if threads is not None:
        if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
            raise InputError(f"threads is {threads!r}: give 1 or more, or leave it out.")
        options.intra_op_num_threads = threads
    try:
        return runtime.InferenceSession(stored, options, providers=list(providers))
    except Exception as error:  # it raises kinds of its own, which it does not name in public
        raise WeightsError(
            f"'{path}' cannot be run by ONNX Runtime {runtime.__version__} ({first_line(error)}): export the network"
            " again, with a lower opset if this one is too new."
        ) from error


def onnxruntime() -> Any:
    """The package, or a sentence on how to get it."""
    try:
        import onnxruntime
    except ImportError as error:
        raise ExtraError("Exported networks need onnxruntime: pip install onnxruntime.") from error
    return onnxruntime


@dataclass(frozen=True, eq=False)
class ExportedNetwork:
    """An exported network, ready to run.

    path      of the file
    session   of ONNX Runtime, for whatever else it can do
    card      what the file says of itself
    hash      of the file's bytes
    """

    path: Path
    session: Any = field(repr=False)
    card: Card = field(repr=False)
    hash: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        inputs = {one.name: one.shape for one in self.session.get_inputs()}
        wanted = ["3", *map(str, self.card.input_size)]
        if list(inputs) != [IMAGES] or [str(size) for size in inputs[IMAGES][1:]] != wanted:
            raise WeightsError(
                f"'{self.path}' takes {inputs}, and says of itself that it takes {IMAGES} (batch, {', '.join(wanted)}):"
                " export the network again."
            )

    def viewed(self, view: str) -> ExportedNetwork:
        """The same, shown the centre of each photograph ("crop") or all of it, stretched ("squash")."""
        check_view(view)
        if view == "whole":
            raise InputError(
                f"'{self.path.name}' takes inputs of one size, so photographs cannot be shown to it in their own"
                " proportions: take squash, or leave this out.",
                field="view",
            )
        if view == "crop":
            return self
        return replace(self, card=replace(self.card, preprocessing=self._preprocessing.squashed()))

    # What it shares with a Model

    @property
    def name(self) -> str:
        return self.card.network

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.card.class_names

    @property
    def embedding(self) -> bool:
        return self.card.embedding

    @property
    def assumed(self) -> dict[str, str]:
        """Nothing: what was taken for granted was said when it was exported."""
        return {}

    @property
    def contents(self) -> dict[str, str]:
        """What decides what a picture gets."""
        return {"file": self.hash}

    @property
    def libraries(self) -> dict[str, str]:
        """The versions of what runs it."""
        return {"onnxruntime": str(onnxruntime().__version__)}

    def class_index(self, text: str) -> int:
        """The class that a person means, by its number or its name."""
        return class_index(self.class_names, text, network=self.name)

    def prepare(self, image: Any) -> Prepared:
        """A photograph as input (3, H, W), as a sharp picture of what the network sees, and where that lies on it."""
        image = as_photograph(image)
        return self.ready(image)._replace(view=self._preprocessing.sharp_view(image))

    def ready(self, image: Any) -> Prepared:
        """The same without the sharp picture."""
        return self._preprocessing.prepare(as_photograph(image))

    @property
    def _preprocessing(self) -> Any:
        if self.card.preprocessing is None:
            raise InputError(
                f"{self.name} prepared its photographs by a function of its own, which no file can hold: prepare them"
                " yourself and give arrays to run(), or export it with a Preprocessing."
            )
        return self.card.preprocessing

    # What it is asked

    def explain(
        self,
        photographs: Photograph | Sequence[Photograph],
        *,
        about: About | None = None,
        classes: Sequence[int | str] | int | str | None = None,
        top: int | None = None,
    ) -> Answer:
        """Show where the network looked in photographs: one or several, paths or PIL images.

        about    "prediction" (the default of a classifier with that map), "output" or "class"
        classes  by number or name: those of the best classes that there are maps of
        top      a map for each of so many best classes
        """
        several = [photographs] if isinstance(photographs, str | os.PathLike | Image.Image) else [*photographs]
        if not several:
            raise InputError("There are no photographs to explain: give at least one.")
        opened = [as_photograph(one) for one in several]
        prepared = [self.ready(one) for one in opened]
        crops = tuple(
            None if one.crop is None else replace(one.crop, photograph=image)
            for one, image in zip(prepared, opened, strict=True)
        )
        answer = self.run([one.input for one in prepared], about=about, classes=classes, top=top)
        return replace(answer, crops=crops)

    def run(
        self,
        inputs: Input | Sequence[Input],
        *,
        about: About | None = None,
        classes: Sequence[int | str] | int | str | None = None,
        top: int | None = None,
    ) -> Answer:
        """The same for inputs that are prepared already, (B, 3, H, W).

        ONNX Runtime computes all that is in the file, whatever is asked.
        """
        wanted = [classes] if isinstance(classes, int | str) else None if classes is None else [*classes]
        about = self.question(about, asks_class=wanted is not None or top is not None)
        numbers = None if wanted is None else [self._class(one) for one in wanted]
        if top is not None:
            self.check_top(top)
        names = MAPS[about]
        outputs = [OUTPUT, *(name for name in names if name)]
        given = dict(zip(outputs, self._run(self._batch(inputs), outputs), strict=True))
        weights = given[names.map]
        if about != "class":
            return Answer(self.card, about, given[OUTPUT], weights[:, None], residual=given[names.residual])
        answer = Answer(self.card, about, given[OUTPUT], weights, given[names.classes])
        return answer.only(numbers) if numbers is not None else answer.best(top or 1)

    def question(self, about: str | None = None, *, asks_class: bool = False) -> About:
        """What is asked where it is not said; refuses what the file has no map of."""
        if about is None:
            kinds = ("class",) if asks_class else ("prediction", "output", "class")
            about = next((kind for kind in kinds if kind in self.card.maps), kinds[0])
        if asks_class and about != "class":
            raise InputError(
                f"A class is asked about, and the map of the {about} too: ask for one of them.", field="class"
            )
        if about not in self.card.maps:
            known = " and ".join(f"the {one}" for one in self.card.maps)
            why = ", whose numbers are no classes" if self.embedding and about != "output" else ""
            raise InputError(
                f"'{self.path.name}' has maps of {known}{why}, and none of the {about}: export the network with it.",
                field="class" if asks_class else "method",
            )
        return about  # type: ignore[return-value]

    def _class(self, given: int | str) -> int:
        if isinstance(given, bool):
            raise ClassError(f"{given!r} names no class: give a whole number or a name.", field="class")
        return self.class_index(str(given))

    def check_top(self, top: Any) -> None:
        """Refuse more of the best classes than there are maps of."""
        if isinstance(top, bool) or not isinstance(top, int) or top < 1:
            raise ClassError(f"The best {top} classes are asked for: give 1 or more.", field="top")
        if top > self.card.top:
            raise ClassError(
                f"The best {top} classes are asked for, and '{self.path.name}' has maps of the best {self.card.top}:"
                " export the network again with more of them.",
                field="top",
            )

    def _batch(self, inputs: Input | Sequence[Input]) -> npt.NDArray[np.float32]:
        try:
            batch = np.ascontiguousarray(np.stack([np.asarray(one) for one in inputs]), np.float32)
        except (TypeError, ValueError) as error:
            raise InputError("The inputs are no batch of arrays of one size: give (B, 3, height, width).") from error
        if batch.shape[1:] != (3, *self.card.input_size) or not len(batch):
            wanted = ", ".join(map(str, ("B", 3, *self.card.input_size)))
            raise InputError(f"The inputs have the shape {batch.shape}, and the file takes ({wanted}).")
        return batch

    def _run(self, batch: npt.NDArray[np.float32], outputs: Sequence[str]) -> list[npt.NDArray[Any]]:
        try:
            found: list[npt.NDArray[Any]] = self.session.run([*outputs], {IMAGES: batch})
        except Exception as error:  # it raises kinds of its own
            raise NetworkError(f"'{self.path}' failed on an input of {batch.shape} ({first_line(error)}).") from error
        return found
