"""How `pytest -n` distributes tests to processes: by file, or by folder if all its tests use one installation."""

from typing import Any

from xdist.scheduler import LoadScopeScheduling

TOGETHER = ("tests/engine", "tests/clients", "tests/services")


class Sharing(LoadScopeScheduling):
    """The group of a test. One process runs all tests of a group, in order."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return next((folder for folder in TOGETHER if file.startswith(folder + "/")), file)


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Run the folders first, because they take longest and would otherwise delay the end."""
    items.sort(key=lambda item: not item.nodeid.startswith(tuple(f"{folder}/" for folder in TOGETHER)))


def pytest_xdist_make_scheduler(config: Any, log: Any) -> Sharing:
    """Called by pytest-xdist."""
    return Sharing(config, log)
