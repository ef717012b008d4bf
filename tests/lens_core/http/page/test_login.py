from __future__ import annotations

import logging
import socket
from pathlib import Path

import httpx
import pytest
from lens_plugins.sources.wandb_api import WandbApi

from lens_core.base.errors import TooManyRequests
from lens_core.http.sessions import COOKIE, CSRF_HEADER, SECURE_COOKIE, FailureLimit, Sessions
from tests.plugins.sources.ingest_app import IngestApp

ELSEWHERE = "192.0.2.7"
BROWSER = {"Origin": "http://lens", "Sec-Fetch-Site": "same-origin"}


@pytest.fixture
def app(tmp_path: Path) -> IngestApp:
    return IngestApp(WandbApi, tmp_path, session_file=tmp_path / "sessions.json")


async def log_in(client: httpx.AsyncClient, token: str) -> httpx.Response:
    return await client.post("/login", data={"token": token}, headers=BROWSER)


async def test_a_login_reads_and_a_logout_ends_it(app: IngestApp) -> None:
    token = app.tokens.create_token("r", "read")
    async with app.client(ELSEWHERE) as client:
        assert (await client.get("/api/v1/status")).status_code == 401
        answer = await log_in(client, f" {token} ")
        assert (answer.status_code, answer.headers["location"]) == (303, "./")
        cookie = answer.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert "secure" not in cookie
        assert token not in answer.headers["set-cookie"]
        assert (await client.get("/api/v1/status")).status_code == 200
        session = (await client.get("/api/v1/session")).json()
        assert (session["role"], session["login"]) == ("read", True)
        refused = await client.post("/logout", headers=BROWSER)
        assert refused.status_code == 403
        left = await client.post("/logout", headers={CSRF_HEADER: session["csrf"]})
        assert left.status_code == 200
        assert (await client.get("/api/v1/status")).status_code == 401


async def test_what_a_login_changes_needs_the_csrf_token(app: IngestApp) -> None:
    token = app.tokens.create_token("a", "admin")
    async with app.client(ELSEWHERE) as client:
        await log_in(client, token)
        csrf = (await client.get("/api/v1/session")).json()["csrf"]
        body: dict[str, list[str]] = {"pods": []}
        assert (await client.put("/api/v1/directory", json=body)).status_code == 403
        assert (await client.put("/api/v1/directory", json=body, headers={CSRF_HEADER: "wrong"})).status_code == 403
        assert (await client.put("/api/v1/directory", json=body, headers={CSRF_HEADER: csrf})).status_code == 200


async def test_a_read_login_administers_nothing(app: IngestApp) -> None:
    async with app.client(ELSEWHERE) as client:
        await log_in(client, app.tokens.create_token("r", "read"))
        csrf = (await client.get("/api/v1/session")).json()["csrf"]
        assert (await client.post("/api/v1/replay", headers={CSRF_HEADER: csrf})).status_code == 403


async def test_a_revoked_token_ends_its_login_and_a_restart_does_not(app: IngestApp, tmp_path: Path) -> None:
    token = app.tokens.create_token("r", "read")
    async with app.client(ELSEWHERE) as client:
        await log_in(client, token)
        again = IngestApp(WandbApi, tmp_path, session_file=tmp_path / "sessions.json")
        async with again.client(ELSEWHERE) as other:
            other.cookies = client.cookies
            assert (await other.get("/api/v1/status")).status_code == 200
            app.tokens.revoke("r")
            assert (await other.get("/api/v1/status")).status_code == 401


def test_sessions_are_kept_as_hashes_for_their_owner_alone(app: IngestApp, tmp_path: Path) -> None:
    token = app.tokens.create_token("r", "read")
    name = app.state.sessions.open_session(token)
    assert name is not None
    file = tmp_path / "sessions.json"
    assert file.stat().st_mode & 0o777 == 0o600
    assert name not in file.read_text()
    assert token not in file.read_text()


async def test_over_tls_the_cookie_is_secure(app: IngestApp) -> None:
    transport = httpx.ASGITransport(app.app, client=(ELSEWHERE, 1))
    async with httpx.AsyncClient(transport=transport, base_url="https://lens") as client:
        token = app.tokens.create_token("r", "read")
        answer = await client.post("/login", data={"token": token}, headers={"Origin": "https://lens"})
        assert answer.headers["set-cookie"].startswith(f"{SECURE_COOKIE}=")
        assert "Secure" in answer.headers["set-cookie"]
        assert (await client.get("/api/v1/status")).status_code == 200
        assert "Strict-Transport-Security" in (await client.get("/")).headers


