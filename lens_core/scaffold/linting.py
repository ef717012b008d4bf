"""The linter for plugins: what is declared, what is imported, how it is published, how long its import takes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import msgspec
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from ..base.deprecation import uses_of
from ..base.setting_types import field_types, is_secret, split_annotation
from ..plugin_api.components import API_VERSION, Component, Detector, Source
from ..plugin_host.info import settings_of, summary_of
from ..plugin_host.loading import OWN_DISTRIBUTION, Plugin
from .linting_code import code_findings

State = Literal["ok", "warning", "failed"]

# Importing a plugin is paid by every command and at every start. Seconds of the processor, so that a busy machine
# changes nothing.
SLOW_IMPORT_SECONDS = 0.3
TOO_SLOW_IMPORT_SECONDS = 2.0
_IMPORT_LIMIT_SECONDS = 60.0
_UNITS = re.compile(r"_(seconds|bytes|rows|records|lines|percent|ratio|count|days|hours|files|workers)(_|$)")
_NEEDS_UNIT = re.compile(r"(^|_)(timeout|interval|delay|period|age|size|duration|wait|ttl|pause|grace)(_|$)")
_SECRET_NAME = re.compile(r"(^|_)(token|password|passwd|secret|api_key|apikey|credentials?)$")
_MEASURE = """
import time, lens_core, importlib
started = time.process_time()
importlib.import_module({module!r})
print(time.process_time() - started)
"""


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at. `where` is a class, a setting, a file and line, or the distribution."""

    check: str
    state: State
    where: str
    text: str


def lint(plugin: Plugin) -> list[Finding]:
    """Everything that the linter says about one plugin, in the order in which an author would fix it."""
    if plugin.state != "loaded":
        return [Finding("state", "failed", plugin.name, f"{plugin.state}: {plugin.reason}")]
    found = [Finding("state", "ok", plugin.name, f"loaded, {len(plugin.classes)} of its classes announced")]
    for check in (
        _check_names,
        _documentation,
        _api,
        _deprecations,
        _settings,
        _contract,
        _code,
        _import_time,
        _distribution,
    ):
        findings = list(check(plugin))
        name = check.__name__.strip("_").replace("_", " ")
        found += findings or [Finding(name, "ok", plugin.name, "in order")]
    return found


def _where(component: type[Component]) -> str:
    return f"{component.__module__}.{component.__qualname__}"


def _check_names(plugin: Plugin) -> Iterator[Finding]:
    if all(plugin.name != component.name for component in plugin.classes) and len(plugin.classes) == 1:
        text = f"the entry point is {plugin.name}, the component {plugin.classes[0].name}; one name is easier to find"
        yield Finding("names", "warning", plugin.name, text)


def _documentation(plugin: Plugin) -> Iterator[Finding]:
    for component in plugin.classes:
        summary = summary_of(component)
        if not summary:
            text = "has no docstring; its first sentence is what `lens plugins` shows"
            yield Finding("documentation", "failed", _where(component), text)
        elif len(summary) > 400:
            text = f"begins with a paragraph of {len(summary)} letters; `lens plugins` shows it on one line"
            yield Finding("documentation", "warning", _where(component), text)


def _api(plugin: Plugin) -> Iterator[Finding]:
    following = f"{int(API_VERSION.partition('.')[0]) + 1}.0"
    for component in plugin.classes:
        if SpecifierSet(component.api).contains(following):
            text = (
                f"api {component.api!r} promises to work with {following}, which nobody has seen; add <{following[:-2]}"
            )
            yield Finding("api", "failed", _where(component), text)


def _deprecations(plugin: Plugin) -> Iterator[Finding]:
    yield from (Finding("deprecations", "warning", plugin.module, f"uses {text}") for text in uses_of(plugin.module))


def _settings(plugin: Plugin) -> Iterator[Finding]:
    for component in plugin.classes:
        types = field_types(component.Settings)
        for setting in settings_of(component):
            for state, text in _setting(setting.name, setting.documentation, types[setting.name]):
                yield Finding("settings", state, f"{_where(component)}.{setting.name}", text)


