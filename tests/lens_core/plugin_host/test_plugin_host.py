"""The plugin host: one state for each plugin, and a broken one never stops another."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint, distributions
from pathlib import Path

import pytest

from lens_core import API_VERSION, PluginError
from lens_core.plugin_host.host import PluginHost
from lens_core.plugin_host.info import PluginInfo

GOOD = """
from lens_core import Delivered, Detector, Sink, hookimpl

class Acme(Detector):
    '''Acme Trainer.'''
    name = "{name}"

@hookimpl
def lens_detectors():
    return [Acme]
"""

COMMANDS = "import click\nfrom lens_core import hookimpl\n@hookimpl\ndef lens_commands():\n    return {}"

STRICT_SETTINGS = "import msgspec\nclass S(msgspec.Struct, frozen=True, forbid_unknown_fields=True):\n"

Install = Callable[..., None]
_numbers = itertools.count()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed distributions."""
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.fixture
def install(site: Path) -> Iterator[Install]:
    """Lays a distribution with one plugin module down as pip does; modules are forgotten at the end."""
    made: list[str] = []

    def lay_down(
        text: str,
        *,
        plugin: str = "acme",
        distribution: str = "acme-lens",
        version: str = "2.1",
        requires: tuple[str, ...] = (),
        extras: str = "",
    ) -> None:
        module = f"under_test_{next(_numbers)}"
        made.append(module)
        (site / f"{module}.py").write_text(text)
        info = site / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir(exist_ok=True)
        lines = ["Metadata-Version: 2.1", f"Name: {distribution}", f"Version: {version}"]
        lines += [f"Requires-Dist: {requirement}" for requirement in requires]
        (info / "METADATA").write_text("\n".join(lines) + "\n")
        with (info / "entry_points.txt").open("a") as file:
            if file.tell() == 0:
                file.write("[lens]\n")
            file.write(f"{plugin} = {module}{extras}\n")

    yield lay_down
    for module in made:
        sys.modules.pop(module, None)


def load(site: Path, *, disabled: tuple[str, ...] = ()) -> PluginHost:
    return PluginHost.load(entry_points_of(site), disabled=disabled)


def entry_points_of(site: Path) -> list[EntryPoint]:
    found = distributions(path=[str(site)])
    return [entry_point for one in found for entry_point in one.entry_points if entry_point.group == "lens"]


def only(host: PluginHost) -> PluginInfo:
    (info,) = host.plugins()
    return info


def test_a_good_plugin_is_loaded(site: Path, install: Install) -> None:
    install(GOOD.format(name="acme"))
    host = load(site)
    info = only(host)
    assert (info.name, info.state, info.distribution, info.version) == ("acme", "loaded", "acme-lens", "2.1")
    assert info.reason == ""
    assert info.import_seconds is not None
    assert [(found.name, found.kind, found.summary) for found in info.components] == [
        ("acme", "detector", "Acme Trainer.")
    ]
    assert host.detector("acme") in host.detectors()


