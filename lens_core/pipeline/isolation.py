"""A collector's run in a process of its own, which is killed with everything it started when its time is up.

The job goes to the child through its standard input (secrets included: nobody else can read a pipe), the answer comes
back through a pipe that only these two know, so that a library which prints cannot damage it. Standard input stays
open as long as somebody waits for the answer: when it ends, the child kills its group, so that a daemon that was
killed leaves nothing behind. Both messages are MessagePack after a length of 8 bytes, little endian.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import struct
import sys
from typing import Any

import msgspec
import psutil

from ..base.errors import ConfigurationError, LensError
from ..base.setting_types import from_text, to_text
from ..model.records import decode_envelope
from ..plugin_api.components import Collector, Component, Partial

MAX_ANSWER_BYTES = 256 * 1024 * 1024
_LENGTH = struct.Struct("<Q")
_END_SECONDS = 5.0


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """The task of the child: a class by module and qualified name, its settings, and its context."""

    module: str
    qualname: str
    settings: msgspec.Raw
    name: str
    data_dir: str
    cluster: str
    search_path: list[str]
    log_level: str = "INFO"


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of the child: an envelope of records, or what went wrong (`configuration`: a person must fix it)."""

    envelope: bytes = b""
    rejected: dict[str, int] = {}
    problem: str = ""
    error: str = ""
    configuration: bool = False


async def run_isolated(collector: Collector, timeout_seconds: float) -> tuple[Partial, list[str]]:
    """One run in a child process: what it found, and why records could not be read.

    Raises TimeoutError when the time is up, ConfigurationError and LensError as the collector did; nothing of the run
    is alive afterwards, however it ends.
    """
    process, read_end = await spawn("lens_core.pipeline.isolated_collector")
    answer = None
    try:
        answer = await asyncio.wait_for(
            _converse(process, read_end, msgspec.msgpack.encode(job_of(collector))), timeout_seconds
        )
    finally:
        await end_process(process, grace_seconds=0.0 if answer is None else _END_SECONDS)
    outcome = msgspec.msgpack.decode(answer, type=Outcome)
    if outcome.error:
        raise ConfigurationError(outcome.error) if outcome.configuration else LensError(outcome.error)
    decoded = decode_envelope(outcome.envelope)
    partial = Partial(records=decoded.records, rejected=outcome.rejected, problem=outcome.problem)
    return partial, [reason for _, reason in decoded.rejected]


async def spawn(module: str) -> tuple[asyncio.subprocess.Process, int]:
    """Start a module as a child process that is told the descriptor of its answers; return it and our end of them."""
    read_end, write_end = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            module,
            str(write_end),
            stdin=asyncio.subprocess.PIPE,
            pass_fds=(write_end,),
            start_new_session=True,
        )
    except BaseException:
        os.close(read_end)
        raise
    finally:
        os.close(write_end)
    return process, read_end


def job_of(component: Component) -> Job:
    """Describe a component for the child that makes another of it."""
    context = component.context
    return Job(
        module=type(component).__module__,
        qualname=type(component).__qualname__,
        settings=msgspec.Raw(msgspec.msgpack.encode(component.settings, enc_hook=to_text)),
        name=context.name,
        data_dir=str(context.data_dir),
        cluster=context.cluster,
        search_path=[path for path in sys.path if path],
        log_level=str(context.logger.getEffectiveLevel()),
    )


def decode_settings(settings: bytes | msgspec.Raw, kind: type[msgspec.Struct]) -> Any:
    """Settings from a job, secrets as secrets again."""
    return msgspec.msgpack.decode(settings, type=kind, dec_hook=from_text)


def framed(message: bytes) -> bytes:
    """A message after its length."""
    return _LENGTH.pack(len(message)) + message


async def _converse(process: asyncio.subprocess.Process, read_end: int, job: bytes) -> bytes:
    """Hand over the job and read the answer; raises LensError when the child ends without one."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read_end, "rb", buffering=0)
    )
    try:
        assert process.stdin is not None
        # A child that ended before it read its job says so by the end of the other pipe.
        with contextlib.suppress(ConnectionError):
            process.stdin.write(framed(job))
            await process.stdin.drain()
        (size,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        if size > MAX_ANSWER_BYTES:
            raise LensError(f"collected {size} bytes at once; at most {MAX_ANSWER_BYTES} are taken")
        return await reader.readexactly(size)
    except asyncio.IncompleteReadError:
        code = await process.wait()
        ended = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        raise LensError(f"its process {ended} before it answered") from None
    finally:
        transport.close()


async def end_process(process: asyncio.subprocess.Process, grace_seconds: float) -> None:
    """Give a child that has answered time to end by itself; kill what is left, also outside of its group."""
    with contextlib.suppress(asyncio.TimeoutError, TimeoutError):
        await asyncio.wait_for(process.wait(), grace_seconds)
    family = _family(process.pid)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    for member in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            member.kill()
    await process.wait()
    if process.stdin is not None:
        process.stdin.close()


def _family(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
