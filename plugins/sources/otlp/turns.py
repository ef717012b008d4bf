"""The length of a request's work: others get a turn in between, and a request of nothing but parts is refused."""

from __future__ import annotations

from collections.abc import Sized

from lens_core import BadRequest

AT_A_TIME = 2000
# Empty messages take two bytes each: megabytes of them would be many seconds of work.
MAX_PARTS = 2_000_000


class Turns:
    """Counts the parts of one request: resources, scopes, metrics, points, records and spans."""

    def __init__(self) -> None:
        self._announced = 0
        self._done = 0

    def announce(self, parts: Sized) -> None:
        """Count parts that are about to be worked on. Raises BadRequest when they are too many."""
        self._announced += len(parts)
        if self._announced > MAX_PARTS:
            raise BadRequest(f"the request has more than {MAX_PARTS:,} parts; send smaller batches")

    def is_over(self, parts: int = 1) -> bool:
        """Count parts that are done; whether others should get a turn."""
        self._done += parts
        if self._done < AT_A_TIME:
            return False
        self._done = 0
        return True
