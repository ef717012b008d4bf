"""Removal of a deleted workload or run from everything before the store: spools, dead letters, detectors, directory."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from ..delivery.erasure import Erasure, PodName, pods_told
from ..directory.directory import Directory
from .assembly import Assembly

# A sink that does not answer holds a deletion up; the client may ask again.
SETTLE_SECONDS = 20.0


async def erase_workload(assembly: Assembly, directory: Directory, uid: str, run_id: str | None) -> Mapping[str, int]:
    """Remove what waits of a workload, or of one of its runs; returns how much that was. Raises Unavailable."""
    erasure = await _find(assembly, directory, uid, run_id)
    if run_id is None:
        directory.forget_workload(uid)
    erased = await asyncio.gather(
        *(pipeline.erase_records(erasure, SETTLE_SECONDS, assembly.store) for pipeline in assembly.pipelines)
    )
    return {
        "waiting_removed": sum(one.waiting for one in erased),
        "dead_letters_removed": sum(one.dead_letters for one in erased),
    }


async def _find(assembly: Assembly, directory: Directory, uid: str, run_id: str | None) -> Erasure:
    """Name the workloads and pods that are shown under a uid, whoever says so: store, directory or what waits."""
    uids = {uid}
    namespace, _, name = uid.rpartition("/")  # pods without a workload are shown under such names
    pods = {PodName(uid, "", ""), PodName("", namespace, name)}
    if assembly.store is not None:
        for origin in await assembly.store.origins(uid):
            if origin.workload_uid:
                uids.add(origin.workload_uid)
            else:
                pods.add(PodName(origin.pod_uid, origin.namespace, origin.pod_name))
    pods |= pods_told(directory.pods(), uids)
    for pipeline in assembly.pipelines:
        async for records in pipeline.log.waiting_records():
            pods |= pods_told(records, uids)
    return Erasure(workload_uids=sorted(uids), pods=sorted(pods), run_id=run_id)
