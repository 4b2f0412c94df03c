"""The one place that reads the environment. Every knob is `SLACKWATER_<NAME>`; units are in the names."""

import re
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AliasChoices, Field, SecretStr, ValidationInfo, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from app.protect import BUDGETS, DEFAULT, Protect

PACKAGE = Path(__file__).parent
SHIPPED_MODELS = PACKAGE / "models.toml"
DEMO_MODELS = PACKAGE / "demo_models.toml"  # of `slackwater demo`
PREFIX = "SLACKWATER_"
_BUDGET = BUDGETS[DEFAULT]
PrivateTargets = Literal["off", "loopback", "all"]

# The most that a number may be, where its field has no lower limit: what its column holds, or what dates and timers can take.
_MOST_DAYS = 36_500
MOST_SLOTS = 2**15 - 1
Count = Annotated[int, Field(le=2**31 - 1)]
SmallCount = Annotated[int, Field(le=MOST_SLOTS)]
Days = Annotated[int, Field(le=_MOST_DAYS)]
PartDays = Annotated[float, Field(le=_MOST_DAYS)]
Seconds = Annotated[float, Field(le=366 * 86_400)]
Milliseconds = Annotated[float, Field(le=3_600_000)]
Kilobytes = Annotated[int, Field(le=1_000_000)]
Megabytes = Annotated[float, Field(le=1_000_000)]
Multiple = Annotated[float, Field(le=1_000)]


