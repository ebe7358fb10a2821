"""Explain volumes: each scan by itself, drawn and written on its own voxels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError, NetworkError
from ..images import SUFFIXES, save_picture
from ..progress import Progress, silent
from ..rendering.animation import save_gif
from ..rendering.grid import grid
from ..rendering.style import FAINT_SHARE
from ..rendering.volumes import many, sheet
from ..volumes import VolumeCrop, is_volume, read_volume
from ..volumes.files import NIFTI, ending_of
from .explain import ExplainRequest, ExplainResult
from .explained import Explained, Written
from .one_by_one import OneByOne, check_one_picture
from .outputs import FIGURES, PICTURES, Skipped, unheard
from .question import read_box

MOST_HIGH = 640  # pixels of a single plane

if TYPE_CHECKING:
    from ..heatmap import Heatmap
    from ..methods.method import Method
    from ..networks.model import Model
    from ..rendering.volumes import Drawing


@dataclass(frozen=True)
class Planes:
    """How volumes are drawn, where three planes through the hottest place are not what is wanted.

    slice    one plane, as "axial:90", counted as the file counts; of a scroll (.gif) the name alone, "coronal"
    montage  many planes side by side, of this name: "axial", or "z" of a volume that does not say how it lies
    spacing  between voxels along i, j and k, of an .npy, which does not say
    nifti    write the maps as NIfTI too
    """

    slice: str | None = None
    montage: str | None = None
    spacing: tuple[float, float, float] | None = None
    nifti: bool = False

    def __post_init__(self) -> None:
        if self.slice is not None and self.montage is not None:
            raise InputError("One plane is asked for, and many: give the one or the other.", field="montage")

    @property
    def plane(self) -> Any:
        """The plane as drawings take it, ("axial", 90)."""
        if self.slice is None:
            return None
        name, _, number = self.slice.rpartition(":")
        if not number.lstrip("-").isdigit():
            raise InputError(
                f"{self.slice!r} names no plane: give its name and its number, such as axial:90.", field="slice"
            )
        return (name, int(number)) if name else int(number)


def volumes_among(paths: Sequence[Path]) -> list[Path] | None:
    """The volumes that files and folders stand for; None where photographs or signals are meant. They are not mixed."""
    found = [_in_folder(path) if path.is_dir() else [path] if is_volume(path) else [] for path in paths]
    if any(found) and not all(found):
        raise InputError("Volumes are given together with other files: explain the ones, then the others.")
    return [file for files in found for file in files] if any(found) else None


def _in_folder(folder: Path) -> list[Path]:
    files = sorted(file for file in folder.iterdir() if ending_of(file) in NIFTI and not file.name.startswith("."))
    return [] if any(file.suffix.lower() in SUFFIXES for file in folder.iterdir()) else files


def explain_volumes(
    request: ExplainRequest,
    *,
    planes: Planes | None = None,
    model: Model | None = None,
    progress: Progress = silent,
    skipped: Skipped = unheard,
) -> ExplainResult:
    """Explain every volume, and write its picture, its scroll or its map on the scan."""
    planes = planes or Planes()
    files = list(dict.fromkeys(volumes_among(request.images) or []))
    if not files:
        raise InputError("There are no volumes: give files that end in .nii, .nii.gz or .npy.")
    check_one_picture(request, len(files), what="volumes")
    model = (model or request.network.load(progress)).for_volumes(files[0].name)
    asked = _Asked(OneByOne.ready(request, model), planes)
    asked.check()
    written, failed = asked.run.run(files, asked.written, progress=progress, skipped=skipped)
    said = {about: words for about, words in model.assumed.items() if about != "output" or not asked.is_about_region}
    if asked.notes:
        said["affine"] = "; ".join(dict.fromkeys(asked.notes))
    return ExplainResult(model.name, asked.run.request.asked.title, written, failed, said)


class _Asked:
    """What is asked of every volume."""

    def __init__(self, run: OneByOne, planes: Planes) -> None:
        self.run, self.planes = run, planes
        self.request, self.model = run.request, run.model
        self.is_about_region = run.request.asked.is_about_region
        self.notes: list[str] = []  # of scans that do not say where they lie

    def check(self) -> None:
        """Say what is wrong with the planes before the work."""
        if not self._is_scroll:  # which takes the name of planes alone
            _ = self.planes.plane

    @property
    def _is_scroll(self) -> bool:
        return self.request.is_file and ending_of(self.request.out) == ".gif"

    def written(self, file: Path, name: str) -> Written:
        made = self.model.prepare_volume(read_volume(file))
        choice = self.request.network
        with self.model.run([made.input], layer=choice.layer, output=choice.select) as recording:
            output = recording.output
            heatmap = self._method(made.crop, tuple(output.shape)).on(recording.head)
        if len(heatmap.size) != 3 or "frame" in heatmap.axes:
            raise NetworkError(
                f"Layer {heatmap.layer} of {self.model.name} has a map with the axes {', '.join(heatmap.axes[1:])}, and"
                " a volume has three: choose another layer."
            )
        heatmap = replace(heatmap, scans=(made.crop,), class_names=self.model.class_names)
        if made.crop.scan.affine is not None and not made.crop.scan.is_placed:
            self.notes.append(
                f"{file.name} does not say how it lies (no sform, no qform): its first axis is taken to run from right"
                " to left, as nibabel does"
            )
        explained = self.run.explained(file, heatmap, output)
        pictures = self._drawn(explained, heatmap, name)
        if self.planes.nifti and ending_of(pictures[0]) not in NIFTI:
            pictures = (*pictures, heatmap.save(self.request.folder / f"{name}.nii.gz", signed=self._signed))
        return Written(explained, pictures, self.run.numbers(explained, name))

    @property
    def _signed(self) -> bool:
        return self.request.style.signed

    def _method(self, crop: VolumeCrop, output: tuple[int, ...]) -> Method:
        """The question, with a region of the scan brought to the output."""
        asked = self.request.asked
        if asked.region is None:
            return self.run.method
        from ..objectives.region import Region

        if len(output) < 4:
            return self.run.method  # says that such an output has no regions
        box = read_box(asked.region)
        z, y, x = output[-3:]
        mask = crop.on_input(asked.region if box is None else box, size=(z, y, x))
        return replace(self.run.method, objective=Region(mask, channel=asked.channel))  # type: ignore[type-var]

    def _drawn(self, explained: Explained, heatmap: Heatmap, name: str) -> tuple[Path, ...]:
        from ..volume_maps import region_in

        request, style, planes = self.request, self.request.style, self.planes
        ending = ending_of(request.out) if request.is_file else PICTURES[0]
        path = request.out if request.is_file else request.folder / f"{name}{ending}"
        options: dict[str, Any] = {
            "cmap": style.cmap,
            "contours": style.contours,
            "box": style.threshold if style.box else None,
        }
        options |= {} if planes.spacing is None else {"spacing": planes.spacing}
        if ending in NIFTI:
            return (heatmap.save(path, signed=self._signed),)
        if ending in FIGURES:
            options |= {"alpha": style.alpha, "slice": planes.plane, "montage": planes.montage}
            return (heatmap.save(path, signed=self._signed, legend=True, **options),)
        from ..drawings import heat_of

        rows: list[tuple[str, Drawing, Any]] = []
        scan = heatmap.scans[0].scan if heatmap.scans else None
        for number, one in enumerate(explained.maps):
            which = number if "map" in heatmap.axes else None
            heat = heat_of(heatmap, scan, 0, which, signed=self._signed)
            drawing, at = heat.in_volume(scan, alpha=style.alpha * (FAINT_SHARE if one.faint else 1), **options)
            if heatmap.region is not None and not rows and not request.bare:
                rows.append(("asked about", *region_in(heatmap, 0, drawing.scene)))
            rows.append((one.title, drawing, at))
        maps = [row for row in rows if row[1].heat is not None]
        if ending == ".gif":
            _check_one(len(maps), "A scroll through a volume")
            drawing = maps[0][1]
            along = drawing.scene.along(planes.slice or planes.montage or drawing.scene.axes[0].name, field="slice")
            return (save_gif(drawing.frames(along), path, hold=500),)
        words: dict[str, Any] = {} if request.bare else self.run.words(explained, name)
        if planes.slice is not None:
            drawn = [one.plane(*one.scene.named(planes.plane)) for _, one, _ in maps]
            titles = None if request.bare else [[title for title, _, _ in maps]]
            height = min(MOST_HIGH, drawn[0].height)
            made = grid(
                [drawn], titles=titles, cell_height=height, legend=None if request.bare else style.legend, **words
            )
        elif planes.montage is not None:
            made = many([(title, one) for title, one, _ in maps], planes.montage, **words)
        elif request.bare:
            made = grid(
                [one.planes(at)[0] for _, one, at in maps], cell_height=maps[0][1].planes(maps[0][2])[0][0].height
            )
        else:
            made = sheet(rows, **words)
        return (save_picture(made, path),)


def _check_one(maps: int, what: str) -> None:
    if maps > 1:
        raise InputError(
            f"{what} shows one map, and there are {maps}: ask about one class, or write planes.", field="out"
        )
