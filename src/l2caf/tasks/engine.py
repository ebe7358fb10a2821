"""`EngineChoice`: where the work is done, here or by the workers of a cluster; a part of the requests of every door."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import InputError

if TYPE_CHECKING:
    from ..runs.executor import Executor

ENGINES = ("local", "ray")


@dataclass(frozen=True)
class EngineChoice:
    """Where blocks of pictures are done.

    engine            local, or ray
    workers           of Ray; None for as many as the cluster has room for
    address           of a running cluster; None starts one on this machine
    gpus_per_worker   of Ray
    """

    engine: str = "local"
    workers: int | None = None
    address: str | None = None
    gpus_per_worker: float = 0.0

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise InputError(f"There is no engine {self.engine!r}: take one of {', '.join(ENGINES)}.", field="engine")
        given = {
            "workers": self.workers is not None,
            "address": self.address is not None,
            "gpus_per_worker": bool(self.gpus_per_worker),
        }
        for field in (name for name, is_given in given.items() if is_given and self.engine == "local"):
            raise InputError(
                "This is said of Ray's workers, and the engine is local: take the engine ray.", field=field
            )

    def executor(self) -> Executor | None:
        """What does the blocks; None for the usual one."""
        if self.engine == "local":
            return None
        from ..runs.ray import Ray

        return Ray(self.workers, self.address, self.gpus_per_worker)
