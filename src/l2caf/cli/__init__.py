"""The command line: a thin door to `l2caf.tasks`."""

from __future__ import annotations


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code; what it needs is imported only now."""
    from .app import run

    return run(arguments)
