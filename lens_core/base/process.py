"""Sets up the process: limits of memory and files, proxies, the allocator, logging.

Memory settings of the daemon: without them the allocator returns nothing to the system between large bodies.

By default glibc returns every large block to the kernel at once and asks for it again with the next request; the page
faults of that cost more than reading the request does.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import importlib.util
import logging
import resource
import sys
from collections.abc import Mapping, MutableMapping, Sequence

from .redaction import hide

logger = logging.getLogger("lens.daemon")

# Shells and service managers give 1,024 and allow far more to who asks: that is for programs that use select().
FEW_FILES = 4096


def allow_many_files() -> int:
    """Ask for as many as the system allows this process; returns how many that is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):  # macOS allows less than it says; what there is stays
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if allowed != resource.RLIM_INFINITY and allowed < FEW_FILES:
        logger.warning("Only %d files may be open at a time, and every sender keeps one: raise `ulimit -n`.", allowed)
    return allowed


ITSELF = ("localhost", "127.0.0.1", "::1")
_PROXIES = ("http_proxy", "https_proxy", "all_proxy")


def keep_off_proxies(environ: MutableMapping[str, str], hosts: Sequence[str] = ITSELF) -> None:
    """Add hosts (`*`: all) to NO_PROXY where a proxy is set: the clients that read it would send to them through it.

    A daemon on this machine is what most commands ask, and a company's proxy knows another machine by 127.0.0.1.
    """
    if not any(environ.get(name) or environ.get(name.upper()) for name in _PROXIES):
        return
    named = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    entries = [entry.strip() for entry in named.split(",") if entry.strip()]
    kept = ",".join([*entries, *(name for name in hosts if name not in entries)])
    environ["no_proxy"] = environ["NO_PROXY"] = kept


def drop_socks_proxies(environ: MutableMapping[str, str]) -> list[str]:
    """Remove variables that name a SOCKS proxy where httpx cannot use one; their names.

    httpx raises ImportError as soon as a client is made, even one for an address that NO_PROXY names.
    """
    if importlib.util.find_spec("socksio") is not None:
        return []
    names = [variable for name in _PROXIES for variable in (name, name.upper())]
    dropped = [name for name in names if environ.get(name, "").strip().lower().startswith("socks")]
    for name in dropped:
        del environ[name]
    return dropped


# <malloc.h>
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MOST_ARENAS = -1, -3, -8
# Python's own first is 700: a single large body would be looked through many times, and records hold no cycles.
_COLLECTION_THRESHOLDS = (20_000, 20, 20)
KEPT_BYTES = 64 * 1024 * 1024
# Decoded objects are several times as large as their body; bodies of megabytes are rare.
UNUSUAL_BYTES = 2 * 1024 * 1024
# A larger block is mapped alone and goes back to the kernel when it is freed; the heap shrinks only from its end.
LARGEST_HEAP_BLOCK_BYTES = UNUSUAL_BYTES
_TRIM_AFTER_SECONDS = 0.1
# By default every thread gets an arena of its own, and each keeps as much as its largest bodies needed. One for all:
# threads wait for each other far longer at the interpreter's own lock.
ARENAS = 1


def keep_large_blocks() -> None:
    """Let up to 64 MiB of usual blocks stay with this process; does nothing where the C library has no such switch."""
    with contextlib.suppress(OSError, AttributeError):  # musl and macOS manage without
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_THRESHOLD, LARGEST_HEAP_BLOCK_BYTES)
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
        gc.collect(1)  # young objects only; the old generation may hold millions of objects
        asyncio.get_running_loop().run_in_executor(None, release_memory)


FORMAT = "%(asctime)s.%(msecs)03d %(levelname)-7s %(name)s %(message)s"
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING, "error": logging.ERROR}


class HidingFormatter(logging.Formatter):
    """Formats a record with its traceback, and hides every known secret in both."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, or the lines, of a record."""
        return hide(super().format(record))


def configure_logging(environ: Mapping[str, str]) -> None:
    """Set up logging as LOG_LEVEL says: debug, info (the default), warn or error."""
    wanted = environ.get("LOG_LEVEL", "info").strip().lower()
    level = LEVELS.get(wanted)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(HidingFormatter(FORMAT, datefmt="%Y-%m-%dT%H:%M:%S"))
    logging.basicConfig(level=level or logging.INFO, handlers=[handler])
    # Other people's libraries say at info what is of interest only while debugging.
    for name in ("httpx", "httpcore", "asyncio", "uvicorn", "psycopg", "psycopg.pool"):
        logging.getLogger(name).setLevel(max(level or logging.INFO, logging.WARNING))
    if level is None:
        logging.getLogger("lens").warning("LOG_LEVEL=%s is not one of %s; using info.", wanted, ", ".join(LEVELS))
