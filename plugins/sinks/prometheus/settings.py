"""The settings of the prometheus sink."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from lens_core import Secret
from lens_core.plugin_api.tls import require_files
from lens_core.plugin_api.urls import separate_login

_Url = Annotated[str, Meta(pattern=r"^https?://[^\s/]")]
_Seconds = Annotated[float, Meta(gt=0)]


class PrometheusSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The target of writes, and the selection for /federate. Without a url there is only /federate."""

    url: Annotated[
        _Url | None,
        Meta(description="the store's receiver, for example http://vminsert:8480/insert/0/prometheus/api/v1/write"),
    ] = None
    protocol: Annotated[
        Literal["1.0", "2.0"],
        Meta(description="remote write version; stores that know only 1.0 answer 2.0 with success and write nothing"),
    ] = "1.0"
    token: Annotated[Secret | None, Meta(description="sent as a bearer token")] = None
    username: Annotated[str, Meta(description="for basic authentication")] = ""
    password: Annotated[Secret | None, Meta(description="for basic authentication")] = None
    headers: Annotated[dict[str, Secret], Meta(description="sent as they are, for example X-Scope-OrgID")] = {}
    ca_file: Annotated[str, Meta(description="certificates to trust instead of the system's")] = ""
    shards: Annotated[
        int,
        Meta(
            ge=1,
            le=64,
            description="requests at one time; series are divided among them by their labels, so that the order "
            "within a series holds. More than 1 for stores that are far away",
        ),
    ] = 1
    timeout_seconds: Annotated[_Seconds, Meta(description="for one request")] = 30.0
    training: Annotated[bool, Meta(description="write training rows as lens_training_* too")] = True
    federate: Annotated[bool, Meta(description="show the latest training values at /federate")] = True
    federate_expire_seconds: Annotated[
        _Seconds, Meta(description="a value that was not renewed for so long is gone")
    ] = 900.0
    federate_max_series: Annotated[int, Meta(ge=1, description="more series are refused and counted")] = 50_000

    def __post_init__(self) -> None:
        if self.url is not None:
            separate_login(self)
        require_files(self, "ca_file")


class FederateQuery(msgspec.Struct, frozen=True):
    """The query of /federate."""

    match: Annotated[
        list[str], Meta(description='selectors of the series that are wanted, such as `{workload_uid="my-run"}`; all')
    ] = msgspec.field(name="match[]", default_factory=list)
