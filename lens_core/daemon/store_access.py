"""Opens the store of a configuration for a command, beside a running daemon or without one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from ..base.data_dir import DataDirLock, running_address
from ..base.errors import LensError
from ..base.self_metrics import SelfMetrics
from ..config.loading import load_config
from ..directory.directory import Directory
from ..plugin_api.store import Store
from ..plugin_host.host import PluginHost
from .assembling import make_component
from .reloading import wait_for_exchange


@asynccontextmanager
async def open_store(config_file: Path | None, data_dir: Path | None = None) -> AsyncIterator[Store]:
    """Start the store of a configuration (None: the default one) and stop it at the end of the block.

    Where no daemon runs on the data directory, none can start meanwhile; one that exchanges its configuration, and
    with it its own database server, is waited for. Raises LensError.
    """
    config = load_config(config_file, PluginHost.load(), data_dir=data_dir)
    component = config.sinks.get(config.store or "")
    if component is None:
        raise LensError("no sink of this configuration is a store")
    address = running_address(config.data_dir)
    lock = DataDirLock(config.data_dir) if address is None else None
    if lock is not None:
        lock.acquire()
    if address is not None:
        await wait_for_exchange(address.url)
    try:
        made = make_component(config, component, SelfMetrics(), Directory(config.server.cluster_name))
        assert isinstance(made, Store)  # the configuration has looked at that
        store = made.beside_daemon()
        store.context.data_dir.mkdir(parents=True, exist_ok=True)
        await store.start()
        try:
            yield store
        finally:
            await store.stop()
    finally:
        if lock is not None:
            lock.release()
