"""Pods and their owners from the Kubernetes API."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import httpx
import msgspec
from msgspec import Meta

from lens_core import Backoff, Collector, Context, LensError, Pod, Record, hookimpl

from .client import ApiError, Gone, KubernetesApi, find_access
from .objects import Owner, OwnerFinder, owners_of, pod_of

_Seconds = Annotated[float, Meta(gt=0)]


class KubernetesSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Selects the cluster and its pods. Inside a cluster its service account is used, else a kubeconfig."""

    namespace: Annotated[str, Meta(description="pods of one namespace; all by default")] = ""
    node_name: Annotated[str, Meta(description="pods of one node, for an agent on each node")] = ""
    label_selector: Annotated[str, Meta(description="pods with these labels, as kubectl's -l")] = ""
    kubeconfig: Annotated[str, Meta(description="a file; by default KUBECONFIG, else ~/.kube/config")] = ""
    kube_context: Annotated[str, Meta(description="a context of the kubeconfig; by default its current one")] = ""
    page_pods: Annotated[int, Meta(ge=1, le=10_000, description="pods of one page of the list")] = 500
    watch_seconds: Annotated[_Seconds, Meta(description="a watch is renewed after so long")] = 300.0
    request_timeout_seconds: Annotated[_Seconds, Meta(description="for one page, one owner")] = 60.0
    owner_ttl_seconds: Annotated[
        _Seconds, Meta(description="what an owner's owners are is asked again after so long")
    ] = 600.0


FIRST_LIST_SECONDS = 100.0
BACKOFF_SECONDS = (0.5, 30.0)
# Events come in bursts; the directory is drawn anew once for each.
COALESCE_SECONDS = 0.3
SHORTEST_WATCH_SECONDS = 0.5


