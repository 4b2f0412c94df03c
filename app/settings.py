"""The one place that reads the environment. Every knob is `SLACKWATER_<NAME>`; units are in the names."""

import difflib
import os
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

PACKAGE = Path(__file__).parent
_PREFIX = "SLACKWATER_"
PrivateTargets = Literal["off", "loopback", "all"]


class Settings(BaseSettings):
    """Frozen configuration, passed as values to whoever needs it."""

    model_config = SettingsConfigDict(env_prefix=_PREFIX, frozen=True, extra="ignore")

    # Where things live
    data_dir: Path = Field(
        Path.home() / ".slackwater", description="embedded database, model, secrets, spools, objects"
    )
    database_url: str = Field("", description="postgresql://… ; empty: the embedded server in data_dir")
    broker_url: str = Field(
        "",
        pattern="^((amqps?|rediss?|pgmq)://.+)?$",
        description="amqp://… or redis://… ; empty: pgmq on the database itself",
    )
    models_file: Path = Field(PACKAGE / "models.toml", description="catalogue: aliases, capabilities, prices, flags")
    secret_key: SecretStr = Field(
        SecretStr(""), description="peppers API keys, encrypts webhook secrets; empty: kept in data_dir"
    )

    # API
    host: str = Field(
        "127.0.0.1", description="address the API listens on, and the metrics pages of notifiers and GPU workers"
    )
    port: int = Field(8700, ge=1, le=65535, description="port the API listens on")
    connections: int = Field(
        8192, gt=0, description="most connections to the API at once; fewer where the limit of open files is lower"
    )
    connections_per_address: int = Field(
        0, ge=0, description="of them, from one address; 0: half of them. Behind a proxy: as many as `connections`"
    )
    header_seconds: float = Field(10, gt=0, description="a request's headers must be complete within this time")
    body_seconds: float = Field(
        30,
        gt=0,
        description="longest pause between two bytes of a request's body; a client that reads nothing of an answer for this "
        "long is disconnected",
    )
    metrics_token: SecretStr = Field(
        SecretStr(""), description="bearer token that the API's `/metrics` asks for; empty: none"
    )
    json_body_mb: float = Field(10, gt=0, description="cap of a JSON body; Workers AI's own is 10 MB")
    ndjson_body_mb: float = Field(200, gt=0, description="cap of an application/x-ndjson body")
    ndjson_line_mb: float = Field(4, gt=0, description="cap of one NDJSON line")
    batch_items: int = Field(200_000, gt=0, description="most items in one batch")
    spool_memory_mb: float = Field(8, gt=0, description="a body beyond this is spooled to disk while it arrives")

    # Commands of callers, from any machine
    url: str = Field(
        "", pattern="^(https?://.+)?$", description="http://… or https://… of the API that callers' commands use"
    )
    api_key: SecretStr = Field(
        SecretStr(""), description="API key for callers' commands; empty: the one that `up` or `login` has stored"
    )

    # Database
    database_pool_size: int = Field(8, gt=0, description="connections per process and durability class")
    partition_days_ahead: int = Field(3, ge=1, description="daily partitions kept in stock")

    retention_days: int = Field(
        30, ge=0, description="final batches are kept this long, then dropped a day at a time; 0: for ever"
    )

    # Object store
    object_kb: int = Field(0, ge=0, description="an item or answer beyond this lies in the object store; 0: none does")
    storage_url: str = Field(
        "",
        pattern="^(s3://[^/]+.*|file:///.+)?$",
        description="s3://bucket/prefix, with the extra `s3` and AWS_… variables for access, "
        "or file:///folder; empty: objects in data_dir",
    )
    storage_endpoint: str = Field(
        "", pattern="^(https?://.+)?$", description="https://… of an S3-compatible store that is not AWS's"
    )

    # Queue
    chunk_tokens: int = Field(16_000, gt=0, description="estimated tokens after which a chunk is cut")
    chunk_items: int = Field(64, gt=0, description="most items in a chunk")
    lease_seconds: float = Field(10, gt=0, description="a worker silent for this long loses its chunks")
    heartbeat_seconds: float = Field(2, gt=0, description="how often a worker renews its lease")
    poll_seconds: float = Field(
        0.05, gt=0, description="longest pause of an idle worker between two looks at the queue"
    )
    steward_seconds: float = Field(0.2, gt=0, description="pause between two rounds of the steward")

    # GPU worker and engine
    engine_name: str = Field("engine-0", description="name of this worker's engine; one controller per name")
    engine_model: str = Field(
        "smollm2-135m-instruct", description="model of the engine; not set, an attached engine says it"
    )
    engine_url: str = Field(
        "",
        pattern="^(https?://.+)?$",
        description="http://… or https://… of a running engine to attach to, a `/v1` at its end is dropped; "
        "empty: start and own one",
    )
    engine_api_key: SecretStr = Field(SecretStr(""), description="bearer token of an attached engine")
    engine_host: str = Field(
        "127.0.0.1", description="address a managed engine listens on; the API's gateway calls it there"
    )
    engine_port: int = Field(0, ge=0, description="port of a managed engine; 0: any free one")
    engine_slots: int = Field(256, gt=0, description="requests an attached engine runs at once: its --max-num-seqs")
    engine_start_seconds: float = Field(600, gt=0, description="a managed engine not healthy by then is restarted")
    request_timeout_seconds: float = Field(600, gt=0, description="longest single inference request")
    request_attempts: int = Field(
        4, gt=0, description="tries of one request on transient engine errors, within seconds"
    )
    item_retries: int = Field(2, ge=0, description="rounds of such tries after the first one, minutes apart")
    item_attempts: int = Field(4, ge=3, description="workers lost under an item before it is given up")
    answer_mb: int = Field(
        64, ge=1, le=512, description="an answer beyond this that does not go to the object store is an item's error"
    )
    flush_items: int = Field(32, gt=0, description="results per flush")
    flush_seconds: float = Field(0.25, gt=0, description="a result waits no longer for its flush")
    drain_seconds: float = Field(20, ge=0, description="on SIGTERM, time for requests in flight before hand-back")
    worker_metrics_port: int = Field(
        8710,
        ge=0,
        le=65_436,
        description="where a GPU worker answers `/metrics`, at `SLACKWATER_HOST`; to it is added the number below 100 that its "
        "engine's name ends in: engine-1 has 8711; 0: nowhere",
    )

    # Headroom
    harvest: bool = Field(
        True, description="managed engines: share each step inside vLLM's scheduler, not only outside it"
    )
    headroom: str = Field(
        "measured",
        pattern="^(measured|static)$",
        description="measured, or static: always batch_max_in_flight requests",
    )
    itl_budget_ms: float = Field(25, gt=0, description="a step may take this long while synchronous requests run")
    itl_stretch: float = Field(
        1.1, ge=1, description="or this many times a step of the synchronous requests alone, whichever is more"
    )
    itl_ceiling_ms: float = Field(
        50, gt=0, description="synchronous objective: the budget grows no further for a batch near its deadline"
    )
    idle_step_ms: float = Field(50, gt=0, description="a step may take this long while no synchronous request is there")
    idle_stretch: float = Field(
        1.5, ge=1, description="or this many times the engine's shortest step, whichever is more"
    )
    batch_max_in_flight: int = Field(
        0, ge=0, description="static cap of batch requests in flight on one engine; 0: its slots less the reserve"
    )
    batch_min_in_flight: int = Field(
        0, ge=0, description="requests left to batch work whenever the gate is not closed, against starvation"
    )
    batch_prefill_tokens: int = Field(1024, gt=0, description="batch prompts given to the engine at a time, in tokens")
    burst_tokens: int = Field(
        3072, gt=0, description="announced synchronous prompts, in tokens, that make batch work yield"
    )
    sync_reserve_slots: int = Field(2, ge=0, description="engine slots never taken by batch work")
    kv_ceiling: float = Field(0.85, gt=0, le=1, description="KV-cache usage above which nothing is admitted")
    sample_seconds: float = Field(0.15, gt=0, description="pause between two scrapes of /metrics")
    control_seconds: float = Field(0.1, gt=0, description="pause between two ticks of the controller")
    stale_seconds: float = Field(
        1.5, gt=0, description="telemetry older than this closes the gate; on a busy host it may be older, as learned"
    )
    probe_seconds: float = Field(
        5, gt=0, description="pause between two probes of an engine whose telemetry is not believed"
    )

    gpu_memory_ceiling: float = Field(
        0.97, gt=0, le=1, description="GPU memory in use above this share is warned of; never the gate itself"
    )
    decision_days: float = Field(7, gt=0, description="decisions of the gate are kept this long for `slackwater why`")
    decision_rows: int = Field(10_000, gt=0, description="most decisions kept per engine")

    # Gateway
    gateway_refresh_seconds: float = Field(0.5, gt=0, description="how long a list of ready engines is trusted")
    key_requests_per_minute: int = Field(
        0,
        ge=0,
        description="synchronous requests of one API key in a minute, where the key has no limit of its own; 0: any",
    )
    key_tokens_per_minute: int = Field(
        0, ge=0, description="their tokens, as estimated on arrival; what is queued never counts; 0: any"
    )
    line_seconds: float = Field(
        20,
        ge=0,
        description="longest wait of a synchronous request for a place or an expected engine; its caller may say not at all",
    )
    announce_rest_seconds: float = Field(
        5, ge=0, description="a worker that could not be told is left alone for so long"
    )
    arrival_host: str = Field("127.0.0.1", description="address on which a GPU worker hears of synchronous requests")
    arrival_port: int = Field(0, ge=0, le=65535, description="port for that; 0: any free one")
    arrival_url: str = Field(
        "",
        pattern="^(https?://.+)?$",
        description="http://… under which gateways reach that port; empty: by arrival_host, or this host's name",
    )

    # Webhooks
    webhook_allow_private: PrivateTargets = Field(
        "off",
        description="receivers allowed beside https on public addresses: off: none; loopback: those on the same machine; "
        "all: private networks too, by http or https; true means loopback, false off",
    )
    webhook_timeout_seconds: float = Field(15, gt=0, description="total time of one delivery attempt")
    webhook_response_kb: int = Field(16, gt=0, description="most of a receiver's answer that is kept")
    webhook_disable_days: float = Field(5, gt=0, description="an endpoint failing for this long is disabled")
    webhook_sweep_seconds: float = Field(2, gt=0, description="how often the notifier looks for overdue deliveries")
    webhook_rehint_seconds: float = Field(10, gt=0, description="a hint not acted on by then counts as lost")
    webhook_concurrency: int = Field(
        256, gt=0, description="delivery attempts at once in one notifier; each endpoint has a limit of its own"
    )
    notifier_metrics_port: int = Field(
        8709, ge=0, le=65535, description="where a notifier answers `/metrics`, at `SLACKWATER_HOST`; 0: nowhere"
    )
    webhook_progress_seconds: float = Field(
        10, gt=0, description="`batch.progress` of one batch is sent no more often than so"
    )
    webhook_endpoints: int = Field(1000, gt=0, description="most subscriptions and webhook endpoints of one account")
    webhook_allowed_hosts: str = Field(
        "", description="the only hosts that webhooks may go to, by commas; `.example.com` is any below it; empty: any"
    )

    # Logs
    log_format: str = Field("console", pattern="^(console|json)$", description="console or json")
    log_level: str = Field(
        "info", pattern="(?i)^(debug|info|warning|error)$", description="debug, info, warning or error"
    )

    @property
    def wanted_model(self) -> str | None:
        """The model that somebody named for the engine; None if nobody did, so that an attached engine may say it."""
        return self.engine_model if "engine_model" in self.model_fields_set else None

    @field_validator("database_url")
    @classmethod
    def _postgresql(cls, url: str) -> str:
        """One spelling of the scheme, since SQLAlchemy and the embedded broker know no other."""
        url = re.sub("^postgres://", "postgresql://", url.strip())
        if url and not url.startswith("postgresql://"):
            raise ValueError("must be postgresql://… , or empty for the embedded server")
        return url

    @field_validator("webhook_allow_private", mode="before")
    @classmethod
    def _switch(cls, value: object) -> object:
        """The words of the switch that it was, which opened no private network."""
        text = str(value).strip().lower()
        if text in ("true", "yes", "on", "1"):
            return "loopback"
        return "off" if text in ("false", "no", "0") else text

    @field_validator("engine_url")
    @classmethod
    def _without_version(cls, url: str) -> str:
        """The address that OpenAI's clients take ends in `/v1`; ours adds that itself."""
        return re.sub("(?<=[^/])/v1/*$", "", url)

    @field_validator("engine_url", "arrival_url", "url")
    @classmethod
    def _without_slash(cls, url: str) -> str:
        return url.rstrip("/")


