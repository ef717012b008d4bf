"""Posts what rsyslog's omprog hands over to Lens: one JSON object a line on standard input, one answer for each.

    lens_omprog.py http://lens:8080/logs [--token-file FILE]

The lines of a transaction go in one request; rsyslog is told OK when Lens has said that they are safe, and keeps them
and tries again otherwise. Only what Lens refuses for good (400) is let go, and said on standard error. Needs Python
3.9 and nothing else. Protocol: omprog with `confirmMessages` and `useTransactions`.
"""

from __future__ import annotations

import argparse
import sys
import urllib.error
import urllib.request
from pathlib import Path

BEGIN, COMMIT = b"BEGIN TRANSACTION", b"COMMIT TRANSACTION"
TIMEOUT_SECONDS = 30
REFUSED_FOR_GOOD = (400, 413)


def post(url: str, token: str, lines: list[bytes]) -> str:
    """Send lines; the answer for rsyslog: OK, or why it has to try again."""
    headers = {"Content-Type": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    request = urllib.request.Request(url, b"\n".join(lines), headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS):
            return "OK"
    except urllib.error.HTTPError as error:
        with error:
            if error.code not in REFUSED_FOR_GOOD:
                return f"Lens answers {error.code}"
            print(f"Lens refuses {len(lines)} lines: {error.read(500)!r}", file=sys.stderr, flush=True)
            return "OK"
    except OSError as error:
        return f"Lens cannot be reached: {error}"


def main() -> None:
    """Serve rsyslog until it closes standard input."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--token-file", type=Path)
    chosen = parser.parse_args()
    token = chosen.token_file.read_text().strip() if chosen.token_file else ""
    waiting: list[bytes] = []
    in_transaction = False
    print("OK", flush=True)  # ready
    for line in sys.stdin.buffer:
        answer = "OK"
        if (text := line.strip()) == BEGIN:
            waiting, in_transaction = [], True
        elif text == COMMIT:
            answer = post(chosen.url, token, waiting) if waiting else "OK"
            waiting, in_transaction = [], False
        elif in_transaction:
            waiting.append(text)
            answer = "DEFER_COMMIT"
        else:
            answer = post(chosen.url, token, [text])
        print(answer.replace("\n", " "), flush=True)


if __name__ == "__main__":
    main()
