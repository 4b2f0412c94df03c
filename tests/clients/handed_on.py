"""The installation of one test run, used by another."""

from tests.system.stack import Stack


def handed_on(stack: Stack) -> dict[str, str]:
    """The environment in which another test run uses this installation."""
    return {
        "CLIENTS_BASE_URL": str(stack.client.base_url),
        "CLIENTS_API_KEY": key_of(stack),
        "CLIENTS_DATA_DIR": str(stack.settings.data_dir),
    }


def key_of(stack: Stack) -> str:
    return str(stack.client.headers["authorization"]).removeprefix("Bearer ")
