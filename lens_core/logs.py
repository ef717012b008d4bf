"""The public names for reading logs in plugins; they are defined in `lens_core.pipeline.log_records`."""

from __future__ import annotations

from .pipeline.log_records import parse_log_line, read_log

__all__ = ["parse_log_line", "read_log"]