def test_what_fails_to_import_fails_alone(site: Path, install: Install) -> None:
    install("def boom():\n    return 1 / 0\n\nboom()\n", plugin="broken", distribution="broken-lens")
    install(GOOD.format(name="acme"))
    host = load(site)
    good, broken = host.plugins()
    assert good.state == "loaded"
    assert (broken.state, broken.reason) == ("failed", "ZeroDivisionError: division by zero")
    assert broken.traceback[-1].endswith(":2 in boom")
    with pytest.raises(PluginError, match=r"the plugin broken \(broken-lens 2.1\) failed to load: ZeroDivision"):
        host.detector("broken")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("def f(:", "SyntaxError"),
        ("from lens_core import NoSuchName", "ImportError: cannot import name 'NoSuchName'"),
        ("x = 1", "announces nothing; mark a function with @hookimpl"),
        (
            "from lens_core import hookimpl\n@hookimpl\ndef lens_sink():\n    return []",
            "PluginValidationError: unknown hook 'lens_sink'",
        ),
        (
            "from lens_core import hookimpl\n@hookimpl\ndef lens_sinks(wrong):\n    return []",
            "PluginValidationError: Plugin 'acme-lens:acme' for hook 'lens_sinks'",
        ),
        (
            "from lens_core import hookimpl\n@hookimpl\ndef lens_sinks():\n    raise KeyError('x')",
            "KeyError: 'x'",
        ),
        (
            "from lens_core import hookimpl, Sink\n@hookimpl\ndef lens_sinks():\n    return Sink",
            "lens_sinks must return a list of classes, it returned the class Sink",
        ),
        (
            "from lens_core import hookimpl\n@hookimpl\ndef lens_sinks():\n    return [5]",
            "lens_sinks must return subclasses of Sink, it returned a int",
        ),
        (
            GOOD.format(name="acme").replace("lens_detectors", "lens_sinks"),
            "lens_sinks must return subclasses of Sink, it returned the class Acme",
        ),
        (COMMANDS.format("click.Command('x')"), "lens_commands must return a list of click commands, it returned a Co"),
        (COMMANDS.format("[print]"), "lens_commands must return click commands, it returned a builtin_function"),
        (COMMANDS.format("[click.Command(None)]"), "a command's name must be lower case letters, digits and hyphens"),
        (COMMANDS.format("[click.Command('Two Words')]"), "digits and hyphens, it is 'Two Words'"),
        (COMMANDS.format("[click.Command('status')]"), "the command `lens status` is Lens' own; give the plugin's"),
        (GOOD.format(name="Acme Trainer"), "Acme.name must be lower case letters"),
        (GOOD.replace('name = "{name}"', "pass"), "Acme.name must be lower case letters"),
        (
            GOOD.format(name="acme").replace("(Detector)", "(Sink)").replace("detectors", "sinks"),
            "does not implement send",
        ),
        (
            GOOD.format(name='acme"\n    api = ">=2'),
            f"needs plugin API >=2, this Lens has {API_VERSION}; install a version",
        ),
        (GOOD.format(name='acme"\n    api = "newest'), "Acme.api must be a range such as"),
        (GOOD.format(name='acme"\n    Settings = dict\n    x = "'), "Acme.Settings must be a msgspec.Struct"),
        (
            "import msgspec\nclass S(msgspec.Struct):\n    pass\n"
            + GOOD.format(name='acme"\n    Settings = S\n    x = "'),
            "Acme.Settings must be declared with frozen=True, forbid_unknown_fields=True",
        ),
        (
            STRICT_SETTINGS + "    enabled: bool = True\n" + GOOD.format(name='acme"\n    Settings = S\n    x = "'),
            "Acme.Settings must not use the names that the host reads itself: enabled",
        ),
        (
            "from fractions import Fraction\n"
            + STRICT_SETTINGS
            + "    a: int | str | Fraction | set[int] | list[int] = 1\n"
            + GOOD.format(name='acme"\n    Settings = S\n    x = "'),
            "Acme.Settings has a type that no configuration can give: Type unions may not contain",
        ),
        (
            "from fractions import Fraction\nfrom pathlib import Path\n"
            + STRICT_SETTINGS
            + "    a: dict[str, list[Fraction]] = {}\n    b: Path | None = None\n"
            + GOOD.format(name='acme"\n    Settings = S\n    x = "'),
            "Acme.Settings has a type that no configuration can give: Fraction; take a text or a number",
        ),
        (
            STRICT_SETTINGS
            + "    a: int = msgspec.field(default_factory=lambda: 1 / 0)\n"
            + GOOD.format(name='acme"\n    Settings = S\n    x = "'),
            "ZeroDivisionError: division by zero",
        ),
        (
            STRICT_SETTINGS + "    a: 'Missing' = 1\n" + GOOD.format(name='acme"\n    Settings = S\n    x = "'),
            "Acme.Settings has a type that cannot be resolved: name 'Missing' is not defined",
        ),
    ],
)
def test_what_is_wrong_with_a_plugin_is_said(site: Path, install: Install, text: str, reason: str) -> None:
    install(GOOD.format(name="other"), plugin="other", distribution="other-lens")
    install(text)
    host = load(site)
    info, other = host.plugins()
    assert info.state == "failed"
    assert reason in info.reason
    assert info.components == []
    assert other.state == "loaded"


