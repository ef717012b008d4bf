"""`lens hook`: the hook of this Python environment, on or off."""

from __future__ import annotations

from typing import TextIO

import click
import msgspec


@click.group("hook")
def command() -> None:
    """Switch the wandb hook of this Python environment on or off for every process.

    \b
    Examples:
      lens hook status
      lens hook enable      (for an editable install; the wheel of lens-hook does it by itself)
      lens hook disable
      lens hook inject job.yaml | kubectl apply -f -
    """


@command.command()
def enable() -> None:
    """Install the hook's .pth file beside the packages."""
    from lens_hook import switch
    from lens_hook.__main__ import describe_status

    click.echo("\n".join(describe_status(switch.enable())))


@command.command()
def disable() -> None:
    """Remove the hook's .pth file."""
    from lens_hook import switch
    from lens_hook.__main__ import describe_status

    click.echo("\n".join(describe_status(switch.disable())))


@command.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(as_json: bool) -> None:
    """Show whether the hook is enabled, and by which file."""
    from lens_hook import switch
    from lens_hook.__main__ import describe_status

    found = switch.status()
    if as_json:
        click.echo(msgspec.json.encode(found).decode())
    else:
        click.echo("\n".join(describe_status(found)))


@command.command()
@click.argument("file", type=click.File())
@click.option("--container", "containers", multiple=True, help="Only containers of this name; repeatable.")
@click.option("--image", default=None, help="The hook's image [default: lens-hook:VERSION].")
@click.option(
    "--url", default="http://lens.lens:8080/api/v1", show_default=True, help="The address that the hook sends to."
)
@click.option(
    "--token-secret", default="lens-ingest", show_default=True, help="The Secret with the key `token`, or ''."
)
@click.option("--python-path", default="", help="PYTHONPATH of the training image itself, if it sets one.")
def inject(
    file: TextIO,
    containers: tuple[str, ...],
    image: str | None,
    url: str,
    token_secret: str,
    python_path: str,
) -> None:
    """Print the Kubernetes manifests of FILE (- for standard input) with the hook in their training containers.

    Jobs, PyTorchJobs, JobSets and whatever else has pod templates. A PYTHONPATH is kept, after the hook's folder;
    variables that it sets itself stay as they are.

    \b
    Examples:
      lens hook inject job.yaml | kubectl apply -f -
      lens hook inject job.yaml --container trainer --image REGISTRY/lens-hook:0.1.0 | kubectl apply -f -
    """
    from .. import __version__
    from .hook_manifest import Injection, inject_text

    injection = Injection(image or f"lens-hook:{__version__}", url, token_secret, containers, python_path)
    click.echo(inject_text(file.read(), injection), nl=False)
