"""The daemon's own log: one line a message on standard error, level by LOG_LEVEL."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING, "error": logging.ERROR}


def configure_logging(environ: Mapping[str, str]) -> None:
    """Set up logging as LOG_LEVEL says: debug, info (the default), warn or error."""
    wanted = environ.get("LOG_LEVEL", "info").strip().lower()
    level = LEVELS.get(wanted)
    logging.basicConfig(
        stream=sys.stderr,
        level=level or logging.INFO,
        format="%(asctime)s.%(msecs)03d %(levelname)-7s %(name)s %(message)s",
        datefmt="%Y-%m-%dT%H:%M:%S",
    )
    # Other people's libraries say at info what is of interest only while debugging.
    for name in ("httpx", "httpcore", "asyncio", "uvicorn", "psycopg", "psycopg.pool"):
        logging.getLogger(name).setLevel(max(level or logging.INFO, logging.WARNING))
    if level is None:
        logging.getLogger("lens").warning("LOG_LEVEL=%s is not one of %s; info it is.", wanted, ", ".join(LEVELS))
