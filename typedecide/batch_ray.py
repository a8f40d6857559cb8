"""Spreads the answering of a batch over the machines of a Ray cluster: actors of Ray Data, an engine each.

Needs the `ray` extra. The bundle must be at the same path on every machine. Actors that die are started again, and
what they had not given back is answered again.
"""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from math import ceil
from typing import Any

from typedecide.batch import Answerer, Finished, Job, Pending
from typedecide.errors import DeviceLostError, IntegrityError, UnsupportedError

BLOCK_ROWS = 32
"""Texts that go to a worker at a time: what a killed one loses at most."""

MOST_BLOCKS = 2_000
"""More blocks than that cost more than they help: they are made larger instead."""

THREADS = 4
"""Threads of a worker where nothing is said: a small model gains little from more."""


class Worker:
    """An actor: one engine that answers blocks of texts."""

    def __init__(self, job: Job, identity: str) -> None:
        found = job.plan().identity
        if found != identity:
            raise IntegrityError(
                f"The bundle {job.bundle} on a worker is not the one here.",
                path=str(job.bundle),
                expected=identity,
                found=found,
            )
        self._job, self._engine = job, job.open()

    def __call__(self, block: Any) -> Any:
        """A block of keys and texts -> keys and entries of the journal, as JSON."""
        import pyarrow

        found = [json.dumps(self._job.answer(self._engine, text)) for text in block["text"].to_pylist()]
        return pyarrow.table({"key": block["key"], "found": found})


def on_ray(job: Job, workers: int | None) -> Answerer:
    """Answers on the cluster that RAY_ADDRESS names, or on one that is started here.

    Args:
        job: its threads are those of each worker; None divides the cluster's among the workers.
        workers: how many; None: one for each `THREADS` processors.
    """

    def answer(pending: Pending) -> Finished:
        yield from _answer(job, workers, [{"key": key, "text": text} for key, text in pending])

    return answer


def _answer(job: Job, workers: int | None, texts: list[dict[str, str]]) -> Finished:
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise UnsupportedError(
            f"{error}. --engine ray needs `pip install typedecide[ray]`.", package=error.name
        ) from error
    started = not ray.is_initialized()
    if started:
        ray.init(logging_level=logging.WARNING, log_to_driver=False)
    try:
        # It would tell of its plans in the middle of our progress.
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        processors = int(ray.cluster_resources().get("CPU", 1))
        count = workers or max(1, processors // (job.threads or THREADS))
        threads = job.threads or max(1, processors // count)
        blocks = min(ceil(len(texts) / BLOCK_ROWS), MOST_BLOCKS)
        answered = ray.data.from_items(texts, override_num_blocks=blocks).map_batches(
            Worker,
            fn_constructor_args=(replace(job, threads=threads), job.plan().identity),
            compute=ray.data.ActorPoolStrategy(size=count),
            num_cpus=threads,
            batch_size=None,
            # Not NumPy: its texts lose NUL characters at their end.
            batch_format="pyarrow",
        )
        for block in answered.iter_batches(batch_size=None, batch_format="pyarrow"):
            for key, found in zip(block["key"].to_pylist(), block["found"].to_pylist(), strict=True):
                yield key, json.loads(found)
    except ray.exceptions.RayError as error:
        reason = str(error).strip().splitlines()[-1]
        raise DeviceLostError(f"The workers failed: {reason}", cause=type(error).__name__) from error
    finally:
        if started:
            ray.shutdown()
