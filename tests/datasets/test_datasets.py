"""Each layout read as it should be."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import made_datasets as made
from l2caf import datasets
from l2caf.datasets import Dataset, Sample, open_sample
from l2caf.errors import DatasetError, InputError


def boxes(dataset: Dataset) -> list[list[list[float]]]:
    return [sample.boxes.tolist() for sample in dataset.samples]


def labels(dataset: Dataset) -> list[int | None]:
    return [sample.label for sample in dataset.samples]


def files_exist(dataset: Dataset) -> bool:
    return all(sample.path.is_file() for sample in dataset.samples)


@pytest.mark.parametrize(
    ("lists", "images", "flat"),
    [
        (".", ".", False),
        (".", "val", True),
        ("metadata/ilsvrc/val", ".", False),
        ("metadata/ILSVRC/test", "dataset/ILSVRC", False),
        ("metadata", "images", True),
    ],
)
def test_wsol_lists(tmp_path: Path, lists: str, images: str, flat: bool) -> None:
    dataset = datasets.read("imagenet", made.wsol(tmp_path, lists=lists, images=images, flat=flat))
    assert labels(dataset) == [65, 0, 999]
    assert files_exist(dataset)
    assert dataset.class_name(65) == "sea snake"
    # Last pixels become ends, in pixels of the image that the boxes were made for ...
    assert boxes(dataset)[:2] == [[[5, 6, 15, 16]], [[0, 0, 80, 60], [20, 10, 40, 30]]]
    # ... and then in those of the copy at half the size.
    assert open_sample(dataset.samples[1]).boxes.tolist() == [[0, 0, 40, 30], [10, 5, 20, 15]]


def test_wsol_test_lists_win_over_those_of_another_set(tmp_path: Path) -> None:
    made.wsol(tmp_path, lists="metadata/ILSVRC/test")
    made.text(tmp_path / "metadata/ILSVRC/val/image_ids.txt", "val2/0/1.jpeg")
    assert len(datasets.read("imagenet", tmp_path)) == 3


def test_wsol_lists_elsewhere_and_without_sizes(tmp_path: Path) -> None:
    made.wsol(tmp_path / "lists")
    shutil.move(tmp_path / "lists" / "val", tmp_path / "pictures" / "val")
    (tmp_path / "lists" / "image_sizes.txt").unlink()
    dataset = datasets.read("imagenet", tmp_path / "pictures", annotations=tmp_path / "lists")
    assert files_exist(dataset)
    assert [sample.size for sample in dataset.samples] == [None] * 3


def test_wsol_lists_with_images_by_synset(tmp_path: Path) -> None:
    made.wsol(tmp_path)
    image = tmp_path / "val" / f"{made.val_name(2)}.JPEG"
    (tmp_path / "val" / made.TENCH).mkdir()
    shutil.move(image, tmp_path / "val" / made.TENCH / image.name)
    assert files_exist(datasets.read("imagenet", tmp_path))


@pytest.mark.parametrize("foldered", [False, True])
@pytest.mark.parametrize("place", ["Annotations/CLS-LOC/val", "val", "ILSVRC2012_bbox_val_v3/val"])
def test_imagenet_xml(tmp_path: Path, foldered: bool, place: str) -> None:
    dataset = datasets.read("imagenet", made.imagenet_xml(tmp_path, boxes=place, foldered=foldered))
    assert [sample.name for sample in dataset.samples] == [made.val_name(number) for number in (1, 2, 3)]
    assert labels(dataset) == [1, 0, 2]
    assert boxes(dataset) == [[[5, 6, 15, 16], [0, 0, 40, 30]]] * 3
    assert [sample.size for sample in dataset.samples] == [(40, 30)] * 3


def test_objects_of_another_class_are_no_ground_truth(tmp_path: Path) -> None:
    made.imagenet_xml(tmp_path, foldered=True)
    path = tmp_path / "Annotations/CLS-LOC/val" / f"{made.val_name(1)}.xml"
    made.xml(path, (made.SHARK, 0, 0, 9, 9), (made.GOLDFISH, 1, 1, 8, 8), size=None)
    sample = datasets.read("imagenet", tmp_path).samples[0]
    assert sample.boxes.tolist() == [[1, 1, 9, 9]]
    assert sample.size is None


@pytest.mark.parametrize(
    "lines",
    [
        [f"{made.val_name(number)}.JPEG {label}" for number, label in ((1, 1), (2, 0), (3, 2))],
        [f"val/{made.val_name(number)}.JPEG,{label}" for number, label in ((1, 1), (2, 0), (3, 2))],
        [
            f"{made.val_name(1)} {made.GOLDFISH}",
            f"{made.val_name(2)} {made.TENCH}",
            f"{made.val_name(3)} {made.SHARK}",
        ],
        [made.GOLDFISH, made.TENCH, made.SHARK],
        ["3", "2", "1"],
    ],
)
def test_lists_of_labels(tmp_path: Path, lines: list[str]) -> None:
    made.imagenet_xml(tmp_path)
    listed = made.text(tmp_path / "classes" / "truth.txt", *lines)
    synsets = [(1, made.SHARK), (2, made.TENCH), (3, made.GOLDFISH), (1001, "n00001740")]
    meta(listed.parent / "meta.mat", synsets)
    assert labels(datasets.read("imagenet", tmp_path, labels=listed)) == [1, 0, 2]


def meta(path: Path, synsets: list[tuple[int, str]]) -> None:
    from scipy.io import savemat

    table = np.zeros((len(synsets), 1), dtype=[("ILSVRC2012_ID", object), ("WNID", object)])
    for number, row in enumerate(synsets):
        table[number, 0] = row
    savemat(path, {"synsets": table})


def test_the_devkit_is_asked_where_xml_names_no_synset(tmp_path: Path) -> None:
    made.imagenet_xml(tmp_path)
    for number in (1, 2, 3):
        made.xml(tmp_path / "Annotations/CLS-LOC/val" / f"{made.val_name(number)}.xml", ("a fish", 0, 0, 9, 9))
    with pytest.raises(DatasetError, match="no object of ImageNet's 1,000 synsets; give a list"):
        datasets.read("imagenet", tmp_path)
    made.text(tmp_path / "devkit/data/ILSVRC2012_validation_ground_truth.txt", "3", "2", "1")
    meta(tmp_path / "devkit/data/meta.mat", [(1, made.SHARK), (2, made.TENCH), (3, made.GOLDFISH)])
    assert labels(datasets.read("imagenet", tmp_path)) == [1, 0, 2]


def test_cub(tmp_path: Path) -> None:
    dataset = datasets.read("cub", made.cub(tmp_path))
    assert [sample.name for sample in dataset.samples] == list(made.CUB_IMAGES)
    assert labels(dataset) == [4, 4, 149]
    assert boxes(dataset) == [[[2.5, 3, 12.5, 23.5]], [[0, 0, 40, 30]], [[1, 1, 3, 3]]]
    assert dataset.class_names == {4: "Crested Auklet", 149: "Sage Thrasher"}
    assert dataset.class_name(7) == "7"


@pytest.mark.parametrize(
    ("options", "images"),
    [
        ({"split": "train"}, "ac"),
        ({"split": "test"}, "b"),
        ({"half": "first"}, "ab"),
        ({"half": "second"}, "c"),
        ({"half": "first", "split": "train"}, "a"),
    ],
)
def test_parts_of_cub(tmp_path: Path, options: dict[str, str], images: str) -> None:
    dataset = datasets.read("cub", made.cub(tmp_path / "CUB_200_2011").parent, **options)
    assert "".join(sample.path.stem for sample in dataset.samples) == images


def test_cars(tmp_path: Path) -> None:
    dataset = datasets.read("cars", made.cars(tmp_path))
    assert [sample.name for sample in dataset.samples] == [
        "cars_train/00001.jpg", "cars_train/00002.jpg", "cars_test/00001.jpg",
    ]  # fmt: skip
    assert labels(dataset) == [97, 98, 0]
    # Counted from 1 and with the last pixel, so the first box is the whole image.
    assert boxes(dataset) == [[[0, 0, 220, 210]], [[10, 20, 30, 40]], [[4, 5, 7, 8]]]
    assert dataset.class_name(97) == "Make 98"


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"split": "train"}, [97, 98]),
        ({"split": "test"}, [0]),
        ({"half": "first"}, [97, 0]),
        ({"half": "second"}, [98]),
    ],
)
def test_parts_of_cars(tmp_path: Path, options: dict[str, str], found: list[int]) -> None:
    assert labels(datasets.read("cars", made.cars(tmp_path), **options)) == found


def test_cars_in_one_folder(tmp_path: Path) -> None:
    fields = ("relative_im_path", "bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2", "class", "test")
    rows = [("car_ims/000001.jpg", 1, 1, 40, 30, 1, 0), ("car_ims/000002.jpg", 2, 2, 4, 4, 196, 1)]
    names = np.array([f"Make {number}" for number in range(1, 197)], dtype=object)
    made.annotations(tmp_path / "cars_annos.mat", fields, rows, class_names=names)
    for row in rows:
        made.picture(tmp_path / row[0])
    dataset = datasets.read("cars", tmp_path)
    assert labels(dataset) == [0, 195]
    assert boxes(dataset) == [[[0, 0, 40, 30]], [[1, 1, 4, 4]]]
    assert dataset.class_name(195) == "Make 196"
    assert labels(datasets.read("cars", tmp_path, split="test")) == [195]


def test_cars_in_folders_of_their_own_name(tmp_path: Path) -> None:
    made.cars(tmp_path)
    for part in ("cars_train", "cars_test"):
        shutil.move(tmp_path / part, tmp_path / "inner")
        shutil.move(tmp_path / "inner", tmp_path / part / part)
    assert files_exist(datasets.read("cars", tmp_path))


def test_manifest(tmp_path: Path) -> None:
    table = made.manifest(tmp_path)
    dataset = datasets.read("manifest", table)
    assert [sample.name for sample in dataset.samples] == ["one.png", "two.png", "deep/three.png"]
    assert labels(dataset) == [1, 0, None]
    assert boxes(dataset) == [[[5, 6, 15, 16], [0, 0, 40, 30]], [], [[1, 2, 3, 4]]]
    assert dataset.samples[1].boxes.shape == (0, 4)
    assert [sample.name for sample in datasets.read("manifest", tmp_path).samples] == [
        sample.name for sample in dataset.samples
    ]


def test_manifest_with_last_pixels(tmp_path: Path) -> None:
    assert boxes(datasets.read("manifest", made.manifest(tmp_path), inclusive=True))[2] == [[1, 2, 4, 5]]


def test_manifest_with_names_and_columns_in_another_order(tmp_path: Path) -> None:
    made.manifest(tmp_path)
    table = made.text(tmp_path / "own.csv", "\ufeffLabel, File", "dog, one.png", "", "0, two.png")
    dataset = datasets.read("manifest", table, classes=["cat", "dog"])
    assert labels(dataset) == [1, 0]
    assert dataset.class_name(1) == "dog"


def test_folder(tmp_path: Path) -> None:
    dataset = datasets.read("folder", made.folder(tmp_path))
    assert [sample.name for sample in dataset.samples] == ["cat/1.png", "cat/more/2.png", "dog/1.png"]
    assert labels(dataset) == [0, 0, 1]
    assert dataset.class_names == {0: "cat", 1: "dog"}
    assert labels(datasets.read("folder", tmp_path, classes=["ant", "dog", "cat"])) == [2, 2, 1]


def test_a_limit_is_spread_and_keeps_the_order() -> None:
    samples = tuple(Sample(Path(f"{number}.png"), name=str(number)) for number in range(7))
    dataset = Dataset("numbers", samples)
    assert [sample.name for sample in dataset.limit(3).samples] == ["0", "2", "4"]
    assert dataset.limit(7) is dataset.limit(None) is dataset.limit(99) is dataset
    with pytest.raises(InputError, match="1 or more"):
        dataset.limit(0)


def test_names_are_unique_and_boxes_cannot_be_changed() -> None:
    sample = Sample(Path("a.png"), name="a", boxes=np.array([[0, 0, 1, 1]]))
    with pytest.raises(ValueError, match="read-only"):
        sample.boxes[0, 0] = 1
    with pytest.raises(DatasetError, match="'a' stands twice"):
        Dataset("two", (sample, sample))


def test_what_is_asked_for_is_checked(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no dataset 'coco': take one of imagenet, cub"):
        datasets.read("coco", tmp_path)
    with pytest.raises(InputError, match=r"cub has no option 'part': it has split, half, missing\."):
        datasets.read("cub", tmp_path, part="test")
    with pytest.raises(InputError, match="half 'third' is not known"):
        datasets.read("cub", tmp_path, half="third")