def test_a_missing_dependency_says_what_to_install(site: Path, install: Install) -> None:
    install("import no_such_client", requires=("no-such-client>=2", "click", "nope; extra == 'x'"))
    info = only(load(site))
    assert (info.state, info.reason) == ("unavailable", 'pip install "no-such-client>=2"')


def test_a_missing_module_that_nobody_declares_is_named(site: Path, install: Install) -> None:
    install("import no_such_client.inner")
    info = only(load(site))
    assert info.state == "unavailable"
    assert 'the module "no_such_client" is not installed' in info.reason


def test_an_extra_that_is_not_installed_is_known_before_the_import(site: Path, install: Install) -> None:
    install(
        "raise AssertionError('imported')",
        plugin="datadog",
        distribution="lens-agent",
        version="0.1.0",
        extras=" [datadog]",
        requires=(
            "click",
            "no-such-client>=2; extra == 'datadog'",
            "msgspec; extra == 'datadog'",
            "other; extra == 'y'",
        ),
    )
    info = only(load(site))
    assert info.state == "unavailable"
    assert info.reason == 'pip install "lens-agent[datadog]" (not installed: no-such-client>=2)'
    with pytest.raises(PluginError, match=r"datadog \(lens-agent 0\.1\.0\) is unavailable: pip install"):
        load(site).sink("datadog")


def test_an_extra_of_extras_is_followed(site: Path, install: Install) -> None:
    install(
        GOOD.format(name="acme"),
        extras=" [all]",
        requires=("acme-lens[one]; extra == 'all'", "msgspec>=0.1; extra == 'one'", "gone; extra == 'two'"),
    )
    assert only(load(site)).state == "loaded"


def test_two_distributions_that_claim_one_name_both_lose(site: Path, install: Install) -> None:
    install(GOOD.format(name="acme"), plugin="first", distribution="acme-one")
    install(GOOD.format(name="acme"), plugin="second", distribution="acme-two")
    install(GOOD.format(name="third"), plugin="third", distribution="acme-three")
    host = load(site)
    first, second, third = host.plugins()
    assert first.state == second.state == "conflicting"
    for info in (first, second):
        assert "the detector name acme is claimed by acme-one 2.1" in info.reason
        assert "and acme-two 2.1" in info.reason
    assert third.state == "loaded"
    assert host.names("detector") == ["third"]


def test_two_entry_points_of_one_name_conflict(site: Path, install: Install) -> None:
    install(GOOD.format(name="one"), plugin="acme", distribution="acme-one")
    install(GOOD.format(name="two"), plugin="acme", distribution="acme-two")
    assert [info.state for info in load(site).plugins()] == ["conflicting", "conflicting"]


def test_nobody_replaces_a_built_in(site: Path, install: Install) -> None:
    install(GOOD.format(name="jax"), plugin="jax", distribution="lens-agent", version="0.1.0")
    install(GOOD.format(name="jax"), plugin="jax", distribution="evil")
    host = load(site)
    evil, own = host.plugins()
    assert (own.distribution, own.state) == ("lens-agent", "loaded")
    assert (evil.distribution, evil.state) == ("evil", "conflicting")
    assert "the one of Lens stays" in evil.reason
    assert host.names("detector") == ["jax"]


def test_the_same_name_in_another_kind_is_no_conflict(site: Path, install: Install) -> None:
    install(GOOD.format(name="acme"), plugin="one", distribution="acme-one")
    install(
        "from lens_core import Source, hookimpl\nclass A(Source):\n    name = 'acme'\n"
        "@hookimpl\ndef lens_sources():\n    return [A]\n",
        plugin="two",
        distribution="acme-two",
    )
    assert [info.state for info in load(site).plugins()] == ["loaded", "loaded"]


