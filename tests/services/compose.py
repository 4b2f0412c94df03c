"""docker-compose.yml as a reader of YAML sees it, and its script that gives the database's roles their passwords."""

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import psycopg
import yaml

from app.db.role_grants import BROKER, GRANTS

ROOT = Path(__file__).parents[2]
ROLES = ("sw_api", "sw_console", "sw_steward", "sw_notifier", "sw_worker")
PASSWORDS = {
    f"{name}_PASSWORD": f"compose-test-password-of-{name.lower()}-"
    for name in ("POSTGRES", "RABBITMQ", "GRAFANA", *map(str.upper, ROLES))
}
VALUES = {**PASSWORDS, "SLACKWATER_SECRET_KEY": "compose-test-secret-key-of-32-bytes!"}


def services() -> dict[str, Any]:
    """The services of the file. Variables are replaced as compose does with `VALUES` in `.env`."""
    text = (ROOT / "docker-compose.yml").read_text()
    filled = re.sub(r"\$\{(\w+)(?:(:[-?])([^}]*))?}", _value, text)
    found: dict[str, Any] = yaml.safe_load(filled)["services"]
    return found


def _value(match: re.Match[str]) -> str:
    name, operator, rest = match.groups()
    if name not in VALUES and operator == ":-":
        return rest
    return VALUES[name]


def give_passwords(url: str, passwords: Mapping[str, str]) -> None:
    """Run the script as PostgreSQL's image does. Raises CalledProcessError."""
    place = urlsplit(url)
    environment = {
        "PATH": os.environ["PATH"],
        "PGHOST": place.hostname or "",
        "PGPORT": str(place.port),
        "PGPASSWORD": unquote(place.password or ""),
        "POSTGRES_USER": place.username or "",
        "POSTGRES_DB": place.path.removeprefix("/"),
        **passwords,
    }
    subprocess.run(
        [ROOT / "deploy" / "postgres-roles.sh"], env=environment, check=True, capture_output=True, text=True, timeout=60
    )


def drop_roles(url: str) -> None:
    """Remove the roles, which belong to the server, and what they own in this database."""
    with psycopg.connect(url, autocommit=True) as conn:
        names = [name for (name,) in conn.execute("select rolname from pg_roles").fetchall()]
        for role in {*GRANTS, BROKER} & {*names}:
            conn.execute(f"drop owned by {role} cascade; drop role {role}".encode())