class Settings(BaseSettings):
    """Frozen configuration, passed as values to whoever needs it."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="ignore", populate_by_name=True)

    # Where things live
    data_dir: Path = Field(
        Path.home() / ".slackwater", description="embedded database, models, secrets, spooled bodies, objects"
    )
    database_url: str = Field(
        "",
        description="postgresql://… , also of several hosts or of a pooler; if empty, the embedded server in data_dir is used",
    )
    database_direct_url: str = Field(
        "",
        description="postgresql://… of the database itself, if `database_url` is that of a pooler: for `migrate`, the steward, "
        "the maintenance worker, and the notifier where pgmq carries the hints",
    )
    broker_url: str = Field(
        "",
        pattern="^((amqps?|rediss?|pgmq)://.+)?$",
        description="amqp://… or redis://… ; if empty, pgmq in the same database is used",
    )
    models_file: Path = Field(SHIPPED_MODELS, description="model catalogue: aliases, prices, engine flags")
    secret_key: SecretStr = Field(
        SecretStr(""), description="peppers API keys, encrypts webhook secrets; if empty, one is created in data_dir"
    )
    secret_key_accepted: SecretStr = Field(
        SecretStr(""),
        description="another secret key that is accepted while the key is being changed: first the next one, then the last one",
    )

    # API
    host: str = Field("127.0.0.1", description="address of the API, and of the metrics pages of the other parts")
    port: int = Field(8700, ge=1, le=65535, description="port that the API listens on")
    api_processes: int = Field(
        1, ge=1, le=64, description="processes of the API that share its port: one for each core it may use; in a pod 1"
    )
    connections: Count = Field(
        8192,
        gt=0,
        description="maximum number of open connections to one process of the API, and to the console; fewer if open files are "
        "limited",
    )
    connections_per_address: Count = Field(
        0, ge=0, description="maximum from one address; 0: half of `connections`. Behind a proxy: `connections`"
    )
    header_seconds: Seconds = Field(10, gt=0, description="time limit for a request to send all its headers")
    body_seconds: Seconds = Field(
        30,
        gt=0,
        description="longest pause between two bytes of a request's body; a client that reads nothing of an answer for this "
        "long is disconnected",
    )
    metrics_token: SecretStr = Field(
        SecretStr(""), description="bearer token that the API's `/metrics` requires, if any"
    )
    operator_token: SecretStr = Field(
        SecretStr(""),
        description="a bearer token of the routes below `/operator`, besides those of `slackwater operator create`; empty: none",
    )
    admin_host: str = Field("127.0.0.1", description="address of the separate port of operators")
    admin_port: int = Field(
        0,
        ge=0,
        le=65535,
        description="port that alone serves the routes of operators (`/admin`, `/operator`); 0: they are at the API's port",
    )
    json_body_mb: Megabytes = Field(10, gt=0, description="maximum size of a JSON body; Workers AI's limit is 10 MB")
    ndjson_body_mb: Megabytes = Field(200, gt=0, description="maximum size of an NDJSON body and of an uploaded file")
    ndjson_line_mb: Megabytes = Field(4, gt=0, description="maximum size of one NDJSON line")
    batch_items: Count = Field(200_000, gt=0, description="maximum number of items in one batch")
    spool_memory_mb: Megabytes = Field(8, gt=0, description="larger bodies are written to a file while they arrive")

    # Console
    console_host: str = Field("127.0.0.1", description="address that the console listens on")
    console_port: int = Field(
        8701, ge=0, le=65535, description="port that the console listens on; 0: `up` starts no console"
    )
    console_url: str = Field(
        "",
        pattern="^(https?://[^/]+)?$",
        description="http://… or https://… at which browsers reach the console; if empty, its address and port. Other machines "
        "need https, which a proxy in front of it provides",
    )

    # Identity provider (OpenID Connect) of the console and of operators
    oidc_issuer: str = Field(
        "",
        pattern="^(https?://.+)?$",
        description="https://… of the identity provider, as its tokens name it; empty: none",
    )
    oidc_client_id: str = Field("", description="the name under which the identity provider knows the console")
    oidc_client_secret: SecretStr = Field(SecretStr(""), description="its secret there, if it has one")
    oidc_scopes: str = Field("openid profile email", description="what the console asks the identity provider for")
    oidc_audience: str = Field(
        "", description="audience of access tokens that operators may show to the admin API; empty: none are accepted"
    )
    oidc_max_age_minutes: int = Field(
        0,
        ge=0,
        le=525_600,
        description="how long ago somebody may have authenticated at the identity provider who begins a session of the console; "
        "0: any time",
    )
    oidc_rules: str = Field(
        "",
        description="who has which role, like `groups=platform -> operator; groups=acme -> admin:acme`; nobody else has one",
    )

    # Commands of callers, from any machine
    url: str = Field(
        "",
        pattern="^(https?://.+)?$",
        description="http://… or https://… of the API that the callers' commands and the console's playground use",
    )
    api_key: SecretStr = Field(
        SecretStr(""), description="API key of callers' commands; if empty, what `up` or `login` stored"
    )

    # Database
    database_pool_size: Count = Field(8, gt=1, description="maximum number of connections per process")
    partition_days_ahead: int = Field(
        3, ge=1, le=366, description="number of daily partitions that are created in advance"
    )

    retention_days: Days = Field(
        30, ge=0, description="final batches are kept this long, then deleted in whole days; 0: for ever"
    )
    audit_retention_days: Days = Field(
        365, ge=0, description="rows of the audit log are kept this long, then cut off with a signature; 0: for ever"
    )
    audit_checkpoint_seconds: Seconds = Field(
        3600, gt=0, description="interval at which the state of the audit log is signed"
    )
    audit_keys: str = Field(
        "",
        description="public keys of earlier secret keys whose audit checkpoints are still believed, in hex, with commas",
    )

    report_accounts: str = Field(
        "*",
        pattern=r"^(\*|[A-Za-z0-9_-]{1,64}(\s*,\s*[A-Za-z0-9_-]{1,64})*)$",
        description="accounts whose rows the database role sw_report reads, with commas, *: all; `slackwater migrate` applies it",
    )

    # Object store
    object_kb: Kilobytes = Field(0, ge=0, description="larger items and results go to the object store; 0: none do")
    object_grace_days: Days = Field(
        0,
        ge=0,
        description="objects of batches and files whose time is over are removed so many days after their rows; set it to at "
        "least as many days as you can restore the database back",
    )
    storage_url: str = Field(
        "",
        pattern="^(s3://[^/]+.*|file:///.+)?$",
        description="s3://bucket/prefix (extra `s3`, AWS_… variables) or file:///folder, of this installation alone; "
        "if empty, data_dir",
    )
    storage_endpoint: str = Field(
        "", pattern="^(https?://.+)?$", description="https://… of an S3-compatible store other than AWS"
    )

    # Encryption
    encrypt: Literal["off", "on", "policy"] = Field(
        "off",
        description="`on`: bodies of items and answers, files and spools are stored encrypted; `policy`: those that a rule of "
        "the policy with `encrypt` may match",
    )
    key_provider: str = Field(
        "",
        pattern=r"^(file:///.+|vault\+https://[^/]+.*|vault\+http://(127\.0\.0\.1|localhost|\[::1\])(:\d+)?(/.*)?|entry:.+)?$",
        description="file:///folder of key files, vault+https://… with the mount of a transit engine (http on loopback only), or "
        "entry:NAME of a package; if empty, `keys` in data_dir",
    )
    vault_token: SecretStr = Field(
        SecretStr(""), description="token for the transit engine of a `vault+https` key provider"
    )

    # Queue
    chunk_tokens: Count = Field(
        16_000, gt=0, description="maximum estimated tokens in a chunk; a larger item has its own"
    )
    chunk_items: Count = Field(64, gt=0, description="maximum number of items in a chunk")
    lease_seconds: Seconds = Field(10, gt=0, description="a worker that is silent for this long loses its chunks")
    heartbeat_seconds: Seconds = Field(2, gt=0, description="interval at which a worker renews its lease")
    poll_seconds: Seconds = Field(
        0.05,
        gt=0,
        description="interval at which idle workers of a small fleet check the queue; once it is known that they wait, 1 s",
    )
    steward_seconds: Seconds = Field(
        0.2, gt=0, description="pause between two rounds of the steward; while nothing waits, it looks once a second"
    )

    # GPU worker and engine
    engine_name: str = Field("engine-0", description="this worker's engine; one worker at a time is active per name")
    engine_model: str = Field(
        "smollm2-135m-instruct", description="model of the engine; if not set, an attached engine's own model"
    )
    engine_url: str = Field(
        "",
        pattern="^(https?://.+)?$",
        description="http://… or https://… of an engine to attach to, with or without `/v1`; if empty, one is started",
    )
    engines: str = Field(
        "",
        pattern=r"^(file:.+|dns://.+:[0-9,-]+)?$",
        description="several engines to attach to: `file:engines.toml`, or `dns://HOST:8000-8007`; each worker process takes "
        "free ones of them",
    )
    engines_max: SmallCount = Field(8, ge=1, description="most engines that one worker process controls")
    engine_api_key: SecretStr = Field(SecretStr(""), description="bearer token of attached engines")
    engine_host: str = Field("127.0.0.1", description="address of a managed engine; the API's gateway calls it there")
    engine_port: int = Field(0, ge=0, le=65535, description="port of a managed engine; 0: any free port")
    engine_slots: SmallCount = Field(
        256,
        gt=0,
        description="requests an attached engine runs at once; if not set, what it reports, else what is found out",
    )
    engine_dialect: str = Field(
        "auto",
        pattern="^(auto|vllm|sglang|trtllm|openai)$",
        description="kind of an attached engine: `vllm`, `sglang`, `trtllm`, `openai`; `auto`: found by asking it",
    )
    engine_start_seconds: Seconds = Field(600, gt=0, description="a managed engine not healthy by then is restarted")
    request_timeout_seconds: Seconds = Field(600, gt=0, description="time limit of one inference request")
    request_attempts: SmallCount = Field(
        4, gt=0, description="attempts of a request on transient engine errors, seconds apart"
    )
    item_retries: SmallCount = Field(
        2, ge=0, description="further rounds of request_attempts for one item, minutes apart"
    )
    item_attempts: SmallCount = Field(4, ge=3, description="an item is given up after this many lost workers")
    answer_mb: int = Field(
        64, ge=1, le=512, description="a larger answer is an error of its item, unless an object store takes it"
    )
    flush_items: Count = Field(32, gt=0, description="number of results that are stored in one flush")
    flush_seconds: Seconds = Field(0.25, gt=0, description="longest time that a result waits for its flush")
    drain_seconds: Seconds = Field(
        20,
        ge=0,
        description="after SIGTERM, time for requests in flight before they are requeued; a second one ends it",
    )
    notice_file: str = Field(
        "",
        description="while this file exists (somebody's notice that the machine will go), a worker hands back all its work and "
        "takes none",
    )
    worker_metrics_port: int = Field(
        8710,
        ge=0,
        le=65_436,
        description="port of a GPU worker's `/metrics`, plus the number at the end of its engine's name; 0: no page",
    )

    # Headroom
    harvest: bool = Field(
        True, description="share each step inside vLLM's scheduler too; an attached engine needs `page_dir` for it"
    )
    page_dir: str = Field(
        "",
        description="attached engine with the plug-in: folder of its control pages, shared with it; if empty, L1 rules",
    )
    headroom: str = Field(
        "measured",
        pattern="^(measured|static)$",
        description="`measured`, or `static`: always batch_max_in_flight requests",
    )
    protect: Protect = Field(
        DEFAULT,
        description="price of harvest: `strict`, `balanced` or `harvest`; decides what is not set of `itl_…`, `idle_…`,"
        " `prompt_stretch`",
    )
    itl_budget_ms: Milliseconds = Field(
        _BUDGET["itl_budget_ms"], gt=0, description="budget of a step with batch work while synchronous requests run"
    )
    itl_stretch: Multiple = Field(
        _BUDGET["itl_stretch"],
        ge=1,
        description="that budget as a multiple of a step without batch work; the larger of the two holds",
    )
    itl_ceiling_ms: Milliseconds = Field(
        _BUDGET["itl_ceiling_ms"],
        gt=0,
        description="the budget grows for a batch near its deadline, but not beyond",
    )
    idle_step_ms: Milliseconds = Field(
        _BUDGET["idle_step_ms"], gt=0, description="longest step with batch work without synchronous requests"
    )
    idle_stretch: Multiple = Field(
        _BUDGET["idle_stretch"],
        ge=1,
        description="that limit as a multiple of the engine's shortest step; the larger of the two holds",
    )
    prompt_stretch: Multiple = Field(
        _BUDGET["prompt_stretch"],
        ge=1,
        description="a step that synchronous prompts make longer than these limits, as a multiple of its length",
    )
    batch_max_in_flight: SmallCount = Field(
        0, ge=0, description="maximum batch requests in one engine; 0: its slots minus the reserve"
    )
    batch_min_in_flight: SmallCount = Field(
        0, ge=0, description="minimum batch requests while the gate is open, against starvation"
    )
    batch_prefill_tokens: Count = Field(1024, gt=0, description="batch prompt tokens sent to the engine at a time")
    burst_tokens: Count = Field(
        3072, gt=0, description="announced synchronous prompt tokens that make batch requests yield"
    )
    sync_reserve_slots: Count = Field(2, ge=0, description="engine slots that batch work never takes")
    kv_ceiling: float = Field(0.85, gt=0, le=1, description="KV cache usage above which no batch request is admitted")
    sample_seconds: Seconds = Field(
        0.15, gt=0, description="pause between two scrapes of the engine's /metrics; 1 s while it has nothing to do"
    )
    control_seconds: Seconds = Field(0.1, gt=0, description="pause between two ticks of the controller, likewise")
    stale_seconds: Seconds = Field(
        1.5, gt=0, description="older telemetry closes the gate; on a busy host the worker learns a higher limit"
    )
    probe_seconds: Seconds = Field(5, gt=0, description="pause between two probes of an engine with stale telemetry")

    gpu_memory_ceiling: float = Field(
        0.97, gt=0, le=1, description="share of GPU memory in use that is warned of; it never closes the gate"
    )
    decision_days: PartDays = Field(
        7, gt=0, description="time for which decisions of the gate are kept for `slackwater why`"
    )
    decision_rows: Count = Field(10_000, gt=0, description="maximum number of decisions kept per engine")

    # Gateway
    gateway_refresh_seconds: Seconds = Field(
        0.5, gt=0, description="pause between two reads of the list of ready engines"
    )
    key_requests_per_minute: Count = Field(
        0,
        ge=0,
        description="synchronous requests per key, if it has no limit of its own; 0: no limit",
    )
    key_tokens_per_minute: Count = Field(
        0, ge=0, description="estimated tokens of synchronous requests per key, likewise; 0: no limit"
    )
    store_responses: Literal["on", "off"] = Field(
        "on",
        description="whether `/v1/responses` stores a response whose request has no `store`; `off`: only with `store: true`",
    )
    line_seconds: Seconds = Field(
        20,
        ge=0,
        description="longest wait of a synchronous request for a slot or an expected engine",
    )
    announce_rest_seconds: Seconds = Field(5, ge=0, description="pause before an unreachable worker is notified again")
    arrival_host: str = Field("127.0.0.1", description="address where a GPU worker receives announced requests")
    arrival_port: int = Field(0, ge=0, le=65535, description="port for announced requests; 0: any free port")
    arrival_url: str = Field(
        "",
        pattern="^(https?://.+)?$",
        description="http://… of that port for gateways; if empty, from arrival_host or this host's name",
    )

    # Webhooks
    webhook_allow_private: PrivateTargets = Field(
        "off",
        description="receivers allowed besides https on public addresses. `off`: none; `loopback`: receivers on the "
        "same machine; `all`: private networks too, over http or https; true means `loopback`, false "
        "means `off`",
    )
    webhook_timeout_seconds: Seconds = Field(15, gt=0, description="time limit of one delivery attempt")
    webhook_response_kb: Kilobytes = Field(16, gt=0, description="maximum size of a receiver's response that is kept")
    webhook_disable_days: PartDays = Field(5, gt=0, description="an endpoint that has failed for this long is disabled")
    webhook_sweep_seconds: Seconds = Field(2, gt=0, description="interval at which overdue deliveries are looked for")
    webhook_rehint_seconds: Seconds = Field(10, gt=0, description="a hint without effect by then counts as lost")
    webhook_concurrency: Count = Field(
        256, gt=0, description="delivery attempts at once in one notifier, over all endpoints"
    )
    steward_metrics_port: int = Field(8708, ge=0, le=65535, description="port of a steward's `/metrics`; 0: no page")
    maintenance_metrics_port: int = Field(
        8707, ge=0, le=65535, description="port of a maintenance worker's `/metrics`; 0: no page"
    )
    notifier_metrics_port: int = Field(8709, ge=0, le=65535, description="port of a notifier's `/metrics`; 0: no page")
    webhook_progress_seconds: Seconds = Field(
        10, gt=0, description="shortest time between two `batch.progress` of a batch"
    )
    webhook_endpoints: Count = Field(1000, gt=0, description="most subscriptions and webhook endpoints of one account")
    webhook_allowed_hosts: str = Field(
        "", description="only hosts for webhooks, comma-separated; `.example.com` is any below it; if empty, any"
    )

    # Logs
    log_format: str = Field("console", pattern="^(console|json)$", description="`console` or `json`")
    log_level: str = Field(
        "info", pattern="(?i)^(debug|info|warning|error)$", description="`debug`, `info`, `warning` or `error`"
    )

    # Traces
    otlp_endpoint: str = Field(
        "",
        pattern="^(https?://.+)?$",
        validation_alias=AliasChoices(f"{PREFIX}OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"),
        description="http://… of a collector that takes OTLP over HTTP, without `/v1/traces`; also read from "
        "`OTEL_EXPORTER_OTLP_ENDPOINT`; if empty, no spans are recorded (extra `otel`)",
    )
    trace_item_share: float = Field(
        0.01, ge=0, le=1, description="share of a batch's items that have a span although nothing happened to them"
    )
    trace_sync_share: float = Field(
        1.0,
        ge=0,
        le=1,
        description="share of single requests (synchronous, background, flex) that have a span; a caller's own decision wins",
    )

    @property
    def attached_to(self) -> str:
        """Where the engines are that somebody else runs: a URL or a list. Empty: one is started."""
        return self.engines or self.engine_url

    @property
    def wanted_model(self) -> str | None:
        """The model that somebody named for the engine; None if nobody did, so that an attached engine may say it."""
        return self.engine_model if "engine_model" in self.model_fields_set else None

    @model_validator(mode="after")
    def _protected(self) -> Self:
        """The budgets that nobody set are those of `protect`."""
        for name, value in BUDGETS[self.protect].items():
            if name not in self.model_fields_set:
                self.__dict__[name] = value  # the model is frozen, and the field stays one that was not set
        return self

    @field_validator("database_url", "database_direct_url")
    @classmethod
    def _postgresql(cls, url: str) -> str:
        """One spelling of the scheme, since SQLAlchemy and the embedded broker know no other."""
        url = re.sub("^postgres://", "postgresql://", url.strip())
        if url and not url.startswith("postgresql://"):
            raise ValueError("must be postgresql://… , or empty for the embedded server")
        return url

    @field_validator("audit_keys")
    @classmethod
    def _public_keys(cls, keys: str) -> str:
        if wrong := [
            key for key in keys.split(",") if key.strip() and not re.fullmatch("[0-9a-fA-F]{64}", key.strip())
        ]:
            raise ValueError(
                f"must be public keys of 64 hex digits, as `slackwater audit key` prints them, not {wrong[0]!r}"
            )
        return keys

    @field_validator("webhook_allow_private", mode="before")
    @classmethod
    def _switch(cls, value: object) -> object:
        """The words of the switch that it was, which opened no private network."""
        text = str(value).strip().lower()
        if text in ("true", "yes", "on", "1"):
            return "loopback"
        return "off" if text in ("false", "no", "0") else text

    @field_validator("engines")
    @classmethod
    def _only_list(cls, engines: str, info: ValidationInfo) -> str:
        if engines and info.data.get("engine_url"):
            raise ValueError("excludes SLACKWATER_ENGINE_URL (--attach), which is one engine: set one of them")
        return engines

    @field_validator("page_dir")
    @classmethod
    def _of_one_engine(cls, page_dir: str, info: ValidationInfo) -> str:
        if page_dir and info.data.get("engines"):
            raise ValueError("is the folder of one engine: the file of SLACKWATER_ENGINES names one for each engine")
        return page_dir

    @field_validator("engine_url", "url")
    @classmethod
    def _without_version(cls, url: str) -> str:
        return bare_url(url)

    @field_validator("arrival_url")
    @classmethod
    def _without_slash(cls, url: str) -> str:
        return url.rstrip("/")


def bare_url(url: str) -> str:
    """The URL of an engine or of an API without the `/v1` that OpenAI's clients take, since ours add it themselves."""
    return re.sub("(?<=[^/])/v1/*$", "", url).rstrip("/")


@cache
def load(**overrides: Any) -> Settings:
    """The process's settings, read from the environment once. `overrides`, from the command line, win over it."""
    return Settings(**overrides)


# Too much is hidden rather than too little: a password may hold `@` and `/`, and so may a user's name hold `@`.
_CREDENTIALS = re.compile(r"(://[^:/?#]*:).*", re.DOTALL)
_PARAMETER = re.compile(r"(?<![\w-])(?=[\w-]*(?:pass|secret|token))([\w-]+=)[^&;\s]*", re.IGNORECASE)


def masked(value: object) -> str:
    """A setting's value for the eye: passwords in URLs are hidden, in front of the host and among the parameters."""
    user, at, rest = str(value).rpartition("@")
    return _PARAMETER.sub(r"\1***", _CREDENTIALS.sub(r"\1***", user) + at + rest)
