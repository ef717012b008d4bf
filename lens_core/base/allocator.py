"""Memory settings of the daemon: without them the allocator returns nothing to the system between large bodies.

By default glibc returns every large block to the kernel at once and asks for it again with the next request; the page
faults of that cost more than reading the request does.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc

# <malloc.h>; the largest value that glibc takes for the second is 32 MiB.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MOST_ARENAS = -1, -3, -8
# Python's own first is 700: a single large body would be looked through many times, and records hold no cycles.
_COLLECTION_THRESHOLDS = (20_000, 20, 20)
KEPT_BYTES = 64 * 1024 * 1024
LARGEST_BLOCK_BYTES = 32 * 1024 * 1024
# What is decoded from a body of so many bytes is several times as large; senders of megabytes send them rarely.
UNUSUAL_BYTES = 2 * 1024 * 1024
_TRIM_AFTER_SECONDS = 0.1
# By default every thread gets an arena of its own, and each keeps as much as its largest bodies needed. One for all:
# threads wait for each other far longer at the interpreter's own lock.
ARENAS = 1


def keep_large_blocks() -> None:
    """Let up to 64 MiB stay with this process; does nothing where the C library has no such switch."""
    with contextlib.suppress(OSError, AttributeError):  # musl and macOS manage without
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_THRESHOLD, LARGEST_BLOCK_BYTES)
        mallopt(_TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(_MOST_ARENAS, ARENAS)


def collect_rarely() -> None:
    """Have the garbage collector look less often: while plugins are imported it would take a tenth of the time."""
    gc.set_threshold(*_COLLECTION_THRESHOLDS)


def freeze_gc() -> None:
    """Exclude the present objects (modules, plugins, the configuration) from garbage collection.

    Some 80,000 objects live as long as the process does; a collection that visits them takes 30 ms, in which no
    request is answered.
    """
    gc.collect()
    gc.freeze()
    collect_rarely()


def release_memory() -> None:
    """Return the free pages of the heap to the kernel; does nothing where the C library has no such call."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


class MemoryRelease:
    """Returns memory to the kernel soon after unusually large bodies, in a thread and at most ten times a second."""

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no release is scheduled."""
        return self._timer is None

    def after_body(self, size: int) -> None:
        """Schedule a release where a body of `size` bytes, packed and unpacked, was unusual."""
        if size >= UNUSUAL_BYTES and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_TRIM_AFTER_SECONDS, self._release)

    def _release(self) -> None:
        self._timer = None
        gc.collect(1)  # what is young; the old generation may hold millions of objects
        asyncio.get_running_loop().run_in_executor(None, release_memory)
