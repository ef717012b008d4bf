"""One request to the store, retried until the outcome of each of its series is known.

Tried again: no answer, and every answer that is not about the series (5xx, 429, a wrong key or address). A store that
answers 400 may have refused one sample and thrown the whole request away (Prometheus does), so the request is sent
again in halves until the bad series are alone; the number of such requests is limited, because after a restart every
series of a request may be old news.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Mapping

import cramjam

from lens_core.plugin_api.http_answers import describe_answer, is_web_page, outage
from lens_core.plugin_api.protobuf import WireError
from lens_core.plugin_api.urls import revealed

from .messages import Packed, pack_message, to_version2
from .posting import Address, Answered, Poster
from .settings import PrometheusSettings

USER_AGENT = "lens-agent/0.1.0"
MOST_REQUESTS = 256
UNSUPPORTED = 415
_VERSIONS = {
    "1.0": ("application/x-protobuf", "0.1.0"),
    "2.0": ("application/x-protobuf;proto=io.prometheus.write.v2.Request", "2.0.0"),
}


class TryAgain(Exception):
    """The store cannot take it now; `after_seconds` if it said when."""

    def __init__(self, reason: str, after_seconds: float | None = None) -> None:
        super().__init__(reason)
        self.after_seconds = after_seconds


class Outcome:
    """The number of series stored, and refused by reason (a status), with one answer as an example.

    `lost` are the refused parts of the request.
    """

    def __init__(self) -> None:
        self.stored = 0
        self.refused: Counter[str] = Counter()
        self.lost: list[Packed] = []
        self.example = ""

    def refuse(self, packed: Packed, answered: Answered) -> None:
        """Keep what the store will never take."""
        self.refused[f"HTTP {answered.status}"] += max(1, packed.series)
        self.lost.append(packed)
        if not self.example:
            self.example = describe_answer(answered.status, answered.body)


class Shard:
    """Delivers requests one after the other over one connection."""

    def __init__(self, settings: PrometheusSettings, address: Address) -> None:
        self._protocol = settings.protocol
        self._poster = Poster(address, _fixed_headers(settings), settings.timeout_seconds, settings.ca_file)

    def close(self) -> None:
        """Close the connection."""
        self._poster.close()

    async def deliver(self, request: Packed, attempt: int) -> Outcome:
        """Deliver a request; returns when every series is settled. Raises TryAgain."""
        outcome = Outcome()
        waiting = [request]
        requests = 0
        while waiting:
            packed = waiting.pop()
            requests += 1
            answered = await self._post_packed(packed, attempt)
            if answered.status < 300:
                outcome.stored += packed.series
            elif packed.series > 1 and requests < MOST_REQUESTS:  # perhaps it takes the parts
                halves = _halves(packed)
                waiting += halves
                if not halves:
                    outcome.refuse(packed, answered)
            else:
                outcome.refuse(packed, answered)
        return outcome

    async def _post_packed(self, packed: Packed, attempt: int) -> Answered:
        """The store's answer, unless it is one to try again after."""
        answered = await self._send_packed(packed, attempt)
        if answered.status == UNSUPPORTED and self._protocol == "2.0":
            self._protocol = "1.0"
            answered = await self._send_packed(packed, attempt)
        is_page = is_web_page(answered.headers, answered.body)  # a proxy's, or a server's that is no store
        if (answered.status >= 300 or is_page) and (again := outage(answered.status, answered.headers, answered.body)):
            raise TryAgain(again.reason, again.after_seconds)
        return answered

    async def _send_packed(self, packed: Packed, attempt: int) -> Answered:
        content_type, version = _VERSIONS[self._protocol]
        headers = {"Content-Type": content_type, "X-Prometheus-Remote-Write-Version": version}
        if attempt > 1:
            headers["Retry-Attempt"] = str(attempt - 1)
        block = packed.block
        if self._protocol == "2.0":
            block = bytes(cramjam.snappy.compress_raw(to_version2(packed.message())))
        try:
            return await self._poster.post(block, headers)
        except OSError as error:
            raise TryAgain(f"{type(error).__name__}: {error}") from None


def _halves(packed: Packed) -> list[Packed]:
    """Two requests, the first one last; none if it cannot be read here either."""
    try:
        first, second = packed.message().halves()
    except WireError:
        return []
    return [pack_message(second), pack_message(first)]


def _fixed_headers(settings: PrometheusSettings) -> Mapping[str, str]:
    headers = {"Content-Encoding": "snappy", "User-Agent": USER_AGENT, **revealed(settings.headers)}
    if settings.token is not None:
        headers["Authorization"] = f"Bearer {settings.token.reveal()}"
    elif settings.username:
        password = settings.password.reveal() if settings.password is not None else ""
        pair = base64.b64encode(f"{settings.username}:{password}".encode()).decode()
        headers["Authorization"] = f"Basic {pair}"
    return headers
