"""The maps of volumes on their scans: as NIfTI on the scan's own voxels, as planes, as a scroll, and their boxes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .boxes import MapBoxes
from .drawings import (
    boxes_for,
    cells_of,
    check_ending,
    heat_of,
    map_of,
    maps_per_sample,
    opened,
    picture_of,
    scan_of,
    title_of,
)
from .errors import InputError
from .localization import components_of_volume
from .solution import chosen_samples
from .volumes import Volume, VolumeCrop, as_volume, write_volume
from .volumes.files import NIFTI, ending_of

if TYPE_CHECKING:
    from .heatmap import Heatmap
    from .rendering.scene import Places, Scene
    from .rendering.volumes import Drawing


def known_scans(heatmap: Heatmap) -> tuple[VolumeCrop, ...]:
    """Where the inputs lie in their scans, or one sentence."""
    if heatmap.scans is None:
        raise InputError(
            "Where the input lies in the scan is not known: explain the scan itself, by the explain of an l2caf.Model"
            " with an l2caf.volumes.VolumePreprocessing, or say what prepared it with preprocess=."
        )
    return heatmap.scans


def boxes_in_volumes(heatmap: Heatmap, thresholds: Sequence[float], *, on: str) -> list[Any]:
    """The boxes of all maps, in order, at each threshold: those of the largest components first."""
    maps = heatmap.maps.detach().cpu().float().numpy().reshape(-1, *heatmap.size)
    each = len(maps) // max(1, len(heatmap))
    found = []
    for number, one in enumerate(maps):
        for threshold in thresholds:
            boxes = components_of_volume(one, threshold)
            scan = known_scans(heatmap)[number // each] if on == "scan" else None
            found.append(MapBoxes.on_a(boxes if scan is None else scan.to_scan(boxes), "input" if scan is None else on))
    return found


def is_about_scan(heatmap: Heatmap, path: Path, image: Any) -> bool:
    """Whether a map is to be written on a scan: it has one, one is given, or the file is a NIfTI."""
    if ending_of(path) in NIFTI:
        return True
    if len(heatmap.size) != 3 or path.suffix.lower() == ".npy":
        return False
    given = image[0] if isinstance(image, list | tuple) and len(image) else image
    is_file = isinstance(given, str | Path) and ending_of(Path(given)) in NIFTI
    return (heatmap.scans is not None and image is None) or isinstance(given, Volume) or is_file or _is_image(given)


def save_on_scan(
    heatmap: Heatmap,
    path: Path,
    image: Any,
    index: int | None,
    which: int | None,
    *,
    signed: bool,
    preprocess: Any,
    boxes: Any,
    dpi: float | None,
    legend: bool | None,
    **style: Any,
) -> Path:
    """Write maps of scans into one file, by its ending: .nii.gz, .gif, a figure, or a picture."""
    from .images import save_picture
    from .rendering.animation import save_gif
    from .rendering.figure_file import DPI, SUFFIXES, save_figure
    from .rendering.settings import check_flag
    from .rendering.volumes import pictured, sheet

    if ending_of(path) in NIFTI:
        return _save_nifti(heatmap, path, image, index, which, signed=signed, preprocess=preprocess, **style)
    check_flag(legend, "legend")
    if path.suffix.lower() in SUFFIXES:
        cells = cells_of(heatmap, image, index, which, signed=signed, preprocess=preprocess, boxes=boxes)
        return save_figure(cells, path, dpi=DPI if dpi is None else dpi, legend=bool(legend), **style)
    samples = range(len(heatmap)) if index is None else chosen_samples([index], len(heatmap))
    images = [None] * len(samples) if image is None else list(image) if isinstance(image, list | tuple) else [image]
    if len(images) != len(samples):
        raise InputError(
            f"There are {len(samples)} samples and {len(images)} scans: give a list of one per sample, or choose a"
            " sample with index=."
        )
    title, slice_, montage = (style.pop(name, None) for name in ("title", "slice", "montage"))
    rows: list[tuple[str, Drawing, Places]] = []
    for sample, given in zip(samples, images, strict=True):
        rows += _rows(heatmap, given, sample, which, signed=signed, preprocess=preprocess, boxes=boxes, style=style)
    _, last, at = rows[-1]
    if path.suffix.lower() == ".gif":
        if sum(drawing.heat is not None for _, drawing, _ in rows) > 1:
            raise InputError("A scroll through a volume shows one map: choose it with index= and which=.")
        return save_gif(last.frames(last.scene.along(slice_ or last.scene.axes[0].name, field="slice")), path, hold=500)
    check_ending(path, is_clip=False, is_volume=True)
    if slice_ is not None or montage:
        maps = [(words, drawing, at) for words, drawing, at in rows if drawing.heat is not None]
        if len(maps) > 1:
            raise InputError("One plane, or a montage, shows one map: choose it with index= and which=.", field="slice")
        return save_picture(pictured(last, at, slice=slice_, montage=montage), path, dpi=dpi)
    several = signed or len(rows) > 1
    made = sheet(rows, heading=str(title or ""), legend=several if legend is None else legend)
    return save_picture(made, path, dpi=dpi)


def _rows(
    heatmap: Heatmap,
    image: Any,
    sample: int,
    which: int | None,
    *,
    signed: bool,
    preprocess: Any,
    boxes: Any,
    style: dict[str, Any],
) -> list[tuple[str, Drawing, Places]]:
    """The drawings of one sample: what was asked about, if that was a region, and every map."""
    from .rendering.drawn import OPTIONS
    from .rendering.settings import check_options

    check_options(style, OPTIONS[3])
    scan = picture_of(heatmap, opened(image) if image is not None else None, sample)
    maps = range(maps_per_sample(heatmap)) if which is None else [which]
    rows: list[tuple[str, Drawing, Places]] = []
    for number in maps:
        chosen = None if "map" not in heatmap.axes and number == 0 else number
        heat = heat_of(heatmap, scan, sample, chosen, signed=signed, preprocess=preprocess)
        given = {**style, "boxes": boxes_for(heatmap, boxes, sample, number)}
        drawing, at = heat.in_volume(scan, **given)
        if not rows and heatmap.region is not None:
            rows.append(("asked about", *region_in(heatmap, sample, drawing.scene)))
        words = title_of(heatmap, sample, number) if len(maps) > 1 else "where it looked" if rows else ""
        rows.append((f"sample {sample}: {words}".rstrip(": ") if len(heatmap) > 1 else words, drawing, at))
    return rows


def region_in(heatmap: Heatmap, sample: int, scene: Scene) -> tuple[Drawing, Places]:
    """The region that was asked about, on the scan, and the planes through its middle."""
    from .rendering.volumes import Drawing

    assert heatmap.region is not None
    mask, colors = heatmap.region.mask[sample], heatmap.region.colors[sample]
    inside = np.argwhere(mask)
    middle = inside[np.abs(inside - inside.mean(axis=0)).sum(axis=1).argmin()]
    return Drawing(scene, mask=mask, tint=colors), scene.place(middle.tolist(), mask.shape)


def _save_nifti(
    heatmap: Heatmap,
    path: Path,
    image: Any,
    index: int | None,
    which: int | None,
    *,
    signed: bool,
    preprocess: Any,
    **style: Any,
) -> Path:
    """The map of a sample on its scan; several maps of it one after the other, along a fourth axis."""
    from .rendering.settings import check_options

    check_options(style, ())
    if len(heatmap.size) != 3 or "frame" in heatmap.axes:
        words = ", ".join(heatmap.axes[1:])
        raise InputError(f"A NIfTI holds volumes, and the axes of these maps are {words}: save a picture, or an .npy.")
    if index is None and len(heatmap) > 1:
        raise InputError(f"There are {len(heatmap)} volumes, and a NIfTI is of one: choose it with index=.")
    (sample,) = chosen_samples([index or 0], len(heatmap))
    scan = scan_of(heatmap, None if image is None else as_volume(image), sample, preprocess)
    scan = scan or known_scans(heatmap)[sample]
    if image is not None and preprocess is None:
        from .rendering.drawn import check_scan

        check_scan(as_volume(image), scan)
    maps = range(maps_per_sample(heatmap)) if which is None else [which]
    named = [None if "map" not in heatmap.axes and number == 0 else number for number in maps]
    fine = [map_of(heatmap, sample, one, signed=signed).detach().cpu().float().numpy() for one in named]
    laid = np.stack([scan.lay(one) for one in fine])
    return write_volume(path, laid[0] if len(laid) == 1 else laid, like=scan.scan)


def _is_image(given: Any) -> bool:
    """Whether it is an image of nibabel."""
    return hasattr(given, "get_fdata")
