"""Controls that take files, and the places beside controls where it is said what is wrong with them."""

from __future__ import annotations

import functools
import html
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gradio as gr

from ..errors import Cancelled, L2cafError

GENERAL = ""


def taking_files(control: Any) -> Any:
    """A control of gradio that hands an upload on as its path, for us to look at before anything decodes it.

    What is an address is refused: a server that fetches one for a visitor would leave the machine. A class of our own
    would be simpler, were it not that gradio writes a file beside the module of each.
    """
    move = control.async_move_resource_to_block_cache

    async def of_this_page(path: Any) -> Any:
        if "://" in str(path or ""):
            raise gr.Error("A file is uploaded from your disk, not named by its address.")
        return await move(path)

    control.async_move_resource_to_block_cache = of_this_page
    control.preprocess = _path
    return control


def _path(payload: Any) -> Any:
    """Where an upload lies, or several do."""
    if payload is None:
        return None
    several = getattr(payload, "root", payload)
    if isinstance(several, list):
        return [str(one.path) for one in several]
    found = getattr(several, "video", several)  # older versions wrap a clip
    return None if found.path is None else str(found.path)


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

    def cleared(self) -> dict[Any, Any]:
        """Say nothing any more."""
        return {slot: gr.update(value="", visible=False) for slot in self.slots}

    def told(self, error: L2cafError) -> dict[Any, Any]:
        """Say one sentence at its control, and nothing elsewhere."""
        slot = self._places.get(error.field or GENERAL, self.slots[0])
        words = f'<p role="alert">{html.escape(str(error))}</p>'
        return {**self.cleared(), slot: gr.update(value=words, visible=True)}

    def guard(self, act: Callable[..., dict[Any, Any]]) -> Callable[..., dict[Any, Any]]:
        """Run what a control does; what is wrong is said at the control, and all else stays as it was."""

        @functools.wraps(act)
        def guarded(*given: Any, **named: Any) -> dict[Any, Any]:
            try:
                return {**self.cleared(), **act(*given, **named)}
            except Cancelled:
                return self.cleared()
            except L2cafError as error:
                return self.told(error)

        return guarded


def uploaded(path: str | None, *, home: Path) -> Path:
    """An upload's path, which lies below `home`; gradio checks it too."""
    found = Path(path or "").resolve()
    if not found.is_relative_to(home.resolve()):
        raise L2cafError("That file was not uploaded here.", field="image")
    return found
