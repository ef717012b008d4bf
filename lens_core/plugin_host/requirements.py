"""The requirements of a plugin's distribution, and which of them are not installed."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name


def missing_requirements(found: Distribution | None, extras: Sequence[str]) -> tuple[str, ...]:
    """The requirements of a distribution, with these extras, that are not installed here."""
    return _missing_requirements(found, tuple(extras)) if found else ()


@functools.lru_cache(maxsize=16)
def _missing_requirements(found: Distribution, extras: tuple[str, ...]) -> tuple[str, ...]:
    """Look for them once for all entry points with the same extras; each time that plugins are loaded it is another
    object that describes the distribution.
    """
    missing: list[str] = []
    own = canonicalize_name(name_and_version(found)[0])
    for requirement in _requirements(found):
        if not _applies(requirement, extras):
            continue
        if canonicalize_name(requirement.name) == own:
            missing += _missing_requirements(found, tuple(sorted(requirement.extras - set(extras))))
        elif not _is_installed(requirement):
            missing.append(str(requirement).partition(";")[0].rstrip())
    return tuple(missing)


def _applies(requirement: Requirement, extras: tuple[str, ...]) -> bool:
    if requirement.marker is None:
        return not extras
    if not extras:
        return requirement.marker.evaluate({"extra": ""})
    wanted = any(requirement.marker.evaluate({"extra": extra}) for extra in extras)
    return wanted and not requirement.marker.evaluate({"extra": ""})


def _is_installed(requirement: Requirement) -> bool:
    try:
        version = distribution(requirement.name).version
    except PackageNotFoundError:
        return False
    return requirement.specifier.contains(version, prereleases=True)


@functools.lru_cache(maxsize=8)
def name_and_version(found: Distribution) -> tuple[str, str]:
    """Read the metadata of a distribution, once for all its entry points: every look at them parses the whole file."""
    metadata = found.metadata
    return metadata["Name"], metadata["Version"]


@functools.lru_cache(maxsize=8)
def _requirements(found: Distribution) -> tuple[Requirement, ...]:
    """Parse the requirements of a distribution, once for all its entry points."""
    parsed = []
    for text in found.requires or ():
        with contextlib.suppress(InvalidRequirement):  # it cannot be checked; the import will tell
            parsed.append(Requirement(text))
    return tuple(parsed)
