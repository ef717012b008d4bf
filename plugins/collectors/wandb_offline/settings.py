"""Settings of the wandb_offline collector."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class WandbOfflineSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the wandb_offline collector.

    `paths`: directories below which `run-ID.wandb` files are looked for (a WANDB_DIR, a home, a shared disk).
    `workload`: whose rows these are; `{entity}`, `{project}` and `{run}` stand for what the file says. `online`: read
    the logs of runs that were online too; leave it off where the hook sees those. `system_metrics`: wandb's own
    measurements of the machine as metrics `wandb.system.NAME`. `bytes_at_once`: so much is read and held in memory at
    one time. `max_files`: logs that are followed.
    """

    paths: Annotated[list[str], Meta(min_length=1)]
    workload: str = "{run}"
    online: bool = False
    system_metrics: bool = False
    bytes_at_once: Annotated[int, Meta(ge=64 * 1024, le=256 * 1024 * 1024)] = 4 * 1024 * 1024
    max_files: Annotated[int, Meta(ge=1)] = 10_000
