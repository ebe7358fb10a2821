"""The page in a real browser: each tab from end to end, with eyes, keys and two visitors."""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image

import l2caf
from desk_for_tests import Desk
from l2caf.rendering.style import Style
from l2caf.tasks.network_choice import NetworkChoice
from l2caf.tasks.photographs import explain_image
from l2caf.tasks.question import Question
from l2caf.tasks.samples import sample
from l2caf.web import picture_tab
from l2caf.web.page import WORDS
from l2caf.web.server import Server

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

pytestmark = pytest.mark.browser
TABS = ("Picture", "Match", "Video", "Report")
# Faults of gradio's own controls that a page cannot mend: rule, and what is in the element.
ACCEPTED = {"nested-interactive": f'aria-label="{WORDS["common.upload"]}"'}


def tab(page: Page, name: str) -> None:
    page.get_by_role("tab", name=name, exact=True).click()


def shown(page: Page, place: str = "#figure") -> list[Image.Image]:
    """The pictures at a place."""
    sources = page.locator(f"{place} img").evaluate_all("images => images.map(image => image.src)")
    return [Image.open(io.BytesIO(base64.b64decode(source.partition(",")[2]))) for source in sources]


# Where the keys are.
STOP = """() => { const one = document.activeElement, style = getComputedStyle(one);
  return { name: one.innerText || one.ariaLabel, outline: style.outlineStyle,
    seen: style.visibility == 'visible' && one.offsetWidth > 4 && one.offsetHeight > 4 } }"""
# What is seen at a place, without the signs of waiting that gradio puts around it.
SEEN = (
    "[...document.querySelectorAll(place + ' img')].map(one => one.src).join()"
    " + [...document.querySelectorAll(place + ' figcaption')].map(one => one.innerText).join()"
)

CAPTIONS = "[...document.querySelectorAll('#figure figcaption')].map(one => one.innerText).join('|')"


def changed(page: Page, place: str, before: str) -> None:
    """Wait until something else is seen at a place."""
    page.wait_for_function(f"([place, before]) => {SEEN} != before", arg=[place, before])


def inside(page: Page, place: str = "#figure") -> str:
    return str(page.evaluate(f"place => {SEEN}", place))


