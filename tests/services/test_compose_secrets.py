"""Claims about who gets what by docker-compose.yml: passwords, rights in the database, folders. The file is read, not run."""

import re
import subprocess
from collections.abc import Iterator
from urllib.parse import urlsplit

import psycopg
import pytest
import yaml

from app.db.role_grants import BROKER, GRANTS, REPORT
from tests.services.compose import PASSWORDS, ROLES, ROOT, drop_roles, give_passwords, services

TEXT = (ROOT / "docker-compose.yml").read_text()
PARTS = {"api": "sw_api", "console": "sw_console", "steward": "sw_steward", "notifier": "sw_notifier"}
PARTS |= {"maintenance": "sw_steward", "gpu-worker": "sw_worker", "migrate": "slackwater"}


def holders(value: str) -> set[str]:
    """The services in whose environment the value stands, alone or in a URL."""
    return {name for name, each in services().items() if value in str(each.get("environment", {}))}


def test_each_server_and_each_part_has_a_password_of_its_own_and_only_those_who_use_it_get_it() -> None:
    used = {
        "POSTGRES": {"postgres", "migrate"},
        "RABBITMQ": {"rabbitmq", "steward", "maintenance", "notifier"},
        "GRAFANA": {"grafana"},
        **{role.upper(): {"postgres", *(part for part in PARTS if PARTS[part] == role)} for role in ROLES},
    }
    assert {name: holders(PASSWORDS[f"{name}_PASSWORD"]) for name in used} == used
    assert set(PASSWORDS) == {f"{name}_PASSWORD" for name in used}


def test_each_part_works_under_its_own_role_and_only_the_migration_is_the_owner() -> None:
    found = {
        name: each["environment"]["SLACKWATER_DATABASE_URL"] for name, each in services().items() if "build" in each
    }
    assert {name: urlsplit(url).username for name, url in found.items()} == PARTS
    assert services()["migrate"]["command"] == ["slackwater", "migrate", "--roles"]
    assert {*ROLES, REPORT, BROKER} == {*GRANTS, BROKER}


def test_a_password_that_is_missing_is_an_error_that_says_where_to_look() -> None:
    places = re.findall(r"\$\{(\w+(?:PASSWORD|KEY))([^}]*)}", TEXT)
    assert {name for name, _ in places} == {*PASSWORDS, "SLACKWATER_SECRET_KEY"}
    assert {rest for _, rest in places} == {":?see the top of docker-compose.yml"}


def test_the_command_at_the_top_makes_every_secret_that_the_file_reads() -> None:
    head = "".join(
        line.removeprefix("#").removeprefix(" ") for line in TEXT.splitlines(keepends=True) if line[0] == "#"
    )
    [command] = re.findall(r"^ *(\(umask .*?\) > \.env)$", head, re.DOTALL | re.MULTILINE)
    done = subprocess.run(
        ["bash", "-c", command.removesuffix("> .env")], check=True, capture_output=True, text=True, timeout=60
    )
    made = dict(line.split("=") for line in done.stdout.splitlines())
    assert set(made) == {*PASSWORDS, "SLACKWATER_SECRET_KEY"}
    assert len(set(made.values())) == len(made)
    assert min(map(len, made.values())) >= 32


def test_the_notifier_has_no_keys_of_bodies_and_every_other_part_has_them() -> None:
    mounted = {name for name, each in services().items() if "keys:/data/keys" in each.get("volumes", [])}
    assert mounted == PARTS.keys() - {"notifier"}


def test_postgres_gets_the_script_that_gives_the_roles_their_passwords() -> None:
    source, target, mode = yaml.safe_load(TEXT)["services"]["postgres"]["volumes"][1].split(":")
    assert target.startswith("/docker-entrypoint-initdb.d/")
    assert mode == "ro"
    script = ROOT / source
    assert script.stat().st_mode & 0o111
    assert set(re.findall(r"\bsw_\w+", script.read_text())) == set(ROLES)


@pytest.fixture
def database(empty_postgres_url: str) -> Iterator[str]:
    yield empty_postgres_url
    drop_roles(empty_postgres_url)


def test_the_script_makes_the_roles_and_changes_the_password_of_one_that_is_there(database: str) -> None:
    def stored() -> dict[str, str]:
        with psycopg.connect(database) as conn:
            rows = conn.execute("select rolname, rolpassword from pg_authid where rolname = any(%s)", (list(ROLES),))
            return dict(rows.fetchall())

    give_passwords(database, PASSWORDS)
    first = stored()
    assert first.keys() == set(ROLES)
    assert all(secret.startswith("SCRAM-SHA-256$") for secret in first.values())
    give_passwords(database, PASSWORDS | {"SW_NOTIFIER_PASSWORD": 'it\'s "another"'})
    assert [role for role, secret in stored().items() if secret.split("$")[1] == first[role].split("$")[1]] == []
    without = {name: value for name, value in PASSWORDS.items() if name != "SW_API_PASSWORD"}
    with pytest.raises(subprocess.CalledProcessError) as failed:
        give_passwords(database, without)
    assert "the password of sw_api is missing" in failed.value.stderr
