"""The pods of all feeds, merged by key; a change costs what it changes, not what there is.

A pod without a uid (the kubelet knows only names) belongs to the live pod of its name, of several to the one that came
last; where there is none it stands for itself.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from functools import reduce

from ..model.records import Pod
from .index import has_ended, key_of, merge

# By key: the pod as it is now, or None where no feed knows it any more.
Changes = dict[str, Pod | None]


def name_key(pod: Pod) -> str:
    """Return the key under which a pod of this name is known where its uid is not."""
    return f"{pod.namespace}/{pod.name}"


class Feeds:
    """The pods of each feed, and all of them merged."""

    def __init__(self) -> None:
        self.merged: dict[str, Pod] = {}
        self._feeds: dict[str, OrderedDict[str, Pod]] = {}
        self._named: dict[str, set[str]] = {}  # by name: the pods with a uid
        self._live: dict[str, dict[str, None]] = {}  # by name: those that have not ended, the last one at the end
        self._names: dict[str, str] = {}  # by uid: the name that it stands under in these two
        self._owners: dict[str, str] = {}  # by name: the key of the pod to which a pod without a uid belongs

    def __contains__(self, feed: str) -> bool:
        return feed in self._feeds

    def names(self) -> list[str]:
        """The names of the feeds."""
        return list(self._feeds)

    def content(self, feed: str) -> Mapping[str, Pod]:
        """The pods of one feed by key, those that it gave last at the end."""
        return self._feeds.get(feed, {})

    def has_named(self, name: str) -> bool:
        """Whether a pod with a uid has this name."""
        return name in self._named

    def replace_pods(self, feed: str, pods: Iterable[Pod]) -> Changes:
        """Let a feed say these pods and no others; returns the merged pods that changed."""
        wanted = {key_of(pod): pod for pod in pods}
        known = self.content(feed)
        gone = {key: None for key in known if key not in wanted}
        news = {key: pod for key, pod in wanted.items() if (before := known.get(key)) is not pod and before != pod}
        return self.change_pods(feed, {**gone, **news})

    def change_pods(self, feed: str, changes: Mapping[str, Pod | None]) -> Changes:
        """Let a feed say these pods too (None: no more); returns the merged pods that changed."""
        content = self._feeds.setdefault(feed, OrderedDict())
        uids: dict[str, None] = {}
        names: dict[str, None] = {}
        for key, pod in changes.items():
            before = content.pop(key, None)
            if pod is not None:
                content[key] = pod
            if before != pod:
                known = pod or before
                (uids if known is not None and known.uid else names)[key] = None
        return self._merge_changed(uids, names) if uids or names else {}

    def limit_pods(self, feed: str, limit: int) -> Changes:
        """Let a feed say only so many pods, those that it gave last."""
        content = self._feeds.get(feed, OrderedDict())
        surplus = max(0, len(content) - limit)
        oldest = [key for _, key in zip(range(surplus), content, strict=False)]
        return self.change_pods(feed, dict.fromkeys(oldest)) if oldest else {}

    def remove_feed(self, feed: str) -> Changes:
        """Forget all that a feed has said, and the feed."""
        changes = self.change_pods(feed, dict.fromkeys(self.content(feed)))
        del self._feeds[feed]
        return changes

    def _merge_changed(self, uids: Iterable[str], names: dict[str, None]) -> Changes:
        """The merged pods that these keys change: pods with a uid, and names of pods without one."""
        touched = dict.fromkeys(uids)
        for key in touched:
            names.update(self._register_name(key, self._said(key)))
        for name in names:
            owner = self._find_owner(name)
            before = self._owners.pop(name, None)
            if owner is not None:
                self._owners[name] = owner
            touched.update((key, None) for key in (before, owner) if key is not None)
        changes: Changes = {}
        for key in touched:
            pod = self._merge_key(key)
            if pod != self.merged.get(key):
                changes[key] = pod
                if pod is None:
                    del self.merged[key]
                else:
                    self.merged[key] = pod
        return changes

    def _register_name(self, key: str, said: list[Pod]) -> dict[str, None]:
        """Note the name of a pod with a uid, and whether it lives; returns the names whose owner may be another now."""
        pod = reduce(merge, said) if said else None
        name = name_key(pod) if pod is not None else None
        before = self._names.get(key)
        if before is not None and before != name:
            _discard(self._named, before, key)
            _discard(self._live, before, key)
            del self._names[key]
        if pod is not None and name is not None:
            self._names[key] = name
            self._named.setdefault(name, set()).add(key)
            if has_ended(pod):
                _discard(self._live, name, key)
            else:
                self._live.setdefault(name, {}).setdefault(key)
        return dict.fromkeys(one for one in (before, name) if one is not None and self._said(one))

    def _find_owner(self, name: str) -> str | None:
        """The key of the pod to which pods of this name without a uid belong; None if no feed knows such a pod."""
        if not self._said(name):
            return None
        live = self._live.get(name)
        return next(reversed(live)) if live else name

    def _merge_key(self, key: str) -> Pod | None:
        """The pod of a key, merged of what all feeds say; None if none says anything."""
        said = self._said(key)
        name = self._names.get(key)
        if name is None:
            said = said if self._owners.get(key) == key else []
        elif self._owners.get(name) == key:
            said = [*said, *self._said(name)]
        return reduce(merge, said) if said else None

    def _said(self, key: str) -> list[Pod]:
        """The pods of all feeds under a key, in the order of the feeds."""
        return [content[key] for content in self._feeds.values() if key in content]


def _discard(groups: dict[str, dict[str, None]] | dict[str, set[str]], name: str, key: str) -> None:
    """Take a key out of the group of a name, and the group if it is empty then."""
    group = groups.get(name)
    if group is None:
        return
    if isinstance(group, set):
        group.discard(key)
    else:
        group.pop(key, None)
    if not group:
        del groups[name]
