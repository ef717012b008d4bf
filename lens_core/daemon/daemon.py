"""Runs the pipelines that a configuration describes, until stopped."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette

from ..base.data_dir import DataDirLock
from ..base.errors import ConfigurationError, LensError, PluginError
from ..base.self_metrics import SelfMetrics
from ..config.loading import Config
from ..delivery.ledger import end_quiet_periods
from ..directory.directory import API_FEED
from ..http.app import build_app, build_metrics_app
from ..http.collisions import RouteCollision
from ..http.directory import restore_pods, save_pods
from ..http.server import HttpServer, TlsFiles, bind
from ..http.state import ApiState
from ..http.tokens import TokenStore
from ..pipeline.tap import Tap
from ..plugin_host.host import PluginHost
from .assembling import assemble
from .assembly import Assembly
from .blame import Blame
from .call_meter import MemoryWatch
from .cluster_status import STATUS, ask_cluster_status
from .clustering import make_directory
from .erasing import erase_workload
from .loop_watch import LoopHold, LoopWatch, describe_hold
from .reloading import RELOADING, answer_meanwhile
from .status import daemon_status
from .stopping import ExitTimer, handling_signals, wait_for_exit
from .thread_watch import ThreadWatch

logger = logging.getLogger("lens.daemon")

WATCH_SECONDS = 5.0


class Daemon:
    """One daemon on one data directory.

    `reload` gives the configuration anew at SIGHUP. `announce` is called once, when everything answers. One
    that `owns_process` ends it within its deadline whatever plugins do, also where no signal asked for it.
    """

    def __init__(
        self,
        config: Config,
        host: PluginHost,
        *,
        reload: Callable[[], Config] | None = None,
        announce: Callable[[Daemon], None] = lambda daemon: None,
        owns_process: bool = False,
    ) -> None:
        self._owns_process = owns_process
        self.config = config
        self.host = host
        self.metrics = SelfMetrics()
        self.directory = make_directory(config)
        self.directory.expose(self.metrics)
        self._directory_file = config.data_dir / "directory.json"
        self.started_at = time.time()
        self.tap = Tap()
        self.blame = Blame(host, self.metrics)
        self.memory = MemoryWatch(self.metrics)
        self.loop_watch = LoopWatch(on_hold=self._count_hold)
        self.threads = ThreadWatch(self.blame, self.metrics)
        self._exit_timer = ExitTimer(self._why_still_running)
        self.state = "starting"
        self.url = ""
        self.assembly: Assembly | None = None
        self._reload = reload
        self._announce = announce
        self._tokens = TokenStore(config.data_dir)
        self._lock = DataDirLock(config.data_dir)
        self._stop = asyncio.Event()
        self._reload_wanted = asyncio.Event()
        self._servers: list[HttpServer] = []
        self._failure: LensError | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self, exit_with_pid: int | None = None) -> None:
        """Run until SIGTERM, SIGINT or `stop`, or until the process `exit_with_pid` is gone."""
        self._lock.acquire()
        self._loop = asyncio.get_running_loop()
        self.loop_watch.start()
        try:
            tls = tls_files(self.config)
            if tls is not None:
                tls.check_files()
            # The addresses are taken first: a port that is in use is said before a database is started.
            listener = bind(self.config.server.listen)
            extra = bind(self.config.server.metrics_listen) if self.config.server.metrics_listen else None
            if self.config.cluster is None:  # the others know better what was said since
                restore_pods(self.directory, self._directory_file)
            try:
                self.assembly = await assemble(self.config, self.host, self.metrics, self.directory, self.memory)
            except BaseException:
                for one in filter(None, (listener, extra)):
                    one.close()
                raise
            self._servers = [HttpServer(listener, self._app(), tls)]
            if extra is not None:
                self._servers.append(HttpServer(extra, self._metrics_app(), tls))
            await self._run_until_stopped(exit_with_pid)
            if self._failure is not None:
                raise self._failure
        finally:
            await self._shut_down()
            self.loop_watch.stop()
            self._lock.release()

    def stop(self) -> None:
        """Ask the daemon to drain and end."""
        self._stop.set()

    def ready(self) -> str:
        """'' when data may be sent here, else why not."""
        if self.state != "running":
            return self.state
        assert self.assembly is not None
        return self.assembly.why_not_ready()

    async def replay(self, sink: str) -> int:
        """Send dead letters again; the number of records."""
        assert self.assembly is not None
        return await self.assembly.replay(sink)

    async def dead_letters(self, sink: str) -> Any:
        """List why records were refused."""
        assert self.assembly is not None
        return await self.assembly.dead_letters(sink)

    async def erase(self, uid: str, run_id: str | None) -> Mapping[str, int]:
        """Remove what waits of a workload (or one of its runs) from spools, dead letters and memory; how much it was.

        Raises Unavailable.
        """
        assert self.assembly is not None
        said = self.directory.pods(API_FEED)
        removed = await erase_workload(self.assembly, self.directory, uid, run_id)
        if said != (left := self.directory.pods(API_FEED)):
            await asyncio.to_thread(save_pods, self._directory_file, left)
        return removed

    def status(self) -> Any:
        """Return the answer of /api/v1/status."""
        return daemon_status(self)

    async def cluster_status(self) -> Any:
        """The status of all daemons of the cluster as one; of this one if it is alone."""
        assembly, own = self.assembly, daemon_status(self)
        if assembly is None or assembly.cluster is None:
            return own
        return await ask_cluster_status(own, assembly.cluster.peers.address, assembly.siblings_of(STATUS))

    async def _answer_status(self, question: bytes) -> bytes:
        return msgspec.msgpack.encode(daemon_status(self))

    def _count_hold(self, hold: LoopHold) -> None:
        self.metrics.loop_holds.inc()
        self.metrics.loop_held_seconds.inc(hold.seconds)
        self.blame.record_hold(hold)

    def _count_down(self) -> None:
        self._exit_timer.start(self.config.server.shutdown_deadline_seconds)

    def _why_still_running(self) -> str:
        hold = self.loop_watch.current()
        if hold is None:
            return f"tasks ignore their cancellation: {self.blame.describe_tasks(self._loop)}"
        found = self.blame.owner(hold)
        owner = f"plugin {found[0].origin}: {found[1]} blocks; " if found is not None else ""
        return owner + describe_hold(hold)

    async def _run_until_stopped(self, exit_with_pid: int | None) -> None:
        for server in self._servers:
            await server.start()
        self.url = self._servers[0].url
        self._lock.publish(self.url)
        self._tell_cluster()
        self.state = "running"
        with handling_signals(self._stop, self._reload_wanted, self._count_down):
            self._announce(self)
            helpers = [asyncio.create_task(self._reload_loop()), asyncio.create_task(self._watch_plugins())]
            if exit_with_pid is not None:
                helpers.append(asyncio.create_task(self._watch_parent(exit_with_pid)))
            try:
                await self._stop.wait()
            finally:
                for helper in helpers:
                    helper.cancel()
                await asyncio.gather(*helpers, return_exceptions=True)

    def _tell_cluster(self) -> None:
        """Let the other daemons know where this one answers."""
        if self.assembly is not None and self.assembly.cluster is not None:
            self.assembly.cluster.url = self.config.server.public_url or self.url

    async def _shut_down(self) -> None:
        """Readiness fails first, then no new request, then the pipelines drain; one deadline for all of it."""
        self.state = "stopping"
        if self._owns_process:
            self._count_down()
        self.tap.close_listeners()
        ends = time.monotonic() + self.config.server.shutdown_deadline_seconds
        for server in self._servers:
            await server.stop(max(0.1, ends - time.monotonic()))
        if self.assembly is not None:
            await self.assembly.stop(max(0.1, ends - time.monotonic()))
        end_quiet_periods(self.metrics.ledgers, quiet_seconds=0.0)
        self.state = "stopped"

    def _app(self) -> Starlette:
        assert self.assembly is not None
        for pipeline in self.assembly.pipelines:
            pipeline.tap = self.tap
        self.tap.relay = None
        if self.assembly.cluster is not None:
            self.assembly.cluster.share_tap(self.tap)
        return self._without_collisions(self._api_state(self.assembly), self.assembly)

    def _without_collisions(self, state: ApiState, assembly: Assembly) -> Starlette:
        """Build the application without the routes of components that claim what others answer; they are failed."""
        while True:
            try:
                return build_app(state)
            except RouteCollision as error:
                logger.error("The routes of %s are left out: %s", error.component, error)
                assembly.source_errors[error.component] = f"its routes are left out: {error}"
                assembly.source_error_times[error.component] = time.time()
                state.sources = [one for one in state.sources if one.context.name != error.component]
                state.sinks = [one for one in state.sinks if one.context.name != error.component]

    def _api_state(self, assembly: Assembly) -> ApiState:
        server = self.config.server
        self._tokens.ingest_token = server.ingest_token
        assembly.siblings_of(STATUS).answer_siblings(self._answer_status)
        return ApiState(
            metrics=self.metrics,
            tokens=self._tokens,
            directory=self.directory,
            sources=assembly.sources,
            status=self.status,
            cluster_status=self.cluster_status,
            ready=self.ready,
            replay=self.replay,
            dead_letters=self.dead_letters,
            erase=self.erase,
            store=assembly.store,
            store_problem=lambda: assembly.why_not_started(assembly.config.store),
            guards=assembly.guards,
            rules=assembly.rules,
            log_tails=assembly.log_tails,
            sinks=list(assembly.sinks.values()),
            analyzers=assembly.analyzers,
            api_gate=assembly.api_gate,
            directory_file=self._directory_file,
            tap=self.tap,
            siblings_of=assembly.siblings_of,
            session_file=self.config.data_dir / "sessions.json",
            share_logins=assembly.cluster.share_files if assembly.cluster is not None else None,
            public_url=server.public_url,
            cluster_name=server.cluster_name,
            open_ingest=server.open_ingest,
            metrics_open=server.metrics_open,
            cors_origins=server.cors_origins,
            frame_ancestors=server.frame_ancestors,
            max_body_bytes=server.max_body_bytes,
            max_in_flight_bytes=server.max_in_flight_bytes,
        )

    def _metrics_app(self) -> Starlette:
        assert self.assembly is not None
        return build_metrics_app(self._api_state(self.assembly))

    async def _watch_plugins(self) -> None:
        """Look repeatedly for plugins that take more memory or processor than they should."""
        while True:  # at once, too: what grows within the first seconds is compared with the start
            self.memory.check_memory()
            self.threads.check_threads()
            await asyncio.sleep(WATCH_SECONDS)

    async def _reload_loop(self) -> None:
        while True:
            await self._reload_wanted.wait()
            self._reload_wanted.clear()
            try:
                await self.reload()
            except LensError as error:
                self._failure = error
                self.stop()

    async def reload(self) -> bool:
        """Validate the configuration anew, drain, rebuild; a broken one changes nothing. True when it was taken.

        Raises LensError when neither the new configuration nor the one before it can be started.
        """
        if self._reload is None:
            logger.warning("Reload refused: this daemon runs on its built-in configuration.")
            return False
        try:
            config = await asyncio.to_thread(self._reload)
        except (ConfigurationError, PluginError) as error:
            logger.error("Reload refused; nothing changed.\n%s", error)
            return False
        except Exception:  # a plugin's own settings may raise anything
            logger.exception("Reload refused; nothing changed.")
            return False
        self._renew_certificates()
        for name in ("listen", "metrics_listen", "tls_certificate", "tls_key"):
            if getattr(config.server, name) != getattr(self.config.server, name):
                logger.warning("server.%s takes effect after a restart.", name)
        if config.data_dir != self.config.data_dir:
            logger.error("Reload refused: data_dir changed, which requires a restart.")
            return False
        if config.cluster != self.config.cluster:
            logger.error("Reload refused: cluster changed; that needs a restart.")
            return False
        await self._exchange(config)
        return self.config is config

    def _renew_certificates(self) -> None:
        for server in self._servers:
            try:
                server.renew_certificate()
            except LensError as error:
                logger.error("Could not load the new certificate; keeping the current one. error=%s", error)

    async def _exchange(self, config: Config) -> None:
        assert self.assembly is not None
        self.state = RELOADING
        self._servers[0].app = answer_meanwhile
        await self.assembly.stop(self.config.server.shutdown_deadline_seconds)
        try:
            await self._start_config(config)
            logger.info("Reloaded. pipelines=%s", ",".join(config.pipelines))
        except Exception as error:
            logger.error(
                "Reload failed; keeping the previous configuration. error=%s",
                error,
                exc_info=not isinstance(error, LensError),
            )
            await self._begin_again(error)
        self.state = "running"

    async def _start_config(self, config: Config) -> None:
        """Start what a configuration describes in place of what has stopped; whatever it raises, nothing is left."""
        before, self.config = self.config, config
        try:
            self.assembly = await assemble(config, self.host, self.metrics, self.directory, self.memory)
            apps = [self._app(), self._metrics_app()]
            self._tell_cluster()
        except BaseException:
            if self.assembly is not None:
                await self.assembly.stop(config.server.shutdown_deadline_seconds)
            self.config = before
            raise
        for server, app in zip(self._servers, apps, strict=False):  # the second one is there if it is configured
            server.app = app

    async def _begin_again(self, reason: Exception) -> None:
        try:
            await self._start_config(self.config)
        except Exception as error:
            raise LensError(
                f"reload failed ({reason}), and the configuration before it cannot be started either: {error}"
            ) from error

    async def _watch_parent(self, pid: int) -> None:
        """Stop when a process is gone: a private daemon must not outlive the training that it serves."""
        await wait_for_exit(pid)
        logger.info("The parent process has exited; stopping. pid=%d", pid)
        self.stop()


def tls_files(config: Config) -> TlsFiles | None:
    """Certificate and key of the configuration, relative to its folder; None for plain HTTP."""
    certificate, key = config.server.tls_certificate, config.server.tls_key
    if certificate is None or key is None:
        return None
    folder = config.file.parent if config.file else Path()
    return TlsFiles(folder / certificate, folder / key)
