"""Small datasets in each public layout, made on the spot; tests break them one part at a time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

TENCH, GOLDFISH, SHARK = "n01440764", "n01443537", "n01484850"


def picture(path: Path, size: tuple[int, int] = (40, 30), **options: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(len(path.name)).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(noise).save(path, **options)
    return path


def text(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


def val_name(number: int) -> str:
    return f"ILSVRC2012_val_{number:08d}"


def wsol(root: Path, *, lists: str = ".", images: str = ".", flat: bool = False) -> Path:
    """Three images of 40 × 30; the second has two boxes, and was 80 × 60 when they were drawn."""
    ids = [f"val/{val_name(number)}.JPEG" for number in (1, 2, 3)]
    for name in ids:
        picture(root / images / (Path(name).name if flat else name))
    text(root / lists / "image_ids.txt", *ids)
    text(
        root / lists / "class_labels.txt",
        *(f"{name},{label}" for name, label in zip(ids, (65, 0, 999), strict=True)),
    )
    text(root / lists / "image_sizes.txt", f"{ids[0]},40,30", f"{ids[1]},80,60", f"{ids[2]},40,30")
    text(
        root / lists / "localization.txt",
        f"{ids[0]},5,6,14,15", f"{ids[1]},0,0,79,59", f"{ids[1]},20,10,39,29", f"{ids[2]},0,0,39,29",
    )  # fmt: skip
    return root


def xml(path: Path, *objects: tuple[str, int, int, int, int], size: tuple[int, int] | None = (40, 30)) -> Path:
    sides = f"<size><width>{size[0]}</width><height>{size[1]}</height><depth>3</depth></size>" if size else ""
    items = "".join(
        f"<object><name>{synset}</name><bndbox><xmin>{x0}</xmin><ymin>{y0}</ymin>"
        f"<xmax>{x1}</xmax><ymax>{y1}</ymax></bndbox></object>"
        for synset, x0, y0, x1, y1 in objects
    )
    return text(path, f"<annotation><filename>{path.stem}</filename>{sides}{items}</annotation>")


def imagenet_xml(root: Path, *, boxes: str = "Annotations/CLS-LOC/val", foldered: bool = False) -> Path:
    for number, synset in enumerate((GOLDFISH, TENCH, SHARK), start=1):
        folder = root / "val" / synset if foldered else root / "val"
        picture(folder / f"{val_name(number)}.JPEG")
        xml(root / boxes / f"{val_name(number)}.xml", (synset, 5, 6, 14, 15), (synset, 0, 0, 39, 29))
    return root


CUB_IMAGES = ("005.Crested_Auklet/a.jpg", "005.Crested_Auklet/b.jpg", "150.Sage_Thrasher/c.jpg")


def cub(root: Path) -> Path:
    for name in CUB_IMAGES:
        picture(root / "images" / name)
    text(root / "images.txt", *(f"{number} {name}" for number, name in enumerate(CUB_IMAGES, start=1)))
    text(root / "image_class_labels.txt", "1 5", "2 5", "3 150")
    text(root / "classes.txt", "5 005.Crested_Auklet", "150 150.Sage_Thrasher")
    text(root / "bounding_boxes.txt", "1 2.5 3.0 10.0 20.5", "2 0.0 0.0 40.0 30.0", "3 1.0 1.0 2.0 2.0")
    text(root / "train_test_split.txt", "1 1", "2 0", "3 1")
    return root


def birds(root: Path, *, each: int = 4) -> Path:
    """Two kinds of birds in each half of CUB's classes, `each` pictures of each kind."""
    kinds = [kind for kind in (1, 2, 101, 102) for _ in range(each)]
    # A made picture depends on the length of its name.
    names = [f"{kind:03d}.Bird_{kind}/{'x' * number}.jpg" for number, kind in enumerate(kinds, start=1)]
    numbered = list(enumerate(names, start=1))
    for name in names:
        picture(root / "images" / name, (64, 64))
    text(root / "images.txt", *(f"{number} {name}" for number, name in numbered))
    text(root / "image_class_labels.txt", *(f"{number} {int(name[:3])}" for number, name in numbered))
    text(root / "classes.txt", *dict.fromkeys(f"{int(name[:3])} {name.partition('/')[0]}" for name in names))
    text(root / "bounding_boxes.txt", *(f"{number} 8 8 40 40" for number, _ in numbered))
    text(root / "train_test_split.txt", *(f"{number} {number % 2}" for number, _ in numbered))
    return root


CARS_FIELDS = ("bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2", "class", "fname")


def annotations(path: Path, fields: tuple[str, ...], rows: list[tuple[object, ...]], **more: object) -> Path:
    from scipy.io import savemat

    path.parent.mkdir(parents=True, exist_ok=True)
    table = np.zeros((1, len(rows)), dtype=[(field, object) for field in fields])
    for number, row in enumerate(rows):
        for field, value in zip(fields, row, strict=True):
            # As in the official files, where 200 + 100 must not wrap around.
            table[0, number][field] = np.uint8(value) if isinstance(value, int) else value
    savemat(path, {"annotations": table, **more})
    return path


def cars(root: Path) -> Path:
    for name in ("cars_train/00001.jpg", "cars_train/00002.jpg", "cars_test/00001.jpg"):
        picture(root / name, (220, 210))
    annotations(
        root / "devkit" / "cars_train_annos.mat",
        CARS_FIELDS,
        [(1, 1, 220, 210, 98, "00001.jpg"), (11, 21, 30, 40, 99, "00002.jpg")],
    )
    annotations(root / "cars_test_annos_withlabels.mat", CARS_FIELDS, [(5, 6, 7, 8, 1, "00001.jpg")])
    names = np.array([f"Make {number}" for number in range(1, 197)], dtype=object)
    from scipy.io import savemat

    savemat(root / "devkit" / "cars_meta.mat", {"class_names": names})
    return root


def manifest(root: Path) -> Path:
    for name in ("one.png", "two.png", "deep/three.png"):
        picture(root / name)
    return text(
        root / "manifest.csv",
        "file,label,x0,y0,x1,y1",
        "one.png,1,5,6,15,16",
        "one.png,1,0,0,40,30",
        "two.png,0,,,,",
        "deep/three.png,,1,2,3,4",
    )


def folder(root: Path) -> Path:
    for name in ("cat/1.png", "cat/more/2.png", "dog/1.png", ".hidden/1.png", "loose.png"):
        picture(root / name)
    return root
