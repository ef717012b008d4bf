"""Settings of the host collector."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class HostSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the host collector.

    `node`: the machine's name; NODE_NAME or the host name when left out. `tags`: on every metric. `disks`, `network`,
    `gpus`, `processes`: what is looked at besides processors and memory. `interfaces`, `mounts`: only those that match
    one of these patterns (* and ?). `max_processes`: of the training processes (those with RANK and WORLD_SIZE in
    their environment, and those that use a GPU) at most so many.
    """

    node: str = ""
    tags: dict[str, str] = {}
    disks: bool = True
    network: bool = True
    gpus: bool = True
    processes: bool = True
    interfaces: list[str] = msgspec.field(default_factory=lambda: ["*"])
    mounts: list[str] = msgspec.field(default_factory=lambda: ["*"])
    max_processes: Annotated[int, Meta(ge=0)] = 64