class Kubernetes(Collector):
    """Tells the directory at once which pods there are, and the store with the next run."""

    name = "kubernetes"
    also_called = ("k8s", "kubernetes_sd_configs", "k8sobjects", "kubernetes_events")
    Settings = KubernetesSettings
    interval_seconds = 5.0

    settings: KubernetesSettings

    def __init__(self, settings: Any, context: Context) -> None:
        super().__init__(settings, context)
        self.lists = self.watches = 0
        self._pods: dict[str, Pod] = {}
        self._unsent: dict[str, Pod] = {}
        self._handed: dict[str, Pod] = {}
        self._version = ""
        self._error = ""
        self._backoff = Backoff(*BACKOFF_SECONDS)
        self._listed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def stop(self) -> None:
        """End the watch."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def check(self) -> None:
        """List one pod."""
        api = self._api()
        try:
            await api.get_object(self._path(), {**self._selection(), "limit": "1"})
        finally:
            await api.close()

    async def collect(self) -> Sequence[Record]:
        """The pods that changed since they were stored last; the first time all. Raises while the list fails."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch_repeatedly(), name=f"watch {self.context.name}")
        listed = asyncio.create_task(self._listed.wait())
        try:
            await asyncio.wait({listed, self._task}, timeout=FIRST_LIST_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        finally:
            listed.cancel()
        if self._task.done():
            self._task.result()
        if not self._listed.is_set() or self._error:
            raise LensError(self._error or "the list of pods has not come yet")
        self._handed = dict(self._unsent)
        return list(self._handed.values())

    async def stored(self) -> None:
        """Mark the records that were handed over as stored."""
        for uid, pod in self._handed.items():
            if self._unsent.get(uid) is pod:
                del self._unsent[uid]

    def _api(self) -> KubernetesApi:
        access = find_access(self.settings.kubeconfig, self.settings.kube_context, os.environ)
        return KubernetesApi(access, self.settings.request_timeout_seconds)

    def _path(self) -> str:
        namespace = self.settings.namespace
        return f"/api/v1/namespaces/{namespace}/pods" if namespace else "/api/v1/pods"

    def _selection(self) -> dict[str, str]:
        chosen = {"labelSelector": self.settings.label_selector}
        if self.settings.node_name:
            chosen["fieldSelector"] = f"spec.nodeName={self.settings.node_name}"
        return {name: value for name, value in chosen.items() if value}

    async def _watch_repeatedly(self) -> None:
        """List, then watch, for ever; what fails is tried again after a while."""
        api = self._api()
        finder = OwnerFinder(api, self.settings.owner_ttl_seconds, self.context.logger)
        try:
            while True:
                try:
                    if not self._version:
                        await self._list(api, finder)
                    await self._watch_pods(api, finder)
                except Gone:
                    self._version = ""
                except (ApiError, httpx.HTTPError, OSError) as error:
                    await self._wait_after(error)
        finally:
            await api.close()

    async def _wait_after(self, error: Exception) -> None:
        """A watch that is dropped once is nothing; what fails again is said."""
        delay = self._backoff.next_delay()
        if self._backoff.failures > 1 or not self._listed.is_set():
            self._error = f"{type(error).__name__}: {error}"
            self._listed.set()
        await asyncio.sleep(delay)

    def _well(self) -> None:
        """The server has answered."""
        self._backoff.reset()
        self._error = ""
        self.context.directory.confirm(self.context.name)

    async def _list(self, api: KubernetesApi, finder: OwnerFinder) -> None:
        parameters = {**self._selection(), "limit": str(self.settings.page_pods)}
        found: list[tuple[Pod, list[Owner]]] = []
        while True:
            page = await api.get_object(self._path(), parameters)
            found += [(pod_of(thing), owners_of(thing)) for thing in page.get("items") or []]
            metadata = page.get("metadata") or {}
            if not metadata.get("continue"):
                break
            parameters["continue"] = metadata["continue"]
        # Owners come after the last page: its continuation would expire while they are asked for.
        pods = [msgspec.structs.replace(pod, workloads=await finder.resolve_workloads(owners)) for pod, owners in found]
        self.lists += 1
        self._unsent.update({pod.uid: pod for pod in pods if self._pods.get(pod.uid) != pod})
        listed = {pod.uid: pod for pod in pods}
        self._unsent.update({uid: _gone(pod) for uid, pod in self._pods.items() if uid not in listed})
        self._pods = listed
        self._publish_pods()
        self._version = str(metadata.get("resourceVersion") or "")
        self._well()
        self._listed.set()

    async def _watch_pods(self, api: KubernetesApi, finder: OwnerFinder) -> None:
        """Until the server ends it, which it does every few minutes."""
        self.watches += 1
        parameters = {
            **self._selection(),
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(max(1, round(self.settings.watch_seconds))),
        }
        pending: asyncio.TimerHandle | None = None
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async for event in api.watch_events(self._path(), parameters):
                if await self._apply_event(event, finder) and (pending is None or pending.when() <= loop.time()):
                    pending = loop.call_later(COALESCE_SECONDS, self._publish_pods)
                self._well()
        finally:
            if pending is not None:
                pending.cancel()
                self._publish_pods()
        # A server that ends every watch at once is not asked without a pause.
        await asyncio.sleep(max(0.0, SHORTEST_WATCH_SECONDS - (loop.time() - began)))

    async def _apply_event(self, event: Mapping[str, Any], finder: OwnerFinder) -> bool:
        """Take up one event; whether it changed a pod."""
        thing = event.get("object") or {}
        metadata = thing.get("metadata") or {}
        kind = event.get("type")
        changed = False
        if kind in ("ADDED", "MODIFIED"):
            pod = msgspec.structs.replace(pod_of(thing), workloads=await finder.resolve_workloads(owners_of(thing)))
            changed = self._pods.get(pod.uid) != pod
            if changed:
                self._pods[pod.uid] = self._unsent[pod.uid] = pod
        elif kind == "DELETED":
            gone = self._pods.pop(str(metadata.get("uid")), None)
            changed = gone is not None
            if gone is not None:
                self._unsent[gone.uid] = _gone(gone)
        self._version = str(metadata.get("resourceVersion") or self._version)
        return changed

    def _publish_pods(self) -> None:
        self.context.directory.replace(self._pods.values(), self.context.name)


def _gone(pod: Pod) -> Pod:
    """A pod that is there no more, for the store: it holds nothing from now on."""
    return pod if pod.phase in ("Succeeded", "Failed") else msgspec.structs.replace(pod, phase="Deleted")


@hookimpl
def lens_collectors() -> Sequence[type[Collector]]:
    """Announce the collector."""
    return [Kubernetes]
