"""A page for each file of tests, and a browser that refuses to leave the machine."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from desk_for_tests import Desk
from l2caf.cli.app import run
from l2caf.networks.class_names import class_index, imagenet_class_names
from l2caf.tasks.samples import sample
from l2caf.web.limits import Limits
from l2caf.web.server import Server, ServeRequest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SWITCHES = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
# Boxes drawn by hand, for an evaluation that is there in seconds.
OBJECTS = {
    "cat": ("tiger cat", (120, 10, 370, 300)),
    "cup": ("espresso", (150, 30, 480, 360)),
    "rocket": ("missile", (300, 150, 350, 390)),
}


@pytest.fixture(scope="module")
def evaluation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder `images`, and a folder `run` of an evaluation of them."""
    home = tmp_path_factory.mktemp("evaluation")
    (home / "images").mkdir()
    lines = ["file,label,x0,y0,x1,y1"]
    for name, (said, box) in OBJECTS.items():
        sample(name).save(home / "images" / f"{name}.png")
        lines.append(f"{name}.png,{class_index(imagenet_class_names(), said)},{','.join(map(str, box))}")
    (home / "images" / "boxes.csv").write_text("\n".join(lines) + "\n")
    words = ["evaluate", "manifest", str(home / "images" / "boxes.csv"), "--out", str(home / "run"), "-m", "l2caf"]
    assert run([*words, "-m", "cam", "--classes", "labels", "--quiet"]) == 0
    return home


@pytest.fixture(scope="module")
def server(evaluation: Path) -> Iterator[Server]:
    """A page with an evaluation, and with small limits."""
    request = ServeRequest(
        port=0,
        reports=(evaluation / "run",),
        pictures=evaluation / "images",
        limits=Limits(upload_mb=4, megapixels=6, files=20),
    )
    with Server(request) as served:
        yield served


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the cat and the cup as people have them."""
    folder = tmp_path_factory.mktemp("photographs")
    sample("cat").save(folder / "cat.png")
    sample("cup").save(folder / "cup.jpg", quality=95)
    return folder


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("there is no chromium here")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=SWITCHES)
        yield opened
        opened.close()


@pytest.fixture
def desk(browser: Browser, server: Server) -> Iterator[Desk]:
    """Windows on the page; a request that leaves the machine fails the test."""
    desk = Desk(browser, server.address)
    yield desk
    desk.close()
    assert desk.left == []
    assert desk.complaints == []
