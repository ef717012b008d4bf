"""A diagnosis collector in the daemon: its reports are records of the pipeline."""

from __future__ import annotations

import asyncio
import os
import time
import zlib
from abc import abstractmethod
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from lens_core import Collector, Context, Diagnosis, Origin, Record, Unavailable

from .base import DataCollector, cut_text, get_node_id, get_node_type, known_node_rank
from .master_client import own_origin
from .processes import Owner


class DiagnosisSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The owner of these reports; the environment completes it."""

    workload_uid: Annotated[str, Meta(description="the workload; WORKLOAD_UID if not given")] = ""
    pod_name: Annotated[str, Meta(description="the pod; POD_NAME if not given")] = ""
    pod_uid: Annotated[str, Meta(description="its uid; POD_UID if not given")] = ""
    namespace: Annotated[str, Meta(description="its namespace; POD_NAMESPACE if not given")] = ""
    node_rank: Annotated[Annotated[int, Meta(ge=0)] | None, Meta(description="NODE_RANK if not given")] = None


def _id_of(name: str) -> int:
    return zlib.crc32(name.encode()) & 0x7FFFFFFF


class DiagnosisCollector(Collector):
    """Runs a DataCollector in a thread and makes records of what it gives."""

    Settings: ClassVar[type[msgspec.Struct]] = DiagnosisSettings

    def __init__(self, settings: Any, context: Context) -> None:
        super().__init__(settings, context)
        self._collector = self.make_collector()

    @abstractmethod
    def make_collector(self) -> DataCollector:
        """The collector behind it."""

    async def check(self) -> None:
        """Whether there is anything to collect here. Raises Unavailable."""
        if not self._collector.is_enabled():
            raise Unavailable(f"{self.name}: nothing to collect on this machine")

    async def collect(self) -> Sequence[Record]:
        """One report, or none."""
        if not self._collector.is_enabled():
            return []
        data = await asyncio.to_thread(self._collector.collect_data)
        if not data:
            return []
        content = cut_text(self._collector.to_text(data))
        return [self.make_diagnosis(content, await asyncio.to_thread(self.owner_of, content))]

    def owner_of(self, content: str) -> Owner | None:
        """Return the owner of the processes in a report; None where only our own environment tells."""
        return None

    def make_diagnosis(self, content: str, owner: Owner | None = None) -> Diagnosis:
        """A report of this node, now. A node without a rank has -1; its id, if it has none, is made of its name."""
        ranks = (self.settings.node_rank, owner and owner.node_rank, known_node_rank())
        rank = next((rank for rank in ranks if rank is not None), -1)
        node_id = get_node_id() if os.environ.get("NODE_ID") or rank >= 0 else _id_of(os.uname().nodename)
        return Diagnosis(
            origin=self.origin_of(owner),
            data_type=self._collector.data_type,
            data_content=content,
            node_id=node_id,
            node_type=get_node_type(),
            node_rank=rank,
            timestamp=time.time(),
        )

    def origin_of(self, owner: Owner | None = None) -> Origin:
        """Return the origin of a report: by the settings, by the processes in it, by our own environment."""
        known = own_origin()
        if owner is not None:
            said = {name: value for name, value in owner._asdict().items() if value and name != "node_rank"}
            if said:
                # Our own pod is another one than that of the processes.
                known = Origin(**said)
        given = {name: getattr(self.settings, name) for name in ("workload_uid", "pod_name", "pod_uid", "namespace")}
        return msgspec.structs.replace(known, **{name: value for name, value in given.items() if value})
