"""The settings of the kubernetes collector."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

_Seconds = Annotated[float, Meta(gt=0)]


class KubernetesSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which pods of which cluster. Inside a cluster its service account is used, else a kubeconfig."""

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
