"""The types of events that Lens knows, and the groups of them; each type is explained in docs/logs.md."""

from __future__ import annotations

# Failures of a job.
FAILURE_EVENTS = ("training_failed", "out_of_memory", "collective_timeout", "process_terminated")
# Events that need a person's attention.
ATTENTION_EVENTS = (*FAILURE_EVENTS, "stalled")
# Events that give the state of a job; the newest counts. Reports of several ranks are one event.
STATE_EVENTS = (*ATTENTION_EVENTS, "resumed", "training_started", "training_ended")
# Events that start an attempt.
START_EVENTS = frozenset({"training_started", "resumed"})
# Events after which a silent job is no stall: it has ended, or its failure is the reason.
END_EVENTS = frozenset({*FAILURE_EVENTS, "training_ended"})
# Events that end an attempt for the diagnosis of hangs, where a collective timeout is evidence of the hang.
ATTEMPT_END_EVENTS = END_EVENTS - {"collective_timeout"}
# Findings after which a job counts as slow, until an attempt begins.
SLOW_EVENTS = frozenset({"slower", "slower_after_restart", "straggler"})
# Events whose details may hold the target iteration of the job.
GOAL_EVENTS = frozenset({"config", "training_started"})
# Events that the diagnosis of a job shows.
DIAGNOSIS_EVENTS = frozenset({*STATE_EVENTS, "checkpoint_saving", "checkpoint_saved"})
EVENT_TYPES = frozenset(
    {
        *DIAGNOSIS_EVENTS,
        *GOAL_EVENTS,
        "checkpoint_loaded",
        "evaluation",
        "step_skipped",
        "loss_not_finite",
        "epoch_started",
        "rank_report",
        "device_error",
    }
)
