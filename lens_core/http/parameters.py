"""Reading the query parameters of the query routes; each mistake is a 400 that names the parameter."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Literal, NamedTuple, get_args

from starlette.requests import Request

from ..base.errors import BadRequest
from ..model.queries import Aggregate, PointField, PointQuery, percentile_of
from ..plugin_api.store import Store
from .curve_options import CurveOptions

Format = Literal["json", "columns", "csv", "arrow"]
MOST_POINTS = 1_000_000
# As seconds the years 1973 to 5138, as milliseconds a few weeks of 1970 to 1973, when nobody trained.
_LIKE_SECONDS = (10**8, 10**11)
MOST_AGGREGATES = 10
MOST_BUCKETS = 10_000
MOST_LAST = 100_000
_INTERVAL = re.compile(r"(\d+)\s*(ms|s|m|h|d|it|)")
_MILLISECONDS = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_OTHER_NAMES = {"avg": "mean", "average": "mean", "median": "p50"}
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


def share(request: Request, name: str) -> float | None:
    """An optional number from 0 up to, but without, 1."""
    text = request.query_params.get(name, "").strip()
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < 1:
        raise BadRequest(f"{name} must be a number from 0 to below 1, such as 0.9, not {text[:50]!r}")
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
        return tuple(dict.fromkeys(given))
    return split_names(given[0] if given else "")


def read_interval(text: str) -> tuple[int | None, int | None]:
    """Read an interval: of time in milliseconds (`30s`, `5m`, `500ms`, `250`), or a number of iterations (`1000it`).

    One of the two is None. Raises BadRequest.
    """
    matched = _INTERVAL.fullmatch(text.strip())
    number = int(matched[1]) if matched and len(matched[1]) < 16 else 0
    is_iterations = matched is not None and matched[2] == "it"
    if matched and not is_iterations:
        number *= _MILLISECONDS[matched[2]]
    if not 0 < number <= 2**53:
        raise BadRequest(
            f"interval must be a time such as 30s, 5m or 1h, milliseconds, or iterations such as 1000it,"
            f" not {text[:50]!r}"
        )
    return (None, number) if is_iterations else (number, None)


class Aggregation(NamedTuple):
    """The figures that are made of the points of an interval, and the interval, as PointQuery has them."""

    aggregate: str | None = None
    interval_ms: int | None = None
    interval_iterations: int | None = None


def aggregation_of(names: str, interval: str) -> Aggregation:
    """`aggregate` and `interval`, which go together. Raises BadRequest."""
    if not names and not interval:
        return Aggregation()
    found = list(dict.fromkeys(_aggregate(name.strip()) for name in names.split(",")))
    if len(found) > MOST_AGGREGATES:
        raise BadRequest(f"aggregate names {len(found)} aggregates; ask for at most {MOST_AGGREGATES} at one time")
    if not interval:
        raise BadRequest("aggregate needs interval, for example interval=1m or interval=1000it")
    return Aggregation(",".join(found), *read_interval(interval))


def _aggregate(name: str) -> str:
    known = _OTHER_NAMES.get(name, name)
    if known in get_args(Aggregate) or percentile_of(known) is not None:
        return known
    raise BadRequest(
        f"aggregate must be one of {', '.join(get_args(Aggregate))}, or a percentile from p0 to p100 such as p95;"
        f" several with commas between; not {name[:50]!r}"
    )


def ensure_few_intervals(aggregation: Aggregation, start: int | None, end: int | None) -> None:
    """Refuse a span of time that has too many intervals, before anything is read. Raises BadRequest."""
    interval, count = aggregation.interval_ms, (aggregation.aggregate or "").count(",") + 1
    if interval and start is not None and end is not None and count * (end - start) // interval > MOST_POINTS:
        raise BadRequest(f"between start and end are more than {MOST_POINTS} intervals; ask for longer ones")


def across_runs(text: str, aggregation: Aggregation) -> bool:
    """Whether `across` asks for all runs together. Raises BadRequest."""
    if text not in ("", "runs"):
        raise BadRequest(f"across must be runs, or left out, not {text[:50]!r}")
    if text and aggregation.aggregate is None:
        raise BadRequest("across=runs needs aggregate, for example aggregate=p50,p95&interval=1000it")
    return bool(text)


def point_fields(text: str, aggregation: Aggregation) -> tuple[PointField, ...]:
    """Read the names in `fields`, which are answered beside each point. Raises BadRequest."""
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names:
        if name not in get_args(PointField):
            raise BadRequest(f"fields must be among {', '.join(get_args(PointField))}, not {name[:50]!r}")
    if names and aggregation.aggregate is not None:
        raise BadRequest("fields are those of single points: leave out aggregate, or fields")
    return tuple(names)  # type: ignore[arg-type] # each was found among the literals


def ordered_descending(request: Request, *, otherwise: bool) -> bool:
    """Whether `order` is `desc`; `otherwise` where it is left out. Raises BadRequest."""
    text = request.query_params.get("order", "").strip().lower()
    if text not in ("", "asc", "desc"):
        raise BadRequest(f"order must be asc or desc, not {text[:50]!r}")
    return text == "desc" if text else otherwise


def answer_format(request: Request) -> Format:
    """`format`, else what `Accept` names, else JSON."""
    text = request.query_params.get("format", "").strip().lower()
    if not text:
        accepted = request.headers.get("accept", "")
        return next((known for media_type, known in _TYPES.items() if media_type in accepted), "json")
    for known in get_args(Format):
        if text == known:
            return known  # type: ignore[no-any-return] # get_args has lost the types
    raise BadRequest(f"format must be json, columns, csv or arrow, not {text[:50]!r}")


def point_query(request: Request) -> PointQuery:
    """All parameters of the routes that answer points of the path's workload."""
    return point_query_of(request, workload_uid(request))


