"""The effect of each answer of a receiver on a batch, over real connections."""

from __future__ import annotations

import json
import random
import socket
import threading
from collections.abc import Callable, Iterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from lens_hook import say
from lens_hook.buffer import Counts
from lens_hook.client import Client
from lens_hook.sender import Sender, pause_after
from lens_hook.settings import Settings
from lens_hook.store import Batch
from lens_hook.wire import Line

from tests.generated import examples
from tests.plugins.sources.wandb_hook.receiver import Receiver, Request, accept, receiving

Answer = tuple[int, bytes, dict[str, str]]


_clients: list[Client] = []


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """Reset messages after each test, and leave no connection open."""
    say._said.clear()
    yield
    say._said.clear()
    while _clients:
        _clients.pop().close()


def client(chosen: Settings, between: Callable[[], None] = lambda: None) -> Client:
    """A client that is closed at the end of the test."""
    _clients.append(Client(chosen, between))
    return _clients[-1]


def line(number: int, size: int = 0) -> Line:
    """An encoded row."""
    record = {
        "record": "step_metrics",
        "data_source": "wandb",
        "run_id": f"r{number % 2}",
        "session": "s",
        "row_step": number,
        "iteration": number * 10,
        "event_time": 1.5,
        "sequence": number + 1,
        "values": {"loss": number, "pad": "x" * size} if size else {"loss": number},
    }
    return Line(json.dumps(record, separators=(",", ":")).encode(), 1)


def evidence() -> Line:
    """An encoded evidence record."""
    facts = {
        "wandb": {"project": "p", "config": {}},
        "environment": {"RANK": "0"},
        "pytorch": {"available": True},
        "modules": {"megatron": None, "torch": "2.1"},
        "system": {},
    }
    record = {
        "record": "evidence",
        "source": "wandb",
        "run_id": "r0",
        "session": "s",
        "event_time": 2.0,
        "facts": facts,
    }
    return Line(json.dumps(record).encode(), 0, is_row=False)


def batch(count: int = 10) -> Batch:
    """Some rows."""
    return Batch(b'{"pod_name":"p","workload_uid":"w"}', [line(number) for number in range(count)])


def sender(receiver: Receiver, token: str = "") -> tuple[Sender, Counts]:
    """A sender to `receiver`."""
    counts = Counts()
    chosen = Settings(base_url=receiver.url, token=token, flush_interval_seconds=0.05)
    return Sender(client(chosen), counts), counts


def test_delivered_over_one_connection() -> None:
    with receiving() as receiver:
        sending, counts = sender(receiver, token="t0k3n")
        for _ in range(3):
            assert sending.send(batch(), 5.0)
        assert counts.delivered_rows == 30
        assert [request.headers["Authorization"] for request in receiver.requests] == ["Bearer t0k3n"] * 3
        assert len(receiver.rows()) == 30
        envelope = receiver.requests[0].json()
        assert (envelope["version"], envelope["producer"]) == (1, "lens-hook/0.1.0")


@pytest.mark.parametrize(
    "answer",
    [
        (500, b"", {}),
        (503, b"", {}),
        (429, b"", {}),
        (200, b"<html>sign in</html>", {}),
        (200, b'{"success": false}', {}),
        (302, b"", {"Location": "/login"}),
        (204, b"", {}),
        (405, b"", {}),
    ],
)
def test_no_success_is_tried_again(answer: Answer) -> None:
    with receiving(lambda request: answer) as receiver:
        sending, counts = sender(receiver)
        assert not sending.send(batch(), 5.0)
        assert not sending.healthy
        receiver.behaviour = accept
        assert sending.send(batch(), 5.0)
        assert sending.healthy
        assert (counts.delivered_rows, counts.rejected_rows) == (10, 0)


_PAGES = st.sampled_from(
    [
        b"<html><center>The plain HTTP request was sent to HTTPS port</center></html>",
        b"Bad Request",
        b'{"message": "Bad Request"}',
        b'{"message": "no Route matched", "request_id": "1"}',
        b'{"code": 400, "message": "bad"}',
        b'{"error": {"code": 400, "message": "bad"}}',
        b'{"timestamp": 1, "status": 400, "error": "Bad Request", "path": "/records"}',
        b'["code", "message"]',
        b"null",
    ]
)


@given(
    statuses=st.lists(st.integers(200, 599).filter(lambda status: status not in (204, 304)), min_size=2, max_size=2),
    body=_PAGES | st.binary(max_size=60),
)
@example(statuses=[400, 400], body=b"")
@example(statuses=[413, 413], body=b"<html>413 Request Entity Too Large</html>")
@example(statuses=[404, 200], body=b"<html>welcome</html>")
@example(statuses=[404, 400], body=b"<html>")
@settings(max_examples=examples(60), deadline=None)
def test_no_foreign_answer_empties_a_batch(statuses: list[int], body: bytes) -> None:
    """Whatever answers and is no Lens: nothing is refused, nothing delivered, and the Lens that comes gets all."""

    def foreign(request: Request) -> Answer:
        return statuses[0] if request.path.endswith("/records") else statuses[1], body, {}

    with receiving(foreign) as receiver:
        sending, counts = sender(receiver)
        held = batch()
        assert not sending.send(held, 5.0)
        assert not sending.healthy
        assert (counts.delivered_rows, counts.rejected_rows, counts.dropped_points) == (0, 0, 0)
        assert len(held.lines) == 10
        receiver.requests.clear()
        receiver.behaviour = accept
        sending._upstream_until = 0.0  # ten minutes later
        assert sending.send(held, 5.0)
        assert sorted(step for step, _, _ in receiver.points()) == list(range(10))
        assert counts.delivered_rows == 10


