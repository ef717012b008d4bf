"""Raw facts: bounded, without secrets, of what is loaded and no more."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lens_hook import redact

from tests.plugins.sources.wandb_hook.environments import Environment
from tests.plugins.sources.wandb_hook.receiver import Receiver


@pytest.mark.parametrize(
    "name",
    [
        "api_key",
        "apiKey",
        "WANDB_API_KEY",
        "password",
        "db_passwd",
        "hf_token",
        "accessToken",
        "client_secret",
        "aws_secret_access_key",
        "AWS_ACCESS_KEY_ID",
        "privateKey",
        "credentials",
        "token",
        "auth",
        "Authorization",
    ],
)
def test_secret_names(name: str) -> None:
    assert redact.bounded({name: "abc"}) == {name: "***"}
    assert redact.bounded({"nested": {name: ["a", "b"]}}) == {"nested": {name: "***"}}


@pytest.mark.parametrize(
    "name",
    [
        "max_tokens",
        "tokenizer",
        "pad_token",
        "eos_token_id",
        "num_tokens_per_batch",
        "author",
        "tokens_per_second",
        "keyboard",
        "monkey",
        "authors",
        "passes",
        "bos_token",
    ],
)
def test_harmless_names(name: str) -> None:
    assert redact.bounded({name: "abc"}) == {name: "abc"}


@pytest.mark.parametrize(
    ("text", "gone"),
    [
        ("postgresql://user:pass@db:5432/x", "pass"),
        ("https://s3.example/x?X-Amz-Signature=abcdef&part=1", "abcdef"),
        ("hf_abcdefghijklmnopqrstu", "abcdefgh"),
        ("--key sk-abcdefghijklmnopqrstuv", "abcdefgh"),
        ("ghp_abcdefghijklmnopqrstuvwxyz0123456789", "abcdefgh"),
        ("AKIAIOSFODNN7EXAMPLE", "IOSFODNN7"),
        ("Bearer abcdefghij.klm", "abcdefghij"),
    ],
)
def test_secrets_in_text(text: str, gone: str) -> None:
    assert gone not in redact.text(text)
    assert "***" in redact.text(text)


def test_numbers_under_secret_names_stay() -> None:
    assert redact.bounded({"token": 5, "secret": None, "auth": True}) == {"token": 5, "secret": None, "auth": True}


class Hostile(dict[str, Any]):
    """A mapping whose methods raise."""

    def items(self) -> Any:
        raise ValueError("no")

    def __repr__(self) -> str:
        raise AssertionError("repr of the user's object was taken")


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.builds(object),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8) | st.integers(), inner, max_size=4),
    max_leaves=30,
)


@given(PLAIN)
def test_anything_becomes_strict_json(value: Any) -> None:
    json.dumps(redact.bounded(value), allow_nan=False)


def test_size_is_bounded() -> None:
    deep: Any = "end"
    for _ in range(100):
        deep = {"inner": deep}
    huge = {"deep": deep, "hostile": Hostile(a=1), **{f"k{i}": "x" * 5000 for i in range(10_000)}}
    assert len(json.dumps(redact.bounded(huge))) < 600_000


EVIDENCE = """
    import os, sys, time, types
    import numpy as np
    import wandb

    class Odd:
        def __repr__(self): raise RuntimeError("no repr")
        def __str__(self): raise RuntimeError("no str")

    run = wandb.init(project="proj", name="nice", tags=["a", "b"], config={"lr": 0.1, "hf_token": "hf_xyz"})
    wandb.log({"loss": 1})
    input()  # until the first evidence is sent
    run.config.update({"late": 1})
    megatron = types.ModuleType("megatron")
    megatron.__version__ = "0.9"
    sys.modules["megatron"] = megatron
"""


def test_evidence_is_sent_at_start_and_again_at_the_end(
    each_wandb: Environment, receiver: Receiver, tmp_path: Path
) -> None:
    variables = {
        "PRIMUS_LENS_API_BASE_URL": receiver.url,
        "PRIMUS_BACKEND": "megatron",
        "PRIMUS_LENS_API_TOKEN": "hidden-token",
        "WORKLOAD_UID": "w",
    }
    process = each_wandb.start(EVIDENCE, tmp_path, variables, stdin=subprocess.PIPE)
    receiver.wait_for(lambda: receiver.records("evidence"))
    _, said = process.communicate("\n", timeout=240)
    assert process.returncode == 0, said
    assert "lens-hook" not in said
    first, *_, last = [record["facts"] for record in receiver.records("evidence")]
    assert first["wandb"]["project"] == "proj"
    assert first["wandb"]["name"] == "nice"
    assert first["wandb"]["tags"] == ["a", "b"]
    assert first["wandb"]["config"]["hf_token"] == "***"
    assert first["environment"]["PRIMUS_BACKEND"] == "megatron"
    assert first["pytorch"] == {"available": False}
    assert first["modules"]["numpy"]
    assert "json" not in first["modules"]
    assert "megatron" not in first["modules"]
    assert last["modules"]["megatron"] == "0.9"
    assert last["wandb"]["config"]["late"] == 1
    sent = b"".join(request.body for request in receiver.requests)
    assert b"hf_xyz" not in sent
    assert b"hidden-token" not in sent


def test_a_configuration_that_cannot_be_serialised(newest: Environment, receiver: Receiver, tmp_path: Path) -> None:
    script = """
        import wandb
        class Odd:
            def __repr__(self): raise RuntimeError("no repr")
        run = wandb.init(project="p", mode="disabled")
        run.config._items["odd"] = Odd()
        run.config._items["nested"] = {"odd": [Odd(), {1: Odd()}]}
        wandb.log({"loss": 1})
    """
    done = newest.run(script, tmp_path, {"PRIMUS_LENS_API_BASE_URL": receiver.url, "RANK": "x-1", "NODE_RANK": " "})
    assert done.stderr == ""
    assert receiver.points() == [(0, "loss", 1)]
    config = receiver.records("evidence")[-1]["facts"]["wandb"]["config"]
    assert config == {"odd": "<Odd>", "nested": {"odd": ["<Odd>", {"1": "<Odd>"}]}}
    assert "rank" not in receiver.rows()[0]["origin"]
