"""The daemon's own log: one line a message on standard error, level by LOG_LEVEL."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping

from .redaction import hide

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
        logging.getLogger("lens").warning("LOG_LEVEL=%s is not one of %s; info it is.", wanted, ", ".join(LEVELS))
