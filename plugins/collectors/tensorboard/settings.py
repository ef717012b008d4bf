"""Settings of the tensorboard collector."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class TensorBoardSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the tensorboard collector.

    `paths`: log directories; every folder below one that holds event files is a run, named by its path from there.
    `workload`: whose rows these are; `{run}` stands for the run, `{root}` for the log directory's name. `tags`: only
    scalars whose tag matches one of these patterns (* and ?); all if left out. `samples_suffixes`: tags that end like
    one of these are over samples instead of steps (Megatron's `lm loss vs samples`) and become a run of their own.
    `bytes_at_once`: so much is read and held in memory at one time. `max_files`: event files that are followed.
    """

    paths: Annotated[list[str], Meta(min_length=1)]
    workload: str = "{run}"
    tags: list[str] = []
    samples_suffixes: list[str] = msgspec.field(default_factory=lambda: [" vs samples", "_vs_samples"])
    bytes_at_once: Annotated[int, Meta(ge=64 * 1024, le=256 * 1024 * 1024)] = 8 * 1024 * 1024
    max_files: Annotated[int, Meta(ge=1)] = 10_000
