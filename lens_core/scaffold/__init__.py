"""A third party's distribution from templates, and the linter for what people make of it."""

from __future__ import annotations

from .linting import Finding, lint
from .writing import LONGEST_NAME, Scaffold, write_distribution

__all__ = ["LONGEST_NAME", "Finding", "Scaffold", "lint", "write_distribution"]