@cache
def load(**overrides: Any) -> Settings:
    """The process's settings, read from the environment once. `overrides`, from the command line, win over it."""
    return Settings(**overrides)


# Variables of ours that are no settings: docker-compose.yml reads the first, commands on another machine the others.
_READ_ELSEWHERE = ("PASSWORD", "URL", "API_KEY")


def mistyped() -> dict[str, str | None]:
    """Variables `SLACKWATER_…` of the environment that nothing reads, each with the most similar one that exists, if any is."""
    known = [*map(str.upper, Settings.model_fields), *_READ_ELSEWHERE]
    written = [name for name in os.environ if name.upper().startswith(_PREFIX)]
    unknown = [name for name in sorted(written) if name.upper().removeprefix(_PREFIX) not in known]
    near = {name: difflib.get_close_matches(name.upper().removeprefix(_PREFIX), known, n=1) for name in unknown}
    return {name: f"{_PREFIX}{found[0]}" if found else None for name, found in near.items()}


# Too much is hidden rather than too little: a password may hold `@` and `/`, and so may a user's name hold `@`.
_CREDENTIALS = re.compile(r"(://[^:/?#]*:).*@", re.DOTALL)
_PARAMETER = re.compile(r"((?:pass|secret|token)[\w-]*=)[^&;\s]*", re.IGNORECASE)


