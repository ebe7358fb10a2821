"""What may come in: uploads of every kind, names and paths that lead elsewhere, addresses, strangers."""

from __future__ import annotations

import io
import os
import signal
import struct
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
from PIL import Image

from l2caf.errors import InputError
from l2caf.tasks.samples import sample
from l2caf.web.server import HERE, Server, ServeRequest, read_auth
from visitor_for_tests import API, RefusedError, Visitor

BESIDE = 24  # fuzzed files in `make test`; all 500 are in `make endurance`


@pytest.fixture
def visitor(server: Server) -> Iterator[Visitor]:
    with Visitor(server.address) as visitor:
        yield visitor


def opened(visitor: Visitor, *files: Path) -> dict[str, object]:
    """Upload a photograph and let the page open it."""
    (file,) = visitor.upload(*files)
    visitor.put("photograph", file)
    return visitor.fire("photograph", "upload")


class TestUploads:
    def test_a_photograph_is_explained(self, visitor: Visitor, photographs: Path) -> None:
        seen = opened(visitor, photographs / "cup.jpg")
        assert "seen as espresso" in str(seen["figure"])
        assert visitor.faults() == {}

    def test_one_of_too_many_bytes_is_refused_while_it_comes(
        self, visitor: Visitor, server: Server, tmp_path: Path
    ) -> None:
        (tmp_path / "large.png").write_bytes(bytes(5_000_000))
        with pytest.raises(RefusedError, match=r"413|exceeded"):
            visitor.upload(tmp_path / "large.png")
        assert not [path for path in server.home.rglob("*") if path.is_file() and path.stat().st_size > 4_000_000]

    @pytest.mark.parametrize(("side", "words"), [(4_000, "16 megapixels"), (60_000, "")])
    def test_one_of_too_many_pixels_is_refused_before_it_is_decoded(
        self, visitor: Visitor, tmp_path: Path, side: int, words: str
    ) -> None:
        bomb = tmp_path / "bomb.png"
        bomb.write_bytes(png_of(side, side))
        assert bomb.stat().st_size < 1_000
        opened(visitor, bomb)
        (said,) = visitor.faults().values()
        assert said.startswith("'bomb.png' unpacks to")
        assert "6 megapixels are the most here" in said

    def test_a_bomb_in_a_gallery_is_refused_too(self, visitor: Visitor, photographs: Path, tmp_path: Path) -> None:
        (tmp_path / "bomb.png").write_bytes(png_of(60_000, 60_000))
        visitor.put("query", visitor.upload(photographs / "cat.png")[0])
        visitor.put("gallery", visitor.upload(photographs / "cup.jpg", tmp_path / "bomb.png"))
        visitor.fire("find", "click")
        (said,) = visitor.faults().values()
        assert said.startswith("'bomb.png' unpacks to")

    @pytest.mark.parametrize("name", ["../../up.png", "..%2f..%2fup.png", "a\\..\\up.png", ".hidden.png", "-o.png"])
    def test_a_name_stays_a_name(self, visitor: Visitor, server: Server, name: str) -> None:
        stream = io.BytesIO()
        sample("cat").resize((60, 40)).save(stream, "PNG")
        answer = visitor.web.post(f"/{API}/upload", files=[("files", (name, stream.getvalue()))])
        if answer.status_code == 200:
            (path,) = answer.json()
            assert Path(path).resolve().is_relative_to(server.home.resolve())
            visitor.put("photograph", {"path": path, "orig_name": name, "meta": {"_type": "gradio.FileData"}})
            assert "<img" in str(visitor.fire("photograph", "upload")["figure"])

    def test_what_is_no_picture_is_said_in_one_sentence(self, visitor: Visitor, tmp_path: Path) -> None:
        for number, content in enumerate((b"", b"hello", b"<svg onload='alert(1)'/>", b"GIF89a" + bytes(20))):
            path = tmp_path / f"odd-{number}.png"
            path.write_bytes(content)
            opened(visitor, path)
            (said,) = visitor.faults().values()
            assert path.name in said
            assert str(path.parent) not in said
            assert "/tmp" not in said

    def test_fuzzed_files_are_shown_or_refused(self, visitor: Visitor, tmp_path: Path) -> None:
        fuzz(visitor, tmp_path, range(BESIDE))

    @pytest.mark.endurance
    def test_all_fuzzed_files_are_shown_or_refused(self, visitor: Visitor, tmp_path: Path) -> None:
        fuzz(visitor, tmp_path, range(500))


