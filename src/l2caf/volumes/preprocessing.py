"""`VolumePreprocessing`: from a scan to a network's input, said in a way that leads back to the scan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt
from PIL import Image

from ..crop import Window
from ..errors import InputError, L2cafError, first_line
from .crop import Size, VolumeCrop
from .files import Values, Volume, as_volume
from .turn import Turn, checked_orientation, sampled

if TYPE_CHECKING:
    from torch import Tensor


class PreparedVolume(NamedTuple):
    """A scan made ready: the input (channels, d, h, w), and where it lies in the scan."""

    input: npt.NDArray[np.float32]
    crop: VolumeCrop


@dataclass(frozen=True)
class VolumePreprocessing:
    """Turn, resize, cut, and bring the values to what the network was trained on; all of it is optional.

    orientation  to which sides the input's axes run, first axis first: "RAS" to right, front and top, as of arrays
                 that nibabel turned to its canonical form; "SPL", … ; None leaves them as they are stored. An .npy,
                 which does not say how it lies, always stays as it is
    size         what the scan is resized to, one number for all axes or one for each
    spacing      or the millimetres between voxels that it is resized to
    cut          what is then cut out of its middle; where it is smaller, it is padded with its least value
    multiple     or what each side is padded to a multiple of
    quantiles    values are clipped at these, such as (0.005, 0.995), and brought to 0 to 1
    window       or at these values, such as (-160, 240) of a CT
    mean, std    what mean and deviation of the input are then brought to; 0 and 1 for a z-score
    values       a function of one's own, last: from (d, h, w) to the same or to (channels, d, h, w)

    >>> prepare = VolumePreprocessing(size=4, quantiles=(0, 1), mean=0, std=1)
    >>> prepare(Volume(np.random.default_rng(0).random((8, 6, 5), np.float32))).shape
    torch.Size([1, 4, 4, 4])
    """

    orientation: str | None = "RAS"
    size: int | Size | None = None
    spacing: float | tuple[float, float, float] | None = None
    cut: int | Size | None = None
    multiple: int = 1
    quantiles: tuple[float, float] | None = None
    window: tuple[float, float] | None = None
    mean: float | None = None
    std: float | None = None
    values: Callable[[Values], Any] | None = None

    input_size = None  # it may differ from scan to scan

    def __post_init__(self) -> None:
        if self.orientation is not None:
            object.__setattr__(self, "orientation", checked_orientation(self.orientation))
        for name in ("size", "cut"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, _three(getattr(self, name), name, whole=True))
        if self.spacing is not None:
            object.__setattr__(self, "spacing", _three(self.spacing, "spacing", whole=False))
        self._check_one_of("size", "spacing")
        self._check_one_of("quantiles", "window")
        if not isinstance(self.multiple, int) or self.multiple < 1 or (self.multiple > 1 and self.cut is not None):
            raise InputError(f"multiple is {self.multiple!r}: give a whole number above 0, and no cut beside it.")
        for name in ("quantiles", "window"):
            ends = getattr(self, name)
            if ends is not None and not (len(ends) == 2 and ends[0] < ends[1]):
                raise InputError(f"{name} is {ends!r}: give two numbers, the lower first.", field=name)
        if self.quantiles is not None and not (self.quantiles[0] >= 0 and self.quantiles[1] <= 1):
            raise InputError(f"quantiles is {self.quantiles!r}: give two shares, from 0 to 1.", field="quantiles")
        if (self.mean is None) != (self.std is None):
            raise InputError("mean and std go together: give both, 0 and 1 for a z-score.", field="mean")

    def __call__(self, image: Any) -> Tensor:
        """A scan, its path or its array as the input, (channels, d, h, w)."""
        import torch

        return torch.from_numpy(self.prepared(image).input)

    def prepare(self, image: Any) -> Any:
        """The same as `prepared`: what a preprocessing of photographs has, too."""
        return self.prepared(image)

    def prepared(self, scan: Any) -> PreparedVolume:
        """The input as an array, and where it lies in the scan."""
        if isinstance(scan, Image.Image):
            self.view(scan)
        volume = as_volume(scan)
        crop = self.crop(volume)
        made = self._valued(self._resampled(volume, crop))
        return PreparedVolume(np.ascontiguousarray(made, np.float32), crop)

    def view(self, image: Any) -> NoReturn:
        """A network for volumes sees no photographs."""
        raise InputError("This network takes volumes, and a photograph is given: give a .nii, .nii.gz or .npy volume.")

    sharp_view = view

    def crop(self, scan: Volume) -> VolumeCrop:
        """Where the input lies in the scan."""
        turn = Turn.of(scan.affine, self.orientation)
        found = [self._window(place, scan, turn) for place in range(3)]
        (first, d), (second, h), (third, w) = found
        return VolumeCrop(scan, turn, (first, second, third), (d, h, w))

    def _window(self, place: int, scan: Volume, turn: Turn) -> tuple[Window, int]:
        """One axis of the input: where it lies on the turned scan, and its length."""
        axis = turn.axes[place]
        length, resized = scan.shape[axis], scan.shape[axis]
        if self.size is not None:
            resized = self.size[place]  # type: ignore[index]
        elif self.spacing is not None:
            resized = max(1, round(length * scan.spacing[axis] / self.spacing[place]))  # type: ignore[index]
        wanted = -(-resized // self.multiple) * self.multiple if self.cut is None else self.cut[place]  # type: ignore[index]
        start = (resized - wanted) // 2  # negative where it is padded
        first, last = max(start, 0), min(start + wanted, resized)
        scale = length / resized
        return Window(first * scale, min(last * scale, length), last - first, first - start), wanted

    def _resampled(self, scan: Volume, crop: VolumeCrop) -> Values:
        values = turned = crop.turn.there(scan.values)
        for axis, window in enumerate(crop.windows):
            if (window.start, window.stop, window.size) == (0, turned.shape[axis], turned.shape[axis]):
                continue
            scale = (window.stop - window.start) / window.size
            values = sampled(values, axis, (np.arange(window.size) + 0.5) * scale + window.start - 0.5)
        if values.shape == crop.size:
            return values
        around = np.full(crop.size, values.min(), np.float32)
        around[tuple(slice(one.offset, one.offset + one.size) for one in crop.windows)] = values
        return around

    def _valued(self, values: Values) -> npt.NDArray[Any]:
        made = np.array(values, np.float32)
        ends = self.window if self.quantiles is None else tuple(np.quantile(made, self.quantiles).tolist())
        if ends is not None:
            low, high = ends
            made = (made.clip(low, high) - low) / max(high - low, np.finfo(np.float32).tiny)
        if self.mean is not None and self.std is not None:
            deviation = float(made.std(dtype=np.float64))
            # A scan of one value has no deviation: it stays at the mean.
            made = (made - made.mean(dtype=np.float64)) * (self.std / deviation if deviation else 0.0) + self.mean
        made = made.astype(np.float32)
        return made[None] if self.values is None else self._own(made)

    def _own(self, made: Values) -> npt.NDArray[Any]:
        """What the function of one's own makes of it."""
        assert self.values is not None
        try:
            given = self.values(made)
            found = np.asarray(given.detach().cpu().float().numpy() if hasattr(given, "detach") else given)
        except L2cafError:
            raise
        except Exception as error:  # the user's own function may fail in any way
            raise InputError(
                f"The function for the values of volumes failed ({first_line(error)}): mend it."
            ) from error
        found = found[None] if found.ndim == 3 else found
        if found.ndim != 4 or found.shape[1:] != made.shape or found.dtype.kind not in "fiub":
            raise InputError(
                f"The function for the values of volumes was given {made.shape} and returned {found.shape}: let it keep"
                " the shape, or put channels before it; turning, resizing and cutting have settings of their own."
            )
        return found

    def _check_one_of(self, one: str, other: str) -> None:
        if getattr(self, one) is not None and getattr(self, other) is not None:
            raise InputError(f"Both {one} and {other} are given: give the one or the other.", field=other)


def _three(given: Any, name: str, *, whole: bool) -> tuple[Any, Any, Any]:
    """One number for all axes, or three."""
    listed = tuple(given) if isinstance(given, tuple | list) else (given,) * 3
    kind = int if whole else (int, float)
    if len(listed) != 3 or not all(isinstance(one, kind) and not isinstance(one, bool) and one > 0 for one in listed):
        what = "whole number" if whole else "number of millimetres"
        raise InputError(f"{name} is {given!r}: give one {what} above 0, or one for each axis.", field=name)
    a, b, c = listed
    return a, b, c
