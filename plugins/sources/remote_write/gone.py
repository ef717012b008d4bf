"""Series that went on together, and what was found out about them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from .attaching import Attached
from .laid import Bytes, Numbers
from .templates import Template

# What is known of a series: what it is like, and what it got.
Known: TypeAlias = tuple[Template, Attached]


class Gone(NamedTuple):
    """Series that went on, as `cells`: what is known of each that has a template, and the bounds between them there."""

    series: Sequence[bytes]
    known: Sequence[Known | None]
    cells: Bytes
    bounds: Numbers
