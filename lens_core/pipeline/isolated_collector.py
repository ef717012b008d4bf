"""The child process of `isolation.py`: one run of one collector, then the end."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Sequence
from typing import BinaryIO

import msgspec

from ..base.errors import ConfigurationError, LensError
from ..base.redaction import hide
from ..base.self_metrics import SelfMetrics
from ..model.records import Record, encode_envelope
from ..plugin_api.components import Collector, Partial
from .isolated_child import kill_group, make_component, receive_job
from .isolation import Job, Outcome, framed


def run_job() -> None:
    """Read the job, run it, write the outcome to the descriptor that the first argument names."""
    job, jobs, answers = receive_job()
    threading.Thread(target=_die_with_parent, args=(jobs,), daemon=True).start()
    outcome = _outcome(job)
    with os.fdopen(answers, "wb") as file:
        file.write(framed(msgspec.msgpack.encode(outcome)))


def _die_with_parent(jobs: BinaryIO) -> None:
    """Wait until the parent closes its end."""
    jobs.read(1)
    kill_group()


def _outcome(job: Job) -> Outcome:
    try:
        found = asyncio.run(_collect_records(job))
        if not isinstance(found, Partial):
            return Outcome(envelope=encode_envelope(found))
        return Outcome(
            envelope=encode_envelope(found.records), rejected=dict(found.rejected), problem=hide(found.problem)
        )
    except ConfigurationError as error:
        return Outcome(error=hide(str(error)), configuration=True)
    except LensError as error:
        return Outcome(error=hide(str(error)) or type(error).__name__)
    except BaseException as error:  # a library may call sys.exit; the parent says what went wrong
        logging.getLogger("lens.collecting").debug("The collector raised.", exc_info=True)
        return Outcome(error=hide(f"{type(error).__name__}: {' '.join(str(error).split())}")[:1000])


async def _collect_records(job: Job) -> Sequence[Record] | Partial:
    collector = make_component(job, SelfMetrics())
    assert isinstance(collector, Collector)
    await collector.start()
    try:
        return await collector.collect()
    finally:
        await collector.stop()


if __name__ == "__main__":
    run_job()
