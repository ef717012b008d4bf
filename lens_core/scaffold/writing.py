"""Writes a whole distribution for a new plugin; its templates are the files below `templates/`.

`common` and the folder of the kind are copied together; `KIND.md` becomes a part of the README. Names of the form
`@@name@@` are replaced in texts and paths. The ending `.tmpl`, which keeps tools away from what is not Python yet, is
taken off.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import get_args

import msgspec

from .. import __version__
from ..base.errors import LensError
from ..plugin_api.components import API_VERSION
from ..plugin_host.info import ComponentKind

TEMPLATES = Path(__file__).parent / "templates"
LONGEST_NAME = 30
_ENDING = ".tmpl"
_PLACEHOLDER = re.compile(r"@@([a-z_]+)@@")
_NAME = re.compile(rf"[a-z][a-z0-9_]{{0,{LONGEST_NAME - 1}}}")

_SUMMARIES: Mapping[ComponentKind, str] = {
    "detector": "Teaches Lens to recognise {title} and to read its log lines",
    "sink": "A sink for Lens that sends training metrics to {title}",
    "source": "A source for Lens that takes training metrics from {title}",
    "analyzer": "An analyzer for Lens that works out {title} from stored training metrics",
    "collector": "A collector for Lens that gets numbers from {title}",
}
_REQUIREMENTS: Mapping[ComponentKind, tuple[str, ...]] = {
    "detector": (),
    "sink": ("httpx>=0.27", "msgspec>=0.19"),
    "source": ("msgspec>=0.19",),
    "analyzer": ("msgspec>=0.19",),
    "collector": ("httpx>=0.27", "msgspec>=0.19"),
}


class Scaffold(msgspec.Struct, frozen=True):
    """A new plugin: its name (`acme`; `lens-acme` is the same) and its kind. Raises LensError for an unusable name."""

    name: str
    kind: ComponentKind

    def __post_init__(self) -> None:
        if self.kind not in get_args(ComponentKind):
            raise LensError(f"there is no kind {self.kind!r}; there are: {', '.join(get_args(ComponentKind))}")
        if not _NAME.fullmatch(self.plugin):
            raise LensError(
                f"the name {self.name!r} cannot be used; take lower case letters, digits and underscores, "
                f"a letter first, at most {LONGEST_NAME}"
            )

    @property
    def plugin(self) -> str:
        """The plugin's name, as configurations write it."""
        return self.name.removeprefix("lens-").removeprefix("lens_").replace("-", "_")

    @property
    def distribution(self) -> str:
        """The name that pip installs."""
        return "lens-" + self.plugin.strip("_").replace("_", "-")

    @property
    def module(self) -> str:
        """The name that is imported."""
        return "lens_" + self.plugin.strip("_")

    def words(self) -> dict[str, str]:
        """Placeholder → text."""
        title = self.plugin.replace("_", " ").title()
        names = {"name": self.plugin, "upper": self.plugin.upper(), "title": title}
        first, _, rest = __version__.partition(".")
        requirements = (f"lens-agent>={first}.{rest.split('.')[0]}", *_REQUIREMENTS[self.kind])
        return {
            **names,
            "module": self.module,
            "distribution": self.distribution,
            "sdist": self.distribution.replace("-", "_"),
            "class": "".join(part.title() for part in self.plugin.split("_")),
            "summary": _SUMMARIES[self.kind].format(**names),
            "usage": _filled((TEMPLATES / f"{self.kind}.md").read_text(encoding="utf-8").strip(), names),
            "dependencies": ", ".join(f'"{requirement}"' for requirement in requirements),
            "words": ", ".join(f'"{word}"' for word in re.findall("[a-z_]+", self.plugin)),
            "dot": ".",
            "api": API_VERSION,  # the version that its tests run with
            "next_api": str(int(API_VERSION.partition(".")[0]) + 1),
        }


def write_distribution(scaffold: Scaffold, folder: Path) -> list[Path]:
    """Write the distribution's files into a folder that is empty or not there yet; the files, relative to it.

    Raises LensError when there is something in the folder, or when it cannot be written.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise LensError(f"{folder} is there already and is not empty")
    words = scaffold.words()
    written = []
    try:
        for template in _templates(scaffold.kind):
            relative = Path(_filled(str(template.relative_to(template.parents[_depth(template)])), words))
            target = folder / relative.with_name(relative.name.removesuffix(_ENDING))
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(_filled(template.read_text(encoding="utf-8"), words), encoding="utf-8")
            written.append(target.relative_to(folder))
    except OSError as error:
        raise LensError(f"{folder} cannot be written: {error.strerror or error}") from None
    return written


def _templates(kind: ComponentKind) -> Iterator[Path]:
    for part in ("common", kind):
        yield from sorted(path for path in (TEMPLATES / part).rglob(f"*{_ENDING}") if path.is_file())


def _depth(template: Path) -> int:
    """Return the number of folders between a template and `common` or its kind's folder."""
    return len(template.relative_to(TEMPLATES).parts) - 2


def _filled(text: str, words: Mapping[str, str]) -> str:
    return _PLACEHOLDER.sub(lambda found: words[found[1]], text)
