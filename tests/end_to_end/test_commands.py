"""The commands, typed as a user would type them."""

from __future__ import annotations

import json
import os
import pwd
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from lens_plugins.sinks.postgresql import embedded_launcher

from lens_core.cli import client
from tests.end_to_end.running_lens import (
    RunningLens,
    http_get,
    http_post,
    ledgers_add_up,
    metrics_body,
    wait_for,
)
from tests.forked import run_lens

LAUNCHER = Path(embedded_launcher.__file__)
LENS = [sys.executable, "-m", "lens_core.cli"]


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return run_lens(*arguments, environ={**os.environ, **environment})


def test_a_second_daemon_on_the_same_directory_is_told_who_has_it(lens: RunningLens) -> None:
    second = run("up", "--data-dir", str(lens.data_dir), "--listen", "127.0.0.1:0")
    assert second.returncode == 1
    assert lens.process is not None
    assert f"pid {lens.process.pid}, listening on {lens.url}" in second.stderr
    assert "--data-dir" in second.stderr


def test_a_daemon_of_another_directory_is_found_where_it_answers(
    lens: RunningLens, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "DEFAULT_URL", lens.url)
    monkeypatch.setattr(client, "resolve_data_dir", lambda _: tmp_path)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        assert not client.is_answering(f"http://127.0.0.1:{unused.getsockname()[1]}")
    assert client.is_answering(client.daemon_url(None, None))


def test_an_address_in_use_is_said_before_anything_is_started(lens: RunningLens, tmp_path: Path) -> None:
    address = lens.url.removeprefix("http://")
    second = run("up", "--data-dir", str(tmp_path / "other"), "--listen", address)
    assert second.returncode == 1
    assert f"cannot listen on {address}" in second.stderr
    assert not list((tmp_path / "other").glob("**/PG_VERSION"))


def test_status_for_people_and_for_programs(lens: RunningLens) -> None:
    lens.post("/wandb/metrics", metrics_body("w", range(10)))
    lens.drained()
    shown = run("status", "--data-dir", str(lens.data_dir))
    assert shown.returncode == 0
    assert "wandb_api" in shown.stdout
    assert "store" in shown.stdout
    status = json.loads(run("status", "--json", "--data-dir", str(lens.data_dir)).stdout)
    ledgers_add_up(status)
    [source] = [source for source in status["sources"] if source["name"] == "wandb_api"]
    assert (source["received"], source["accepted"]) == (50, 50)


def test_status_says_where_queries_go(tmp_path: Path, postgres_dsn: str) -> None:
    config = f'sinks:\n  store: {{type: postgresql, dsn: "{postgres_dsn}", read_dsn: "{postgres_dsn}"}}\n'
    daemon = RunningLens(tmp_path / "lens", config).start()
    try:
        wait_for(lambda: "s behind" in daemon.get("/status")["store_notice"])
        shown = run("status", "--data-dir", str(daemon.data_dir))
        assert "store: queries go to the replica (read_dsn), which is 0.0 s behind" in shown.stdout
    finally:
        daemon.end()


def test_a_command_without_a_daemon_says_how_to_start_one(tmp_path: Path) -> None:
    done = run("status", "--data-dir", str(tmp_path), "--url", "http://127.0.0.1:9")
    assert done.returncode == 1
    assert "`lens up` starts one" in done.stderr
    assert "Traceback" not in done.stderr


def test_tokens_made_on_the_command_line_work_at_once(lens: RunningLens) -> None:
    directory = ["--data-dir", str(lens.data_dir)]
    made = run("token", "create", "--role", "read", "grafana", *directory)
    token = made.stdout.strip()
    listed = json.loads(run("token", "list", "--json", *directory).stdout)
    assert [(item["name"], item["role"]) for item in listed] == [("grafana", "read")]
    assert token not in run("token", "list", *directory).stdout
    headers = {"Authorization": f"Bearer {token}"}
    assert http_get(f"{lens.url}/api/v1/status", headers=headers).status_code == 200
    assert http_post(f"{lens.url}/api/v1/replay", headers=headers).status_code == 403
    assert run("token", "revoke", "grafana", *directory).returncode == 0
    assert http_get(f"{lens.url}/api/v1/status", headers=headers).status_code == 401


def test_wrong_usage_is_2_and_a_bad_configuration_is_78(tmp_path: Path) -> None:
    assert run("up", "--no-such-option").returncode == 2
    bad = tmp_path / "bad.yaml"
    bad.write_text("server: {listne: '127.0.0.1:0'}\n")
    done = run("up", "--config", str(bad), "--data-dir", str(tmp_path / "data"))
    assert done.returncode == 78
    assert "bad.yaml:1:" in done.stderr
    assert "listen" in done.stderr


def test_run_leaves_nothing_behind_and_gives_the_commands_exit_code(tmp_path: Path) -> None:
    before = sorted(os.listdir(tmp_path))
    script = "import os, sys; print(os.environ['PRIMUS_LENS_API_BASE_URL']); sys.exit(3)"
    done = run("run", "--url", "http://127.0.0.1:9", "--", sys.executable, "-c", script)
    assert (done.returncode, done.stdout.strip()) == (3, "http://127.0.0.1:9/api/v1")
    assert sorted(os.listdir(tmp_path)) == before
    assert run("run", "--", "no-such-command").returncode == 1


