"""Claims about the wheel slackwater-vllm: it brings one package into an engine's environment, and that package stands alone."""

import zipfile
from collections.abc import Callable
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest

from tests.packaging.conftest import ROOT, Environment
from workers.engine import __version__

FOLDER = ROOT / "workers" / "engine"
SOURCES = {str(file.relative_to(FOLDER)) for file in FOLDER.rglob("*.py")}
pytestmark = pytest.mark.slow
IMPORT_ALL = """
import importlib, pathlib, sys
package = importlib.import_module("slackwater_vllm")
folder = pathlib.Path(package.__file__).parent
for file in sorted(folder.rglob("*.py")):
    name = ".".join(file.relative_to(folder).with_suffix("").parts).removesuffix("__init__").rstrip(".")
    try:
        importlib.import_module("slackwater_vllm" + (name and f".{name}"))
    except ModuleNotFoundError as error:
        assert error.name in ("vllm", "msgspec", "aiohttp"), error  # vLLM needs the other two itself
        print("needs vLLM:", name)
foreign = {name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names - {"slackwater_vllm", "__main__"}
print("others:", *sorted(foreign))
"""


@pytest.fixture(scope="module")
def engines(new_environment: Callable[[], Environment], plugin_wheel: Path) -> Environment:
    """An environment with this wheel alone."""
    environment = new_environment()
    environment.install("--no-deps", str(plugin_wheel))
    return environment


def test_it_holds_the_sources_once_and_nothing_of_the_main_package(plugin_wheel: Path) -> None:
    with zipfile.ZipFile(plugin_wheel) as archive:
        names = archive.namelist()
    assert {name for name in names if ".dist-info/" not in name} == {f"slackwater_vllm/{name}" for name in SOURCES}
    assert [name for name in names if name.endswith("/LICENSE")]


def test_nothing_named_app_or_workers_lands_in_the_engines_environment(engines: Environment) -> None:
    found = {path.name.split("-")[0] for path in engines.site_packages.iterdir()}
    assert found == {"slackwater_vllm"}


def test_what_needs_no_vllm_runs_without_it_and_without_anything_else(engines: Environment) -> None:
    done = engines.run("python", "-P", "-I", "-c", IMPORT_ALL)
    assert done.returncode == 0, done.stderr
    *needy, others = done.stdout.splitlines()
    assert set(needy) == {
        f"needs vLLM: {name}"
        for name in (
            *("hiding", "preemption", "scheduler", "step_sharing", "step_stats_sender", "vllm_support"),
            *("door.body", "door.keys", "door.middleware", "door.visit"),
        )
    }
    assert others.strip() == "others:"


def test_it_has_the_version_of_the_main_package_no_dependency_and_vllms_entry_points(
    engines: Environment, wheel: Path
) -> None:
    (info,) = engines.site_packages.glob("slackwater_vllm-*.dist-info")
    distribution = PathDistribution(info)
    assert distribution.version == __version__ == wheel.name.split("-")[1]
    assert distribution.requires is None
    assert {(entry.group, entry.name, entry.value) for entry in distribution.entry_points} == {
        ("vllm.general_plugins", "slackwater", "slackwater_vllm.plugin:register"),
        ("vllm.stat_logger_plugins", "slackwater_steps", "slackwater_vllm.step_stats_sender:StepLogger"),
    }


def test_beside_the_main_package_there_is_one_stat_logger_and_one_scheduler(
    environment: Environment, plugin_wheel: Path, wheel: Path
) -> None:
    """vLLM loads an entry point of each name once."""
    environment.install("--no-deps", str(plugin_wheel), str(wheel))
    found = [
        (entry.group, entry.name)
        for info in environment.site_packages.glob("*.dist-info")
        for entry in PathDistribution(info).entry_points
        if entry.group.startswith("vllm.")
    ]
    assert sorted(found) == [
        ("vllm.general_plugins", "slackwater"),
        ("vllm.stat_logger_plugins", "slackwater_steps"),
        ("vllm.stat_logger_plugins", "slackwater_steps"),
    ]
