"""A real Chromium on a real daemon; whatever goes wrong in the page is noted and fails the test."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, Dialog, Page, Playwright, Request

# The headless shell is the same engine without the browser around it: a fresh profile takes a tenth of the CPU time.
_SHELL, _BROWSER = shutil.which("chromium-headless-shell"), shutil.which("chromium")
CHROMIUM = os.environ.get("LENS_TEST_CHROMIUM") or _SHELL or _BROWSER or "/usr/bin/chromium-headless-shell"
# What the browser says when the daemon is away on purpose, or when a login is refused on purpose.
EXPECTED_WHEN_AWAY = (
    "ERR_CONNECTION_REFUSED",
    "ERR_INCOMPLETE_CHUNKED_ENCODING",
    "ERR_EMPTY_RESPONSE",
    "ERR_CONNECTION_RESET",
)


def launch(playwright: Playwright) -> Browser:
    """Debian's Chromium; as root it wants no sandbox of its own."""
    args = ["--no-sandbox", "--disable-gpu", "--disable-software-rasterizer", "--disable-dev-shm-usage"]
    return playwright.chromium.launch(executable_path=CHROMIUM, args=args)


class Watched:
    """A page, and everything that it should not have done."""

    def __init__(self, page: Page, home: str) -> None:
        self.page = page
        self.home = home
        self.problems: list[str] = []
        self.expected: tuple[str, ...] = ()
        page.on("console", lambda message: self._said(message.type, message.text))
        page.on("pageerror", lambda error: self.problems.append(f"exception: {error}"))
        page.on("request", self._asked)
        page.on("dialog", self._asked_the_user)

    def open(self, path: str = "/", wait: str | None = None) -> Page:
        """Go to a view; `wait` is a selector that shows it is there."""
        self.page.goto(self.home + path)
        if wait:
            self.page.wait_for_selector(wait)
        return self.page

    def until(self, expression: str, seconds: float = 240.0) -> None:
        """Wait until an expression is true in the page, asked from outside, as the page's policy allows no eval."""
        ends = time.monotonic() + seconds
        while not self.page.evaluate(expression):
            assert time.monotonic() < ends, f"{expression} did not become true"
            self.page.wait_for_timeout(50)

    def shot(self, name: str) -> None:
        """A picture of the view, kept where LENS_SCREENSHOTS says."""
        folder = os.environ.get("LENS_SCREENSHOTS")
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
            self.page.screenshot(path=str(Path(folder) / f"{name}.png"))

    def check(self) -> None:
        """Fails with what went wrong."""
        found = [text for text in self.problems if not any(word in text for word in self.expected)]
        assert found == []

    def _said(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.problems.append(f"console {kind}: {text}")

    def _asked_the_user(self, dialog: Dialog) -> None:
        self.problems.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _asked(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme in ("http", "https", "ws", "wss") and parts.netloc != urlsplit(self.home).netloc:
            self.problems.append(f"a request to elsewhere: {request.url[:200]}")


@contextmanager
def browsing(browser: Browser, home: str, **options: Any) -> Iterator[Watched]:
    """A fresh profile; at the end the page must have had no problem."""
    options.setdefault("viewport", {"width": 1280, "height": 800})
    context: BrowserContext = browser.new_context(**options)
    context.set_default_timeout(120_000)
    watched = Watched(context.new_page(), home)
    try:
        yield watched
        watched.check()
    finally:
        context.close()
