"""What is remembered of a label set."""

from __future__ import annotations

import msgspec

from lens_core.base.protobuf import varint

from .attaching import NO_POD
from .finding import Keys
from .samples import VALUE_TAGS

_HEADS = [b"\x0a" + varint(size) for size in range(4096)]


class Entry(msgspec.Struct, gc=False, kw_only=True):
    """What becomes of one label set, right for one epoch of the directory.

    `came` are its labels as they came, and the tags that stand before the value of a single sample; `goes` the same
    as they go on (None: only copies do), `copies` the labels of further series. `head` is the tag and length of a
    series that has these labels and one sample with a value. `below`: a single sample is passed on without a closer
    look if the highest byte of its value is below this (0: never; 0x80: unless it is negative; 0x100: always).
    `unattached` is 1 if no pod was found; `negative`: negative samples are dropped; `reason`: why it goes nowhere, if
    that is so. `next` is what came after it the last time. A hundred thousand of them are no work for the garbage
    collector; so whoever drops one must cut `next`, there may be circles.
    """

    came: bytes
    epoch: int = 0
    goes: bytes | None = None
    head: bytes = b""
    below: int = 0
    unattached: int = 1
    negative: bool = False
    copies: tuple[bytes, ...] = ()
    reason: str = ""
    keys: Keys = ()
    pod: int = NO_POD
    next: Entry | None = None

    @property
    def block(self) -> bytes:
        """The labels as they came."""
        return self.came[: -len(VALUE_TAGS)]

    @property
    def prefix(self) -> bytes | None:
        """The labels as they go on."""
        return None if self.goes is None else self.goes[: -len(VALUE_TAGS)]

    @property
    def prefixes(self) -> tuple[bytes, ...]:
        """The labels of all that goes on."""
        return self.copies if self.prefix is None else (self.prefix, *self.copies)


def head_of(size: int) -> bytes:
    """Tag and length of a series in a request."""
    return _HEADS[size] if size < len(_HEADS) else b"\x0a" + varint(size)
