"""Claims about what builds our packages and images: one version, and bases that can be named by digest."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_what_builds_our_packages_has_the_tested_version_everywhere() -> None:
    files = (ROOT / "pyproject.toml", ROOT / "workers" / "engine" / "pyproject.toml")
    asked = {each for file in files for each in tomllib.loads(file.read_text())["build-system"]["requires"]}
    assert len(asked) == 1
    assert re.findall(r"^setuptools==.*$", (ROOT / "constraints.txt").read_text(), re.MULTILINE) == list(asked)
    assert re.findall(r'pip install --quiet "(setuptools[^"]*)"', (ROOT / "Dockerfile").read_text()) == list(asked)


def test_every_base_of_the_image_can_be_named_by_its_digest() -> None:
    text = (ROOT / "Dockerfile").read_text()
    assert {each.split()[0] for each in re.findall(r"^FROM (.*)$", text, re.MULTILINE)} == {"${PYTHON_IMAGE}"}
    assert "PYTHON_IMAGE" in (ROOT / "docker-compose.yml").read_text()
