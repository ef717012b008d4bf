"""The daemons of the end-to-end tests are made here too."""

from __future__ import annotations

from tests.end_to_end.conftest import make_lens

__all__ = ["make_lens"]
