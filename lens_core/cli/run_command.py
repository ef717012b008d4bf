"""Runs the command of `lens run --log`: signals, output and the exit code stay what they are."""

from __future__ import annotations

import errno
import os
import re
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import BinaryIO, TextIO

from .run_log import LineSender
from .wording import print_notice

_PIECE_BYTES = 64 * 1024
_MAX_LINE_BYTES = 1 << 20
_ENDS = re.compile(rb"[\r\n]+")
# Signals of schedulers and of `kill`; a terminal sends its own to the command, too.
_FORWARDED = {signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2}
_SENT_BY_THE_KERNEL = 0x80  # SI_KERNEL
_POLL_SECONDS = 1.0


def run_and_log(command: Sequence[str], environment: Mapping[str, str], sender: LineSender) -> int:
    """Run a command, pass its output on and send it; the exit code as a shell would have it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*_FORWARDED, signal.SIGCHLD})
    try:
        process = subprocess.Popen(
            command,
            env=dict(environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, before),
        )
        assert process.stdout is not None
        assert process.stderr is not None
        sender.start()
        readers = [
            threading.Thread(target=_pass_through, args=(process.stdout, Output(sys.stdout), "stdout", sender)),
            threading.Thread(target=_pass_through, args=(process.stderr, Output(sys.stderr), "stderr", sender)),
        ]
        for reader in readers:
            reader.start()
        code = _wait_and_forward(process)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    for reader in readers:
        reader.join()
    sender.stop()
    if sender.dropped:
        why = f": {sender.problem}" if sender.problem else ""
        print_notice(f"lens: {sender.dropped} lines of output were not sent{why}")
    problem = sender.append_end(code)
    if problem:
        print_notice(f"lens: the end of the command was not reported: {problem}")
    return 128 - code if code < 0 else code


def _wait_and_forward(process: subprocess.Popen[bytes]) -> int:
    """The exit code of the command, negative for a signal; signals for us go on to it until it ends."""
    while (code := process.poll()) is None:
        received = signal.sigtimedwait({*_FORWARDED, signal.SIGCHLD}, _POLL_SECONDS)
        if received and received.si_signo != signal.SIGCHLD and received.si_code != _SENT_BY_THE_KERNEL:
            process.send_signal(received.si_signo)
    while signal.sigtimedwait(_FORWARDED, 0):
        pass  # they were for the command, which ended first
    return code


class Output:
    """Standard output or error of ours, which takes what the command prints; it may be closed, or become it."""

    def __init__(self, stream: TextIO | None) -> None:
        self._descriptor = None if stream is None else stream.fileno()
        self._is_full_told = False

    def write_piece(self, piece: bytes) -> None:
        """Write all of it, or drop it: the command must not wait for a pipe that nobody empties."""
        left = memoryview(piece)
        while left and self._descriptor is not None:
            try:
                left = left[os.write(self._descriptor, left) :]
            except BlockingIOError:  # another process made the terminal non-blocking
                select.select([], [self._descriptor], [])
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT):  # there may be room again later
                    if not self._is_full_told:
                        print_notice(f"lens: output is sent to Lens, but not written: {error.strerror}")
                    self._is_full_told = True
                    return
                self._descriptor = None  # nobody reads any more, as with `lens run ... | head`


def _pass_through(source: BinaryIO, target: Output, stream: str, sender: LineSender) -> None:
    """Copy piece by piece, so that a progress bar moves as it did; send what ends with a line feed or a return."""
    rest = b""
    while piece := os.read(source.fileno(), _PIECE_BYTES):
        target.write_piece(piece)
        *lines, rest = _ENDS.split(rest + piece)
        if len(rest) > _MAX_LINE_BYTES:
            lines, rest = [*lines, rest], b""
        for line in lines:
            if line:
                sender.append_line(stream, line.decode("utf-8", "replace"))
    if rest:
        sender.append_line(stream, rest.decode("utf-8", "replace"))
    source.close()
