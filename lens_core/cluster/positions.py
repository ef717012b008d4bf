"""The position of a sink in a partition, as text in the KV bucket."""

from __future__ import annotations

from typing import NamedTuple

from ..plugin_api.sink_answers import Position


class KeptPosition(NamedTuple):
    """A position, the number of the lease under which it was written, and the mark of the stream that it is in."""

    position: Position
    epoch: int
    mark: str

    def encode(self) -> str:
        """The text of it."""
        return f"{self.position.batch}.{self.position.offset}.{self.epoch}.{self.mark}"


def decode_position(text: str) -> KeptPosition:
    """The position that was encoded."""
    batch, offset, epoch, *mark = text.split(".")
    return KeptPosition(Position(int(batch), int(offset)), int(epoch), mark[0] if mark else "")


def position_in(text: str, mark: str) -> Position:
    """The position in the stream of this mark: the begin, where the position is in one that was deleted since."""
    kept = decode_position(text)
    return kept.position if kept.mark in ("", mark) else Position(0, 0)
