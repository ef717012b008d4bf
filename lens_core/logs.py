"""Public names for plugins that read logs: whole logs as the daemon reads them, lines of a file, patterns of users."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .detection.log_lines.limited import TIME_LIMIT_SECONDS, required_words, why_not
from .detection.log_lines.text import PARTIAL, printed_time, split_container_prefix
from .model.records import LogLine, Record
from .plugin_api.components import Detector

__all__ = [
    "PARTIAL",
    "TIME_LIMIT_SECONDS",
    "parse_log_line",
    "read_log",
    "required_words",
    "split_container_prefix",
    "why_not",
]


def read_log(lines: Iterable[LogLine], more: Iterable[type[Detector]] = ()) -> Iterator[Record]:
    """The rows, events and detections that the installed detectors, and `more`, make of lines, in their order.

    Lines are given one by one, so that a step which is written twice is two rows, each with its own time.
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
    processor = DetectorProcessor(detectors, SelfMetrics(), clock=lambda: moment)
    for line in lines:
        moment = line.event_time if line.event_time is not None else moment
        yield from (record for record in processor.process([line]).records if not isinstance(record, LogLine))


def parse_log_line(text: str) -> LogLine:
    """A line of a file as a record: without its container's prefix, with the time that it carries, None without one.

    The time is the prefix's, else the first that is printed; one without a zone is this machine's own.
    """
    message, moment, is_part = split_container_prefix(text.rstrip("\r\n"))
    moment = moment if moment is not None else printed_time(message, local=True)
    return LogLine(text=message, event_time=moment, source=PARTIAL if is_part else "log")
