"""Controls that take files, and the places beside controls where it is said what is wrong with them."""

from __future__ import annotations

import functools
import html
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gradio as gr
from gradio import component_meta

from ..errors import Cancelled, L2cafError
from .visits import Visit

GENERAL = ""


def _path(payload: Any) -> Any:
    """Where an upload lies, or several do: it is for us to look at before anything decodes it."""
    several = getattr(payload, "root", payload)
    if isinstance(several, list):
        return [str(one.path) for one in several]
    return None if several is None or several.path is None else str(several.path)


def _check_uploaded(path: Any) -> None:
    """Refuse an address: a server that fetches one for a visitor would leave the machine."""
    if "://" in str(path or ""):
        raise gr.Error("A file is uploaded from your disk, not named by its address.")


@contextmanager
def _no_stubs() -> Iterator[None]:
    """Gradio writes a .pyi file beside the module of each class of a control; nothing is written into the package."""
    kept = component_meta.create_or_modify_pyi
    component_meta.create_or_modify_pyi = lambda *_: None
    try:
        yield
    finally:
        component_meta.create_or_modify_pyi = kept


# Classes, not changed objects: gradio makes a control anew from its class when an answer changes it.
with _no_stubs():

    class Photograph(gr.Image):
        """A picture that is dropped, pasted or chosen."""

        def get_block_name(self) -> str:
            return "image"  # what shows it in the browser

        get_block_class = get_block_name

        def preprocess(self, payload: Any) -> Any:
            return _path(payload)

        async def async_move_resource_to_block_cache(self, url_or_file_path: Any) -> Any:
            _check_uploaded(url_or_file_path)
            return await super().async_move_resource_to_block_cache(url_or_file_path)

    class Files(gr.File):
        """One file of another kind, or several."""

        def get_block_name(self) -> str:
            return "file"

        get_block_class = get_block_name

        def preprocess(self, payload: Any) -> Any:
            return _path(payload)

        async def async_move_resource_to_block_cache(self, url_or_file_path: Any) -> Any:
            _check_uploaded(url_or_file_path)
            return await super().async_move_resource_to_block_cache(url_or_file_path)


class Faults:
    """The places where errors are said, each under the controls that it belongs to.

    An error knows its field, and `told` shows its sentence at the place of that field; where there is none, at the
    place that was made first.
    """

    def __init__(self) -> None:
        self.slots: list[Any] = []
        self._places: dict[str, Any] = {}

    def place(self, *fields: str) -> Any:
        """Make a place for the errors of some fields, where it stands on the page."""
        slot = gr.HTML(visible=False, elem_classes=["fault", *(f"fault-{field}" for field in fields if field)])
        self.slots.append(slot)
        self._places |= dict.fromkeys(fields, slot)
        return slot

    def cleared(self, visit: Visit) -> dict[Any, Any]:
        """Say nothing any more where something was said."""
        said = [slot for slot in self.slots if slot in visit.said]
        visit.said.difference_update(said)
        return {slot: gr.update(value="", visible=False) for slot in said}

    def told(self, visit: Visit, error: L2cafError) -> dict[Any, Any]:
        """Say one sentence at its control, and nothing elsewhere."""
        slot = self._places.get(error.field or GENERAL, self.slots[0])
        words = f'<p role="alert">{html.escape(without_places(str(error)))}</p>'
        made = {**self.cleared(visit), slot: gr.update(value=words, visible=True)}
        visit.said.add(slot)
        return made

    def guard(self, act: Callable[..., dict[Any, Any]]) -> Callable[..., dict[Any, Any]]:
        """Run what a control does; what is wrong is said at the control, and all else stays as it was."""

        @functools.wraps(act)
        def guarded(visit: Visit, *given: Any) -> dict[Any, Any]:
            try:
                made = act(visit, *given)
            except Cancelled:
                return self.cleared(visit)
            except L2cafError as error:
                return self.told(visit, error)
            return made if any(slot in made for slot in self.slots) else {**self.cleared(visit), **made}

        return guarded


def without_places(sentence: str) -> str:
    """A sentence with files by their names alone: where they lie on this machine is nothing for a visitor.

    >>> without_places("'/tmp/visit-x/cat.png' is empty (0 bytes); save or download it again.")
    "'cat.png' is empty (0 bytes); save or download it again."
    """
    return re.sub(r"'(?:[A-Za-z]:)?[/\\](?:[^'\n]*[/\\])?([^'/\\\n]+)'", r"'\1'", sentence)


def uploaded(path: str | None, *, home: Path) -> Path:
    """An upload's path, which lies below `home`; gradio checks it too."""
    found = Path(path or "").resolve()
    if not found.is_relative_to(home.resolve()):
        raise L2cafError("That file was not uploaded here.", field="image")
    return found
