"""The objects of an API server: kinds that pages and charts create, each valid for Kubernetes."""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import kubernetes_validate

Object = dict[str, Any]
VERSION = "1.33"


class Resource(NamedTuple):
    """A kind, as discovery tells of it; `version` is the group and its version, as objects write it."""

    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def path(self) -> str:
        """The path of the version in discovery."""
        return f"/apis/{self.version}" if "/" in self.version else f"/api/{self.version}"


RESOURCES = (
    Resource("v1", "namespaces", "Namespace", False),
    *(Resource("v1", f"{kind.lower()}s", kind) for kind in ("Pod", "Secret", "ConfigMap", "Service", "ServiceAccount")),
    Resource("apps/v1", "statefulsets", "StatefulSet"),
    Resource("apps/v1", "daemonsets", "DaemonSet"),
    Resource("batch/v1", "jobs", "Job"),
    Resource("batch/v1", "cronjobs", "CronJob"),
    Resource("rbac.authorization.k8s.io/v1", "clusterroles", "ClusterRole", False),
    Resource("rbac.authorization.k8s.io/v1", "clusterrolebindings", "ClusterRoleBinding", False),
)


class Refused(Exception):
    """An answer that is none of success: its status, its reason in the API's word, and why."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason


class Objects:
    """Objects by resource, namespace and name. `created` is called with each new one."""

    def __init__(self) -> None:
        self.created: Callable[[Object], None] = lambda thing: None
        self._kept: dict[tuple[str, str, str], Object] = {}
        self._versions = itertools.count(1)

    def create(self, resource: Resource, namespace: str, thing: Object) -> Object:
        """Keep a new object. Raises Refused."""
        name = thing["metadata"]["name"]
        if (resource.plural, namespace, name) in self._kept:
            raise Refused(409, "AlreadyExists", f'{resource.plural} "{name}" already exists')
        made = self._keep(resource, namespace, {**thing, "metadata": {**thing["metadata"], **_birth(namespace)}})
        self.created(made)
        return made

    def replace(self, resource: Resource, namespace: str, thing: Object) -> Object:
        """Keep an object in the place of the one with its name. Raises Refused."""
        before = self.get(resource, namespace, thing["metadata"]["name"])
        born = {key: before["metadata"][key] for key in ("uid", "creationTimestamp")}
        return self._keep(resource, namespace, {**thing, "metadata": {**thing["metadata"], **born}})

    def get(self, resource: Resource, namespace: str, name: str) -> Object:
        """The object of a name. Raises Refused."""
        found = self._kept.get((resource.plural, namespace, name))
        if found is None:
            raise Refused(404, "NotFound", f'{resource.plural} "{name}" not found')
        return found

    def list(self, resource: Resource, namespace: str = "", labels: Mapping[str, str] | None = None) -> list[Object]:
        """The objects of a resource that have these labels, in all namespaces or one."""
        return [*self._selected(resource, namespace, labels or {})]

    def _selected(self, resource: Resource, namespace: str, labels: Mapping[str, str]) -> Iterator[Object]:
        for (plural, where, _), thing in self._kept.items():
            has = thing["metadata"].get("labels", {})
            if plural == resource.plural and namespace in ("", where) and labels.items() <= has.items():
                yield thing

    def _keep(self, resource: Resource, namespace: str, thing: Object) -> Object:
        thing = {"apiVersion": resource.version, "kind": resource.kind, **thing}
        thing["metadata"]["resourceVersion"] = str(next(self._versions))
        # What a real server would refuse for its schema is refused here, by the schemas that it publishes.
        try:
            kubernetes_validate.validate(_without_nulls(thing), VERSION, strict=True)
        except kubernetes_validate.ValidationError as error:
            raise Refused(422, "Invalid", error.message) from None
        self._kept[resource.plural, namespace, thing["metadata"]["name"]] = thing
        return thing


def _birth(namespace: str) -> dict[str, str]:
    born = {"uid": str(uuid.uuid4()), "creationTimestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    return {**born, "namespace": namespace} if namespace else born


def _without_nulls(content: Any) -> Any:
    """Go's clients write null for what is not set."""
    if isinstance(content, dict):
        return {key: _without_nulls(value) for key, value in content.items() if value is not None}
    return [_without_nulls(item) for item in content] if isinstance(content, list) else content
