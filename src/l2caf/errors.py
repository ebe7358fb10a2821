"""The exceptions of l2caf, as a tree.

L2cafError
├── InputError              what was given cannot be explained
│   ├── ImageError          a picture that cannot be read
│   ├── ClipError           a clip that cannot be read
│   ├── ClassError          a class that the network does not have
│   ├── SampleError         a sample that is not in the batch
│   └── DatasetError        a dataset with something missing or broken in it
├── NetworkError            the network cannot be used as asked
│   ├── LayerError          no such layer, or no spatial map in it
│   ├── OutputError         the output is not what the objective needs
│   ├── WeightsError        a weights file that does not fit
│   └── CatalogueError      a name that leads to no network
├── MethodError             this method, filter or solver does not fit this problem
├── TrainingError           training that had to stop
├── FileError               something that cannot be written
├── Cancelled               work that was stopped from outside, at a point where nothing is lost
└── ExtraError              a part that is not installed

Every message is one sentence that names the fault and the remedy. An error about one setting knows its `field`; a door
says it in its own words: `top` becomes `--top` on the command line, and a marked control on a page.
"""

from __future__ import annotations


class L2cafError(Exception):
    """Base of everything that l2caf raises on purpose; `field` names the setting at fault, where it is one.

    >>> import l2caf
    >>> try:
    ...     l2caf.load("resnet51")
    ... except L2cafError as error:
    ...     print(error.field, type(error).__name__)
    network CatalogueError
    """

    def __init__(self, *args: object, field: str | None = None) -> None:
        super().__init__(*args)
        self.field = field


class InputError(L2cafError, ValueError):
    """What was given cannot be explained."""


class ImageError(InputError):
    """A picture that cannot be read."""


class ClipError(InputError):
    """A clip that cannot be read."""


class ClassError(InputError):
    """A class that the network does not have."""


class SampleError(InputError, IndexError):
    """A sample that is not in the batch."""


class DatasetError(InputError):
    """A dataset with something missing or broken in it."""


class NetworkError(L2cafError):
    """The network cannot be used as asked."""


class LayerError(NetworkError, ValueError):
    """No such layer, or no spatial map in it."""


class OutputError(NetworkError):
    """The network's output is not what the objective needs."""


class WeightsError(NetworkError):
    """A weights file that does not fit the network."""


class CatalogueError(NetworkError):
    """A name that leads to no network."""


class MethodError(L2cafError):
    """A method, filter or solver that does not fit this problem."""


class TrainingError(L2cafError):
    """Training that had to stop."""


class FileError(L2cafError, OSError):
    """Something that cannot be written."""


class Cancelled(L2cafError):  # noqa: N818 - nothing is at fault
    """Work that was stopped from outside; `progress` raises it."""


class ExtraError(L2cafError, ImportError):
    """A part of l2caf whose extra is not installed."""


def first_line(error: Exception) -> str:
    """What an exception of somebody else's says, in one line."""
    line = (str(error).strip().splitlines() or [""])[0][:160]
    return f"{type(error).__name__}: {line}" if line else type(error).__name__
