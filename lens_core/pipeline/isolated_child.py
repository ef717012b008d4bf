"""Shared parts of the child processes that run one collector, or one sink or source, apart from the daemon."""

from __future__ import annotations

import importlib
import logging
import os
import signal
import struct
import sys
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from ..base.process import HidingFormatter
from ..base.self_metrics import SelfMetrics
from ..plugin_api.components import Component, Context
from .isolation import Job, decode_settings

_LENGTH = struct.Struct("<Q")


def receive_job() -> tuple[Job, BinaryIO, int]:
    """Return the job, the pipe that it came through, and the descriptor for answers, which is the first argument."""
    answers = int(sys.argv[1])
    os.dup2(2, 1)  # output of libraries must not look like that of the parent
    calls = os.fdopen(os.dup(0), "rb")
    job = msgspec.msgpack.decode(read_frame(calls), type=Job)
    _configure_logging(int(job.log_level))
    return job, calls, answers


def read_frame(file: BinaryIO) -> bytes:
    """Read a message after its length. Raises EOFError at the end."""
    head = file.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    (size,) = _LENGTH.unpack(head)
    return file.read(size)


def kill_group() -> None:
    """Kill this process with all that it started, because the parent is gone or no longer waits."""
    os.killpg(os.getpgrp(), signal.SIGKILL)


def make_component(job: Job, metrics: SelfMetrics) -> Component:
    """Make the component that a job describes."""
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
        metrics=metrics,
        cluster=job.cluster,
    )
    component: Component = found(decode_settings(job.settings, found.Settings), context)
    return component


def _configure_logging(level: int) -> None:
    """Log Lens' own messages at the parent's level; those of libraries only when something is wrong."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(HidingFormatter("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(handlers=[handler])
    logging.getLogger("lens").setLevel(level)
    logging.captureWarnings(True)
    logging.getLogger("py.warnings").setLevel(logging.ERROR if level > logging.DEBUG else logging.WARNING)
