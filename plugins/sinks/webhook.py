"""Messages to people: what failed, stalled or lost its loss, to a chat's webhook or to a receiver of your own."""

from __future__ import annotations

import html
import time
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from typing import Annotated, Literal, NamedTuple
from urllib.parse import quote

import httpx
import msgspec
from msgspec import Meta

from lens_core import (
    ATTENTION_EVENTS,
    SHOWN_NAME_LABEL,
    Answer,
    Batch,
    BatchLimits,
    Delivered,
    Event,
    Poisoned,
    Rejected,
    Retry,
    Secret,
    Sink,
    hookimpl,
    workload_of,
)
from lens_core.plugin_api.http_answers import refusal
from lens_core.plugin_api.urls import basic_auth, split_login

_MOST_REMEMBERED = 10_000
_SHOWN_PLACES = 5
_SHOWN_TEXT = 300
_MOST_OF_DISCORD = 2_000
# An older event is late, because Lens or the chat was unavailable: its message states the time of the event.
_LATE_SECONDS = 600.0
# Below the default of `send_timeout_seconds`, after which the delivery breaks a try off.
_MOST_ANSWER_SECONDS = 55.0


class WebhookSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The receiver of messages, their subjects, and their frequency."""

    url: Annotated[Secret, Meta(description="where messages are posted; whoever knows it may write there")]
    username: Annotated[str, Meta(description="for basic authentication")] = ""
    password: Annotated[Secret | None, Meta(description="for basic authentication, as it is")] = None
    format: Annotated[
        Literal["slack", "discord", "json"],
        Meta(description="slack (Mattermost, Teams and Google Chat, too), discord, or json: all that is known"),
    ] = "slack"
    types: Annotated[tuple[str, ...], Meta(description="types of events that are told")] = (
        *ATTENTION_EVENTS,
        "loss_not_finite",
        "loss_diverged",
        "restore_differs",
        "straggler",
    )
    page_url: Annotated[str, Meta(description="where people open the page; messages link to the job")] = ""
    quiet_seconds: Annotated[float, Meta(ge=0, description="the same of one job is not told again so soon")] = 300.0
    timeout_seconds: Annotated[
        float, Meta(gt=0, description="for one message; after one without an answer twice as long, up to 55 s")
    ] = 10.0

    def __post_init__(self) -> None:
        try:
            split_login(self.url.reveal())
        except ValueError as error:
            raise ValueError(f"url: {error}") from None


class _Job(NamedTuple):
    """The job of an event: the key by which its events are grouped, its uid, its displayed name."""

    key: str
    uid: str
    name: str


class _Key(NamedTuple):
    """The key of a message: an event type of a job."""

    job: str
    type: str


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """The body of the format `json`; times in ms."""

    text: str
    type: str
    workload_uid: str
    workload_name: str
    iteration: int | None
    timestamp: int | None
    ranks: list[int]
    pods: list[str]
    nodes: list[str]
    details: dict[str, object]
    url: str


def _one_line(text: str) -> str:
    """A text of strangers on one line, without control and direction characters, which chats obey."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


