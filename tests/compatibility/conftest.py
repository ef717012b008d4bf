"""The old tests run where the old wheels are installed, not here."""

from __future__ import annotations

collect_ignore = ["wheels_1_0"]
