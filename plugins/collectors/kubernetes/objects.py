"""From the API's objects to pods, and the owners of owners, upwards."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from lens_core import Pod, WorkloadReference

from .client import ApiError, Gone, KubernetesApi

MOST_GENERATIONS = 10
MAX_LABELS = 64
MOST_OWNERS = 50_000


class Owner(NamedTuple):
    """An owner reference: what it is, in which namespace."""

    api_version: str
    kind: str
    name: str
    uid: str
    namespace: str


class _Known(NamedTuple):
    owners: Sequence[Owner]
    until: float


class OwnerFinder:
    """Follows owner references upwards; remembers owners, and what cannot be read is taken as the topmost."""

    def __init__(
        self,
        api: KubernetesApi,
        ttl_seconds: float,
        logger: logging.Logger,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._ttl_seconds = ttl_seconds
        self._logger = logger
        self._clock = clock
        self._known: dict[str, _Known] = {}
        self._resources: dict[tuple[str, str], tuple[str, bool]] = {}
        self._unreadable: set[tuple[str, str]] = set()

    async def resolve_workloads(self, owners: Sequence[Owner]) -> list[WorkloadReference]:
        """These owners and all above them, nearest first. Raises httpx.HTTPError when the server goes away."""
        found: dict[str, WorkloadReference] = {}
        waiting = list(owners)
        for _ in range(MOST_GENERATIONS):
            above: list[Owner] = []
            for owner in waiting:
                if owner.uid in found or owner.kind == "Node":
                    continue
                parents = await self._owners(owner)
                found[owner.uid] = WorkloadReference(
                    uid=owner.uid,
                    name=owner.name,
                    kind=owner.kind,
                    namespace=owner.namespace,
                    parent_uid=parents[0].uid if parents else "",
                )
                above += parents
            if not above:
                break
            waiting = above
        return list(found.values())

    async def _owners(self, owner: Owner) -> Sequence[Owner]:
        known = self._known.get(owner.uid)
        if known is None or self._clock() >= known.until:
            if len(self._known) >= MOST_OWNERS:
                self._known.clear()
            known = _Known(await self._fetch_owners(owner), self._clock() + self._ttl_seconds)
            self._known[owner.uid] = known
        return known.owners

    async def _fetch_owners(self, owner: Owner) -> Sequence[Owner]:
        try:
            resource, namespaced = await self._resource(owner.api_version, owner.kind)
            place = f"/namespaces/{owner.namespace}" if namespaced and owner.namespace else ""
            found = await self._api.get_object(f"{_root(owner.api_version)}{place}/{resource}/{owner.name}")
        except (ApiError, Gone, KeyError) as error:
            self._warn_once(owner, error)
            return []
        # Another object of that name is not the owner.
        return owners_of(found) if found.get("metadata", {}).get("uid") == owner.uid else []

    async def _resource(self, api_version: str, kind: str) -> tuple[str, bool]:
        """The plural under which objects of a kind are found, and whether they live in namespaces."""
        if (api_version, kind) not in self._resources:
            listed = await self._api.get_object(_root(api_version))
            for entry in listed.get("resources", []):
                if "/" not in entry["name"]:
                    self._resources[api_version, entry["kind"]] = (entry["name"], bool(entry.get("namespaced")))
        return self._resources[api_version, kind]

    def _warn_once(self, owner: Owner, error: Exception) -> None:
        """Once for each kind: probably a permission is missing."""
        if isinstance(error, ApiError) and error.status == 404:
            return
        if (owner.api_version, owner.kind) not in self._unreadable:
            self._unreadable.add((owner.api_version, owner.kind))
            self._logger.warning(
                "Owners of this kind cannot be read and count as the topmost. kind=%s/%s error=%s",
                owner.api_version,
                owner.kind,
                error,
            )


def _root(api_version: str) -> str:
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


def owners_of(thing: Mapping[str, Any]) -> list[Owner]:
    """The owners of an object, the one that controls it first."""
    metadata = thing.get("metadata") or {}
    references = metadata.get("ownerReferences") or []
    namespace = str(metadata.get("namespace") or "")
    ordered = sorted(references, key=lambda reference: not reference.get("controller"))
    return [
        Owner(str(one["apiVersion"]), str(one["kind"]), str(one["name"]), str(one["uid"]), namespace) for one in ordered
    ]


def pod_of(thing: Mapping[str, Any]) -> Pod:
    """The pod of an API object, without its workloads. Raises KeyError for an object that is none."""
    metadata = thing["metadata"]
    labels = {str(name): str(value) for name, value in list((metadata.get("labels") or {}).items())[:MAX_LABELS]}
    return Pod(
        uid=str(metadata["uid"]),
        name=str(metadata["name"]),
        namespace=str(metadata.get("namespace") or ""),
        node=str((thing.get("spec") or {}).get("nodeName") or ""),
        phase=str((thing.get("status") or {}).get("phase") or ""),
        labels=labels,
    )