def test_an_etag_saves_the_answer_until_something_changes(lens: RunningLens) -> None:
    lens.post("/wandb/metrics", metrics_body("w", range(3)))
    lens.drained()
    url = f"{lens.url}/api/v1/workloads/w/metrics/data?metrics=m0"
    first = http_get(url)
    again = http_get(url, headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    lens.post("/wandb/metrics", metrics_body("w", range(3, 5)))
    lens.drained()
    changed = http_get(url, headers={"If-None-Match": first.headers["etag"]})
    assert (changed.status_code, changed.json()["total_count"]) == (200, 5)


def test_sighup_takes_a_new_file_and_refuses_a_broken_one(
    make_lens: Callable[..., RunningLens], tmp_path: Path
) -> None:
    out, other = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    lens = make_lens(f"sinks: {{file: {{type: jsonl, path: '{out}'}}}}\n").start()
    assert lens.process is not None
    lens.post("/wandb/metrics", metrics_body("w", range(2)))
    lens.drained()

    lens.configure("sinks: {file: {type: jsonl, pth: nowhere}}\n")
    lens.process.send_signal(signal.SIGHUP)
    wait_for(lambda: "Reload refused; nothing changed" in lens.log.read_text(), what="the refusal")
    lens.post("/wandb/metrics", metrics_body("w", range(2, 4)))

    lens.configure(f"sinks: {{file: {{type: jsonl, path: '{out}'}}, two: {{type: jsonl, path: '{other}'}}}}\n")
    lens.process.send_signal(signal.SIGHUP)
    wait_for(lambda: "Reloaded." in lens.log.read_text(), what="the reload")
    wait_for(lambda: http_get(f"{lens.url}/readyz").status_code == 200)
    lens.post("/wandb/metrics", metrics_body("w", range(4, 6)))
    ledgers_add_up(lens.drained())

    def steps(path: Path) -> list[int]:
        return [json.loads(line)["row_step"] for line in path.read_text().splitlines()]

    assert steps(out) == [0, 1, 2, 3, 4, 5]
    assert steps(other)[-2:] == [4, 5]


PLUGIN_FILE = """
from lens_core import Delivered, Sink, hookimpl
from pathlib import Path
import msgspec

class Where(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: Path

class Counting(Sink):
    name = "counting"
    Settings = Where

    async def send(self, batch):
        with self.settings.path.open("a") as file:
            file.write(f"{len(batch.records)}\\n")
        return Delivered()

@hookimpl
def lens_sinks():
    return [Counting]
"""


def test_sighup_loads_a_file_that_is_new_in_the_folder_of_plugins(
    make_lens: Callable[..., RunningLens], tmp_path: Path
) -> None:
    folder, out = tmp_path / "single_files", tmp_path / "count"
    folder.mkdir()
    lens = make_lens(f"sinks: {{file: {{type: jsonl, path: '{tmp_path / 'rows.jsonl'}'}}}}\n")
    lens.start(LENS_PLUGINS_DIR=str(folder))
    assert lens.process is not None
    (folder / "counting.py").write_text(PLUGIN_FILE)
    lens.configure(f"sinks: {{count: {{type: counting, path: '{out}'}}}}\n")
    lens.process.send_signal(signal.SIGHUP)
    wait_for(lambda: "Reloaded." in lens.log.read_text(), what="the reload")
    wait_for(lambda: http_get(f"{lens.url}/readyz").status_code == 200)
    lens.post("/wandb/metrics", metrics_body("w", range(3)))
    lens.drained()
    assert sum(map(int, out.read_text().split())) == 3


@pytest.mark.slow("makes a PostgreSQL and an environment for another user")
@pytest.mark.skipif(os.geteuid() != 0, reason="does not apply: an ordinary user already runs all of these tests as one")
def test_an_ordinary_user_has_an_embedded_postgresql_too(tmp_path_factory: pytest.TempPathFactory) -> None:
    account = pwd.getpwnam("nobody")
    home = Path("/var/tmp") / f"lens-nobody-{os.getpid()}"
    home.mkdir(mode=0o700)
    os.chown(home, account.pw_uid, account.pw_gid)
    # The launcher gives up root, and keeps the right to pass through directories: Python may lie below root's home.
    become = [
        sys.executable,
        "-I",
        "-S",
        str(LAUNCHER),
        str(os.getpid()),
        str(account.pw_uid),
        str(account.pw_gid),
        "1",
    ]
    up = [*LENS, "up", "--announce-json", "--listen", "127.0.0.1:0", "--data-dir", str(home / "data")]
    environment = {"PATH": os.environ["PATH"], "HOME": str(home)}
    try:
        with subprocess.Popen([*become, *up], stdout=subprocess.PIPE, cwd="/", env=environment) as process:
            assert process.stdout is not None
            url = json.loads(process.stdout.readline())["listening"]
            assert psutil.Process(process.pid).uids().effective == account.pw_uid
            http_post(f"{url}/v1/wandb/metrics", json=metrics_body("w", range(5))).raise_for_status()
            data = wait_for(lambda: http_get(f"{url}/v1/workloads/w/metrics/data").json().get("data"))
            assert len(data) == 25
            process.terminate()
    finally:
        subprocess.run(["rm", "-rf", str(home)], check=True)
