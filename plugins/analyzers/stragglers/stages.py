"""Pipeline stages of ranks, by the run's configuration: Megatron and those like it number stages last."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

# The names that frameworks give to the number of pipeline stages.
_NAMES = (
    "pipeline_model_parallel_size",
    "pipeline_parallel_size",
    "pipeline_parallel_degree",
    "pipe_parallel_size",
    "pp_size",
)
_MOST_STAGES = 1024


def stages_of(evidence: Iterable[Mapping[str, Any]], ranks: Sequence[int], world_size: int | None) -> dict[int, int]:
    """The stage of each rank; empty where the number of stages, or of ranks, is not known.

    All ranks of a stage are neighbours: tensor and data parallel ranks vary faster.
    """
    count = next((found for one in evidence for found in _counts(one.get("facts"))), 1)
    if world_size is None or not 1 < count <= min(world_size, _MOST_STAGES) or world_size % count:
        return {}
    each = world_size // count
    return {rank: rank // each for rank in ranks if rank < world_size}


def _counts(facts: Any) -> Iterable[int]:
    if not isinstance(facts, Mapping):
        return
    for place in (facts, facts.get("wandb")):
        config = place.get("config") if isinstance(place, Mapping) else None
        if isinstance(config, Mapping):
            yield from (value for name in _NAMES if isinstance(value := config.get(name), int) and value > 0)
