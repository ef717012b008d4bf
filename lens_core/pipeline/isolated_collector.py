"""The child process of `isolation.py`: one run of one collector, then the end."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import signal
import struct
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from ..base.errors import ConfigurationError, LensError
from ..base.process import HidingFormatter
from ..base.redaction import hide
from ..base.self_metrics import SelfMetrics
from ..model.records import Record, encode_envelope
from ..plugin_api.components import Collector, Context, Partial
from .isolation import Job, Outcome, decode_settings, framed


def run_job() -> None:
    """Read the job, run it, write the outcome to the descriptor that the first argument names."""
    answers = int(sys.argv[1])
    # What libraries print must not look like the output of whoever called the parent.
    os.dup2(2, 1)
    jobs = os.fdopen(os.dup(0), "rb")
    job = msgspec.msgpack.decode(_read_job(jobs), type=Job)
    threading.Thread(target=_die_with_parent, args=(jobs,), daemon=True).start()
    configure_logging(int(job.log_level))
    outcome = _outcome(job)
    with os.fdopen(answers, "wb") as file:
        file.write(framed(msgspec.msgpack.encode(outcome)))


def configure_logging(level: int) -> None:
    """Our own messages as the parent wants them; what libraries have to say only when something is wrong."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(HidingFormatter("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(handlers=[handler])
    logging.getLogger("lens").setLevel(level)
    logging.captureWarnings(True)
    logging.getLogger("py.warnings").setLevel(logging.ERROR if level > logging.DEBUG else logging.WARNING)


def _read_job(file: BinaryIO) -> bytes:
    (size,) = struct.unpack("<Q", file.read(8))
    return file.read(size)


def _die_with_parent(jobs: BinaryIO) -> None:
    """The parent closes its end when it no longer waits, or when it is gone."""
    jobs.read(1)
    os.killpg(os.getpgrp(), signal.SIGKILL)


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
    collector = _make_collector(job)
    await collector.start()
    try:
        return await collector.collect()
    finally:
        await collector.stop()


def _make_collector(job: Job) -> Collector:
    for path in job.search_path:
        if path not in sys.path:
            sys.path.append(path)
    found: Any = importlib.import_module(job.module)
    for part in job.qualname.split("."):
        found = getattr(found, part)
    context = Context(
        name=job.name,
        logger=logging.getLogger(f"lens.{found.name}.{job.name}"),
        data_dir=Path(job.data_dir),
        metrics=SelfMetrics(),
        cluster=job.cluster,
    )
    collector: Collector = found(decode_settings(job.settings, found.Settings), context)
    return collector


if __name__ == "__main__":
    run_job()
