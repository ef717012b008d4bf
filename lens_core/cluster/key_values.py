"""The state that all daemons share, in a KV bucket: members, leases, positions; writers compare and swap."""

from __future__ import annotations

from typing import NamedTuple

from nats.js import api

from ..base.errors import Overloaded
from .connection import CLIENT_ERRORS, PENDING, Connection, LogMessage, describe_client_error, peers_of

_DELETED = "KV-Operation"


class Entry(NamedTuple):
    """A value and its revision, which grows over all keys of the bucket."""

    text: str
    revision: int


class KeyValues:
    """One bucket of a cluster."""

    def __init__(self, connection: Connection, bucket: str) -> None:
        self._connection = connection
        self.stream = f"KV_{bucket}"
        self._prefix = f"$KV.{bucket}."
        self._bucket = bucket

    async def ensure_bucket(self) -> list[str]:
        """Make the bucket if there is none; returns the servers that it lies on. Raises LensError."""
        config = api.KeyValueConfig(
            bucket=self._bucket, history=1, replicas=self._connection.settings.replicas, direct=True
        )
        jetstream = self._connection.jetstream
        return peers_of(await self._connection.ensure_stream(self.stream, lambda: jetstream.create_key_value(config)))

    async def read_entry(self, key: str) -> Entry | None:
        """The value that is current at the bucket's leader. Raises Overloaded."""
        message = await self._connection.read_newest(self.stream, self._prefix + key)
        if message is None:
            return None
        if message.headers.get(_DELETED):
            return None
        return Entry(message.body.decode(), message.sequence)

    async def read_entries(self, prefix: str) -> dict[str, Entry]:
        """All values below a prefix; what was written just now may be missing. Raises Overloaded."""
        changes = await self.read_changes(prefix, 0)
        return {key: entry for key, entry in changes.items() if entry is not None}

    async def read_changes(self, prefix: str, after: int) -> dict[str, Entry | None]:
        """The values below a prefix that were written after a revision, None for deleted ones. Raises Overloaded."""
        found: dict[str, Entry | None] = {}
        subject = f"{self._prefix}{prefix}.>"
        while messages := await self._connection.read_messages(self.stream, subject, after):
            found |= dict(map(self._read, messages))
            after = messages[-1].sequence
            if messages[-1].headers.get(PENDING) == "0":
                break
        return found

    def _read(self, message: LogMessage) -> tuple[str, Entry | None]:
        entry = None if message.headers.get(_DELETED) else Entry(message.body.decode(), message.sequence)
        return message.subject[len(self._prefix) :], entry

    async def write_entry(self, key: str, text: str, revision: int | None = None) -> int:
        """Write a value and return its revision; `revision` is the one that it replaces (0: none).

        Raises Fenced where another has written meanwhile, and Overloaded.
        """
        headers = {} if revision is None else {"Nats-Expected-Last-Subject-Sequence": str(revision)}
        return await self._connection.append_message(self.stream, self._prefix + key, text.encode(), headers)

    async def purge_key(self, key: str) -> None:
        """Remove a key with its history. Raises Overloaded."""
        try:
            await self._connection.jetstream.purge_stream(self.stream, subject=self._prefix + key)
        except CLIENT_ERRORS as error:
            raise Overloaded(f"NATS does not answer: {describe_client_error(error)}") from None


class KnownEntries:
    """The values below a prefix of which none is ever purged, as last read; reading them again costs what has changed.

    All are read again now and then: the bucket may have been deleted and made anew, with revisions from 1.
    """

    READ_ALL_EVERY = 10

    def __init__(self, keys: KeyValues, prefix: str) -> None:
        self.entries: dict[str, Entry] = {}
        self._keys = keys
        self._prefix = prefix
        self._last = 0
        self._reads = 0

    async def read_again(self) -> dict[str, Entry]:
        """All values by now; what was written just now may be missing. Raises Overloaded."""
        if self._reads % self.READ_ALL_EVERY == 0:
            self.entries = await self._keys.read_entries(self._prefix)
        else:
            for key, entry in (await self._keys.read_changes(self._prefix, self._last)).items():
                if entry is None:
                    self.entries.pop(key, None)
                else:
                    self.entries[key] = entry
        self._reads += 1
        self._last = max((entry.revision for entry in self.entries.values()), default=0)
        return self.entries
