"""For tests of plugins: a host of given classes, a context, and contract checks that any plugin can be run through."""

from __future__ import annotations

from .hosts import host_of, make_context

__all__ = ["host_of", "make_context"]
