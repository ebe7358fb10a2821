"""`Ray`: blocks done by workers of a Ray cluster, or by several processes of this machine.

Each worker is an actor that builds the specification's network once, and then does the very blocks that the local loop
does. Rows come back in the order of the blocks, however they were finished, so that a run leaves the same rows. A
worker that dies is replaced, and its block done again; what was finished is on disk here, and is not lost.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ..errors import ExtraError, InputError, L2cafError, NetworkError, first_line
from .executor import Executor
from .rows import Row
from .spec import RunSpec
from .work import Block, Built

AHEAD = 2  # blocks per worker that are handed out at once, so that none waits for the next
KEPT = 8  # finished blocks per worker that wait for an earlier one, before no more are handed out
DEATHS = 3  # of the workers at one block, after which the block itself is to blame
# Ray starts workers at a lower priority, at which two of them shared one core here (measured: 0.9 of one worker's
# throughput, and 1.7 to 1.9 at the usual priority).
NICENESS = {"RAY_worker_niceness": "0", "RAY_USAGE_STATS_ENABLED": "0"}


@dataclass(frozen=True)
class Ray(Executor):
    """Workers of Ray.

    workers           how many; None for one per processor of the cluster, or per GPU where each needs one
    address           of a running cluster, such as "auto" or "ray://head:10001"; None starts one here, and ends it
    gpus_per_worker   a share of a GPU is allowed
    threads           of torch in each worker

    The network, its weights and the pictures have to be there under the same paths on every machine, and the rows and
    pictures are written here.
    """

    workers: int | None = None
    address: str | None = None
    gpus_per_worker: float = 0.0
    threads: int = 1

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise InputError(f"{self.workers} workers do nothing: give 1 or more.", field="workers")
        if self.gpus_per_worker < 0:
            raise InputError(
                f"A worker cannot have {self.gpus_per_worker:g} GPUs: give 0 or more.", field="gpus_per_worker"
            )
        if self.threads < 1:
            raise InputError(f"{self.threads} threads compute nothing: give 1 or more.", field="threads")

    def map(self, spec: RunSpec | Built, blocks: Sequence[Block]) -> Iterator[tuple[int, list[Row]]]:
        if isinstance(spec, Built):
            raise InputError(
                "A network that is in hand cannot be sent to workers: name it, as l2caf.load takes it, or run locally.",
                field="engine",
            )
        ray = _imported()
        ours = not ray.is_initialized()
        if ours:
            self._start(ray)
        pool = None
        try:
            pool = _Pool(ray, self, spec, count=min(self._count(ray), len(blocks)))
            yield from pool.rows(blocks)
        finally:
            if pool is not None:
                pool.end()
            if ours:
                ray.shutdown()

    def _start(self, ray: Any) -> None:
        # What is set for a cluster of our own is taken back: other code of this process may start one of its own.
        before = {name: os.environ.get(name) for name in NICENESS}
        os.environ.update(NICENESS)
        try:
            own: Mapping[str, Any] = {} if self.address else {"num_cpus": self.workers, "include_dashboard": False}
            ray.init(address=self.address, log_to_driver=False, configure_logging=False, **own)
        except Exception as error:  # Ray raises errors of many kinds where a cluster does not answer
            where = f"at {self.address!r}" if self.address else "on this machine"
            raise InputError(
                f"Ray did not start {where} ({first_line(error)}): check the address, or run without it.",
                field="address",
            ) from error
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value

    def _count(self, ray: Any) -> int:
        if self.workers is not None:
            return self.workers
        there = ray.cluster_resources()
        if self.gpus_per_worker:
            found = int(there.get("GPU", 0) / self.gpus_per_worker)
            if not found:
                raise InputError(
                    f"The cluster has {there.get('GPU', 0):g} GPUs, and each worker needs {self.gpus_per_worker:g}:"
                    " start it with some, or ask for none.",
                    field="gpus_per_worker",
                )
            return found
        return max(1, int(there.get("CPU", 1) / self.threads))


class _Worker:
    """What runs in the cluster: one network, and the block function of every run."""

    def __init__(self, spec: RunSpec, threads: int) -> None:
        import torch

        torch.set_num_threads(threads)
        self.built = spec.build()

    def rows(self, block: Block) -> list[Row]:
        return self.built(block)


class _Pool:
    """Workers, and the blocks that they are at."""

    def __init__(self, ray: Any, settings: Ray, spec: RunSpec, *, count: int) -> None:
        self.ray = ray
        self.settings = settings
        self.spec = spec
        self.workers = [self._worker() for _ in range(count)]
        self.at: dict[Any, tuple[int, int]] = {}  # what a worker will return: the worker's place, and the block's
        self.deaths: dict[int, int] = {}

    def rows(self, blocks: Sequence[Block]) -> Iterator[tuple[int, list[Row]]]:
        """Yield the rows of each block in their order."""
        waiting = deque(range(len(blocks)))  # in order, so that a block that is wanted next stands first
        done: dict[int, list[Row]] = {}
        wanted = 0
        while wanted < len(blocks):
            self._feed(blocks, waiting, wanted, held=len(done))
            (reference,), _ = self.ray.wait(list(self.at), num_returns=1)
            place, number = self.at.pop(reference)
            rows = self._result(reference, number, blocks[number])
            if rows is None:  # whatever the dead worker was at is done again
                waiting.extendleft(sorted([number, *self._lost(place)], reverse=True))
                self.workers[place] = self._worker()
            else:
                done[number] = rows
            while wanted in done:
                yield blocks[wanted].number, done.pop(wanted)
                wanted += 1

    def end(self) -> None:
        """Let the workers go."""
        for worker in self.workers:
            with suppress(Exception):  # one that is dead already
                self.ray.kill(worker)

    def _worker(self) -> Any:
        options = {"num_cpus": self.settings.threads, "num_gpus": self.settings.gpus_per_worker}
        return self.ray.remote(_Worker).options(**options).remote(self.spec, self.settings.threads)

    def _feed(self, blocks: Sequence[Block], waiting: deque[int], wanted: int, *, held: int) -> None:
        """Hand out blocks to those with little to do; a slow block holds back what others finished, up to a limit."""
        most = KEPT * len(self.workers)
        for place in [place for _ in range(AHEAD) for place in range(len(self.workers))]:
            busy = sum(where == place for where, _ in self.at.values())
            if waiting and busy < AHEAD and (held < most or waiting[0] == wanted):
                number = waiting.popleft()
                self.at[self.workers[place].rows.remote(blocks[number])] = (place, number)

    def _lost(self, place: int) -> list[int]:
        """The other blocks that a dead worker was at."""
        lost = {reference: number for reference, (where, number) in self.at.items() if where == place}
        for reference in lost:
            del self.at[reference]
        return list(lost.values())

    def _result(self, reference: Any, number: int, block: Block) -> list[Row] | None:
        """The rows of a block, or None where its worker died; an error of ours is raised as such."""
        try:
            found: list[Row] = self.ray.get(reference)
            return found
        except self.ray.exceptions.RayTaskError as error:
            cause = error.cause
            raise (
                cause
                if isinstance(cause, L2cafError)
                else NetworkError(
                    f"A worker failed at the pictures from {block.samples[0].name} on ({first_line(cause or error)})."
                )
            ) from error
        except self.ray.exceptions.RayError as error:
            self.deaths[number] = self.deaths.get(number, 0) + 1
            if self.deaths[number] >= DEATHS:
                raise NetworkError(
                    f"Workers died {DEATHS} times at the pictures from {block.samples[0].name} on"
                    f" ({first_line(error)}): take fewer workers or smaller batches if memory ran out."
                ) from error
            return None


def _imported() -> Any:
    try:
        import ray
    except ImportError as error:
        raise ExtraError("Running on several machines needs Ray: pip install 'ray[data]'.") from error
    return ray
