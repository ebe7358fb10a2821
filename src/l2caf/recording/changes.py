"""What is changed on a network while it is on loan, noted before it is changed.

Putting it back sets every value as it was, last change first. So it may be cut short at any place and begun again: what
was put back already is put back once more, to the same value.
"""

from __future__ import annotations

from typing import Any

from torch import nn

_ABSENT = object()


class Changes:
    """A list of what was there before."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, Any, Any]] = []

    def __len__(self) -> int:
        return len(self._before)

    def set(self, holder: dict[Any, Any], key: Any, value: Any) -> None:
        """Change an entry: an attribute of a module, or one of its hooks."""
        self._before.append((holder, key, holder.get(key, _ABSENT)))
        holder[key] = value

    def evaluate(self, module: nn.Module) -> None:
        """Put a module into evaluation mode, by its own attribute: a scripted one keeps it elsewhere."""
        self._before.append((module, None, module.training))
        module.training = False

    def undo(self, length: int = 0) -> None:
        """Put back all but the first so many changes."""
        for holder, key, value in reversed(self._before[length:]):
            if isinstance(holder, nn.Module):
                holder.training = value
            elif value is _ABSENT:
                holder.pop(key, None)
            elif key in holder:  # a hook that removed itself meanwhile stays away
                holder[key] = value
        del self._before[length:]