def test_a_proxy_that_begins_to_refuse_every_size_loses_nothing() -> None:
    with receiving() as receiver:
        sending, counts = sender(receiver)
        assert sending.send(batch(3), 5.0)
        receiver.behaviour = lambda request: (413, b"<html>", {})
        assert not sending.send(batch(3), 5.0)
        assert (counts.delivered_rows, counts.rejected_rows) == (3, 0)


@pytest.mark.parametrize(
    ("status", "body", "done"),
    [
        (200, b'{"meta": {"code": 4001, "message": "bad parameter"}}', True),
        (400, b'{"meta": {"code": 400, "message": "no valid workload"}}', True),
        (400, b'{"error": "workload_uid or pod_name is required"}', True),
        (200, b'{"meta": {"code": 5002, "message": "database"}}', False),
        (500, b'{"meta": {"code": 500, "message": "database"}}', False),
    ],
)
def test_upstreams_own_refusals_are_known_by_its_envelope(status: int, body: bytes, done: bool) -> None:
    def answer(request: Request) -> Answer:
        return (404, b"", {}) if request.path.endswith("/records") else (status, body, {})

    with receiving(answer) as receiver:
        sending, counts = sender(receiver)
        assert sending.send(batch(), 5.0) is done
        assert (counts.delivered_rows, counts.rejected_rows) == (0, 10 if done else 0)


def test_retry_after_is_obeyed() -> None:
    with receiving(lambda request: (503, b"", {"Retry-After": "17"})) as receiver:
        sending, _ = sender(receiver)
        assert not sending.send(batch(), 5.0)
        assert 15.0 < sending.wait_seconds() <= 34.0


def test_what_all_ranks_are_told_is_spread_over_as_much_again() -> None:
    pauses = [pause_after(1, 20.0) for _ in range(300)]
    assert 20.0 <= min(pauses) < 22.0
    assert 38.0 < max(pauses) <= 40.0
    assert max(pause_after(12, 300.0) for _ in range(300)) <= 360.0


def test_the_pauses_of_ranks_that_share_a_seed_differ_and_their_numbers_stay_their_own() -> None:
    pauses = []
    for _ in range(2):
        random.seed(42)
        pauses.append([pause_after(number, None) for number in range(1, 9)])
        after = random.random()
    assert pauses[0] != pauses[1]
    random.seed(42)
    assert random.random() == after


def test_backoff_grows_with_full_jitter() -> None:
    with receiving(lambda request: (500, b"", {})) as receiver:
        sending, _ = sender(receiver)
        waits = []
        for _ in range(12):
            sending.send(batch(1), 5.0)
            waits.append(sending.wait_seconds())
        assert waits[0] <= 1.0
        assert max(waits) <= 60.0
        assert max(waits[6:]) > 2.0


def test_too_large_is_split_down_to_the_one_that_is(capfd: pytest.CaptureFixture[str]) -> None:
    def small_only(request: Request) -> Answer:
        return (413, b"", {}) if len(request.body) > 2000 else accept(request)

    with receiving(small_only) as receiver:
        sending, counts = sender(receiver)
        lines = [line(number) for number in range(40)]
        lines[7] = line(7, size=5000)
        assert sending.send(Batch(b'{"pod_name":"p"}', lines), 5.0)
        assert (counts.delivered_rows, counts.rejected_rows) == (39, 1)
        accepted = [row for row in receiver.rows() if row["row_step"] != 7]
        assert {row["row_step"] for row in accepted} == set(range(40)) - {7}
    assert capfd.readouterr().err.count("413") == 1


def test_a_refused_batch_is_counted_and_said_once(capfd: pytest.CaptureFixture[str]) -> None:
    body = json.dumps({"code": "RequestParameterInvalid", "message": "no identity"}).encode()
    with receiving(lambda request: (400, body, {})) as receiver:
        sending, counts = sender(receiver)
        assert sending.send(batch(), 5.0)
        assert sending.send(batch(), 5.0)
        assert (counts.delivered_rows, counts.rejected_rows, counts.dropped_points) == (0, 20, 20)
    said = capfd.readouterr().err
    assert said.count("lens-hook") == 1
    assert "no identity" in said


def test_rejected_items_do_not_lose_their_neighbours(capfd: pytest.CaptureFixture[str]) -> None:
    body = json.dumps({"success": True, "accepted": 8, "rejected": [{"index": 2, "reason": "bad"}, {"index": 3}]})
    with receiving(lambda request: (200, body.encode(), {})) as receiver:
        sending, counts = sender(receiver)
        assert sending.send(batch(), 5.0)
        assert (counts.delivered_rows, counts.rejected_rows) == (8, 2)
    assert "bad" in capfd.readouterr().err


