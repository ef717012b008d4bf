"""The headline loss has two names: wandb users call it `loss`, log lines `lm_loss`; either finds the other."""

from __future__ import annotations

import msgspec

from ..model.queries import PointQuery
from ..plugin_api.store import Store

LOSSES = ("loss", "lm_loss")


async def with_headline_loss(store: Store, query: PointQuery) -> PointQuery:
    """The query, which asks for the other name of the loss where the workload has no metric of the asked one."""
    asked = [name for name in query.metrics or () if name in LOSSES]
    if len(asked) != 1:
        return query
    other = LOSSES[1 - LOSSES.index(asked[0])]
    names = {info.name for info in await store.available_metrics(query.workload_uid, query.data_source)}
    if asked[0] in names or other not in names:
        return query
    metrics = tuple(other if name == asked[0] else name for name in query.metrics or ())
    return msgspec.structs.replace(query, metrics=metrics)
