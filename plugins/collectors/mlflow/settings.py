"""The settings of the mlflow collector, and how it logs in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from lens_core import ConfigurationError, Secret
from lens_core.plugin_api.credentials import find_credentials
from lens_core.plugin_api.tls import require_files
from lens_core.plugin_api.urls import separate_login, split_login

_LOGIN = ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD")
_TOKEN = "MLFLOW_TRACKING_TOKEN"
WORKLOAD_TAG = "lens.workload_uid"


class MlflowSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The server, how to log in, which runs and metrics, and how much at a time."""

    url: Annotated[
        str, Meta(pattern=r"^https?://[^\s/]", description="the tracking server", examples=["http://mlflow:5000"])
    ]
    username: Annotated[str, Meta(description="for basic authentication; MLFLOW_TRACKING_USERNAME when left out")] = ""
    password: Annotated[Secret | None, Meta(description="MLFLOW_TRACKING_PASSWORD when left out")] = None
    token: Annotated[
        Secret | None, Meta(description="a bearer token (Databricks); MLFLOW_TRACKING_TOKEN when left out")
    ] = None
    aws_secret: Annotated[
        str, Meta(description="a secret of AWS with MLFLOW_TRACKING_TOKEN, or with the user name and the password")
    ] = ""
    aws_region: Annotated[str, Meta(description="where that secret is")] = ""
    ca_file: Annotated[str, Meta(description="certificates to trust instead of the system's")] = ""
    page_url: Annotated[
        str, Meta(description="the server's address for browsers, where it differs from `url`; for links to runs")
    ] = ""
    experiments: Annotated[
        list[str], Meta(description="only experiments whose names match one of these patterns (* and ?); all if empty")
    ] = []
    metrics: Annotated[
        list[str], Meta(description="only metrics whose names match one of these patterns; all if empty")
    ] = []
    workload: Annotated[
        str,
        Meta(
            description="whose rows these are: {run_id}, {run_name}, {experiment}, {experiment_id} or any text",
            min_length=1,
        ),
    ] = "{run_id}"
    workload_tag: Annotated[
        str, Meta(description="a tag of a run that names its workload, and goes before `workload`")
    ] = WORKLOAD_TAG
    window_hours: Annotated[
        float, Meta(gt=0, description="runs that ended longer ago are left out, unless they were followed before")
    ] = 24.0
    runs_per_page: Annotated[int, Meta(ge=1, le=50_000, description="runs per request")] = 200
    points_per_page: Annotated[int, Meta(ge=10, le=25_000, description="values of a metric per request")] = 5_000
    points_at_once: Annotated[
        int, Meta(ge=1_000, description="values that are held in memory before they are stored")
    ] = 50_000
    requests_at_once: Annotated[int, Meta(ge=1, le=64, description="requests for values, side by side")] = 4
    request_timeout_seconds: Annotated[float, Meta(gt=0, description="for one request")] = 30.0
    max_body_bytes: Annotated[
        int, Meta(ge=1024**2, description="an answer that is larger, decompressed, is refused")
    ] = 64 * 1024 * 1024

    def __post_init__(self) -> None:
        separate_login(self)
        if self.page_url:
            try:
                split_login(self.page_url)
            except ValueError as error:
                raise ValueError(f"page_url: {error}") from None
        require_files(self, "ca_file")

    @property
    def base_url(self) -> str:
        """The server's address without a slash at the end."""
        return self.url.rstrip("/")


def settings_of_environment(environ: Mapping[str, str]) -> MlflowSettings | None:
    """Settings where MLFLOW_TRACKING_URI names a server; None where it does not."""
    url = environ.get("MLFLOW_TRACKING_URI", "")
    return MlflowSettings(url=url) if url.startswith(("http://", "https://")) else None


def login_headers(
    settings: MlflowSettings, environ: Mapping[str, str]
) -> tuple[dict[str, str], tuple[str, str] | None]:
    """The headers and the basic authentication of each request. Raises ConfigurationError or LensError."""
    token, username, password = settings.token, settings.username, settings.password
    if token is None and not username:
        found = find_credentials(
            (_TOKEN, *_LOGIN), environ, aws_secret=settings.aws_secret, aws_region=settings.aws_region
        )
        if _TOKEN in found:
            token = found[_TOKEN]
        elif _LOGIN[0] in found:
            username, password = found[_LOGIN[0]].reveal(), found.get(_LOGIN[1])
        elif settings.aws_secret:
            raise ConfigurationError(
                f"the AWS secret {settings.aws_secret} has neither {_TOKEN} nor {' and '.join(_LOGIN)}"
            )
    if token is not None:
        return {"Authorization": f"Bearer {token.reveal()}"}, None
    if username:
        return {}, (username, password.reveal() if password is not None else "")
    return {}, None