def png_of(width: int, height: int) -> bytes:
    """A file of a few bytes whose header promises a large picture."""

    def part(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", header) + part(b"IDAT", zlib.compress(bytes(999))) + part(b"IEND", b"")


def fuzz(visitor: Visitor, folder: Path, numbers: range) -> None:
    """Damage pictures of many kinds; each upload ends in a map or in one sentence."""
    small = sample("cat").resize((90, 60))
    kinds = ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM", "JPEG2000")
    ended = {"map": 0, "sentence": 0}
    for number in numbers:
        random = np.random.default_rng(number)
        stream = io.BytesIO()
        small.save(stream, kinds[number % len(kinds)])
        content = bytearray(stream.getvalue())
        way = number // len(kinds) % 4
        if way == 0:  # some bytes are others
            for place in random.integers(0, len(content), int(random.integers(1, 30))):
                content[place] = int(random.integers(256))
        elif way == 1:  # cut off
            content = content[: int(random.integers(1, len(content)))]
        elif way == 2:  # a piece of the header is rubbish
            start = int(random.integers(0, 60))
            content[start : start + 8] = random.bytes(8)
        else:  # rubbish from the beginning, or behind
            content = bytearray(random.bytes(200)) if number % 2 else content + bytearray(random.bytes(200))
        path = folder / f"fuzzed-{number}.{('png', 'jpg', 'gif', 'bin')[number % 4]}"
        path.write_bytes(content)
        seen = opened(visitor, path)
        said = visitor.faults()
        if said:
            (sentence,) = said.values()
            assert path.name in sentence
            assert "/tmp" not in sentence
            assert "<img" not in str(seen["figure"])
            ended["sentence"] += 1
        else:
            assert "<img" in str(seen["figure"])
            ended["map"] += 1
        path.unlink()
    assert min(ended.values()) > len(numbers) // 20


class TestFiles:
    PATHS = (
        "/etc/passwd",
        "../../../../etc/passwd",
        "..%2f..%2f..%2fetc%2fpasswd",
        "%2e%2e/%2e%2e/etc/passwd",
        "/proc/self/environ",
        "C:/Windows/win.ini",
        "\\\\host\\share",
    )

    @pytest.mark.parametrize("path", PATHS)
    def test_no_file_elsewhere_is_served(self, visitor: Visitor, path: str) -> None:
        for form in (
            f"/{API}/file={path}",
            f"/{API}/file/{path}",
            f"/file={path}",
            f"/static/{path}",
            f"/assets/{path}",
        ):
            answer = httpx.get(visitor.address + form, trust_env=False)
            assert answer.status_code in (403, 404, 405), form
            assert "root:" not in answer.text

    def test_neither_the_code_nor_the_pictures_of_an_evaluation_are_served(
        self, visitor: Visitor, evaluation: Path
    ) -> None:
        for path in (Path(__file__), Path.cwd() / "pyproject.toml", evaluation / "images" / "cat.png"):
            assert visitor.web.get(f"/{API}/file={path}").status_code in (403, 404)

    @pytest.mark.parametrize("path", ["/etc/passwd", "../../etc/hostname", "/proc/self/environ"])
    @pytest.mark.parametrize("control", ["photograph", "query", "clip"])
    def test_no_file_elsewhere_is_opened(self, visitor: Visitor, control: str, path: str) -> None:
        button = {"photograph": ("photograph", "upload"), "query": ("find", "click"), "clip": ("film", "click")}
        visitor.put(control, {"path": path, "orig_name": "a.png", "meta": {"_type": "gradio.FileData"}})
        with pytest.raises(RefusedError):
            visitor.fire(*button[control])

    @pytest.mark.parametrize("address", ["http://127.0.0.1:9/a.png", "https://example.org/a.png", "ftp://x/a"])
    def test_no_address_is_fetched_for_a_visitor(
        self, visitor: Visitor, monkeypatch: pytest.MonkeyPatch, address: str
    ) -> None:
        def fetched(*_: object, **__: object) -> None:
            raise AssertionError("the page fetched an address")

        monkeypatch.setattr("gradio.processing_utils.save_url_to_cache", fetched)
        monkeypatch.setattr("gradio.processing_utils.ssrf_protected_download", fetched, raising=False)
        monkeypatch.setattr("gradio.processing_utils.async_ssrf_protected_download", fetched, raising=False)
        for file in ({"path": address}, {"path": "a.png", "url": address}):
            visitor.put("photograph", {**file, "orig_name": "a.png", "meta": {"_type": "gradio.FileData"}})
            with pytest.raises(RefusedError):
                visitor.fire("photograph", "upload")
        for form in (f"/{API}/file={address}", f"/{API}/proxy={address}", f"/file={address}", f"/{API}/file/{address}"):
            assert visitor.web.get(form).status_code == 404

    @pytest.mark.parametrize("name", ["os:system", "/tmp/net.py:build", "./a.safetensors", "timm:local-dir:/etc", "x"])
    def test_no_network_is_taken_from_a_file_or_from_code(self, visitor: Visitor, name: str) -> None:
        visitor.fire("sample-cat", "click")
        visitor.put("network", name)
        visitor.fire("network", "input")
        ((place, said),) = visitor.faults().items()
        assert "fault-network" in place
        assert said.startswith("There is no network")


class TestVisits:
    def test_what_one_leaves_is_removed(self, server: Server, photographs: Path) -> None:
        visitor = Visitor(server.address, stays=True)
        opened(visitor, photographs / "cat.png")
        visitor.fire("fetch-picture", "click")
        mine = [path for path in server.home.rglob("*") if path.is_file()]
        assert any(path.suffix == ".png" for path in mine)
        there = len(server.visits)
        visitor.leave()
        own = [path for path in mine if "cat" in path.name]
        until = time.monotonic() + 60
        while (len(server.visits) >= there or any(path.exists() for path in own)) and time.monotonic() < until:
            time.sleep(0.1)
        assert len(server.visits) == there - 1
        assert [path for path in own if path.exists()] == []

    def test_a_visitor_sees_nothing_of_another(self, server: Server, photographs: Path) -> None:
        with Visitor(server.address) as one, Visitor(server.address) as other:
            opened(one, photographs / "cat.png")
            other.put("alpha", 0.1)
            assert "<img" not in str(other.fire("alpha", "input")["figure"])
            other.fire("fetch-picture", "click")
            assert "Nothing is shown yet" in next(iter(other.faults().values()))

    def test_several_at_once_get_what_each_gets_alone(self, server: Server, tmp_path: Path) -> None:
        files = []
        for number in range(12):
            files.append(tmp_path / f"photo-{number}.jpg")
            sample(("cat", "cup", "rocket")[number % 3]).rotate(3 * number).save(files[-1])
        with Visitor(server.address) as alone:
            expected = {file: str(opened(alone, file)["figure"]) for file in files}
        assert len(set(expected.values())) == len(files)
        found: dict[Path, str] = {}

        def visit(own: list[Path]) -> None:
            with Visitor(server.address) as visitor:
                found.update({file: str(opened(visitor, file)["figure"]) for file in own})

        visits = [threading.Thread(target=visit, args=(files[number::4],)) for number in range(4)]
        for one in visits:
            one.start()
        for one in visits:
            one.join()
        assert found == expected

    def test_a_visit_that_was_lost_says_so(self, server: Server, photographs: Path) -> None:
        with Visitor(server.address) as visitor:
            opened(visitor, photographs / "cup.jpg")
            server.visits.end(visitor.name)
            visitor.put("classes", ["967"])
            visitor.fire("classes", "input")
            (said,) = visitor.faults().values()
            assert said == "The connection was lost, and with it the visit: drop the photograph again."

    def test_a_server_that_closes_leaves_nothing(self, photographs: Path) -> None:
        with Server(ServeRequest(port=0)) as server, Visitor(server.address) as visitor:
            opened(visitor, photographs / "cat.png")
            home = server.home
            assert any(home.rglob("*"))
        assert not home.exists()


def test_the_gallery_of_the_host_is_searched_and_left_as_it_was(photographs: Path, tmp_path: Path) -> None:
    gallery = tmp_path / "gallery"
    for name in ("cat", "rocket", "cup"):
        (gallery / name).mkdir(parents=True)
        sample(name).resize((300, 200)).save(gallery / name / f"{name}.png")
    (gallery / "broken.png").write_bytes(b"no picture")
    before = sorted(gallery.rglob("*"))
    with Server(ServeRequest(port=0, gallery=gallery)) as server, Visitor(server.address) as visitor:
        visitor.put("query", visitor.upload(photographs / "cup.jpg")[0])
        visitor.put("top", 2)
        seen = str(visitor.fire("find", "click")["matches"])
        assert visitor.faults() == {}
        assert "#1 cosine 0.9" in seen
        assert ", cup" in seen
        assert "broken.png" in seen
        assert str(tmp_path) not in seen
    assert sorted(gallery.rglob("*")) == before


class TestStrangers:
    def test_it_listens_here_alone_unless_told(self) -> None:
        assert ServeRequest().host == HERE
        for host in ("127.0.0.1", "localhost", "::1"):
            assert ServeRequest(host).is_local

    @pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "example.org", "::", ""])
    def test_elsewhere_it_asks_for_a_password(self, host: str) -> None:
        with pytest.raises(InputError, match="who may come in") as told:
            ServeRequest(host)
        assert told.value.field == "auth"
        assert ServeRequest(host, auth=(("ann", "secret"),)).known_names is None

    @pytest.mark.parametrize("text", ["ann", "ann:", ":secret", ""])
    def test_half_a_password_is_refused(self, text: str) -> None:
        with pytest.raises(InputError, match="a name, a colon and a password"):
            read_auth([text])

    def test_a_foreign_name_for_this_machine_is_refused(self, server: Server) -> None:
        for name, status in (("localhost:1", 200), ("attacker.example", 421), ("", 421)):
            answer = httpx.get(server.address + "config", headers={"host": name}, trust_env=False)
            assert answer.status_code == status, name

    @pytest.mark.parametrize("path", ["upload", "queue/join", "login"])
    def test_nothing_is_done_for_a_page_of_another_site(self, server: Server, path: str) -> None:
        def status(**headers: str) -> int:
            sent = {name.replace("_", "-"): value for name, value in headers.items()}
            files = [("files", ("a.png", b"x"))]
            return httpx.post(f"{server.address}{API}/{path}", headers=sent, files=files, trust_env=False).status_code

        assert status(origin="https://attacker.example") == 403
        assert status(origin="http://[") == 403
        assert status(sec_fetch_site="cross-site") == 403
        here = server.address.rstrip("/")
        for own in ({}, {"origin": here}, {"origin": here, "sec_fetch_site": "same-origin"}, {"origin": "null"}):
            assert status(**own) != 403
        link = httpx.get(server.address, headers={"sec-fetch-site": "cross-site"}, trust_env=False)
        assert link.status_code == 200

    def test_every_answer_forbids_what_lies_elsewhere(self, server: Server) -> None:
        for path in ("", "config", "theme.css", "nowhere"):
            policy = httpx.get(server.address + path, trust_env=False).headers["content-security-policy"]
            assert "default-src 'self'" in policy
            assert "http" not in policy

    def test_without_the_password_nothing_is_shown(self, photographs: Path) -> None:
        request = ServeRequest(port=0, auth=(("ann", "secret"),))
        with Server(request) as server, httpx.Client(base_url=server.address, trust_env=False) as web:
            files = [("files", ("cat.png", (photographs / "cat.png").read_bytes()))]
            ways: dict[str, Callable[[], httpx.Response]] = {
                "config": lambda: web.get("/config"),
                "upload": lambda: web.post(f"/{API}/upload", files=files),
                "join": lambda: web.post(f"/{API}/queue/join", json={"data": [], "fn_index": 0, "session_hash": "a"}),
                "data": lambda: web.get(f"/{API}/queue/data", params={"session_hash": "a"}),
                "info": lambda: web.get(f"/{API}/info"),
            }
            for name, ask in ways.items():
                assert ask().status_code in (401, 403), name
            wrong = {"username": "ann", "password": "wrong"}
            assert web.post("/login", data=wrong).status_code == 400
            assert web.post("/login", data={"username": "ann", "password": "secret"}).status_code == 200
            assert web.get("/config").status_code == 200


