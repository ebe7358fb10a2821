"""A layout of a data set of one's own: images in one folder, named CLASS_ANYTHING.png.

python examples/extend/dataset.py
"""

import tempfile
from pathlib import Path

import l2caf
from l2caf.datasets import LAYOUTS, DatasetEntry
from l2caf.datasets.dataset import index_of_names
from l2caf.errors import DatasetError
from l2caf.tasks.samples import sample


def read(root: str | Path) -> l2caf.Dataset:
    """Labels number the classes by name. Boxes, where there are any, go into `Sample(boxes=…)`."""
    files = sorted(Path(root).glob("*_*.png"))
    if not files:
        raise DatasetError(f"'{root}' holds no files CLASS_ANYTHING.png: choose another folder.")
    names = sorted({file.name.partition("_")[0] for file in files})
    labels = index_of_names(names)
    samples = (l2caf.Sample(file, name=file.name, label=labels[file.name.partition("_")[0]]) for file in files)
    return l2caf.Dataset("images by prefix", tuple(samples), dict(enumerate(names)))


# For this process. For good: the file in src/l2caf/datasets/, and this line in the table LAYOUTS there.
if "prefixed" not in LAYOUTS:
    LAYOUTS.add(DatasetEntry("prefixed", "the class in the file's name", f"{__name__}:read"))


def main() -> l2caf.Dataset:
    with tempfile.TemporaryDirectory() as folder:
        for name in ("cat", "cup"):
            for number in range(2):
                sample(name).resize((90 + number, 60)).save(Path(folder) / f"{name}_{number}.png")
        data = l2caf.read("prefixed", folder)
    print(data.name, dict(data.class_names), [one.label for one in data.samples])
    assert [one.label for one in data.samples] == [0, 0, 1, 1]
    return data


if __name__ == "__main__":
    main()