def _setting(name: str, documentation: str, kind: Any) -> Iterator[tuple[State, str]]:
    if not documentation:
        yield "failed", "says nothing; Annotated[…, Meta(description=…)] or the docstring of Settings documents it"
    if _SECRET_NAME.search(name) and not is_secret(kind):
        yield "failed", "looks like a secret; the type lens_core.Secret keeps it out of logs and errors"
    is_number = bool({int, float} & {split_annotation(part)[0] for part in _parts(kind)})
    if is_number and _NEEDS_UNIT.search(name) and not _UNITS.search(name):
        yield "warning", "is a quantity; end its name with the unit, such as _seconds or _bytes"


def _parts(kind: Any) -> Sequence[Any]:
    bare = split_annotation(kind)[0]
    return [bare, *getattr(bare, "__args__", ())]


def _contract(plugin: Plugin) -> Iterator[Finding]:
    from ..testing.detectors import check_detector  # only here: testing brings the whole daemon along
    from ..testing.hosts import make_context
    from ..testing.sources import check_neighbours

    for component in plugin.classes:
        if not issubclass(component, Detector | Source) or any(setting.required for setting in settings_of(component)):
            continue
        try:
            if issubclass(component, Source):
                with tempfile.TemporaryDirectory() as folder:
                    source = component(component.Settings(), make_context(component.name, Path(folder)))
                    check_neighbours(source)
            else:
                check_detector(component)
        except Exception as error:  # noqa: BLE001 - whatever a declaration makes the engine raise is a finding
            yield Finding("contract", "failed", _where(component), " ".join(str(error).split()))


def _code(plugin: Plugin) -> Iterator[Finding]:
    if plugin.is_built_in:
        return
    files = _files(plugin)
    for path in files:
        for line, state, text in code_findings(path, own=plugin.module.partition(".")[0]):
            yield Finding("code", state, f"{path.name}:{line}", text)
    if not files:
        yield Finding("code", "warning", plugin.module, "its source is not there, so it was not read")


def _files(plugin: Plugin) -> list[Path]:
    spec = find_spec(plugin.module)
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return []
    path = Path(spec.origin)
    return sorted(path.parent.rglob("*.py")) if path.name == "__init__.py" else [path]


def _import_time(plugin: Plugin) -> Iterator[Finding]:
    command = [sys.executable, "-c", _MEASURE.format(module=plugin.module)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        command,
        env=environment,
        capture_output=True,
        text=True,
        timeout=_IMPORT_LIMIT_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        yield Finding("import time", "failed", plugin.module, f"cannot be imported alone: {last}")
        return
    seconds = float(done.stdout.splitlines()[-1])
    if seconds > SLOW_IMPORT_SECONDS:
        state: State = "failed" if seconds > TOO_SLOW_IMPORT_SECONDS else "warning"
        text = f"takes {seconds:.2f} s to import; import heavy clients in start()"
        yield Finding("import time", state, plugin.module, text)


def _distribution(plugin: Plugin) -> Iterator[Finding]:
    try:
        found = distribution(plugin.distribution)
    except (PackageNotFoundError, ValueError):
        yield Finding("distribution", "warning", plugin.distribution, "is a single file; `lens plugin new` packs it")
        return
    if canonicalize_name(plugin.distribution) == OWN_DISTRIBUTION:
        return
    name = found.metadata["Name"]
    if not canonicalize_name(name).startswith("lens-") and not canonicalize_name(name).endswith("-lens"):
        yield Finding("distribution", "warning", name, "a name that begins with lens- is found more easily")
    yield from (Finding("distribution", state, name, text) for state, text in _metadata(found))


def _metadata(found: Distribution) -> Iterator[tuple[State, str]]:
    requirement = _requirement(found)
    if requirement is None:
        yield "failed", "does not require lens-agent; pip could install it where there is none"
    elif not any(part.operator in (">=", ">", "~=", "==") for part in requirement.specifier):
        yield "warning", "requires lens-agent without a lowest version"
    for key, missing in (("Summary", "description"), ("Requires-Python", "requires-python")):
        if not found.metadata[key]:
            yield "warning", f"has no {missing}"
    if not (found.metadata["License-Expression"] or found.metadata["License"]):
        yield "warning", "has no license"
    if not str(found.metadata.json.get("description", "")).strip():
        yield "warning", "has no readme; it is the page of the package index"


def _requirement(found: Distribution) -> Requirement | None:
    for text in found.requires or []:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue  # pip says so when it installs; here only lens-agent is looked for
        if canonicalize_name(requirement.name) == OWN_DISTRIBUTION and requirement.marker is None:
            return requirement
    return None
