"""Public names for plugins that read logs: whole logs as the daemon reads them, lines of a file, patterns of users."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from itertools import chain

from .detection.log_lines.limited import TIME_LIMIT_SECONDS, required_words, why_not
from .detection.log_lines.text import PARTIAL, printed_time, split_container_prefix
from .model.records import LogLine, Record
from .plugin_api.components import Detector

__all__ = [
    "PARTIAL",
    "TIME_LIMIT_SECONDS",
    "decode_lines",
    "parse_log_line",
    "read_log",
    "required_words",
    "split_container_prefix",
    "why_not",
]

_MARK = "\ufeff"
_HEAD_BYTES = 400
_LEAST_ZEROS = 4
_ZERO_SHARE = 0.8


def read_log(
    lines: Iterable[LogLine], more: Iterable[type[Detector]] = (), *, repeats_ends: bool = False
) -> Iterator[Record]:
    """The rows, events and detections that the installed detectors, and `more`, make of lines, in their order.

    Lines are given one by one, so that a step which is written twice is two rows, each with its own time. A failure
    that several ranks tell of is one event; with `repeats_ends` it is one for each line that does (since 1.3).
    """
    # Only here: a detector imports the names above while the host that is imported here loads it.
    from .base.self_metrics import SelfMetrics
    from .config.loading import load_config
    from .detection.detectors import make_detectors
    from .detection.log_lines.processor import DetectorProcessor
    from .plugin_api.instance import ComponentConfig
    from .plugin_host.host import PluginHost

    moment = 0.0
    config = load_config(None, PluginHost.load())
    own = {found.name: ComponentConfig(name=found.name, plugin=found, type=found.name, settings=None) for found in more}
    detectors = make_detectors({**config.detectors, **own})
    processor = DetectorProcessor(detectors, SelfMetrics(), clock=lambda: moment, repeats_ends=repeats_ends)
    for line in lines:
        moment = line.event_time if line.event_time is not None else moment
        yield from (record for record in processor.process([line]).records if not isinstance(record, LogLine))


def decode_lines(lines: Iterable[bytes]) -> Iterator[str]:
    """The lines of a file as text: UTF-8, or UTF-16 (what Windows writes) if its first line is. Since 1.3.

    Bytes that are none of it become replacement characters; byte order marks are left out.
    """
    pieces = iter(lines)
    first = next(pieces, b"")
    encoding = _encoding_of(first)
    if encoding == "utf-8":
        for line in chain([first] if first else [], pieces):
            yield line.decode("utf-8", "replace").lstrip(_MARK)
        return
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    rest = ""
    for piece in chain([first], pieces):  # cut at each byte of a line's end: also in the middle of a character
        *whole, rest = (rest + decoder.decode(piece)).split("\n")
        yield from (f"{line}\n".lstrip(_MARK) for line in whole)
    rest += decoder.decode(b"", final=True)
    if rest:
        yield rest.lstrip(_MARK)


def _encoding_of(first: bytes) -> str:
    """The encoding that a file's first line shows: by every second byte being zero, a few with a byte order mark."""
    for mark, encoding, zero in ((codecs.BOM_UTF16_LE, "utf-16-le", 1), (codecs.BOM_UTF16_BE, "utf-16-be", 0)):
        head = first[:_HEAD_BYTES].removeprefix(mark)
        pairs = len(head) // 2
        zeros, others = head[zero::2].count(0), head[1 - zero :: 2].count(0)
        least = 1 if first.startswith(mark) else max(_LEAST_ZEROS, _ZERO_SHARE * pairs)
        if zeros >= least and zeros > others:
            return encoding
    return "utf-8"


def parse_log_line(text: str) -> LogLine:
    """A line of a file as a record: without its container's prefix, with the time that it carries, None without one.

    The time is the prefix's, else the first that is printed; one without a zone is this machine's own.
    """
    message, moment, is_part = split_container_prefix(text.rstrip("\r\n"))
    moment = moment if moment is not None else printed_time(message, local=True)
    return LogLine(text=message, event_time=moment, source=PARTIAL if is_part else "log")