def test_a_wrong_token_is_said_once_and_tried_on_slowly(capfd: pytest.CaptureFixture[str]) -> None:
    with receiving(lambda request: (401, b"", {})) as receiver:
        sending, counts = sender(receiver, token="very-secret")
        assert not sending.send(batch(), 5.0)
        assert not sending.send(batch(), 5.0)
        assert sending.wait_seconds() > 20.0
        receiver.behaviour = accept
        assert sending.send(batch(), 5.0)
        assert counts.delivered_rows == 10
    said = capfd.readouterr().err
    assert said.count("answers 401: set PRIMUS_LENS_API_TOKEN") == 1
    assert "very-secret" not in said


def upstream(request: Request) -> Answer:
    """A receiver that knows upstream's routes alone."""
    if request.path.endswith("/records"):
        return 404, b"404 page not found", {}
    return 200, b'{"meta": {"code": 2000, "message": "OK"}}', {}


def test_an_upstream_receiver_gets_its_own_routes() -> None:
    with receiving(upstream) as receiver:
        sending, counts = sender(receiver)
        event = Line(b'{"record":"event","type":"training_started"}', 0, is_row=False)
        lines = [event, evidence(), *(line(number) for number in range(6))]
        assert sending.send(Batch(b'{"pod_name":"p","workload_uid":"w","namespace":"n"}', lines), 5.0)
        assert sending.send(batch(2), 5.0)
        assert counts.delivered_rows == 8
        paths = [request.path for request in receiver.requests]
        assert paths.count("/api/v1/records") == 1
        detection = next(request.json() for request in receiver.requests if request.path.endswith("/detection"))
        assert (detection["source"], detection["type"]) == ("wandb", "framework_detection_raw")
        assert (detection["workload_uid"], detection["pod_name"], detection["namespace"]) == ("w", "p", "n")
        assert detection["evidence"]["pytorch"]["detected_modules"]["megatron"] is True
        assert detection["evidence"]["wandb"]["project"] == "p"
        logs = [request.json() for request in receiver.requests if request.path.endswith("/logs")]
        assert {body["run_id"] for body in logs} == {"r0", "r1"}
        entry = logs[0]["logs"][1]
        assert entry == {"step": 20, "timestamp": 1.5, "data": {"loss": 2}}


def test_a_base_url_without_any_route() -> None:
    with receiving(lambda request: (404, b"", {})) as receiver:
        sending, counts = sender(receiver)
        assert not sending.send(batch(), 5.0)
        assert "base URL" in sending.last_error
        receiver.behaviour = accept
        assert sending.send(batch(), 5.0)
        assert counts.delivered_rows == 10


def test_a_connection_that_the_receiver_has_closed() -> None:
    with receiving() as receiver:
        sending, counts = sender(receiver)
        assert sending.send(batch(1), 5.0)
        receiver.behaviour = lambda request: None
        assert not sending.send(batch(1), 5.0)
        receiver.behaviour = accept
        assert sending.send(batch(1), 5.0)
        assert counts.delivered_rows == 2


@pytest.mark.parametrize(
    "reply", [b"", b"garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{", b"\0" * 70000]
)
def test_nonsense_on_the_wire(reply: bytes) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(reply)

        thread = threading.Thread(target=answer)
        thread.start()
        chosen = Settings(base_url=f"http://127.0.0.1:{listener.getsockname()[1]}", flush_interval_seconds=0.05)
        sending = Sender(client(chosen), Counts())
        assert not sending.send(batch(1), 2.0)
        assert sending.last_error
        thread.join()


@pytest.mark.parametrize("url", ["", "nonsense", "http://", "http://host:notaport/x", "http://[::1", "ftp//x"])
def test_a_malformed_base_url_is_an_error_of_the_delivery(url: str) -> None:
    sending = Sender(client(Settings(base_url=url)), Counts())
    assert not sending.send(batch(1), 0.2)
    assert sending.last_error


def test_the_worker_is_called_while_the_answer_takes_long() -> None:
    released = threading.Event()

    def slow(request: Request) -> Answer:
        released.wait(240)
        return accept(request)

    calls: list[int] = []

    def between() -> None:
        calls.append(1)
        if len(calls) == 3:
            released.set()

    with receiving(slow) as receiver:
        chosen = Settings(base_url=receiver.url, flush_interval_seconds=0.05)
        assert Sender(client(chosen, between), Counts()).send(batch(1), 10.0)
    assert len(calls) >= 3


@pytest.mark.parametrize("token", ["secret-1\nsecret-2", "secret-1\x00", "secret-1\r\nX-Header: secret-2"])
def test_a_token_that_no_header_can_hold_is_said_without_it(token: str) -> None:
    answer = Client(Settings(base_url="http://127.0.0.1:1/api/v1", token=token), lambda: None).post("/records", b"", 1)
    assert answer.status == 0
    assert "PRIMUS_LENS_API_TOKEN holds a line break" in answer.error
    assert "secret" not in answer.error
