"""The headline loss has several names: wandb users call it `loss`, log lines `lm_loss`, the Trainer `train/loss`."""

from __future__ import annotations

import msgspec

from ..model.queries import PointQuery
from ..plugin_api.store import Store

LOSSES = ("loss", "lm_loss", "train/loss", "train_loss")


async def with_headline_loss(store: Store, query: PointQuery) -> PointQuery:
    """The query, which asks for another name of the loss where the workload has no metric of the asked one."""
    asked = [name for name in query.metrics or () if name in LOSSES]
    if len(asked) != 1:
        return query
    names = {info.name for info in await store.available_metrics(query.workload_uid, query.data_source)}
    other = next((name for name in LOSSES if name in names), "")
    if asked[0] in names or not other:
        return query
    metrics = tuple(other if name == asked[0] else name for name in query.metrics or ())
    return msgspec.structs.replace(query, metrics=metrics)