def masked(value: object) -> str:
    """A setting's value for the eye: passwords in URLs are hidden, in front of the host and among the parameters."""
    return _PARAMETER.sub(r"\1***", _CREDENTIALS.sub(r"\1***@", str(value)))


# Log lines at once; and process titles (Celery and vLLM set theirs) must not overwrite the marks that we find processes by.
PROCESS_ENVIRONMENT = {"PYTHONUNBUFFERED": "1", "SPT_NOENV": "1"}


def foreign_environment() -> dict[str, str]:
    """The environment for a program that is not ours: what we inherited, without our settings and their secrets."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(_PREFIX)}
    return inherited | PROCESS_ENVIRONMENT


def visible_gpus() -> str | None:
    """The GPUs that CUDA is told to use in this process and in its engine: indexes or UUIDs, by commas; None: all."""
    return os.environ.get("CUDA_VISIBLE_DEVICES")


def child_environment(settings: Settings, overrides: Mapping[str, str]) -> dict[str, str]:
    """The environment for a part of ours: what we inherited, with every setting that was given here. Defaults are its own,
    so that it can tell what was given from what was not.
    """
    values: dict[str, str] = {}
    for name in settings.model_fields_set:
        value = getattr(settings, name)
        plain = value.get_secret_value() if isinstance(value, SecretStr) else value
        values[f"{_PREFIX}{name.upper()}"] = str(plain)
    return {**os.environ, **PROCESS_ENVIRONMENT, **values, **overrides}
