"""Print what the distributions installed in this environment itself require and do not find, one requirement per line.

Distributions of a parent environment are not asked.
"""

import sys
import sysconfig
from importlib.metadata import PackageNotFoundError, distributions, version

from packaging.requirements import Requirement

SKIPPED = {"torchvision", "torchaudio", "torchcodec"}  # built for CUDA; text models do not need them


def _met(requirement: Requirement) -> bool:
    if requirement.name in SKIPPED or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
        return True
    try:
        return requirement.specifier.contains(version(requirement.name), prereleases=True)
    except PackageNotFoundError:
        return False


def missing(site: str) -> set[str]:
    """The unmet requirements of the distributions in one site-packages folder, without their markers."""
    wanted = (Requirement(line) for found in distributions(path=[site]) for line in found.requires or ())
    return {f"{wish.name}{wish.specifier}" for wish in wanted if not _met(wish)}


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in sorted(missing(sysconfig.get_path("purelib"))))
