"""What does the page add to the library: from an upload to its map, a move of a slider, four people at once?"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from pathlib import Path

from PIL import Image

import l2caf
from l2caf.tasks.samples import SAMPLES, sample
from l2caf.web.server import Server, ServeRequest
from visitor_for_tests import Visitor

from .row import Row

ROUNDS, MOVES = 15, 40
PEOPLE, PICTURES = 4, 50


def rows() -> list[Row]:
    """The page and the library in one process, on the embedded network, with the visitors in it too."""
    with tempfile.TemporaryDirectory() as home, Server(ServeRequest(port=0)) as server:
        files = photographs(Path(home))
        with Visitor(server.address) as visitor:  # behind those that warm the page up
            show(visitor, files[0])
        return [first_map(server, files[1]), slider(server, files[1]), *crowd(server, files)]


def photographs(folder: Path) -> list[Path]:
    """Photographs of which no two are the same."""
    made = []
    for number in range(PEOPLE * PICTURES):
        picture = sample([*SAMPLES][number % len(SAMPLES)])
        made.append(folder / f"photo-{number}.jpg")
        picture.rotate(0.7 * (number // len(SAMPLES)), Image.Resampling.BILINEAR).save(made[-1], quality=92)
    return made


def show(visitor: Visitor, file: Path) -> str:
    """Upload a photograph and wait for its map, as the page has it."""
    (uploaded,) = visitor.upload(file)
    visitor.put("photograph", uploaded)
    return str(visitor.fire("photograph", "upload")["figure"])


def first_map(server: Server, file: Path) -> Row:
    model, ratios = l2caf.load(), []
    with Visitor(server.address) as visitor:
        for number in range(ROUNDS + 2):
            began = time.process_time()
            show(visitor, file)
            page = time.process_time() - began
            began = time.process_time()
            model.explain(file, objective=l2caf.Prediction()).maps.numpy()
            if number > 1:
                ratios.append(page / (time.process_time() - began))
    middle = statistics.median(ratios)
    first, _, third = statistics.quantiles(ratios, n=4)
    return Row(
        "from upload to first map ÷ `model.explain(file)`, which draws nothing; processor time, the visitor's too",
        f"{middle:.2f} ({first:.2f} to {third:.2f})",
        "≤ 2",
        middle <= 2,
        {"ratios": ratios},
    )


def slider(server: Server, file: Path) -> Row:
    taken = []
    with Visitor(server.address) as visitor:
        show(visitor, file)
        visitor.put("classes", ["967", "968"])
        visitor.fire("classes", "input")
        visitor.put("box", True)
        for number in range(MOVES):
            visitor.put("alpha", round(0.2 + 0.01 * number, 2))
            began = time.process_time()
            visitor.fire("alpha", "input")
            taken.append(1000 * (time.process_time() - began))
    middle = statistics.median(taken)
    return Row(
        "a slider move, two maps with boxes; processor time, the visitor's too",
        f"{middle:.0f} ms (95 % below {statistics.quantiles(taken, n=20)[-1]:.0f} ms)",
        "≤ 50 ms",
        middle <= 50,
        {"milliseconds": taken},
    )


def crowd(server: Server, files: list[Path]) -> list[Row]:
    """One person sees all photographs; then four people share them, and each has to see what that one saw."""
    with Visitor(server.address) as visitor:
        show(visitor, files[0])
        began = time.perf_counter()
        expected = {file: show(visitor, file) for file in files}
        alone = time.perf_counter() - began
    wrong: list[Path] = []

    def person(own: list[Path]) -> None:
        with Visitor(server.address) as visitor:
            wrong.extend(file for file in own if show(visitor, file) != expected[file])

    people = [threading.Thread(target=person, args=(files[number::PEOPLE],)) for number in range(PEOPLE)]
    began = time.perf_counter()
    for one in people:
        one.start()
    for one in people:
        one.join()
    together = time.perf_counter() - began
    share = alone / together
    return [
        Row(
            f"{PEOPLE} people at once, {PICTURES} pictures each: wrong or mixed-up results",
            f"{len(wrong)} of {len(files)}",
            "0",
            not wrong and len(set(expected.values())) == len(files),
        ),
        Row(
            "their throughput ÷ one person's",
            f"{share:.2f} ({len(files) / together:.1f} pictures a second)",
            "≥ 0.8",
            share >= 0.8,
            {"alone": alone, "together": together},
        ),
    ]
