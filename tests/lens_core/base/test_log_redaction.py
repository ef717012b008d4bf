"""Secrets in log lines: whatever form a program prints them in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lens_core.base.log_redaction import redact_line, redact_lines

SECRET = st.text("abcdefghijkmnopqrstuvwxyzABCDEFGH23456789_+/", min_size=8, max_size=40).filter(
    lambda text: text.lower() not in ("true", "false", "none", "null")
)
NAMES = st.sampled_from(
    ["WANDB_API_KEY", "api_key", "hf-token", "password", "db.password", "AWS_SECRET_ACCESS_KEY", "auth_token", "apiKey"]
)
FORMS = [
    "{name}={value}",
    "export {name}={value}",
    "{name}: {value}",
    '"{name}": "{value}"',
    "'{name}': '{value}',",
    '{{\\"{name}\\": \\"{value}\\"}}',
    "train.py --{name} {value} --lr 0.1",
    "--{name}={value}",
    "{name} => {value}",
]


@given(name=NAMES, value=SECRET, form=st.sampled_from(FORMS), before=st.sampled_from(["", "INFO ", "[rank0]: cfg "]))
def test_the_value_of_a_setting_with_a_secret_name_is_hidden(name: str, value: str, form: str, before: str) -> None:
    line = before + form.format(name=name, value=value)
    assert value not in redact_line(line), redact_line(line)


@pytest.mark.parametrize(
    ("line", "gone"),
    [
        ("GET / Authorization: Bearer abcdefgh.ijk", "abcdefgh"),
        ("Authorization: Basic dXNlcjpwYXNzd29yZA==", "dXNlcjpwYXNzd29yZA"),
        ("connecting to postgresql://lens:hunter22@db/lens", "hunter22"),
        ("key hf_abcdefghijklmnopqrstuvwx in use", "hf_abcdefgh"),
    ],
)
def test_credentials_in_other_forms_are_hidden(line: str, gone: str) -> None:
    assert gone not in redact_line(line)


@pytest.mark.parametrize(
    "line",
    [
        " iteration 100/ 1000 | lm loss: 2.5E+00 | tokens_per_gpu: 1000 |",
        "pad_token: <pad>, eos_token = </s>, max_tokens=4096",
        "use_auth: true, password: None",
        "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "--learning-rate 0.001 --num-tokens 5",
    ],
)
def test_an_ordinary_line_stays(line: str) -> None:
    assert redact_line(line) == line


def test_a_private_key_is_hidden_as_a_whole() -> None:
    key = ["loading -----BEGIN RSA PRIVATE KEY-----", "MIIEpAIBAAKCAQEA", "abc/def+", "-----END RSA PRIVATE KEY-----"]
    assert list(redact_lines([*key, "step 1"])) == ["loading ***", "***", "***", "***", "step 1"]
