"""Settings of the wandb_cloud collector."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from lens_core import Secret

DEFAULT_BASE_URL = "https://api.wandb.ai"

SPS_KEYS = (
    "overview/steps_per_second",
    "overview/epoch_steps_per_second",
    "overview/sps",
    "timing_cumulative/sps",
    "timing_per_epoch/sps",
)

_Positive = Annotated[float, Meta(gt=0)]


class WandbCloudSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the wandb_cloud collector.

    `entity`, `project`: whose runs; WANDB_ENTITY and WANDB_PROJECT when left out. `api_key`: WANDB_API_KEY when left
    out, else it comes from AWS. `aws_secret`: a secret of AWS (one JSON object with WANDB_API_KEY, WANDB_ENTITY and
    WANDB_PROJECT, or the key as plain text). `aws_region`: where that secret is. `base_url`: a W&B server of your own;
    WANDB_BASE_URL when left out.

    `window_hours`: what counts as recent. `main_prefixes`: names that begin like this are the push_to_main group;
    `sweep_marks`: names that contain one of these (in any case) are sweeps, as are runs of a sweep. `sps_keys`: the
    keys of the summary that become `wandb.push_to_main.KEY`, a slash as a dot. `gpus_per_run`: for runs whose GPU
    count W&B does not know; `gpus_config_key`: a key of the run's configuration that holds it (`trainer.gpus`).

    `page_size`: runs per request. `request_timeout_seconds`: for one request. `tags`: on every metric.
    `history_runs`: name patterns (* and ?) of runs whose history is fetched as rows too; `history_keys`: only these
    metrics; `history_page_size`: steps per request; `history_runs_at_once`: so many runs a time.
    """

    entity: str = ""
    project: str = ""
    api_key: Secret | None = None
    aws_secret: str = ""
    aws_region: str = ""
    base_url: str = ""
    window_hours: _Positive = 24.0
    main_prefixes: list[str] = msgspec.field(default_factory=lambda: ["github.sky."])
    sweep_marks: list[str] = msgspec.field(default_factory=lambda: [".sweep"])
    sps_keys: list[str] = msgspec.field(default_factory=lambda: list(SPS_KEYS))
    gpus_per_run: Annotated[float, Meta(ge=0)] = 1.0
    gpus_config_key: str = ""
    page_size: Annotated[int, Meta(ge=1, le=1000)] = 500
    request_timeout_seconds: Annotated[int, Meta(ge=1)] = 30
    tags: dict[str, str] = {}
    history_runs: list[str] = []
    history_keys: list[str] = []
    history_page_size: Annotated[int, Meta(ge=1, le=10_000)] = 1000
    history_runs_at_once: Annotated[int, Meta(ge=1)] = 20


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """Where to ask, for what, and with which key; complete."""

    api_key: Secret
    entity: str
    project: str
    base_url: str

    @property
    def path(self) -> str:
        """The project as W&B writes it."""
        return f"{self.entity}/{self.project}"
