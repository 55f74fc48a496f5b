"""Secrets of AWS Secrets Manager: `secrets = "elt_assets.secrets.aws:read"`, with `elt-assets[aws]`.

`runner.references` calls `read` for `{secret: NAME}`, because the setting says so.

Credentials, region and endpoint are those of boto3: variables (`AWS_PROFILE`, `AWS_REGION`), its files,
and the role of the machine or the pod.
"""

from __future__ import annotations

import json
import os
from typing import Any

from elt_assets.errors import ConfigError, TransientError

_TIMEOUT = 30
"""Limit of each request, in seconds."""
_ATTEMPTS = 5
"""Maximum number of requests for a secret, if the service is busy."""
_BUSY = frozenset(
    (
        *("InternalServiceError", "InternalFailure", "ServiceUnavailable", "RequestTimeout"),
        *("ThrottlingException", "Throttling", "TooManyRequestsException", "RequestLimitExceeded"),
    )
)
"""Error codes of requests that may succeed later."""


def read(name: str) -> Any:
    """Return a secret; None if there is none of this name.

    Args:
        name: the name or the ARN of the secret, for its text; or `NAME#KEY`, for the value of a key of the
            JSON object that the text is.

    Raises:
        ConfigError: boto3 or its credentials are missing, the secret must not be read, or it has no such key.
        TransientError: the service is busy or cannot be reached.
    """
    secret, separator, key = name.partition("#")
    text = _fetch(secret)
    return text if text is None or not separator else _value_of(text, key)


def _fetch(secret: str) -> str | None:
    try:
        import botocore.exceptions as failures  # noqa: PLC0415 - of the extra
    except ImportError:
        raise ConfigError(
            "boto3, which reads secrets of AWS, is not installed",
            guidance="pip install 'elt-assets[aws]' where connectors run",
        ) from None
    try:
        answer = _client(secret).get_secret_value(SecretId=secret)
    except failures.ClientError as error:
        code = str(error.response.get("Error", {}).get("Code"))
        if code == "ResourceNotFoundException":
            return None
        if code in _BUSY:
            raise TransientError(f"AWS Secrets Manager is busy: {code}") from None
        raise ConfigError(
            f"AWS Secrets Manager refused the request: {code}",
            guidance="allow secretsmanager:GetSecretValue (and kms:Decrypt of its key) for this secret",
        ) from None
    except (failures.ConnectionError, failures.HTTPClientError) as error:
        raise TransientError(
            f"AWS Secrets Manager cannot be reached: {type(error).__name__}",
            guidance="check the network, and AWS_REGION or AWS_ENDPOINT_URL_SECRETS_MANAGER",
        ) from None
    except (
        failures.BotoCoreError
    ) as error:  # no region, no credentials, a profile that does not exist
        raise ConfigError(
            f"boto3 cannot ask AWS Secrets Manager: {type(error).__name__}",
            guidance="set AWS_REGION, and give the process credentials of AWS as boto3 finds them",
        ) from None
    return _text_of(answer)


def _client(secret: str) -> Any:
    import boto3  # noqa: PLC0415 - of the extra
    from botocore.config import Config  # noqa: PLC0415

    parts = secret.split(":")
    in_arn = parts[3] if secret.startswith("arn:") and len(parts) > 3 else None
    limits = Config(
        connect_timeout=_TIMEOUT,
        read_timeout=_TIMEOUT,
        retries={"total_max_attempts": _ATTEMPTS, "mode": "standard"},
    )
    # boto3 itself reads only AWS_DEFAULT_REGION.
    region = in_arn or os.environ.get("AWS_REGION") or None
    return boto3.session.Session().client("secretsmanager", region_name=region, config=limits)


def _text_of(answer: dict[str, Any]) -> str:
    if "SecretString" in answer:
        return str(answer["SecretString"])
    try:
        return bytes(answer["SecretBinary"]).decode()
    except UnicodeDecodeError:
        raise ConfigError(
            "the secret of AWS Secrets Manager is binary, and not UTF-8 text",
            guidance="store it as text, for example in base64",
        ) from None


def _value_of(text: str, key: str) -> Any:
    try:
        values = json.loads(text)
    except ValueError:
        values = None
    if not isinstance(values, dict) or values.get(key) is None:
        reason = "has no such key" if isinstance(values, dict) else "is not a JSON object"
        raise ConfigError(
            f"the secret of AWS Secrets Manager {reason}",
            guidance="write NAME#KEY with a key of the secret's JSON object, or NAME for its whole text",
        )
    return values[key]
