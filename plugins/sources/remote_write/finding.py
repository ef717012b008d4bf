"""Resolution of a series' pod: by a device of its node, else by the pod's own name or uid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from lens_core import Index, Pod

from .labels import Label
from .settings import RemoteWriteSettings

POD_LABELS = ("pod", "pod_name")
NAMESPACE_LABELS = ("namespace", "pod_namespace")
UID_LABELS = ("pod_uid", "uid")
EXPORTED_POD = "exported_pod"
EXPORTED_NAMESPACE = "exported_namespace"
_MEMO_KEYS = 50_000

Key: TypeAlias = tuple[str, ...]
Keys: TypeAlias = tuple[Key, ...]


class PodFinder:
    """Makes of labels the keys under which the directory may know the pod, best first, and looks them up.

    Keys are few beside series and are shared by them; they stay right whatever the directory learns. `telling` are the
    names of the labels that count.
    """

    def __init__(self, settings: RemoteWriteSettings) -> None:
        self._node_labels = settings.node_labels
        self._device_labels = list(settings.device_labels.items())
        self.telling = {*settings.node_labels, *settings.device_labels, *POD_LABELS, *UID_LABELS, *NAMESPACE_LABELS}
        self.telling |= {EXPORTED_POD, EXPORTED_NAMESPACE}
        self._shared: dict[Keys, Keys] = {}

    def keys(self, labels: Sequence[Label]) -> Keys:
        """The keys of a series by its labels; none when they name neither a pod nor a device."""
        values = {name: value for name, value, _ in labels if name in self.telling}
        keys = (*self._device_keys(values), *_pod_keys(values))
        if len(self._shared) >= _MEMO_KEYS:
            self._shared = {}
        return self._shared.setdefault(keys, keys)

    def _device_keys(self, labels: Mapping[str, str]) -> list[Key]:
        devices = [(kind, labels[label]) for label, kind in self._device_labels if label in labels]
        if not devices:
            return []
        node = next((labels[label] for label in self._node_labels if label in labels), "")
        return [("device", node, kind, device) for kind, device in devices] if node else []

    def find_pod(self, keys: Keys, index: Index) -> Pod | None:
        """The pod of the first key that is known."""
        for key in keys:
            if (pod := _find_by_key(key, index)) is not None:
                return pod
        return None


def _pod_keys(labels: Mapping[str, str]) -> list[Key]:
    uid = next((labels[label] for label in UID_LABELS if label in labels), "")
    keys: list[Key] = [("uid", uid)] if uid else []
    # With an exported_pod, `pod` is the exporter's own: Prometheus has renamed the label of the series.
    if EXPORTED_POD in labels:
        namespace = labels.get(EXPORTED_NAMESPACE) or labels.get("namespace", "")
        return [*keys, ("name", namespace, labels[EXPORTED_POD], uid)]
    namespace = next((labels[label] for label in NAMESPACE_LABELS if label in labels), "")
    return [*keys, *(("name", namespace, labels[label], uid) for label in POD_LABELS if label in labels)]


def _find_by_key(key: Key, index: Index) -> Pod | None:
    if key[0] == "device":
        return index.by_device.get((key[1], key[2], key[3]))
    if key[0] == "uid":
        return index.by_uid.get(key[1])
    _, namespace, name, uid = key
    found = index.by_name.get((namespace, name)) if namespace else index.by_bare_name.get(name)
    # A pod of that name with another uid is another pod.
    return None if found is None or (uid and found.uid) else found