def titles(page: Page, place: str = "#figure") -> list[str]:
    return list(page.locator(f"{place} figcaption").all_inner_texts())


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What the tab of pictures asked networks; the server runs in this process."""
    asked: list[Any] = []
    real = picture_tab.look

    def noted(request: Any, **given: Any) -> Any:
        asked.append(request)
        return real(request, **given)

    monkeypatch.setattr(picture_tab, "look", noted)
    return asked


class TestPicture:
    def test_an_upload_a_class_a_second_one_and_a_slider(self, desk: Desk, photographs: Path, looks: list[Any]) -> None:
        page = desk.page()
        page.locator("#photograph input[type=file]").set_input_files(photographs / "cup.jpg")
        page.wait_for_selector("#figure img")
        assert titles(page) == ["seen as espresso, 95%", "where it looked"]
        classes = page.locator("#classes label")
        assert classes.count() == 5
        assert classes.first.inner_text() == "espresso, 95%"

        before = inside(page)
        classes.nth(0).click()
        changed(page, "#figure", before)
        assert titles(page) == ["seen as espresso, 95%", "espresso, 95%"]
        before = inside(page)
        classes.nth(1).click()
        changed(page, "#figure", before)
        assert [one.partition(",")[0] for one in titles(page)] == ["espresso", "cup"]
        assert page.locator("#signed input").is_checked()
        assert len(looks) == 3
        assert looks[-1].question.classes == (967, 968)

        before = inside(page)
        page.locator("#alpha input[type=range]").fill("0.1")
        changed(page, "#figure", before)
        pale = shown(page)[0]
        before = inside(page)
        page.locator("#box input").check()
        changed(page, "#figure", before)
        assert len(looks) == 3  # drawn again, and not solved again
        view = explain_image(l2caf.load(), Image.open(photographs / "cup.jpg"), Question().as_method()).view
        grey = np.asarray(view.convert("L"), float)
        assert np.abs(np.asarray(pale.convert("L"), float) - grey).mean() < 15  # a tenth of the colours, on grey

    def test_clicks_in_quick_succession_are_not_undone(self, desk: Desk) -> None:
        page = desk.page()
        page.click("#sample-cat")
        page.wait_for_selector("#figure img")
        classes = page.locator("#classes label")
        first, second = (classes.nth(place).inner_text() for place in (0, 1))
        for place in (0, 1):
            classes.nth(place).click()
        page.wait_for_function(f"wanted => {CAPTIONS} == wanted", arg=f"{first}|{second}")
        for _ in range(3):
            classes.nth(1).click()
        page.wait_for_function(f"wanted => {CAPTIONS}.endsWith(wanted)", arg=f"|{first}")
        assert page.locator("#classes input:checked").count() == 1

    def test_what_is_downloaded_is_what_the_library_gives(self, desk: Desk, photographs: Path, tmp_path: Path) -> None:
        page = desk.page()
        page.locator("#photograph input[type=file]").set_input_files(photographs / "cat.png")
        page.wait_for_selector("#figure img")
        before = inside(page)
        page.locator("#classes label").first.click()
        changed(page, "#figure", before)
        before = inside(page)
        page.locator("#alpha input[type=range]").fill("0.4")
        changed(page, "#figure", before)
        for button in ("fetch-picture", "fetch-numbers"):
            with page.expect_download() as fetched:
                page.click(f"#{button}")
            fetched.value.save_as(tmp_path / fetched.value.suggested_filename)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["cat-l2caf.npy", "cat-l2caf.png"]

        model = NetworkChoice().load()
        method = Question("l2caf-class", classes=(282,)).as_method(model)
        found = explain_image(model, sample("cat"), method)
        expected = found.maps[0].drawn(found.view, Style(alpha=0.4))
        with Image.open(tmp_path / "cat-l2caf.png") as picture:
            np.testing.assert_array_equal(np.asarray(picture), np.asarray(expected))
        np.testing.assert_array_equal(np.load(tmp_path / "cat-l2caf.npy"), found.maps[0].heat)

    def test_methods_side_by_side(self, desk: Desk) -> None:
        page = desk.page()
        page.click("#sample-cup")
        page.wait_for_selector("#figure img")
        page.click("#compare")
        page.wait_for_selector("#methods img")
        assert titles(page, "#methods") == [
            "L2-CAF, class-oblivious", "L2-CAF, prediction", "L2-CAF, class-specific", "CAM", "Grad-CAM",
            "Grad-CAM-abs", "L1 filter, class-oblivious", "softmax filter, class-oblivious",
            "Gaussian filter, class-oblivious",
        ]  # fmt: skip

    def test_errors_stand_at_their_controls_and_what_was_shown_stays(self, desk: Desk, tmp_path: Path) -> None:
        page = desk.page()
        page.click("#sample-cat")
        page.wait_for_selector("#figure img")
        before = inside(page)
        page.fill("#other input, #other textarea", "unicorn")
        page.press("#other input, #other textarea", "Enter")
        fault = page.locator(".fault-class [role=alert]")
        fault.wait_for()
        assert "has no class 'unicorn'" in fault.inner_text()
        assert inside(page) == before
        page.fill("#other input, #other textarea", "espresso")
        page.press("#other input, #other textarea", "Enter")
        changed(page, "#figure", before)
        page.wait_for_function("document.querySelectorAll('[role=alert]').length == 0")
        assert titles(page)[-1].startswith("espresso")

        page.get_by_role("button", name="Network and layer").click()
        page.fill("#network input", "timm:resnet51")
        page.press("#network input", "Enter")
        fault = page.locator(".fault-network [role=alert]")
        fault.wait_for()
        assert "timm:resnet51" in fault.inner_text()

        (tmp_path / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"rubbish" * 40)
        page.get_by_label("Remove Image").first.click()
        page.get_by_text("Where does a network look?").wait_for()
        page.locator("#photograph input[type=file]").set_input_files(tmp_path / "broken.png")
        fault = page.locator(".fault-image [role=alert]")
        fault.wait_for()
        assert fault.inner_text().startswith("'broken.png' is")
        assert page.locator("#figure img").count() == 0

    def test_the_code_is_copied(self, desk: Desk) -> None:
        page = desk.page()
        page.click("#sample-cup")
        page.wait_for_selector("#figure img")
        page.get_by_role("button", name="The same in Python").click()
        page.click("#copy-command")
        page.wait_for_function("navigator.clipboard.readText().then(text => text.startsWith('l2caf explain'))")
        copied = page.evaluate("navigator.clipboard.readText()")
        assert copied.strip() == "l2caf explain cup.png --method l2caf-prediction --bare --npy --out where.png"
        page.click("#copy-python")
        page.wait_for_function("navigator.clipboard.readText().then(text => text.startsWith('import l2caf'))")

    def test_layers_are_listed_and_a_finer_one_is_taken(self, desk: Desk, looks: list[Any]) -> None:
        page = desk.page()
        page.click("#sample-cup")
        page.wait_for_selector("#figure img")
        page.get_by_role("button", name="Network and layer").click()
        page.click("#layer input")
        page.get_by_role("option", name="blocks.5", exact=True).wait_for()
        before = inside(page)
        page.get_by_role("option", name="blocks.4", exact=True).click()
        changed(page, "#figure", before)
        assert looks[-1].network.layer == "blocks.4"
        page.wait_for_function("document.querySelector('#facts').innerText.includes('blocks.4')")

    def test_two_visitors_see_their_own(self, desk: Desk) -> None:
        first, second = desk.page(), desk.page()
        first.click("#sample-cat")
        second.click("#sample-cup")
        for page in (first, second):
            page.wait_for_selector("#figure img")
        assert "cat" in titles(first)[0]
        assert "espresso" in titles(second)[0]
        before = inside(first)
        first.locator("#alpha input[type=range]").fill("0.2")
        changed(first, "#figure", before)
        assert "cat" in titles(first)[0]
        assert "espresso" in titles(second)[0]

    def test_a_picture_is_pasted(self, desk: Desk, photographs: Path) -> None:
        page = desk.page()
        stream = io.BytesIO()
        with Image.open(photographs / "cup.jpg") as picture:
            picture.save(stream, "PNG")
        page.evaluate(
            "async data => { const blob = await (await fetch('data:image/png;base64,' + data)).blob();"
            " await navigator.clipboard.write([new ClipboardItem({ 'image/png': blob })]); }",
            base64.b64encode(stream.getvalue()).decode(),
        )
        page.locator("#photograph button[aria-label*=lipboard], #photograph [data-testid*=lipboard]").first.click()
        page.wait_for_selector("#figure img")
        assert titles(page)[0] == "seen as espresso, 95%"

    def test_keys_are_enough(self, desk: Desk) -> None:
        page = desk.page()
        page.add_style_tag(content="* { transition: none !important }")
        page.locator("#sample-cup").focus()
        page.keyboard.press("Enter")
        page.wait_for_selector("#figure img")
        page.locator("#classes input").first.focus()
        before = inside(page)
        page.keyboard.press("Space")
        changed(page, "#figure", before)
        page.locator("#alpha input[type=range]").focus()
        before = inside(page)
        page.keyboard.press("ArrowLeft")
        changed(page, "#figure", before)
        for _ in range(6):  # from the slider to the end: each stop is seen, and shows that it is one
            stop = page.evaluate(STOP)
            assert stop["seen"], stop
            assert stop["outline"] == "solid", stop
            page.keyboard.press("Tab")


def test_a_match_among_the_samples(desk: Desk) -> None:
    page = desk.page()
    tab(page, "Match")
    page.click("#match-samples")
    page.wait_for_selector("#matches img")
    captions = titles(page, "#matches")
    assert captions[0].startswith("in the query, for #1")
    assert {re.sub(r".*, ", "", one) for one in captions[1:4:2]} == {"cat-left.jpg", "cat-right.jpg"}
    assert captions[-1] == "red: for #1, blue: for #4"
    before = inside(page, "#matches")
    page.locator("#match-alpha input[type=range]").fill("0.2")
    changed(page, "#matches", before)
    page.click("#theirs input")
    page.get_by_role("option", name="#2").click()
    page.wait_for_function("document.querySelector('#matches').innerText.includes('blue: for #2')")
    tab(page, "Picture")  # the rest goes on
    page.click("#sample-cup")
    page.wait_for_selector("#figure img")


def test_a_clip_with_progress_and_the_page_beside_it(desk: Desk, server: Server) -> None:
    page = desk.page()
    tab(page, "Video")
    page.locator("#stride input[type=range]").fill("3")
    page.click("#sample-clip")
    page.wait_for_selector("#progress progress")
    other = desk.page()  # while it runs, others are served
    other.click("#sample-cat")
    other.wait_for_selector("#figure img")
    page.wait_for_selector("#clip-figure video")
    assert page.locator("#progress progress").count() == 0
    page.wait_for_function("document.querySelector('#clip-figure video').readyState >= 1")
    assert page.evaluate("document.querySelector('#clip-figure video').duration") == pytest.approx(3, abs=0.3)
    assert "frames 20" in page.locator("#clip-figure .facts").inner_text().replace("\n", " ")
    with page.expect_download() as fetched:
        page.click("#film-numbers")
    assert fetched.value.suggested_filename.endswith(".npz")


def test_a_clip_that_is_stopped(desk: Desk) -> None:
    page = desk.page()
    tab(page, "Video")
    page.click("#sample-clip")
    page.wait_for_selector("#progress progress[value]")
    page.click("#stop")
    page.get_by_text("Stopped.").wait_for()
    assert page.locator("#clip-figure video").count() == 0


def test_an_evaluation_is_browsed(desk: Desk) -> None:
    page = desk.page()
    tab(page, "Report")
    page.wait_for_selector("#report-figure img")
    assert page.locator("#report-figure h2").inner_text() == "rocket.png"  # the hardest
    rows = page.locator("#report-list tbody tr")
    assert rows.count() == 3
    values = [float(text) for text in rows.locator("td:nth-child(2)").all_inner_texts()]
    assert values == sorted(values)
    page.click("#next")
    page.wait_for_function("document.querySelector('#report-figure h2').innerText != 'rocket.png'")
    assert len(shown(page, "#report-figure")) == 2
    page.get_by_label("highest first").check()
    page.wait_for_function(
        "document.querySelector('#report-list tbody td').innerText == "
        "document.querySelector('#report-figure h2').innerText"
    )
    values = [float(text) for text in rows.locator("td:nth-child(2)").all_inner_texts()]
    assert values == sorted(values, reverse=True)


def test_a_request_that_would_leave_the_machine_is_noticed_and_stopped(browser: Browser, server: Server) -> None:
    desk = Desk(browser, server.address)
    page = desk.page()
    assert desk.left == []
    answer = page.evaluate("fetch('https://example.org/').then(() => 'fetched', () => 'refused')")
    assert answer == "refused"
    assert any("example.org" in one for one in desk.left)
    desk.left.clear()
    page.evaluate(
        "document.head.append(Object.assign(document.createElement('script'), {src: 'http://x.example/a.js'}))"
    )
    page.wait_for_timeout(300)
    assert any("x.example" in one for one in desk.left)
    desk.close()


def violations(page: Page, **options: Any) -> list[str]:
    """What axe finds wrong, but for what gradio's own controls bring."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page, options=options or None).response["violations"]
    return [
        f"{rule['id']} ({rule['impact']}): {node['html'][:200]} {node['target']}"
        for rule in found
        for node in rule["nodes"]
        if not (rule["id"] in ACCEPTED and ACCEPTED[rule["id"]] in node["html"])
    ]


