"""Links to trackers' own pages of a workload's runs, out of its evidence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

MOST_LINKS = 5
_LONGEST = 2000


class TrackerLink(msgspec.Struct, frozen=True):
    """A run's page in a tracker."""

    tracker: str
    name: str
    url: str


def tracker_links(evidence: Iterable[Mapping[str, Any]]) -> list[TrackerLink]:
    """Return the links of the newest runs, one for each run; only those to web pages."""
    found: dict[str, TrackerLink] = {}
    for item in sorted(evidence, key=lambda one: float(one.get("timestamp") or 0.0), reverse=True):
        facts = item.get("facts")
        for key in ("wandb", "tracker"):
            known = facts.get(key) if isinstance(facts, Mapping) else None
            url = known.get("url") if isinstance(known, Mapping) else None
            if isinstance(known, Mapping) and isinstance(url, str) and _is_page(url) and len(found) < MOST_LINKS:
                name = str(known.get("name") or known.get("id") or "")
                found.setdefault(url, TrackerLink(str(known.get("tracker") or key), name, url))
    return list(found.values())


def _is_page(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return len(url) <= _LONGEST and parts.scheme in ("http", "https") and bool(parts.netloc)
