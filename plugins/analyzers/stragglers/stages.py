"""Pipeline stages of ranks, by the run's configuration: Megatron and those like it number stages last."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..configuration import numbers_in_configuration

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
    counts = numbers_in_configuration(evidence, _NAMES)
    count = next((int(found) for found in counts if found > 0 and found == int(found)), 1)
    if world_size is None or not 1 < count <= min(world_size, _MOST_STAGES) or world_size % count:
        return {}
    each = world_size // count
    return {rank: rank // each for rank in ranks if rank < world_size}