def test_a_disabled_plugin_is_not_imported(site: Path, install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install("raise AssertionError('imported')")
    info = only(load(site, disabled=("acme",)))
    assert (info.state, info.reason, info.import_seconds) == ("disabled", "listed in LENS_DISABLED_PLUGINS", None)
    monkeypatch.setenv("LENS_DISABLED_PLUGINS", "other, acme")
    assert only(PluginHost.load(entry_points_of(site))).state == "disabled"


def test_what_a_plugin_prints_goes_to_standard_error(
    site: Path, install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install("print('hello from acme')\n" + GOOD.format(name="acme"))
    assert only(load(site)).state == "loaded"
    assert capsys.readouterr() == ("", "hello from acme\n")


def test_a_plugin_may_be_an_object_of_a_module(site: Path, install: Install) -> None:
    text = "from lens_core import Source, hookimpl\nclass A(Source):\n    name = 'acme'\n"
    install(
        text + "class P:\n    @hookimpl\n    def lens_sources(self):\n        return (A,)\nplugin = P()\n",
        extras=":plugin",
    )
    host = load(site)
    assert only(host).state == "loaded"
    assert host.source("acme").name == "acme"


def test_unreadable_metadata_hides_no_other_plugin(site: Path, install: Install) -> None:
    install(GOOD.format(name="acme"))
    for name, text in (("torn-lens", "[lens]\nno equals sign\n"), ("stranger", "[other]\nno equals sign\n")):
        info = site / f"{name.replace('-', '_')}-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        (info / "entry_points.txt").write_text(text)
    found = {plugin.name: plugin for plugin in PluginHost.load(disabled=()).plugins()}
    assert found["acme"].state == "loaded"
    assert found["wandb_api"].state == "loaded"
    assert found["torn-lens"].state == "failed"
    assert "entry_points.txt cannot be read" in found["torn-lens"].reason
    assert "stranger" not in found


def test_a_name_that_nobody_has_gets_a_suggestion(site: Path, install: Install) -> None:
    install(GOOD.format(name="acme"))
    host = load(site)
    with pytest.raises(PluginError, match="there is no detector plugin 'acne'; did you mean acme\\?"):
        host.detector("acne")
    with pytest.raises(PluginError, match="acme is a detector, not a sink; write it under detectors"):
        host.sink("acme")


def test_failures_are_counted_and_shown(site: Path, install: Install) -> None:
    install(GOOD.format(name="acme"))
    host = load(site)
    assert host.record_failure("acme", ValueError("one\ntwo"), kind="detector") == 1
    assert host.record_failure("acme", "again", kind="detector") == 2
    host.pause("acme", "it failed twice in a row", kind="detector")
    component = only(host).components[0]
    assert (component.failures, component.last_error, component.paused) == (2, "again", "it failed twice in a row")
    assert host.paused("acme", kind="detector") == "it failed twice in a row"
    host.record_success("acme", kind="detector")
    assert host.record_failure("acme", "x", kind="detector") == 1
    assert host.paused("acme", kind="detector") == ""
    assert host.paused("acme") == ""


def test_settings_are_told_with_type_default_and_meaning(site: Path, install: Install) -> None:
    install(
        """
from typing import Annotated
import msgspec
from msgspec import Meta
from lens_core import Secret, Source, hookimpl

class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    '''Settings.

    `token`, `user`: the login. `rate`: how
    often.
    '''
    token: Secret | None = None
    user: str = "me"
    batch: Annotated[int, Meta(ge=1, description="how many")] = 5
    names: list[str] = []
    rate: float | None = None

class Acme(Source):
    '''First sentence,
    still first.

    More.
    '''
    name = "acme"
    Settings = Settings

@hookimpl
def lens_sources():
    return [Acme]
"""
    )
    component = only(load(site)).components[0]
    assert component.summary == "First sentence, still first."
    told = [
        (found.name, found.type, found.required, found.default, found.documentation) for found in component.settings
    ]
    assert told == [
        ("token", "a secret text", False, None, "the login"),
        ("user", "text", False, "me", "the login"),
        ("batch", "a whole number of at least 1", False, 5, "how many"),
        ("names", "a list of text", False, [], ""),
        ("rate", "a number", False, None, "how often"),
    ]
