"""Claims about what deploy/install.sh and the Dockerfile install: the lists of deploy/locked, by their hashes."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name as canonical

ROOT = Path(__file__).parents[2]
LOCKED = ROOT / "deploy" / "locked"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
MARKER, HASH = r" ; platform_machine == \"\w+\"", r" --hash=sha256:[0-9a-f]{64}"
ENTRY = re.compile(rf"(?P<name>[\w.-]+)==(?P<version>\S+)(?:{MARKER})?(?P<hashes>(?:{HASH})+)")
NOT_OF_A_LIST = {"torch", "apache-tvm-ffi", "triton"}  # deploy/lock.py says why


def entries(title: str) -> dict[str, tuple[str, int]]:
    """Version and number of hashes of each package of a list."""
    text = (LOCKED / f"{title}.txt").read_text().replace(" \\\n   ", "")
    found = [ENTRY.fullmatch(line) for line in text.splitlines() if not line.startswith("#")]
    assert None not in found, title
    return {each["name"]: (each["version"], each["hashes"].count("--hash")) for each in found if each}


def titles() -> list[str]:
    return ["build", "core", *PROJECT["project"]["optional-dependencies"]]


def test_there_is_a_list_for_the_core_and_for_each_extra() -> None:
    assert {path.stem for path in LOCKED.iterdir()} == set(titles())


@pytest.mark.parametrize("title", titles())
def test_a_list_has_what_the_project_asks_for_with_its_hashes_in_the_tested_versions(title: str) -> None:
    found = {**entries("build"), **entries("core"), **entries(title)}
    extras = PROJECT["project"]["optional-dependencies"]
    asked = {"build": PROJECT["build-system"]["requires"], "core": PROJECT["project"]["dependencies"], **extras}[title]
    for requirement in map(Requirement, asked):
        if requirement.name not in NOT_OF_A_LIST:
            assert requirement.specifier.contains(found[canonical(requirement.name)][0], prereleases=True), requirement
    tested = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split() if "==" in line)
    versions = {canonical(name): version for name, version in tested.items()}
    mine = entries(title)
    unlike = {name for name, (version, _) in mine.items() if versions.get(name, version) != version}
    assert unlike <= NOT_OF_A_LIST
    assert title == "gpu" or mine.keys() <= versions.keys()
    assert "torch" not in mine


def test_everything_else_is_installed_without_what_it_would_bring_along() -> None:
    texts = [(ROOT / name).read_text().replace("\\\n", " ") for name in ("deploy/install.sh", "Dockerfile")]
    found = [line.split("&&") for text in texts for line in text.splitlines() if not line.strip().startswith("#")]
    installs = [part for line in found for part in line if re.search(r"\bpip install\b", part)]
    assert len(installs) >= 5
    assert [each for each in installs if "--no-deps" not in each] == []
    allowed = ("--require-hashes", '"torch==$torch"', "--editable .", "wheels/*.whl")
    assert [each for each in installs if not any(words in each for words in allowed)] == []


def test_what_builds_our_packages_has_the_version_of_the_list() -> None:
    files = (ROOT / "pyproject.toml", ROOT / "workers" / "engine" / "pyproject.toml")
    asked = {each for file in files for each in tomllib.loads(file.read_text())["build-system"]["requires"]}
    assert asked == {f"setuptools=={entries('build')['setuptools'][0]}"}


def test_every_base_of_the_image_can_be_named_by_its_digest() -> None:
    text = (ROOT / "Dockerfile").read_text()
    assert {each.split()[0] for each in re.findall(r"^FROM (.*)$", text, re.MULTILINE)} == {"${PYTHON_IMAGE}"}
    assert "PYTHON_IMAGE" in (ROOT / "docker-compose.yml").read_text()
