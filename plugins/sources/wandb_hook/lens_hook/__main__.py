"""`python -m lens_hook status | enable | disable`."""

from __future__ import annotations

import json
import sys

from . import switch

_ACTIONS = {"status": switch.status, "enable": switch.enable, "disable": switch.disable}
_USAGE = "usage: python -m lens_hook status | enable | disable [--json]"


def main(arguments: list[str]) -> int:
    """Do what is asked; 0 ok, 1 failed, 2 wrong usage."""
    as_json = "--json" in arguments
    words = [word for word in arguments if word != "--json"]
    if len(words) != 1 or words[0] not in _ACTIONS:
        sys.stderr.write(_USAGE + "\n")
        return 2
    try:
        state = _ACTIONS[words[0]]()
    except OSError as error:
        sys.stderr.write(f"lens-hook: {error.strerror}: {error.filename}\n")
        return 1
    if as_json:
        sys.stdout.write(json.dumps(state) + "\n")
    else:
        sys.stdout.write("".join(line + "\n" for line in describe_status(state)))
    return 0


def describe_status(state: dict[str, object]) -> list[str]:
    """The status in words."""
    variables = state["variables"]
    named = ", ".join(variables) if isinstance(variables, list) and variables else "none of the hook's variables"
    if not state["enabled"]:
        now = "the hook is off in this environment (python -m lens_hook enable)"
    elif state["armed"]:
        now = f"the hook is on, and armed now by {named}"
    else:
        now = (
            "the hook is on, but nothing arms it in this shell: set PRIMUS_LENS_API_BASE_URL, POD_NAME or WORKLOAD_UID"
        )
    return [f"lens-hook {state['version']} in {state['folder']}", now]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
