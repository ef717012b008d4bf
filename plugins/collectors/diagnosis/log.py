"""The training log's new lines, read behind a position: rotation and truncation lose nothing, nothing comes twice."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path
from typing import ClassVar

from ..log_files import FileTail, Position
from .base import DataCollector
from .data import MAX_CONTENT_BYTES, DiagnosisDataType

logger = logging.getLogger("lens.diagnosis")

TAIL_BYTES = 256 * 1024


class LogCollector(DataCollector):
    """Reports the training log: first its end, then what is added. The file is TRAINING_LOG_FILE unless it is given."""

    data_type = DiagnosisDataType.TRAINING_LOG
    what = "log"
    interval_seconds: ClassVar[float] = 30.0

    def __init__(self, log_file_path: str | os.PathLike[str] | None = None) -> None:
        super().__init__()
        path = log_file_path or os.environ.get("TRAINING_LOG_FILE")
        self.path = Path(path) if path else None
        self._tail: FileTail | None = None
        self._is_torn = False

    def is_enabled(self) -> bool:
        """Whether there is a log file."""
        return self.path is not None and self.path.is_file()

    def collect_data(self) -> str:
        """The lines since the last call, at the first call those at the file's end; '' without any."""
        if self.path is None:
            return ""
        try:
            if self._tail is None:
                self._tail = self._at_end(self.path)
            found = self._tail.read(MAX_CONTENT_BYTES, time.time())
        except OSError as error:
            logger.warning("The training log cannot be read. file=%s error=%s", self.path, error)
            return ""
        if found is None:
            return ""
        self._tail.commit()
        lines = [piece.text for piece in found[1]]
        if self._is_torn:
            # The end of a file begins somewhere in a line.
            lines, self._is_torn = lines[1:], False
        return "\n".join(lines)

    def _at_end(self, path: Path) -> FileTail:
        status = path.stat()
        start = max(0, status.st_size - TAIL_BYTES)
        self._is_torn = start > 0
        return FileTail(path, Position(status.st_dev, status.st_ino, offset=start) if start else None)


def last_lines(path: Path, max_bytes: int = TAIL_BYTES) -> str:
    """The end of a log file, whole lines; '' when it cannot be read."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - max_bytes))
            data = file.read(max_bytes)
    except OSError as error:
        logger.warning("The training log cannot be read. file=%s error=%s", path, error)
        return ""
    if size > max_bytes:
        data = data.partition(b"\n")[2]
    return data.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
