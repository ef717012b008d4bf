"""The types of events that Lens knows; each is explained in docs/logs.md."""

from __future__ import annotations

EVENT_TYPES = frozenset(
    {
        "training_started",
        "training_ended",
        "training_failed",
        "out_of_memory",
        "collective_timeout",
        "process_terminated",
        "stalled",
        "resumed",
        "checkpoint_saving",
        "checkpoint_saved",
        "checkpoint_loaded",
        "step_skipped",
        "loss_not_finite",
        "epoch_started",
        "config",
    }
)