@pytest.mark.parametrize("width", [1280, 390])
def test_everybody_can_use_it(desk: Desk, photographs: Path, width: int) -> None:
    page = desk.page(width=width)
    page.add_style_tag(content="* { transition: none !important }")
    found: dict[str, list[str]] = {}
    page.click("#sample-cup")
    page.wait_for_selector("#figure img")
    page.click("#compare")
    page.wait_for_selector("#methods img")
    page.get_by_role("button", name="Network and layer").click()
    page.get_by_role("button", name="The same in Python").click()
    for name in TABS:
        tab(page, name)
        if name == "Report":
            page.wait_for_selector("#report-figure img")
        if name == "Match":
            page.locator("#gallery input[type=file]").set_input_files(photographs / "cat.png")
            page.get_by_label(WORDS["common.upload"]).wait_for()
        page.wait_for_timeout(200)
        found[name] = violations(page)
        page.evaluate("document.body.classList.add('dark')")
        found[f"{name}, dark"] = violations(page, runOnly=["color-contrast"])
        page.evaluate("document.body.classList.remove('dark')")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
    assert not any(found.values()), json.dumps(found, indent=1)
    page.evaluate("document.querySelector('main').append(document.createElement('img'))")
    assert any(fault.startswith("image-alt") for fault in violations(page))  # what is wrong is found


def small_letters(place: Locator) -> list[str]:
    """Texts below 11 pixels, which nobody reads on a telephone."""
    return place.evaluate_all(
        "all => all.filter(one => one.offsetParent && one.innerText.trim() && one.children.length == 0"
        " && parseFloat(getComputedStyle(one).fontSize) < 11 && parseFloat(getComputedStyle(one).fontSize) > 0)"
        ".map(one => one.innerText)"
    )


def test_letters_can_be_read_on_a_telephone(desk: Desk) -> None:
    page = desk.page(width=390, height=844)
    page.click("#sample-cup")
    page.wait_for_selector("#figure img")
    assert small_letters(page.locator("main *")) == []
