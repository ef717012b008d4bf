"""Runs Google's calculator over entries of its recorder, in an environment of its own: entries in, its figures out.

It is run by path, with the peer's packages and nothing of Lens. The calculator reads its entries from a logger that can
be given; this one holds them in memory.
"""

from __future__ import annotations

import datetime
import json
import sys
import time
from typing import Any

from ml_goodput_measurement.src import goodput  # type: ignore[import-not-found]


class Entries:
    """The logger from which the calculator reads."""

    def __init__(self, entries: list[dict[str, Any]]) -> None:
        self.job_start_time = None
        self._entries = entries

    def read_cloud_logging_entries(self, *_: Any, **__: Any) -> tuple[list[dict[str, Any]], Any]:
        """All entries, and what identifies the last."""
        return self._entries, (datetime.datetime.now(datetime.timezone.utc), "last")


def main() -> None:
    """Read entries as JSON, and print goodput, badput by kind and the seconds that it took."""
    entries = json.load(sys.stdin)
    began = time.perf_counter()
    calculator = goodput.GoodputCalculator("job", "log", cloud_logger=Entries(entries), cache_dir=sys.argv[1])
    share, badput, step = calculator.get_job_goodput(include_badput_breakdown=True)
    took = time.perf_counter() - began
    parts = {str(kind): str(part) for kind, part in badput.items()}
    print(json.dumps({"goodput": share, "badput": parts, "step": step, "seconds": took}))


if __name__ == "__main__":
    main()
