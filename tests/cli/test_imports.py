"""A command imports what it needs and no more: each process that starts pays for its imports."""

import json
import subprocess
import sys

import pytest

SERVER = ["alembic", "celery", "fastapi", "psycopg", "sqlalchemy", "starlette", "torch", "uvicorn", "vllm"]
CALLERS = [
    "submit",
    "results",
    "why",
    "status",
    "events",
    "listen",
    "login",
    "logout",
    "logs",
    "top",
    "batch",
    "subscription",
]
RUN = "import sys; from app.cli import main\ntry: main.main()\nfinally: print(*sys.modules, file=sys.stderr)"
IMPORT = """
import json, sys
from app.cli.main import CommandLine
late, found = {command.name: command for command in CommandLine.late}, {}
for name in json.loads(sys.argv[1]):
    late[name].imported()
    found[name] = [module for module in json.loads(sys.argv[2]) if module in sys.modules]
print(json.dumps(found))
"""


@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ()], ids=" ".join)
def test_the_list_of_commands_needs_no_server_library_and_no_http_client(arguments: tuple[str, ...]) -> None:
    run = subprocess.run([sys.executable, "-c", RUN, *arguments], check=False, capture_output=True, text=True)
    assert run.returncode == (0 if arguments else 2), (
        run.stderr
    )  # without a command, the list is the answer to an error
    assert "typer" in run.stderr.split()
    assert not {*SERVER, "aiohttp", "httpx"}.intersection(run.stderr.split())


def test_a_callers_command_needs_no_server_library() -> None:
    command = [sys.executable, "-c", IMPORT, json.dumps(CALLERS), json.dumps(SERVER)]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    assert json.loads(run.stdout) == {name: [] for name in CALLERS}
