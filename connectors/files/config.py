"""The config of the source of files."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field, SecretStr

from connectors.sdk.files.options import FilesSourceConfig, Options, Text


class S3Options(Options):
    """Access to S3. What is not set is taken from the environment, as AWS's own programs do."""

    access_key_id: str | None = None
    secret_access_key: SecretStr | None = None
    session_token: SecretStr | None = None
    region: str | None = None
    endpoint: str | None = Field(None, description="The address of a store with S3's interface.")
    role_arn: str | None = Field(None, description="The role to assume.")
    anonymous: bool = Field(False, description="Whether to send no credentials.")


class GcsOptions(Options):
    """Access to Google Cloud Storage, by default with the credentials of the environment."""

    anonymous: bool = Field(False, description="Whether to send no credentials.")
    endpoint: str | None = Field(None, description="The address of another server.")
    project_id: str | None = None
    target_service_account: str | None = Field(None, description="The account to impersonate.")


class AzureOptions(Options):
    """Access to Azure Blob Storage, by default with the credentials of the environment."""

    account_name: str | None = Field(None, description="By default that of the location.")
    account_key: SecretStr | None = None
    sas_token: SecretStr | None = None
    tenant_id: str | None = None
    client_id: str | None = None
    client_secret: SecretStr | None = None
    blob_storage_authority: str | None = None
    blob_storage_scheme: Literal["http", "https"] | None = None


class FilesConfig(FilesSourceConfig):
    """Files in a local folder or an object store."""

    model_config = ConfigDict(title="Files in a local folder or an object store")

    location: Text = Field(
        description="The folder of all files: an absolute path, s3://BUCKET/FOLDER, gs://BUCKET/FOLDER or "
        "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/FOLDER.",
    )
    s3: S3Options | None = None
    gcs: GcsOptions | None = None
    azure: AzureOptions | None = None
