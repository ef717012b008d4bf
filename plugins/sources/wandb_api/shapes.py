"""The bodies of the wandb routes (seed 000, appendix A). Unknown fields are ignored: exporters add them."""

from __future__ import annotations

import re
from typing import Annotated, Any, Generic, Literal, TypeAlias, TypeVar

import msgspec

from lens_core import Origin
from lens_core.plugin_api.encoding import MAX_NAME_LENGTH
from lens_core.plugin_api.encoding import Step as WholeStep

# bigint in the database; a float is accepted where it is a whole number (JavaScript and JSON's 1e3).
Step: TypeAlias = WholeStep | float | None
# Strict JSON cannot hold these three, so they are accepted as texts; every other text is a wrong type.
Number: TypeAlias = float | bool | Literal["NaN", "Infinity", "-Infinity"]
Text: TypeAlias = str | None
_NO_NUMBER = re.compile(r"Invalid enum value (?P<value>.*) - at `\$\.value`", re.DOTALL)
Timestamp: TypeAlias = float | None

ItemT = TypeVar("ItemT")


class Sender(msgspec.Struct, frozen=True, kw_only=True):
    """The sender of a body; every field may be missing, null or empty, but not all of the first three."""

    workload_uid: Text = None
    pod_uid: Text = None
    pod_name: Text = None
    namespace: Text = None
    run_id: Text = None
    timestamp: Timestamp = None

    def origin(self) -> Origin:
        """The sender as an origin."""
        return Origin(
            workload_uid=self.workload_uid or "",
            pod_uid=self.pod_uid or "",
            pod_name=self.pod_name or "",
            namespace=self.namespace or "",
        )


class Metric(msgspec.Struct, frozen=True, gc=False):
    """One point; a missing step is step 0, as the seeds have it."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME_LENGTH)]
    value: Number
    step: Step = 0
    timestamp: Timestamp = None
    tags: dict[str, Any] | None = None


class Log(msgspec.Struct, frozen=True):
    """The values logged at one step."""

    data: dict[str, Any]
    step: Step = 0
    timestamp: Timestamp = None


class MetricsBody(Sender, Generic[ItemT], frozen=True, kw_only=True):
    """Body of /wandb/metrics."""

    metrics: list[ItemT] | None = None

    @property
    def items(self) -> list[ItemT]:
        """The points."""
        return self.metrics or []


class LogsBody(Sender, Generic[ItemT], frozen=True, kw_only=True):
    """Body of /wandb/logs."""

    logs: list[ItemT] | None = None

    @property
    def items(self) -> list[ItemT]:
        """The logged steps."""
        return self.logs or []


class DetectionBody(Sender, frozen=True, kw_only=True):
    """Body of /wandb/detection."""

    source: str = "wandb"
    evidence: dict[str, Any] = {}
    hints: dict[str, Any] = {}


def _part(name: str) -> msgspec.Meta:
    return msgspec.Meta(description=f"as /wandb/{name} takes it", extra_json_schema={"type": "object"})


class BatchBody(msgspec.Struct, frozen=True):
    """Body of /wandb/batch: any of the three."""

    # Made anew each time: a Raw that stands here as the default has no JSON schema.
    detection: Annotated[msgspec.Raw, _part("detection")] = msgspec.field(default_factory=msgspec.Raw)
    metrics: Annotated[msgspec.Raw, _part("metrics")] = msgspec.field(default_factory=msgspec.Raw)
    logs: Annotated[msgspec.Raw, _part("logs")] = msgspec.field(default_factory=msgspec.Raw)


def wrong_item(reason: str) -> str:
    """Why an item is refused, in the words of who sent it: msgspec calls the texts that are numbers an enum."""
    no_number = _NO_NUMBER.fullmatch(reason)
    return f"value must be a number, not the text {no_number['value']}" if no_number else reason
