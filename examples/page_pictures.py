"""The screenshots of docs/page.md, of the page as it is, with the photographs that scikit-image carries:

    python examples/page_pictures.py docs/pictures

It needs Debian's chromium, or another one by the name of `chromium`, and `pip install playwright`.
"""

import io
import shutil
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from l2caf.cli import main
from l2caf.networks.class_names import class_index, imagenet_class_names
from l2caf.tasks.samples import sample
from l2caf.web.server import Server, ServeRequest

OBJECTS = {
    "cat": ("tiger cat", (120, 10, 370, 300)),
    "cup": ("espresso", (150, 30, 480, 360)),
    "motorcycle": ("moped", (60, 80, 680, 480)),
    "photographer": ("tripod", (90, 60, 400, 512)),
    "rocket": ("missile", (300, 150, 350, 390)),
}
SIZES = {"": (1280, 860), "-phone": (390, 844)}


def evaluation(home: Path) -> None:
    """A small evaluation, with boxes drawn by hand."""
    lines = ["file,label,x0,y0,x1,y1"]
    (home / "images").mkdir()
    for name, (said, box) in OBJECTS.items():
        sample(name).save(home / "images" / f"{name}.png")
        lines.append(f"{name}.png,{class_index(imagenet_class_names(), said)},{','.join(map(str, box))}")
    (home / "images" / "boxes.csv").write_text("\n".join(lines) + "\n")
    main(["evaluate", "manifest", str(home / "images" / "boxes.csv"), "--out", str(home / "samples"), "--quiet"])


def picture(page: Page) -> None:
    page.click("#sample-cup")
    page.wait_for_selector("#figure img")


def classes(page: Page) -> None:
    page.click("#sample-cat")
    page.get_by_text("seen as tiger cat").wait_for()
    page.fill("#other input, #other textarea", "espresso")
    page.press("#other input, #other textarea", "Enter")
    page.wait_for_function("document.querySelector('#figure').innerText.includes('espresso')")
    page.locator("#classes label").first.click()
    page.click("#compare")
    page.wait_for_selector("#methods img")


def match(page: Page) -> None:
    page.get_by_role("tab", name="Match").click()
    page.click("#match-samples")
    page.wait_for_selector("#matches img")


def video(page: Page) -> None:
    page.get_by_role("tab", name="Video").click()
    page.click("#sample-clip")
    page.wait_for_selector("#clip-figure video", timeout=120_000)
    page.wait_for_timeout(1500)


def report(page: Page) -> None:
    page.get_by_role("tab", name="Report").click()
    page.wait_for_selector("#report-figure img")
    page.get_by_label("most different first").check()
    page.wait_for_function("document.querySelector('#report-figure h2').innerText != 'rocket.png'")


if __name__ == "__main__":
    out = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        home = Path(folder)
        evaluation(home)
        request = ServeRequest(port=0, reports=(home / "samples",), pictures=home / "images")
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        with Server(request) as server:
            first = browser.new_page()  # the first map waits until the network is loaded
            first.goto(server.address)
            picture(first)
            first.close()
            for ending, (width, height) in SIZES.items():
                for show in (picture, classes, match, video, report):
                    window = browser.new_context(viewport={"width": width, "height": height})
                    page = window.new_page()
                    page.goto(server.address)
                    page.wait_for_selector("#sample-cup")
                    show(page)
                    page.mouse.move(0, 0)
                    page.wait_for_timeout(800)
                    taken = Image.open(io.BytesIO(page.screenshot(full_page=True)))
                    taken.thumbnail((960, 9999))
                    taken.convert("RGB").save(out / f"page-{show.__name__}{ending}.png", optimize=True)
                    window.close()
        browser.close()
