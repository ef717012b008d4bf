from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from lens_core.http.tokens import TokenStore
from tests.browser.browsing import EXPECTED_WHEN_AWAY
from tests.browser.conftest import Browse
from tests.browser.training import rows, send_rows
from tests.certificates import write_certificate
from tests.end_to_end.running_lens import RunningLens

# Somebody behind a proxy is not from loopback.
ELSEWHERE = {"X-Forwarded-For": "192.0.2.7"}
REFUSED = ("status of 401", *EXPECTED_WHEN_AWAY)


def test_the_page_behind_a_token(browse: Browse, own_lens: Callable[..., RunningLens]) -> None:
    lens = own_lens("login")
    send_rows(lens, "secret-job", rows(10))
    lens.drained()
    token = TokenStore(lens.data_dir).create_token("someone", "read")
    with browse(lens.url, extra_http_headers=ELSEWHERE) as watched:
        watched.expected = REFUSED
        page = watched.open("/", "form[action=login]")
        assert page.locator("text=secret-job").count() == 0
        watched.shot("login")
        page.get_by_label("Read token").fill("wrong")
        page.get_by_role("button", name="Log in").click()
        page.wait_for_selector("text=Nobody issued this token")
        page.get_by_label("Read token").fill(token)
        page.get_by_role("button", name="Log in").click()
        page.wait_for_selector("tbody tr a:has-text('secret-job')")
        assert page.evaluate("document.cookie") == ""
        assert token not in page.url
        page.wait_for_selector(".connection.up")
        page.get_by_role("button", name="Log out").click()
        page.wait_for_selector("form[action=login]")
        page.goto(f"{lens.url}/#/workload?uid=secret-job")
        page.wait_for_selector("form[action=login]")


def test_the_page_over_tls(browse: Browse, own_lens: Callable[..., RunningLens], tmp_path: Path) -> None:
    write_certificate(tmp_path)
    lens = own_lens("tls", "server: {tls_certificate: certificate.pem, tls_key: key.pem}\n")
    token = TokenStore(lens.data_dir).create_token("someone", "read")
    with browse(lens.url, extra_http_headers=ELSEWHERE, ignore_https_errors=True) as watched:
        watched.expected = REFUSED
        page = watched.open("/", "form[action=login]")
        page.get_by_label("Read token").fill(token)
        page.get_by_role("button", name="Log in").click()
        page.wait_for_selector(".empty")
        page.wait_for_selector(".connection.up")
        [cookie] = page.context.cookies()
        assert (cookie.get("secure"), cookie.get("httpOnly"), cookie.get("sameSite")) == (True, True, "Strict")
