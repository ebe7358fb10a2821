"""What is drawn of a heatmap: which of its maps, called what, on which picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import FileError, InputError
from .solution import chosen_samples
from .volumes import Volume, VolumeCrop, VolumePreprocessing, as_volume, is_volume, read_volume

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch import Tensor

    from .heatmap import Heatmap
    from .preprocessing import Crop
    from .rendering.drawn import Cell, Heat


def maps_per_sample(heatmap: Heatmap) -> int:
    """How many maps each sample has."""
    return heatmap.weights.shape[1] if "map" in heatmap.axes else 1


def title_of(heatmap: Heatmap, index: int, which: int) -> str:
    """What one of several maps is called: by its class, or by its place."""
    if heatmap.classes is not None:
        number = int(heatmap.classes[index].reshape(-1)[which])
        return heatmap.class_names[number] if number < len(heatmap.class_names) else f"class {number}"
    return f"map {which}" if "map" in heatmap.axes else ""


def map_of(heatmap: Heatmap, index: int, which: int | None, *, signed: bool) -> Tensor:
    """One map of one sample, at the size of the input."""
    count = maps_per_sample(heatmap)
    (index,) = chosen_samples([index], len(heatmap))
    if which is None and count > 1:
        raise InputError(f"There are {count} maps per sample: choose one with which=0 to which={count - 1}.")
    chosen = 0 if which is None else which
    if isinstance(chosen, bool) or not isinstance(chosen, int):
        raise InputError(f"which is {which!r}: give the place of a map, from 0 to {count - 1}.")
    if not -count <= chosen < count:
        words = "is 1 map" if count == 1 else f"are {count} maps"
        raise InputError(f"There {words} per sample, so which must be below that, not {which}.")
    one = (heatmap.signed if signed else heatmap.maps)[index]
    return one[chosen] if "map" in heatmap.axes else one


def cells_of(
    heatmap: Heatmap,
    image: Any,
    index: int | None,
    which: int | None,
    *,
    signed: bool,
    preprocess: Any = None,
    boxes: Any = None,
) -> list[list[Cell]]:
    """What is drawn: a row per sample, a cell per map."""
    from .rendering.drawn import Cell

    samples = range(len(heatmap)) if index is None else [index]
    maps = range(maps_per_sample(heatmap)) if which is None else [which]
    images = _one_each([_photograph(heatmap, one) for one in samples] if image is None else image, samples)
    return [
        _asked_about(heatmap, sample)
        + [
            Cell(
                title_of(heatmap, sample, number) if len(maps) > 1 else "where it looked" if heatmap.region else "",
                heat_of(heatmap, under, sample, _named(heatmap, number), signed=signed, preprocess=preprocess),
                under,
                with_boxes({}, boxes_for(heatmap, boxes, sample, number)),
            )
            for number in maps
        ]
        for sample, under in zip(samples, images, strict=True)
    ]


def _asked_about(heatmap: Heatmap, index: int) -> list[Cell]:
    """The output with the region that was asked about, where there is one."""
    from .rendering.drawn import Cell

    if heatmap.region is None or not heatmap.region.is_drawable:
        return []
    (index,) = chosen_samples([index], len(heatmap))
    return [Cell("asked about", None, heatmap.region.drawn(index))]


def _photograph(heatmap: Heatmap, index: int) -> Image | Volume | None:
    """The photograph, or the scan, that the heatmap has of a sample."""
    (index,) = chosen_samples([index], len(heatmap))
    if heatmap.scans is not None:
        return heatmap.scans[index].scan
    return None if heatmap.crops is None else heatmap.crops[index].photograph


def picture_of(heatmap: Heatmap, image: Any, index: int) -> Any:
    """What is drawn on: what the caller gave, or the photograph that the heatmap has."""
    kept = _photograph(heatmap, index) if image is None else image
    if kept is None:
        raise InputError("A picture of a map needs the image that it lies on: give one, or save the map alone.")
    return opened(kept)


def opened(image: Any) -> Any:
    """What a path leads to, a picture or a scan; a scan of nibabel as ours; anything else as it is."""
    from .images import open_image

    if hasattr(image, "get_fdata"):
        return as_volume(image)
    if not isinstance(image, (str, Path)):
        return image
    return read_volume(image) if is_volume(Path(image)) else open_image(image)


def boxes_for(heatmap: Heatmap, boxes: Any, sample: int, which: int | None) -> list[Any] | None:
    """The boxes that are drawn on one map, one by one; None where none were given.

    A list with an entry per sample, as `heatmap.boxes()` gives it, has boxes for each sample, and where its entries
    are lists with an entry per map, for each map; anything else is drawn on every map.
    """
    from .rendering.settings import depth_of, listed_boxes

    if boxes is None:
        return None
    if depth_of(boxes) > 2:
        (sample,) = chosen_samples([sample], len(heatmap))
        if len(boxes) != len(heatmap):
            raise InputError(
                f"There are {len(heatmap)} samples and boxes for {len(boxes)}: give a list of one entry per sample, or"
                " boxes (n, 4) for all of them.",
                field="boxes",
            )
        boxes = boxes[sample]
        if "map" in heatmap.axes and depth_of(boxes) > 2 and len(boxes) == maps_per_sample(heatmap):
            boxes = boxes[which or 0]
    return listed_boxes(boxes)


def with_boxes(style: dict[str, Any], boxes: list[Any] | None) -> dict[str, Any]:
    """The settings of one drawing; where no boxes were given, a map that takes none is not bothered with them."""
    return style if boxes is None else {**style, "boxes": boxes}


def heat_of(
    heatmap: Heatmap, image: Any, index: int, which: int | None, *, signed: bool, preprocess: Any = None
) -> Heat:
    """One map with all that is needed to draw it."""
    from .images import as_photograph
    from .preprocessing import crop_of
    from .rendering.drawn import Heat
    from .transforms import readable

    fine = map_of(heatmap, index, which, signed=signed)
    if len(heatmap.size) == 3:
        grid = heatmap.grids(index, signed=signed)[which or 0]
        scan = scan_of(heatmap, image, index, preprocess)
        return Heat(grid, fine.detach().cpu().numpy(), signed, scan=scan)
    if preprocess is not None and image is not None:
        check_flat(heatmap)
        crop: Crop | None = crop_of(readable(preprocess), as_photograph(image))
    else:
        crop = heatmap.crops[index] if heatmap.crops is not None else None
    grid = heatmap.grids(index, signed=signed)[which or 0]
    return Heat(grid, fine.detach().cpu().numpy(), signed, crop)


def scan_of(heatmap: Heatmap, image: Any, index: int, preprocess: Any) -> VolumeCrop | None:
    """Where the input of one sample lies in its scan, by what prepared it or as the heatmap knows; None if nobody."""
    if preprocess is None or image is None:
        return None if heatmap.scans is None else heatmap.scans[index]
    if not isinstance(preprocess, VolumePreprocessing):
        raise InputError(
            f"Volumes are not prepared by a {type(preprocess).__name__}: give an l2caf.volumes.VolumePreprocessing, or"
            " leave this out.",
            field="preprocess",
        )
    crop = preprocess.crop(as_volume(image))
    if crop.size != heatmap.size:
        made, saw = ("×".join(map(str, size)) for size in (crop.size, heatmap.size))
        raise InputError(
            f"The preprocessing makes an input of {made} from {crop.scan.name}, and the network's was {saw}: give the"
            " one that prepared it.",
            field="preprocess",
        )
    return crop


def _named(heatmap: Heatmap, which: int) -> int | None:
    """The place of a map among several; None of the only one."""
    return None if "map" not in heatmap.axes and which == 0 else which


def check_flat(heatmap: Heatmap) -> None:
    """Refuse maps that lie on no photograph."""
    if len(heatmap.size) != 2 or "frame" in heatmap.axes:
        raise InputError(f"A map with the axes {', '.join(heatmap.axes[1:])} lies on no photograph: leave this out.")


def _one_each(image: Any, samples: Sequence[int]) -> list[Any]:
    """The picture of each sample: none at all, the one of the only sample, or one each; a path is opened."""
    if image is None:
        return [None] * len(samples)
    listed = list(image) if isinstance(image, (list, tuple)) else [image]
    if len(listed) == len(samples):
        return [opened(one) for one in listed]
    given = "1 photograph" if len(listed) == 1 else f"{len(listed)} photographs"
    raise InputError(
        f"There are {len(samples)} samples and {given}: give a list of one per sample, or choose a sample with index=."
    )


def check_ending(path: Path, *, is_clip: bool, is_volume: bool = False) -> None:
    """Refuse a name that ends in nothing that can be made, with all that can."""
    from .images import WRITTEN
    from .rendering.figure_file import SUFFIXES

    if path.suffix.lower() not in WRITTEN:
        known = ", ".join((*WRITTEN, *sorted(SUFFIXES)))
        films = ", .mp4 or .gif for a film" if is_clip else ", .gif for a scroll, .nii.gz" if is_volume else ""
        raise FileError(f"'{path}' names no picture format: end it in {known}{films}, or .npy for numbers.")
