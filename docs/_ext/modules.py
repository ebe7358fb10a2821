"""A page of the reference for each public package or module, written when the book is built."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from pathlib import Path
from types import ModuleType
from typing import Any

import l2caf

FOLDER = "reference/modules"


def modules_of(room: str) -> list[ModuleType]:
    """A public package with its modules, or a public module."""
    package = importlib.import_module(f"l2caf.{room}")
    inside = getattr(package, "__path__", [])
    names = [module.name for module in pkgutil.walk_packages(inside, f"{package.__name__}.")]
    return [package, *map(importlib.import_module, names)]


def public_names(module: ModuleType) -> list[str]:
    """What is written in a module and is for others to use."""
    return [
        name
        for name, what in vars(module).items()
        if not name.startswith("_")
        and (inspect.isclass(what) or inspect.isroutine(what))
        and getattr(what, "__module__", None) == module.__name__
    ]


def page(room: str) -> str:
    title = f"l2caf.{room}"
    lines = [title, "=" * len(title), ""]
    for module in modules_of(room):
        if module.__name__ != title:
            lines += [module.__name__, "-" * len(module.__name__), ""]
        lines += [f".. automodule:: {module.__name__}", "   :no-members:", ""]
        for name in public_names(module):
            if getattr(l2caf, name, None) is getattr(module, name) and name in l2caf.__all__:
                lines += [f":py:obj:`{name} <l2caf.{name}>` is documented as ``l2caf.{name}``.", ""]
            else:
                what = getattr(module, name)
                kind = "autoexception" if inspect.isclass(what) and issubclass(what, BaseException) else None
                kind = kind or ("autoclass" if inspect.isclass(what) else "autofunction")
                lines += [f".. {kind}:: {module.__name__}.{name}", ""]
    return "\n".join(lines)


def write(app: Any, config: Any = None) -> None:
    folder = Path(app.srcdir) / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    pages = {f"{room}.rst": page(room) for room in l2caf._ROOMS}
    for stale in {file.name for file in folder.glob("*.rst")} - set(pages):
        (folder / stale).unlink()
    for name, text in pages.items():
        file = folder / name
        if not file.exists() or file.read_text(encoding="utf-8") != text:  # else Sphinx would read it again
            file.write_text(text, encoding="utf-8")


def setup(app: Any) -> dict[str, Any]:
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
