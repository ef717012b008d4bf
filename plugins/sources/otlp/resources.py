"""A resource of OTLP: whose data it is, and the labels that all of its series get."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from google.protobuf.message import DecodeError

from lens_core import Origin

from .naming import label_name, label_pairs
from .schema import common_class
from .values import BadValue, read_attributes, text_of, whole_number

WORKLOAD_KEYS = ("lens.workload.uid", "workload_uid", "WORKLOAD_UID")
RUN_KEYS = ("lens.run.id", "run_id", "run.id", "nemo.run.id", "wandb.run_id", "mlflow.run_id")
SESSION_KEY = "lens.session"
RANK_KEYS = ("dl.rank", "lens.rank", "rank")
MAX_RANK = 2**31 - 1
_WORLD_SIZE_KEYS = ("dl.world_size", "world_size")
_LOCAL_RANK_KEYS = ("dl.local_rank", "local_rank")
_NODE_KEYS = ("k8s.node.name", "host.name")
# Attributes that become labels under names that Prometheus' users and the directory know.
_LABELS = {
    "pod_name": ("k8s.pod.name",),
    "pod_uid": ("k8s.pod.uid",),
    "namespace": ("k8s.namespace.name",),
    "node": _NODE_KEYS,
    "container": ("k8s.container.name",),
    "workload_uid": WORKLOAD_KEYS,
    "rank": RANK_KEYS,
}
_MAX_INFO_BYTES = 4096


class Resource(msgspec.Struct, frozen=True):
    """The sender of some points, records or spans, as far as it is known.

    `labels` are those of every series, `info` those that only `target_info` has beside `job` and `instance`.
    """

    origin: Origin
    labels: Mapping[str, str]
    info: Mapping[str, str]
    run_id: str = ""
    session: str = ""

    def origin_of_rank(self, rank: int | None) -> Origin:
        """The origin, of another rank where a point names one."""
        if rank is None or rank == self.origin.rank:
            return self.origin
        return msgspec.structs.replace(self.origin, rank=rank)


def read_resource(raw: bytes, promoted: Sequence[str] = ()) -> Resource:
    """The resource that a message holds; `promoted` are further attributes for labels. Raises BadValue."""
    try:
        attributes = read_attributes(common_class("Resource").FromString(raw).attributes)
    except DecodeError:
        raise BadValue("the resource cannot be decoded") from None
    texts = {key: text_of(value) for key, value in attributes.items()}
    labels = {**_scrape_labels(texts), **_own_labels(texts)}
    labels |= {name: texts[key] for key in promoted if texts.get(key) and (name := label_name(key)) not in labels}
    told = {"service.name", "service.namespace", "service.instance.id"}
    info = label_pairs((key, text[:_MAX_INFO_BYTES]) for key, text in texts.items() if key not in told)
    return Resource(
        origin=_origin(attributes, texts),
        labels=labels,
        info={name: text for name, text in info.items() if name not in ("job", "instance")},
        run_id=_first(texts, RUN_KEYS),
        session=texts.get(SESSION_KEY, ""),
    )


def _scrape_labels(texts: Mapping[str, str]) -> dict[str, str]:
    """`job` and `instance`, by which Prometheus tells targets apart."""
    name, namespace = texts.get("service.name", ""), texts.get("service.namespace", "")
    job = f"{namespace}/{name}" if namespace and name else name
    labels = {"job": job, "instance": texts.get("service.instance.id", "")}
    return {label: text for label, text in labels.items() if text}


def _own_labels(texts: Mapping[str, str]) -> dict[str, str]:
    return {label: text for label, keys in _LABELS.items() if (text := _first(texts, keys))}


def _origin(attributes: Mapping[str, Any], texts: Mapping[str, str]) -> Origin:
    workload, pod_uid = _first(texts, WORKLOAD_KEYS), texts.get("k8s.pod.uid", "")
    # As for the hook: outside a pod the host's name is the pod's.
    pod_name = texts.get("k8s.pod.name", "") or ("" if pod_uid else texts.get("host.name", ""))
    if not workload and (job := texts.get("slurm.job.id", "")):
        workload = f"slurm-{job}"  # as the slurm collector names it
    if not (workload or pod_uid or pod_name):
        workload = _first(texts, RUN_KEYS) or _service(texts)
    return Origin(
        cluster=texts.get("k8s.cluster.name", ""),
        workload_uid=workload,
        pod_name=pod_name,
        pod_uid=pod_uid,
        namespace=texts.get("k8s.namespace.name", ""),
        node=_first(texts, _NODE_KEYS),
        container=texts.get("k8s.container.name", ""),
        rank=_number(attributes, RANK_KEYS, -1),
        local_rank=_number(attributes, _LOCAL_RANK_KEYS, -1),
        world_size=_number(attributes, _WORLD_SIZE_KEYS, 0),
    )


def _service(texts: Mapping[str, str]) -> str:
    """The service, unless it is the name that SDKs give to one without."""
    name = _scrape_labels(texts).get("job", "")
    return "" if name.startswith("unknown_service") else name


def _first(texts: Mapping[str, str], keys: Sequence[str]) -> str:
    return next((texts[key] for key in keys if texts.get(key)), "")


def _number(attributes: Mapping[str, Any], keys: Sequence[str], least: int) -> int | None:
    """A number of the resource; one that is malformed counts as missing, as a variable does in the hook."""
    found = (whole_number(attributes[key], least, MAX_RANK) for key in keys if key in attributes)
    return next((number for number in found if number is not None), None)
