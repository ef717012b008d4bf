"""Finds the credentials of collectors and sinks: the configuration, the environment, AWS Secrets Manager.

A file needs nothing here: `${file:/run/secrets/key}` in the configuration reads it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ..base.errors import ConfigurationError, LensError
from ..base.redaction import Secret, remember

# boto3's own would keep a start waiting for minutes where AWS cannot be reached.
_PATIENCE: dict[str, Any] = {"connect_timeout": 5, "read_timeout": 10, "retries": {"max_attempts": 2}}

_SECRET_NAME = re.compile("(?i)key|token|password|secret|credential")


def find_credentials(
    names: tuple[str, ...], environ: Mapping[str, str], *, aws_secret: str = "", aws_region: str = ""
) -> dict[str, Secret]:
    """Credentials by name: those of the environment that are not empty, else those of the AWS secret if one is named.

    A secret that is a JSON object gives all that it has; one that is plain text is the first of the names. Nothing is
    kept between calls, so a rotated secret is seen by the next run. Raises ConfigurationError for a secret that cannot
    be used, LensError when AWS cannot be asked.
    """
    found = {name: Secret(text) for name in names if (text := environ.get(name, "").strip())}
    if aws_secret and any(name not in found for name in names):
        stored = read_secret(aws_secret, aws_region, first=names[0])
        found = {**{name: stored[name] for name in names if name in stored}, **found}
    for name, secret in found.items():
        if _SECRET_NAME.search(name):  # an entity or a project is found the same way and is no secret
            remember(secret.reveal())
    return found


def read_secret(secret_id: str, region: str, *, first: str) -> dict[str, Secret]:
    """A secret of AWS Secrets Manager: a JSON object's texts by key, or a plain text as `first`.

    Credentials and, without `region`, the region come from where boto3 finds them (IRSA, profile, environment).
    """
    text = _fetch(secret_id, region).strip()
    if not text:
        raise ConfigurationError(f"the AWS secret {secret_id} is empty")
    try:
        content = json.loads(text)
    except ValueError:
        return {first: Secret(text)}
    if not isinstance(content, dict):
        return {first: Secret(text)}
    return {str(name): Secret(value) for name, value in content.items() if isinstance(value, str) and value}


def _fetch(secret_id: str, region: str) -> str:
    try:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError, ClientError
    except ImportError:
        raise ConfigurationError(f'the AWS secret {secret_id} needs boto3: pip install "lens-agent[aws]"') from None
    try:
        client = boto3.client("secretsmanager", region_name=region or None, config=Config(**_PATIENCE))
        answer = client.get_secret_value(SecretId=secret_id)
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "")
        message = f"the AWS secret {secret_id} cannot be read: {code}"
        if code in ("ResourceNotFoundException", "AccessDeniedException", "InvalidRequestException"):
            raise ConfigurationError(f"{message}; see its name and secretsmanager:GetSecretValue") from None
        raise LensError(message) from None
    except BotoCoreError as error:
        raise LensError(f"the AWS secret {secret_id} cannot be read: {error}") from None
    if "SecretString" in answer:
        return str(answer["SecretString"])
    try:
        return bytes(answer["SecretBinary"]).decode()
    except UnicodeDecodeError:
        raise ConfigurationError(f"the AWS secret {secret_id} is binary and no text") from None
