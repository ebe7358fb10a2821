"""A visitor of the page without a browser: it sends what gradio's own part in the browser sends."""

from __future__ import annotations

import html
import json
import random
import re
import string
import threading
from pathlib import Path
from typing import Any

import httpx

API = "gradio_api"


class RefusedError(Exception):
    """The page did not do what was asked, in another way than by a sentence at a control."""


class Visitor:
    """One open page.

    >>> with Visitor("http://127.0.0.1:7860") as visitor:  # doctest: +SKIP
    ...     print(visitor.fire("sample-cat", "click")["figure"])
    """

    def __init__(self, address: str, *, stays: bool = False) -> None:
        self.address = address.rstrip("/")
        self.name = "".join(random.choices(string.ascii_lowercase + string.digits, k=11))
        self.web = httpx.Client(base_url=self.address, timeout=120, trust_env=False)
        config = self.web.get("/config").raise_for_status().json()
        self.parts = {part["id"]: part for part in config["components"]}
        self.places = {part["props"].get("elem_id"): number for number, part in self.parts.items()}
        self.values = {number: part["props"].get("value") for number, part in self.parts.items()}
        self.events = {(target[0], target[1]): event for event in config["dependencies"] for target in event["targets"]}
        self._beats = threading.Thread(target=self._stay, daemon=True) if stays else None
        self._left = threading.Event()
        if self._beats:
            self._beats.start()

    def __enter__(self) -> Visitor:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Close the page."""
        self._left.set()
        if self._beats:
            self._beats.join()
        self.web.close()

    def _stay(self) -> None:
        """What keeps a visit alive while the page is open."""
        with self.web.stream("GET", f"/{API}/heartbeat/{self.name}", timeout=None) as beats:
            for _ in beats.iter_lines():
                if self._left.wait(0.01):
                    return

    def upload(self, *files: Path) -> list[dict[str, Any]]:
        """Send files as the browser does."""
        with_names = [("files", (file.name, file.read_bytes())) for file in files]
        answer = self.web.post(f"/{API}/upload", files=with_names)
        if answer.status_code != 200:
            raise RefusedError(f"{answer.status_code}: {answer.text}")
        return [
            {"path": path, "orig_name": file.name, "meta": {"_type": "gradio.FileData"}}
            for path, file in zip(answer.json(), files, strict=True)
        ]

    def put(self, name: str, value: Any) -> None:
        """Set a control."""
        self.values[self.places[name]] = value

    def shown(self, name: str) -> Any:
        """What a control shows."""
        return self.values[self.places[name]]

    def faults(self) -> dict[str, str]:
        """The sentences at the controls, by the class of their place."""
        found = {}
        for number, part in self.parts.items():
            classes = part["props"].get("elem_classes") or []
            if "fault" in classes and self.values.get(number):
                text = re.sub(r"<[^>]+>", "", str(self.values[number]))
                found[" ".join(classes)] = html.unescape(text)
        return found

    def fire(self, name: str, event: str) -> dict[str, Any]:
        """Let a control do what it does, wait for it, and take over what the page then shows."""
        dependency = self.events[self.places[name], event]
        return self.send(dependency, [self.values.get(number) for number in dependency["inputs"]])

    def send(self, dependency: dict[str, Any], data: list[Any]) -> dict[str, Any]:
        """Send an event with any data."""
        asked = {"data": data, "fn_index": dependency["id"], "session_hash": self.name, "trigger_id": None}
        joined = self.web.post(f"/{API}/queue/join", json=asked)
        if joined.status_code != 200:
            raise RefusedError(f"{joined.status_code}: {joined.text}")
        event = joined.json()["event_id"]
        with self.web.stream("GET", f"/{API}/queue/data", params={"session_hash": self.name}) as answer:
            for line in answer.iter_lines():
                if not line.startswith("data:"):
                    continue
                message = json.loads(line[5:])
                if message.get("event_id") not in (event, None) or message["msg"] not in (
                    "process_completed",
                    "process_generating",
                ):
                    continue
                self._take(dependency, message)
                if message["msg"] == "process_completed":
                    break
        return {part["props"].get("elem_id"): self.values[number] for number, part in self.parts.items()}

    def _take(self, dependency: dict[str, Any], message: dict[str, Any]) -> None:
        if not message["success"]:
            raise RefusedError(str(message["output"].get("error")))
        data = message["output"].get("data") or []
        if message["msg"] == "process_generating" and message.get("output", {}).get("is_generating") is None:
            return
        for number, value in zip(dependency["outputs"], data, strict=False):
            if isinstance(value, dict) and value.get("__type__") == "update":
                if "value" in value:
                    self.values[number] = value["value"]
            elif not isinstance(value, list) or message["msg"] == "process_completed":
                self.values[number] = value
