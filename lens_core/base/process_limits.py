"""The limit of open files: each connection needs one, and each rank of a training job keeps a connection open."""

from __future__ import annotations

import contextlib
import logging
import resource

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
