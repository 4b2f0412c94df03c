"""How tests are shared out among the processes of `pytest -n`: by file, or by folder where all tests use one installation."""

from typing import Any

from xdist.scheduler import LoadScopeScheduling

TOGETHER = ("tests/engine", "tests/clients", "tests/services")


class Sharing(LoadScopeScheduling):
    """What goes together is run by one process, in order."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return next((folder for folder in TOGETHER if file.startswith(folder + "/")), file)


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """What goes together takes longest, so it begins first: no process waits for another one at the end."""
    items.sort(key=lambda item: not item.nodeid.startswith(tuple(f"{folder}/" for folder in TOGETHER)))


def pytest_xdist_make_scheduler(config: Any, log: Any) -> Sharing:
    """Called by pytest-xdist."""
    return Sharing(config, log)