def point_query_of(request: Request, uid: str) -> PointQuery:
    """All parameters of the routes that answer points, of this workload."""
    parameters = request.query_params
    aggregation = aggregation_of(
        parameters.get("aggregate", "").strip().lower(), parameters.get("interval", "").strip().lower()
    )
    max_points = integer(request, "max_points", minimum=2, maximum=MOST_POINTS)
    last = integer(request, "last", minimum=1, maximum=MOST_LAST)
    ways = {"max_points": max_points, "aggregate": aggregation.aggregate, "last": last}
    given = [name for name, value in ways.items() if value is not None]
    if len(given) > 1:
        raise BadRequest(f"{' and '.join(given)} are ways to have fewer points; give one of them")
    start, end = time_ms(request, "start"), time_ms(request, "end")
    ensure_few_intervals(aggregation, start, end)
    return PointQuery(
        workload_uid=uid,
        metrics=metric_names(request),
        data_source=parameters.get("data_source", "").strip(),
        start_ms=start,
        end_ms=end,
        run_id=parameters.get("run_id"),
        attempt=integer(request, "attempt", minimum=0, maximum=2**31 - 1),
        rank=integer(request, "rank", minimum=-1, maximum=2**31 - 1),
        max_points=max_points,
        **aggregation._asdict(),
        limit=integer(request, "limit", minimum=1, maximum=MOST_POINTS),
        cursor=parameters.get("cursor", "").strip(),
        is_across_runs=across_runs(parameters.get("across", "").strip(), aggregation),
        last=last,
        is_descending=ordered_descending(request, otherwise=False),
        fields=point_fields(parameters.get("fields", ""), aggregation),
    )


def curve_options(request: Request, query: PointQuery) -> CurveOptions:
    """`buckets`, `smooth`, `percentiles` and `group_by`. Raises BadRequest for what does not go together."""
    buckets = integer(request, "buckets", minimum=3, maximum=MOST_BUCKETS)
    smooth = share(request, "smooth")
    percentiles = request.query_params.get("percentiles", "").strip()
    if percentiles not in ("", "true", "false"):
        raise BadRequest(f"percentiles must be true or false, not {percentiles[:50]!r}")
    group_by = request.query_params.get("group_by", "").strip()
    if group_by not in ("", "rank"):
        raise BadRequest(f"group_by must be rank, or left out, not {group_by[:50]!r}")
    if smooth is not None and buckets is None:
        raise BadRequest("smooth needs buckets, for example buckets=400&smooth=0.9")
    others = {
        "max_points": query.max_points,
        "aggregate": query.aggregate,
        "last": query.last,
        "limit": query.limit,
        "fields": query.fields or None,
        "order=desc": query.is_descending or None,
    }
    given = [name for name, value in others.items() if value is not None]
    if buckets is not None and given:
        raise BadRequest(f"buckets does not go with {' and '.join(given)}; leave one of them out")
    if group_by and (query.limit is not None or "rank" in query.fields):
        raise BadRequest("group_by=rank does not go with limit or fields=rank; ask for one rank with rank=0")
    return CurveOptions(buckets, smooth, bool(group_by), percentiles != "false")


def ensure_answerable(store: Store, query: PointQuery, format_: str, columns: Sequence[str] = ()) -> None:
    """Refuse what a store does not know, and what a format has no column for. Raises BadRequest."""
    if unknown := sorted(query.options - store.point_options):
        raise BadRequest(f"the store {store.name!r} does not know {', '.join(unknown)}; leave it out")
    if (extra := [*columns, *query.extra_columns]) and format_ == "arrow":
        raise BadRequest(f"format arrow has no columns for {', '.join(extra)}; take json or csv")
