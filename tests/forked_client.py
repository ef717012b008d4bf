"""`lens` for shells and for whoever starts programs: passes everything on to tests/forked_server.py.

`python -IS forked_client.py SOCKET ARGUMENT …` takes a fiftieth of the CPU time of a `lens` that imports itself.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys


def ask(address: str, arguments: list[str]) -> socket.socket:
    """Have `lens` started with the files, variables and folder of this process."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(address)
    body = json.dumps([arguments, dict(os.environ), os.getcwd()]).encode()
    socket.send_fds(connection, [len(body).to_bytes(4, "big")], [0, 1, 2])
    connection.sendall(body)
    return connection


def main() -> None:
    """Pass signals on, and end as it does."""
    with ask(sys.argv[1], sys.argv[2:]).makefile() as answers:
        pid = int(answers.readline())
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, lambda number, _: os.kill(pid, number))
        code = int(answers.readline() or -signal.SIGKILL)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
        os.kill(os.getpid(), -code)
    os._exit(code)


main()