def test_a_picture_that_was_turned_is_upright(visitor: Visitor, tmp_path: Path) -> None:
    turned = sample("cup").transpose(Image.Transpose.ROTATE_90)
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned clockwise when it is shown
    turned.save(tmp_path / "turned.jpg", exif=exif, quality=95)
    assert "seen as espresso" in str(opened(visitor, tmp_path / "turned.jpg")["figure"])


def test_a_server_that_closes_in_the_midst_of_work_ends_well(tmp_path: Path) -> None:
    program = (
        "import threading, time\n"
        "from l2caf.web.server import Server, ServeRequest\n"
        "from visitor_for_tests import Visitor\n"
        "with Server(ServeRequest(port=0)) as server:\n"
        "    visitor = Visitor(server.address)\n"
        "    visitor.fire('sample-cat', 'click')\n"
        "    threading.Thread(target=visitor.fire, args=('compare', 'click'), daemon=True).start()\n"
        "    while not server.visits.busy:\n"
        "        time.sleep(0.001)\n"
        "assert not server.visits.busy\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TMPDIR": str(tmp_path)}
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert ended.returncode == 0, ended.stderr
    assert "terminate" not in ended.stderr


def test_the_command_serves_until_it_is_stopped_and_leaves_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "l2caf", "serve", "--port", "0"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[0]
        assert httpx.get(address, trust_env=False).status_code == 200
        assert [path.name[:11] for path in tmp_path.iterdir() if path.name.startswith("l2caf")] == ["l2caf-page-"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert [path for path in tmp_path.iterdir() if path.name.startswith("l2caf")] == []
