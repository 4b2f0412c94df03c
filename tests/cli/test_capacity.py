"""Claims about `slackwater capacity`."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from app import settings as configuration
from app.cli import capacity_model as model
from app.cli.main import app

THOUSAND = model.Fleet(
    engines=1000,
    tokens_per_second=20_000,
    tokens_per_item=1_300,
    bytes_per_item=4_000,
    days=1,
    chunk_tokens=16_000,
    chunk_items=64,
    heartbeat_seconds=2,
    connections_per_process=8,
)


def need(found: list[model.Need], name: str) -> model.Need:
    return next(each for each in found if each.name == name)


def test_a_thousand_engines_of_20_000_tokens_a_second_ask_for_1_250_chunks_a_second() -> None:
    assert THOUSAND.chunks_per_second == pytest.approx(1250)
    assert THOUSAND.items_per_second == pytest.approx(15_385, abs=1)


@pytest.mark.parametrize(("tokens", "in_a_chunk"), [(50, 64), (1_000, 16), (100_000, 1)])
def test_a_chunk_is_full_by_its_items_or_its_tokens_and_has_one_at_least(tokens: int, in_a_chunk: int) -> None:
    fleet = model.Fleet(1, 20_000, tokens, 1, 1, 16_000, 64, 2, 8)
    assert fleet.items_per_second / fleet.chunks_per_second == pytest.approx(in_a_chunk)


def test_what_runs_out_first_depends_on_the_server() -> None:
    small = model.Fleet(40, 2_000, 1_300, 4_000, 30, 16_000, 64, 2, 8)
    assert model.first_bottleneck(model.needs(small, model.Server(16, 100, 1e6))).name == "connections"
    assert model.first_bottleneck(model.needs(small, model.Server(16, 2000, 100))).name == "disk"
    assert model.first_bottleneck(model.needs(small, model.Server(0.1, 2000, 1e6))).name == "cores"


def test_disk_grows_with_the_days_that_batches_are_kept() -> None:
    for days in (1, 30):
        fleet = model.Fleet(1, 1_300, 1_300, 4_000 - model.DISK_BYTES.value, days, 16_000, 64, 2, 8)
        assert need(model.needs(fleet, model.Server(1, 1, 1)), "disk").needed == pytest.approx(0.3456 * days)


@pytest.fixture
def read_anew() -> Iterator[None]:
    """Settings are read once; here, once more for this test and for the next."""
    configuration.load.cache_clear()
    yield
    configuration.load.cache_clear()


def run(*arguments: str, settings: dict[str, str] | None = None) -> str:
    variables = {f"SLACKWATER_{name}": value for name, value in (settings or {}).items()}
    found = CliRunner().invoke(app, ["capacity", *arguments], env=variables)
    assert found.exit_code == 0, found.output
    return found.output


def test_the_command_names_what_is_too_little_and_what_to_do() -> None:
    shown = run("--engines", "1000", "--max-connections", "100", "--days", "1", "--disk-gb", "1000000")
    assert "What is too little: connections" in shown
    assert "max_connections" in shown


def test_json_names_the_source_of_every_constant() -> None:
    found: dict[str, Any] = json.loads(run("--json"))
    assert {each["name"] for each in found["needs"]} >= {"chunks", "cores", "connections", "disk"}
    assert found["first"] in {each["name"] for each in found["needs"]}
    assert all(constant["source"] for constant in found["constants"].values())


@pytest.mark.parametrize(
    ("engines", "processes"),
    [({}, 16), ({"ENGINES": "file:engines.toml"}, 2), ({"ENGINES": "file:engines.toml", "ENGINES_MAX": "4"}, 4)],
)
@pytest.mark.usefixtures("read_anew")
def test_engines_and_connections_of_a_process_are_those_of_the_settings(
    engines: dict[str, str], processes: int
) -> None:
    found = json.loads(run("--engines", "16", "--json", settings={"DATABASE_POOL_SIZE": "5"} | engines))
    (connections,) = (each["needed"] for each in found["needs"] if each["name"] == "connections")
    assert connections == 5 * (processes + THOUSAND.other_processes)
    assert found["constants"]["connections"]["value"] == 5
