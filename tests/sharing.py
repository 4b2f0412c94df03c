"""How `pytest -n` distributes tests to processes: by file, or by folder if all its tests use one installation."""

from typing import Any

from xdist.scheduler import LoadScopeScheduling

# The longest first.
TOGETHER = ("tests/engine", "tests/clients", "tests/observability", "tests/services", "tests/packaging")
LONG = (*TOGETHER, "tests/system", "tests/crash")


class Sharing(LoadScopeScheduling):
    """The group of a test. One process runs all tests of a group, in order."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return next((folder for folder in TOGETHER if file.startswith(folder + "/")), file)


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Run what takes longest first, because it would otherwise delay the end."""
    place = {folder: n for n, folder in enumerate(LONG)}
    items.sort(key=lambda item: place.get("/".join(item.nodeid.split("/", 2)[:2]), len(place)))


def pytest_xdist_make_scheduler(config: Any, log: Any) -> Sharing:
    """Called by pytest-xdist."""
    return Sharing(config, log)