class Webhook(Sink):
    """Tell people about events: a message for each job and type, with the ranks, pods and nodes that say so."""

    name = "webhook"
    also_called = ("slack", "discord", "teams")
    Settings = WebhookSettings
    accepts = (Event,)

    settings: WebhookSettings
    _client: httpx.AsyncClient | None = None

    async def start(self) -> None:
        """Open the client."""
        auth = basic_auth(self.settings.username, self.settings.password)
        self._client = httpx.AsyncClient(auth=auth, timeout=self.settings.timeout_seconds)
        self._answer_seconds = self.settings.timeout_seconds
        self._told: dict[_Key, float] = {}

    async def stop(self) -> None:
        """Close the client."""
        if self._client is not None:
            await self._client.aclose()

    def limits(self) -> BatchLimits:
        """Return the limits of a batch: the events of a job's ranks within a second are one message."""
        return BatchLimits(max_records=1_000, max_wait_seconds=1.0)

    async def send(self, batch: Batch) -> Answer:
        """Post a message for each job and type; one that was told lately is told by that."""
        groups: dict[_Key, dict[int, Event]] = {}
        for index, record in enumerate(batch.records):
            if isinstance(record, Event) and record.type in self.settings.types:
                groups.setdefault(_Key(self._job(record).key, record.type), {})[index] = record
        refused: dict[int, str] = {}
        for key, events in groups.items():
            answer = await self._post_events(key, [*events.values()])
            if isinstance(answer, Retry):
                return answer
            if answer is not None:
                refused.update(dict.fromkeys(events, answer.reason))
        filtered = len(batch.records) - sum(map(len, groups.values()))
        return Rejected(refused, filtered=filtered) if refused else Delivered(filtered=filtered)

    async def _post_events(self, key: _Key, events: Sequence[Event]) -> Retry | Poisoned | None:
        now = time.monotonic()
        if now - self._told.get(key, -1e9) < self.settings.quiet_seconds:
            return None
        assert self._client is not None
        body = msgspec.json.encode(self._make_body(self.message(events)))
        headers = {"Content-Type": "application/json"}
        try:
            response = await self._client.post(
                self.settings.url.reveal(), content=body, headers=headers, timeout=self._make_timeout()
            )
        except httpx.ReadTimeout:
            return self._wait_longer()
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            # Its text may hold the address, which is a secret.
            return Retry(type(error).__name__, timed_out=isinstance(error, httpx.TimeoutException))
        if not response.is_success:
            return refusal(response.status_code, response.headers, response.content)
        # A receiver that was slow once is slow again; one that is quick again is given the usual time.
        self._answer_seconds = max(self.settings.timeout_seconds, 2 * (time.monotonic() - now))
        self._told[key] = now
        while len(self._told) > _MOST_REMEMBERED:
            del self._told[next(iter(self._told))]
        return None

    def _make_timeout(self) -> httpx.Timeout:
        return httpx.Timeout(self.settings.timeout_seconds, read=self._answer_seconds)

    def _wait_longer(self) -> Retry:
        """Give the next try more time: a slow receiver has the message, and would get it again with each try."""
        reason = f"the receiver did not answer within {self._answer_seconds:g} s"
        self._answer_seconds = max(self._answer_seconds, min(2 * self._answer_seconds, _MOST_ANSWER_SECONDS))
        return Retry(reason, timed_out=True)

    def _make_body(self, message: Message) -> object:
        """As the chat has it; a job's output mentions nobody there, and links to nothing."""
        if self.settings.format == "slack":
            return {"text": f"{html.escape(message.text, quote=False)}\n{message.url}".rstrip()}
        if self.settings.format == "discord":
            content = f"{message.text}\n{message.url}".rstrip()
            return {"content": content[:_MOST_OF_DISCORD], "allowed_mentions": {"parse": []}}
        return message

    def message(self, events: Sequence[Event]) -> Message:
        """Make the message about events of one job and type."""
        first = events[0]
        job = self._job(first)
        page = self.settings.page_url.rstrip("/")
        ranks = sorted({event.origin.rank for event in events if event.origin.rank is not None})
        pods = sorted({event.origin.pod_name for event in events if event.origin.pod_name})
        nodes = sorted({event.origin.node for event in events if event.origin.node})
        where = [_listed("rank", ranks), _listed("pod", pods), _listed("node", nodes)]
        reason = _one_line(
            str(first.details.get("reason") or first.details.get("line") or first.details.get("rule") or "")[
                :_SHOWN_TEXT
            ]
        )
        text = f"{job.name}: {first.type.replace('_', ' ')}"
        text += "" if first.iteration is None else f" at iteration {first.iteration}"
        text += f" ({', '.join(filter(None, where))})" if any(where) else ""
        text += _when(first.event_time)
        return Message(
            text=_one_line(f"{text}: {reason}" if reason else text),
            type=first.type,
            workload_uid=job.uid,
            workload_name=job.name,
            iteration=first.iteration,
            timestamp=None if first.event_time is None else round(first.event_time * 1000),
            ranks=ranks,
            pods=pods,
            nodes=nodes,
            details=first.details,
            url=f"{page}/#/workload?uid={quote(job.uid, safe='')}" if page else "",
        )

    def _job(self, event: Event) -> _Job:
        origin = event.origin
        pod = self.context.directory.find_pod(origin) if origin.pod_uid or origin.pod_name else None
        workload = workload_of(pod) if pod is not None else None
        if workload is not None and origin.workload_uid in ("", workload.uid):
            return _Job(workload.uid, workload.uid, workload.name or workload.uid)
        labelled = origin.labels.get(SHOWN_NAME_LABEL, "")
        if origin.workload_uid:
            return _Job(origin.workload_uid, origin.workload_uid, labelled or origin.workload_uid)
        uid = origin.pod_uid or origin.pod_name
        # Until somebody knows the workload, pods that carry one job's name are one job.
        return _Job(f"{origin.namespace}/{labelled}" if labelled else uid, uid, labelled or origin.pod_name or uid)


def _listed(what: str, names: Iterable[object]) -> str:
    shown = [str(name) for name in names]
    if len(shown) > _SHOWN_PLACES:
        return f"{len(shown)} {what}s"
    return f"{what}{'s' if len(shown) > 1 else ''} {', '.join(shown)}" if shown else ""


def _when(event_time: float | None) -> str:
    if event_time is None or time.time() - event_time < _LATE_SECONDS:
        return ""
    return f", on {datetime.fromtimestamp(event_time, timezone.utc):%Y-%m-%d at %H:%M} UTC"


@hookimpl
def lens_sinks() -> Sequence[type[Sink]]:
    """Announce the sink."""
    return [Webhook]
