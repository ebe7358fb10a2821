"""A dataset with something missing or broken: one sentence that says what, and where."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import made_datasets as made
from l2caf import datasets
from l2caf.datasets import open_sample
from l2caf.errors import DatasetError, InputError

MAKERS: dict[str, Callable[[Path], Path]] = {
    "wsol": made.wsol,
    "xml": made.imagenet_xml,
    "cub": made.cub,
    "cars": made.cars,
    "manifest": made.manifest,
    "folder": made.folder,
}
LISTS = {"wsol": "imagenet", "xml": "imagenet"}
FIRST_XML = f"Annotations/CLS-LOC/val/{made.val_name(1)}.xml"


def make(layout: str, root: Path) -> str:
    MAKERS[layout](root)
    return LISTS.get(layout, layout)


def sentence(kind: str, root: Path, **options: object) -> str:
    with pytest.raises(DatasetError) as caught:
        datasets.read(kind, root, **options)
    text = str(caught.value)
    assert "\n" not in text
    assert text.endswith(".")
    return text


@pytest.mark.parametrize("kind", list(datasets.LAYOUTS))
def test_no_such_folder(tmp_path: Path, kind: str) -> None:
    assert "does not exist" in sentence(kind, tmp_path / "gone")


@pytest.mark.parametrize("kind", list(datasets.LAYOUTS))
def test_empty_folder(tmp_path: Path, kind: str) -> None:
    assert str(tmp_path) in sentence(kind, tmp_path)


@pytest.mark.parametrize(
    ("layout", "file"),
    [
        ("wsol", "image_ids.txt"),
        ("wsol", "class_labels.txt"),
        ("wsol", "localization.txt"),
        ("xml", FIRST_XML),
        ("cub", "images.txt"),
        ("cub", "bounding_boxes.txt"),
        ("cub", "image_class_labels.txt"),
        ("cub", "classes.txt"),
        ("cars", "devkit/cars_train_annos.mat"),
        ("cars", "cars_test_annos_withlabels.mat"),
        ("manifest", "manifest.csv"),
    ],
)
def test_a_missing_file_is_named_with_its_place(tmp_path: Path, layout: str, file: str) -> None:
    kind = make(layout, tmp_path)
    (tmp_path / file).unlink()
    text = sentence(kind, tmp_path)
    assert Path(file).name in text
    assert str((tmp_path / file).parent) in text


def test_a_split_that_is_not_there_is_missed_only_when_asked_for(tmp_path: Path) -> None:
    made.cub(tmp_path)
    (tmp_path / "train_test_split.txt").unlink()
    assert len(datasets.read("cub", tmp_path)) == 3
    assert "'train_test_split.txt' of CUB-200-2011 is missing" in sentence("cub", tmp_path, split="test")
    made.cars(tmp_path)
    (tmp_path / "cars_test_annos_withlabels.mat").unlink()
    assert len(datasets.read("cars", tmp_path, split="train")) == 2


@pytest.mark.parametrize(
    ("layout", "image"),
    [
        ("wsol", f"val/{made.val_name(2)}.JPEG"),
        ("cub", "images/005.Crested_Auklet/b.jpg"),
        ("cars", "cars_train/00002.jpg"),
        ("manifest", "two.png"),
    ],
)
def test_an_image_that_is_not_on_disk(tmp_path: Path, layout: str, image: str) -> None:
    kind = make(layout, tmp_path)
    (tmp_path / image).unlink()
    text = sentence(kind, tmp_path)
    assert "1 of the 3 images" in text
    assert str(tmp_path / image) in text
    dataset = datasets.read(kind, tmp_path, missing="skip")
    assert len(dataset) == 2
    assert len(dataset.missing) == 1
    with pytest.raises(InputError, match="'error' or 'skip'"):
        datasets.read(kind, tmp_path, missing="ignore")


def test_no_image_at_all_cannot_be_skipped(tmp_path: Path) -> None:
    made.cub(tmp_path)
    for name in made.CUB_IMAGES:
        (tmp_path / "images" / name).unlink()
    assert "3 of the 3 images" in sentence("cub", tmp_path, missing="skip")


def test_folders_of_images_that_are_missing(tmp_path: Path) -> None:
    made.cars(tmp_path / "cars")
    (tmp_path / "cars" / "cars_test" / "00001.jpg").unlink()
    (tmp_path / "cars" / "cars_test").rmdir()
    assert f"looked for at '{tmp_path / 'cars' / 'cars_test'}'" in sentence("cars", tmp_path / "cars")
    made.imagenet_xml(tmp_path / "xml")
    for image in (tmp_path / "xml" / "val").iterdir():
        image.unlink()
    assert f"looked for in '{tmp_path / 'xml' / 'val'}'" in sentence("imagenet", tmp_path / "xml")


@pytest.mark.parametrize(
    ("layout", "file", "line", "content", "fault"),
    [
        ("wsol", "localization.txt", 2, "val/x.JPEG,1,2,3", "4 fields instead of 5"),
        ("wsol", "localization.txt", 1, "val/x.JPEG,1,2,three,4", "'three' is no edge of a box"),
        ("wsol", "localization.txt", 1, "val/x.JPEG,1,nan,3,4", "'nan' is no edge of a box"),
        ("wsol", "localization.txt", 3, "val/x.JPEG,10,0,5,9", "is empty"),
        ("wsol", "class_labels.txt", 2, "val/x.JPEG,1000", "the class 1000 is not from 0 to 999"),
        ("wsol", "image_sizes.txt", 2, "val/x.JPEG,0,60", "0×60 pixels"),
        ("wsol", "image_ids.txt", 2, "val/unknown.JPEG", "has no line in"),
        ("cub", "bounding_boxes.txt", 2, "2 0 0 40", "4 fields instead of 5"),
        ("cub", "bounding_boxes.txt", 2, "2 0 0 wide 40", "'wide' is no part of a box"),
        ("cub", "bounding_boxes.txt", 2, "2 0 0 0 40", "is empty"),
        ("cub", "bounding_boxes.txt", 2, "1 0 0 5 5", "stands here twice"),
        ("cub", "image_class_labels.txt", 2, "2 Auklet", "'Auklet' is no class id"),
        ("cub", "image_class_labels.txt", 2, "2 77", "the class 77 is not in classes.txt"),
        ("cub", "images.txt", 3, "4 150.Sage_Thrasher/c.jpg", "the image 4 has no line in"),
        ("manifest", "manifest.csv", 2, "one.png,cat,5,6,15,16", "'cat' is no index"),
        ("manifest", "manifest.csv", 3, "one.png,2,0,0,40,30", "has the label 1 above, but 2 here"),
        ("manifest", "manifest.csv", 2, "one.png,1,5,,15,16", "'' is no y0 of a box"),
        ("manifest", "manifest.csv", 2, "one.png,1,15,6,5,16", "is empty"),
        ("manifest", "manifest.csv", 2, ",1,5,6,15,16", "the file is empty"),
        ("manifest", "manifest.csv", 2, "a, b.png,1,5,6,15,16", "7 fields under 6 columns"),
        ("manifest", "manifest.csv", 1, "path,label", "there is no column 'file'"),
        ("manifest", "manifest.csv", 1, "file,label,x0,y0,x1", "needs the column 'y1' too"),
    ],
)
def test_a_broken_line_is_named_with_its_number(
    tmp_path: Path, layout: str, file: str, line: int, content: str, fault: str
) -> None:
    kind = make(layout, tmp_path)
    lines = (tmp_path / file).read_text().splitlines()
    lines[line - 1] = content
    made.text(tmp_path / file, *lines)
    text = sentence(kind, tmp_path)
    assert f"'{tmp_path / file}', line {line}: " in text
    assert fault in text


def test_broken_splits_and_names(tmp_path: Path) -> None:
    made.cub(tmp_path)
    made.text(tmp_path / "train_test_split.txt", "1 1", "2 2", "3 0")
    assert "line 2: 2 is neither 1 (train) nor 0 (test)" in sentence("cub", tmp_path, split="test")
    made.manifest(tmp_path)
    assert "there is no class 1, there are 1" in sentence("manifest", tmp_path, classes=["cat"])
    assert "'cat' is given twice" in sentence("manifest", tmp_path, classes=["cat", "cat"])


def test_broken_xml(tmp_path: Path) -> None:
    made.imagenet_xml(tmp_path)
    path = tmp_path / FIRST_XML
    for content, fault in (
        ("<annotation>\n<object>", "line 3: this is no XML"),
        ("<annotation></annotation>", "holds no object with a box"),
        (
            "<annotation><object><name>n01443537</name></object></annotation>",
            "object 1: '' is no edge of a box",
        ),
    ):
        made.text(path, content)
        text = sentence("imagenet", tmp_path)
        assert str(path) in text
        assert fault in text
    made.xml(path, (made.GOLDFISH, 9, 9, 3, 3))
    assert "object 1: the box from (9, 9) to (4, 4) is empty" in sentence("imagenet", tmp_path)
    made.xml(path, (made.GOLDFISH, 1, 1, 3, 3), (made.TENCH, 1, 1, 3, 3))
    assert "has objects of several classes" in sentence("imagenet", tmp_path)


def test_labels_that_do_not_fit(tmp_path: Path) -> None:
    made.imagenet_xml(tmp_path)
    for lines, fault in (
        (
            ["490", "361", "171"],
            f"'meta.mat', which translates them, is missing: it was looked for in '{tmp_path}'",
        ),
        ([f"{made.val_name(1)} 1000"], "line 1: the label 1000 is not from 0 to 999"),
        ([f"{made.val_name(1)} n99999999"], "line 1: n99999999 is none of"),
        ([f"{made.val_name(1)} 1"], "has no class for the image"),
        ([f"{made.val_name(number)} 7" for number in (1, 2, 3)], "has no box of the class 7"),
        ([""], "is empty"),
        (["a b c"], "line 1: neither a class nor"),
    ):
        listed = made.text(tmp_path / "truth.txt", *lines)
        assert fault in sentence("imagenet", tmp_path, labels=listed)


def test_broken_matlab_files(tmp_path: Path) -> None:
    made.cars(tmp_path)
    path = tmp_path / "devkit" / "cars_train_annos.mat"
    for row, fault in (
        ((30, 1, 20, 40, 98, "00001.jpg"), "entry 2: the box from (29, 0) to (20, 40) is empty"),
        ((1, 1, 20, 40, "beetle", "00001.jpg"), "entry 2: the field 'class' holds no number"),
        ((1, 1, 20, 40, 0, "00001.jpg"), "entry 2: the class 0 is not known"),
        ((1, 1, 20, 40, 98, 7), "entry 2: the field 'fname' names no file"),
    ):
        made.annotations(path, made.CARS_FIELDS, [(1, 1, 9, 9, 1, "00002.jpg"), row])
        text = sentence("cars", tmp_path)
        assert str(path) in text
        assert fault in text
    path.write_bytes(b"MATLAB 5.0 MAT-file, or what is left of it")
    assert "is no MATLAB file" in sentence("cars", tmp_path)


def test_annotations_without_classes(tmp_path: Path) -> None:
    made.cars(tmp_path)
    (tmp_path / "cars_test_annos_withlabels.mat").unlink()
    without = tuple(field for field in made.CARS_FIELDS if field != "class")
    made.annotations(tmp_path / "devkit" / "cars_test_annos.mat", without, [(1, 1, 9, 9, "00001.jpg")])
    assert "holds no classes: put 'cars_test_annos_withlabels.mat' into" in sentence("cars", tmp_path)


def test_files_that_are_no_text(tmp_path: Path) -> None:
    made.cub(tmp_path)
    (tmp_path / "classes.txt").write_bytes(b"5 005.Crested\xff\n")
    assert "classes.txt' is no UTF-8 text" in sentence("cub", tmp_path)


def test_folders_without_images_or_classes(tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    assert f"'{tmp_path / 'cat'}' holds no images" in sentence("folder", tmp_path)
    made.picture(tmp_path / "cat" / "1.png")
    assert "is none of the 1 classes given" in sentence("folder", tmp_path, classes=["dog"])


@pytest.mark.parametrize(
    ("edges", "fault"),
    [
        ("50,0,60,10", "lies outside of"),
        ("20,0,70,30", "lies outside of"),
        ("-60,0,20,30", "lies outside of"),
    ],
)
def test_a_box_outside_of_its_image(tmp_path: Path, edges: str, fault: str) -> None:
    made.manifest(tmp_path)
    table = made.text(tmp_path / "own.csv", "file,label,x0,y0,x1,y1", f"one.png,1,{edges}")
    with pytest.raises(DatasetError, match=fault) as caught:
        open_sample(datasets.read("manifest", table).samples[0])
    assert "40×30 pixels" in str(caught.value)