async def test_wrong_tokens_are_refused_in_words_and_soon_at_all(
    app: IngestApp, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with app.client(ELSEWHERE) as client:
        for _ in range(5):
            answer = await log_in(client, "lens_read_guess")
            assert answer.status_code == 401
            assert "Nobody issued this token" in answer.text
            assert COOKIE not in answer.headers.get("set-cookie", "")
        answer = await log_in(client, app.tokens.create_token("r", "read"))
        assert answer.status_code == 429
        assert int(answer.headers["retry-after"]) > 0
    assert "lens_read_guess" not in caplog.text
    async with app.client("192.0.2.8") as other:
        assert (await log_in(other, "x")).status_code == 401


async def test_another_sites_form_logs_nobody_in(app: IngestApp) -> None:
    token = app.tokens.create_token("r", "read")
    async with app.client(ELSEWHERE) as client:
        answer = await client.post("/login", data={"token": token}, headers={"Origin": "http://evil.example"})
        assert answer.status_code == 403


async def test_a_form_that_is_none(app: IngestApp) -> None:
    async with app.client(ELSEWHERE) as client:
        assert (await client.post("/login", content=b"token=" + b"x" * 5000)).status_code == 413
        assert (await client.post("/login", content=b"\xff\xfe")).status_code == 400
        assert (await client.post("/login", content=b"")).status_code == 401


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("POST", {"Sec-Fetch-Site": "cross-site", "Host": "127.0.0.1:8080"}, 403),
        ("POST", {"Sec-Fetch-Site": "same-origin", "Host": "127.0.0.1:8080"}, 200),
        ("POST", {"Origin": "null", "Host": "localhost:8080"}, 200),
        ("GET", {"Sec-Fetch-Site": "none", "Host": "evil.example:8080"}, 403),
        ("GET", {"Sec-Fetch-Site": "none", "Host": "[::1]:8080"}, 200),
        ("GET", {"Sec-Fetch-Site": "same-origin", "Host": "lens.example"}, 200),
        ("GET", {"Sec-Fetch-Site": "none", "Host": f"{socket.gethostname()}:8080"}, 200),
        ("GET", {"Host": "evil.example"}, 200),
    ],
)
async def test_a_browser_on_loopback_is_trusted_on_its_own_pages_only(
    tmp_path: Path, method: str, headers: dict[str, str], status: int
) -> None:
    app = IngestApp(WandbApi, tmp_path, public_url="https://lens.example/")
    async with app.client() as client:
        path = "/api/v1/wandb/metrics" if method == "POST" else "/api/v1/status"
        body = {"pod_name": "p", "metrics": []} if method == "POST" else None
        assert (await client.request(method, path, json=body, headers=headers)).status_code == status


def test_failures_are_forgotten_after_a_while_and_bounded_in_all() -> None:
    now = [0.0]
    limit = FailureLimit(per_address=2, in_all=4, window_seconds=60, clock=lambda: now[0])
    for address in ("a", "a", "b", "c"):
        limit.record_failure(address)
    for address in ("a", "new"):
        with pytest.raises(TooManyRequests):
            limit.check_address(address)
    now[0] = 61
    limit.check_address("a")


def test_a_session_file_that_is_damaged_logs_everybody_out(app: IngestApp, tmp_path: Path) -> None:
    (tmp_path / "damaged.json").write_text("{")
    sessions = Sessions(app.tokens, tmp_path / "damaged.json")
    assert sessions.open_session("nonsense") is None
    assert sessions.open_session(app.tokens.create_token("r", "read")) is not None


def test_sessions_end_by_themselves_and_are_bounded(app: IngestApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lens_core.http.sessions.MAX_SESSIONS", 3)
    now = [1000.0]
    sessions = Sessions(app.tokens, None, clock=lambda: now[0])
    token = app.tokens.create_token("r", "read")
    names = [sessions.open_session(token) for _ in range(5)]
    assert len(set(names)) == 5
    assert len(sessions._sessions) == 3
