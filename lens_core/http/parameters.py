"""Reading the query parameters of the query routes; each mistake is a 400 that names the parameter."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from typing import Literal, get_args

from starlette.requests import Request

from ..base.errors import BadRequest
from ..model.queries import Aggregate, PointQuery

Format = Literal["json", "csv", "arrow"]
MOST_POINTS = 1_000_000
# As seconds the years 1973 to 5138, as milliseconds a few weeks of 1970 to 1973, when nobody trained.
_LIKE_SECONDS = (10**8, 10**11)
_INTERVAL = re.compile(r"(\d+)\s*(ms|s|m|h|d|)")
_MILLISECONDS = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_OTHER_NAMES = {"avg": "mean", "average": "mean"}
_TYPES: dict[str, Format] = {"text/csv": "csv", "application/vnd.apache.arrow.stream": "arrow"}


def workload_uid(request: Request) -> str:
    """The workload of the path. Raises BadRequest when it is missing."""
    uid: str = request.path_params.get("uid", "").strip()
    if not uid:
        raise BadRequest("workload_uid is required")
    return uid


def is_elsewhere(request: Request, cluster_name: str) -> bool:
    """Whether `cluster` names another cluster than the daemon's: what is asked has an empty answer."""
    return is_another(request.query_params.get("cluster", ""), cluster_name)


def is_another(cluster: str, cluster_name: str) -> bool:
    """Whether a cluster, if one is named at all, is another than the daemon's."""
    return cluster not in ("", cluster_name)


def integer(request: Request, name: str, *, minimum: int | None = None, maximum: int | None = None) -> int | None:
    """An optional whole number."""
    text = request.query_params.get(name, "").strip()
    if not text:
        return None
    try:
        number = int(text)
    except ValueError:
        raise BadRequest(f"{name} must be a whole number, not {text[:50]!r}") from None
    if (minimum is not None and number < minimum) or (maximum is not None and number > maximum):
        raise BadRequest(f"{name} must be between {minimum} and {maximum}, not {number}")
    return number


def time_ms(request: Request, name: str) -> int | None:
    """An optional time, in milliseconds since the epoch or as ISO 8601 (UTC where it names no zone)."""
    text = request.query_params.get(name, "").strip()
    if not text:
        return None
    try:
        number = int(text)
    except ValueError:
        return iso_ms(name, text)
    if _LIKE_SECONDS[0] <= number < _LIKE_SECONDS[1]:
        raise BadRequest(f"{name} looks like seconds; times are milliseconds since the epoch: {number * 1000}")
    if not -(2**53) <= number <= 2**53:
        raise BadRequest(f"{name} is not a time in milliseconds since the epoch: {number}")
    return number


def iso_ms(name: str, text: str) -> int:
    """Read a time in ISO 8601 as milliseconds, UTC where it names no zone. Raises BadRequest that has the name."""
    # A + of a zone that was not escaped arrives as a space.
    written = re.sub(r" (\d\d:?\d\d)$", r"+\1", text) if "T" in text else text
    try:
        moment = datetime.fromisoformat(written[:-1] + "+00:00" if written[-1] in "zZ" else written)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=timezone.utc)
        since = moment - datetime(1970, 1, 1, tzinfo=timezone.utc)
    except (ValueError, OverflowError):
        raise BadRequest(
            f"{name} must be a time in milliseconds since the epoch, or like 2026-01-31T08:00:00Z, not {text[:50]!r}"
        ) from None
    return since // timedelta(milliseconds=1)


def split_names(text: str) -> tuple[str, ...] | None:
    """Names out of `all`, `a,b` or Grafana's `{a,b}`; None for all."""
    text = text.strip()
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1]
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    return None if not names or (len(names) == 1 and names[0].lower() == "all") else names


def metric_names(request: Request) -> tuple[str, ...] | None:
    """The metrics asked for, None for all; a parameter that is repeated is one literal name each time."""
    given = request.query_params.getlist("metrics")
    if len(given) > 1:
        return tuple(dict.fromkeys(name for name in given if name))
    return split_names(given[0] if given else "")


def interval_ms(text: str) -> int:
    """An interval of time: `30s`, `5m`, `1h`, `500ms`, or milliseconds. Raises BadRequest."""
    matched = _INTERVAL.fullmatch(text.strip())
    number = int(matched[1]) * _MILLISECONDS[matched[2]] if matched and len(matched[1]) < 16 else 0
    if not 0 < number <= 2**53:
        raise BadRequest(f"interval must be a time such as 30s, 5m or 1h, or milliseconds, not {text[:50]!r}")
    return number


def aggregate_of(name: str, interval: str) -> tuple[Aggregate | None, int | None]:
    """`aggregate` and `interval`, which go together. Raises BadRequest."""
    if not name and not interval:
        return None, None
    for known in get_args(Aggregate):
        if _OTHER_NAMES.get(name, name) == known:
            if not interval:
                raise BadRequest("aggregate needs interval, for example interval=1m")
            return known, interval_ms(interval)
    raise BadRequest(f"aggregate must be one of {', '.join(get_args(Aggregate))}, not {name[:50]!r}")


def ensure_few_intervals(interval: int | None, start: int | None, end: int | None) -> None:
    """Refuse a span of time that has too many intervals, before anything is read. Raises BadRequest."""
    if interval and start is not None and end is not None and (end - start) // interval > MOST_POINTS:
        raise BadRequest(f"between start and end are more than {MOST_POINTS} intervals; ask for longer ones")


def answer_format(request: Request) -> Format:
    """`format`, else what `Accept` names, else JSON."""
    text = request.query_params.get("format", "").strip().lower()
    if not text:
        accepted = request.headers.get("accept", "")
        return next((known for media_type, known in _TYPES.items() if media_type in accepted), "json")
    for known in get_args(Format):
        if text == known:
            return known  # type: ignore[no-any-return] # get_args has lost the types
    raise BadRequest(f"format must be json, csv or arrow, not {text[:50]!r}")


def point_query(request: Request) -> PointQuery:
    """All parameters of the routes that answer points."""
    parameters = request.query_params
    aggregate, interval = aggregate_of(
        parameters.get("aggregate", "").strip().lower(), parameters.get("interval", "").strip()
    )
    max_points = integer(request, "max_points", minimum=2, maximum=MOST_POINTS)
    if max_points is not None and aggregate is not None:
        raise BadRequest("max_points and aggregate are two ways to have fewer points; give one of them")
    ensure_few_intervals(interval, time_ms(request, "start"), time_ms(request, "end"))
    return PointQuery(
        workload_uid=workload_uid(request),
        metrics=metric_names(request),
        data_source=parameters.get("data_source", "").strip(),
        start_ms=time_ms(request, "start"),
        end_ms=time_ms(request, "end"),
        run_id=parameters.get("run_id"),
        attempt=integer(request, "attempt", minimum=0, maximum=2**31 - 1),
        max_points=max_points,
        aggregate=aggregate,
        interval_ms=interval,
        limit=integer(request, "limit", minimum=1, maximum=MOST_POINTS),
        cursor=parameters.get("cursor", "").strip(),
    )
