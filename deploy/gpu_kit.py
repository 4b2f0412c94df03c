"""What `deploy/gpu-check.sh` needs on a GPU host without network, in archives that are small enough to be copied there.

    python3.12 deploy/gpu_kit.py build [--limit 48]        on a machine with network; any machine without a GPU
    python3 deploy/gpu_kit.py unpack ARCHIVE-OR-FOLDER…    on the GPU host; deploy/gpu-check.sh --kit does it
    python3 deploy/gpu_kit.py check                        whether the pruned kernels load, and compute on the GPU that is there

`build` must run in the Python version of the GPU host, with pip. It takes the wheels of vLLM and of all that its server and
Slackwater import (from pyproject.toml), without what the host has (deploy/gpu-host.txt) and what this measurement does not use.
It leaves kernels out of vLLM and blanks the code for other GPUs. ORIGIN.md beside the archives says what was done, with licences.

An archive is a tar file of pieces; each piece is a tar.xz that can be unpacked alone, so that all cores unpack at once.
"""

import argparse
import hashlib
import io
import json
import lzma
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from email.message import Message
from email.parser import Parser
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOLDER = Path(tempfile.gettempdir()) / "slackwater-gpu-kit"
VLLM = "0.26.0"  # built for CUDA 13 and torch 2.11
ARCHITECTURE = 90  # of an H100 and an H200
INCOMPLETE = 3  # exit code: other archives of this kit are still missing
MIB = 1 << 20
PIECE_BYTES = 32 * MIB  # of files before compression; a larger file is a piece alone
OPTIONAL = ("embedded",)  # the extras of ours that the measurement needs

# Needed by vLLM for other models, other GPUs, or a command line that is not used here.
UNUSED = (
    *(
        "fastapi-cli",
        "fastsafetensors",
        "flashinfer-python",
        "humming-kernels",
        "nvidia-cudnn-frontend",
        "nvidia-cutlass-dsl",
    ),
    *("nvtx", "pynvvideocodec", "quack-kernels", "soundfile", "soxr", "tilelang", "tokenspeed-mla", "torchcodec"),
)
# In the wheel of vLLM: FlashAttention 2 (Hopper has 3), the server in Rust, and kernels for other models and GPUs.
LEFT_OUT = (
    *("vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so", "vllm/vllm-rs", "vllm/_flashmla_C.abi3.so"),
    *("vllm/_flashmla_extension_C.abi3.so", "vllm/_qutlass_C.abi3.so"),
    *("vllm/third_party/fmha_sm100", "vllm/third_party/deep_gemm"),
)
PRUNED = ("vllm/_C_stable_libtorch.abi3.so", "vllm/_moe_C_stable_libtorch.abi3.so")
KERNELS = (*PRUNED, "vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so")


class KitError(Exception):
    """The kit cannot be built, unpacked or used. The message is for the user."""


def say(text: str) -> None:
    """Progress, for the person who waits."""
    sys.stderr.write(f"gpu-kit: {text}\n")


# Which packages


def canonical(name: str) -> str:
    """The name of a package as pip compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


class ConflictError(Exception):
    """No version of a package fits: `by` and its `version` asked for what others exclude."""

    def __init__(self, name: str, specifier: Any, by: str, version: str) -> None:
        super().__init__(f"no version of {name} is {specifier}, as {by} {version} and others want it")
        self.by, self.version = by, version


def closure(
    roots: Sequence[Any],
    provided: Iterable[str],
    find: Callable[[str, Any], Path | None],
    needs: Callable[[Path], Sequence[Any]],
) -> dict[str, Path]:
    """The wheels that `roots` need, by the name of the package, without `provided` packages and what only these need.

    `find` gives the newest wheel for a name and a specifier, or None; `needs` gives a wheel's requirements, as of `packaging`. If
    no version fits, the package that asked last is taken in an older version. Raises KitError.
    """
    bounds: dict[str, Any] = {}
    while True:
        try:
            return _closure(roots, frozenset(provided), find, needs, bounds)
        except ConflictError as error:
            if not error.by:
                raise KitError(str(error)) from error
            say(f"{error}: an older {error.by}")
            older = type(roots[0].specifier)(f"<{error.version}")
            bounds[error.by] = bounds[error.by] & older if error.by in bounds else older


def _closure(
    roots: Sequence[Any],
    left: frozenset[str],
    find: Callable[[str, Any], Path | None],
    needs: Callable[[Path], Sequence[Any]],
    bounds: Mapping[str, Any],
) -> dict[str, Path]:
    chosen, asked = dict[str, Path](), dict[str, tuple[Any, set[str]]]()
    queue: deque[tuple[Any, str, str]] = deque(
        (root, "", "") for root in roots
    )  # a requirement, of which package and version
    while queue:
        wish, by, version = queue.popleft()
        name = canonical(wish.name)
        if name in left:
            continue
        specifier, extras = asked.get(name, (wish.specifier, set()))
        specifier &= wish.specifier
        if name in bounds:
            specifier &= bounds[name]
        wanted = specifier, extras | {"", *wish.extras}
        if wanted == asked.get(name):
            continue
        if (wheel := find(name, specifier)) is None:
            raise ConflictError(name, specifier, by, version)
        chosen[name], asked[name] = wheel, wanted
        found = (
            need
            for need in needs(wheel)
            if need.marker is None or any(need.marker.evaluate({"extra": e}) for e in wanted[1])
        )
        queue.extend((need, name, wheel.name.split("-")[1]) for need in found)
    return chosen


def _applies(need: Any, extras: Iterable[str]) -> bool:
    return need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in extras)


def own_requirements() -> list[str]:
    """What Slackwater needs for the measurement, from pyproject.toml, without comments."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    return [*project["dependencies"], *(line for extra in OPTIONAL for line in extras[extra])]


def host_packages(text: str) -> set[str]:
    """The names in a list like that of `pip freeze`."""
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return {canonical(re.split(r"[=<>!~ @;\[]", line)[0]) for line in lines if line}


def metadata(wheel: Path) -> Message:
    """The METADATA of a wheel."""
    with zipfile.ZipFile(wheel) as opened:
        name = next(name for name in opened.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name))
        return Parser().parsestr(opened.read(name).decode())


class Wheels:
    """A folder of wheels for the Python version that runs this script; pip fetches those that are missing."""

    def __init__(self, folder: Path, glibc: int) -> None:
        platforms = [f"manylinux_2_{minor}_x86_64" for minor in range(glibc, 4, -1)]
        platforms += ["manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64", "linux_x86_64"]
        self._tags = [argument for platform in platforms for argument in ("--platform", platform)]
        self._tags += ["--only-binary=:all:", "--python-version", f"{sys.version_info[0]}.{sys.version_info[1]}"]
        self._folder = folder
        self._needs: dict[Path, list[Any]] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def find(self, name: str, specifier: Any) -> Path | None:
        """The newest wheel of the folder that fits, or else the newest that pip fetches; None if there is none."""
        if (found := self._newest(name, specifier)) is None:
            say(f"fetching {name}{specifier}")
            self._pip("download", "--no-deps", "--dest", str(self._folder), f"{name}{specifier}")
            found = self._newest(name, specifier)
        return found

    def _newest(self, name: str, specifier: Any) -> Path | None:
        from pip._vendor.packaging.version import Version

        named = ((wheel.name.split("-"), wheel) for wheel in self._folder.glob("*.whl"))
        fitting = [(Version(version), wheel) for (package, version, *_), wheel in named if canonical(package) == name]
        return max((each for each in fitting if specifier.contains(each[0], prereleases=True)), default=(None, None))[1]

    def needs(self, wheel: Path) -> list[Any]:
        """The requirements of a wheel, those of its extras too."""
        from pip._vendor.packaging.requirements import Requirement

        if wheel not in self._needs:
            self._needs[wheel] = [Requirement(line) for line in metadata(wheel).get_all("Requires-Dist", [])]
        return self._needs[wheel]

    def install(self, wheels: Iterable[Path], site: Path) -> None:
        """Unpack wheels into a folder, as pip does, and nothing else. Raises KitError."""
        arguments = ("--no-deps", "--no-index", "--no-compile", "--target", str(site))
        if not self._pip("install", *arguments, *map(str, wheels)):
            raise KitError("pip cannot unpack the wheels")

    def _pip(self, command: str, *arguments: str) -> bool:
        whole = [
            sys.executable,
            "-m",
            "pip",
            "--disable-pip-version-check",
            command,
            "--quiet",
            *self._tags,
            *arguments,
        ]
        return not subprocess.run(whole, stdout=sys.stderr, check=False).returncode


# What is in the archives


def slim(site: Path, architecture: int) -> list[str]:
    """Leave out and blank what one GPU does not need. Returns what was done, one line each. Raises KitError."""
    from fat_binaries import prune  # beside this script

    done = []
    for name in LEFT_OUT:
        path = site / name
        if not path.exists():
            raise KitError(f"vLLM has no {name}: this script was written for vLLM {VLLM}")
        size = sum(each.stat().st_size for each in (path.rglob("*") if path.is_dir() else (path,)) if each.is_file())
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        done.append(f"`{name}` ({size / MIB:.1f} MiB) is left out")
    for name in PRUNED:
        path = site / name
        try:
            found = prune(path.read_bytes(), architecture)
        except ValueError as error:
            raise KitError(f"{name}: {error}") from error
        path.write_bytes(found.data)
        done.append(
            f"`{name}`: kept {found.kept_bytes / MIB:.1f} MiB of machine code for sm_{architecture} and blanked "
            f"{found.blanked_bytes / MIB:.1f} MiB; {found.lost} of its {found.binaries} fat binaries have no code for it"
        )
    for path in sorted(site.rglob("__pycache__")):
        shutil.rmtree(path)
    shutil.rmtree(site / "bin", ignore_errors=True)
    return done


def announce_plugins(site: Path) -> None:
    """Write our entry points, by which vLLM finds its plug-ins: the code itself is read from the checkout."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    folder = site / f"{project['name']}-0.dist-info"
    folder.mkdir(exist_ok=True)
    lines = ["Metadata-Version: 2.1", f"Name: {project['name']}", "Version: 0", ""]
    (folder / "METADATA").write_text("\n".join(lines))
    groups = (
        f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in points.items())
        for group, points in project["entry-points"].items()
    )
    (folder / "entry_points.txt").write_text("\n".join(groups))


def pieces(site: Path, most: int = PIECE_BYTES) -> list[list[Path]]:
    """The files of a folder in order, cut into lists of at most `most` bytes. A larger file is alone."""
    listed: list[list[Path]] = [[]]
    room = most
    for path in sorted(path for path in site.rglob("*") if path.is_symlink() or path.is_file()):
        size = path.lstat().st_size
        if size > room and listed[-1]:
            listed.append([])
            room = most
        listed[-1].append(path)
        room -= size
    return [piece for piece in listed if piece]


def packed(site: Path, files: Sequence[Path]) -> bytes:
    """A tar.xz of these files, the same bytes for the same files."""
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in files:
            entry = tar.gettarinfo(str(path), str(path.relative_to(site.parent)))
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            entry.mtime = 1_600_000_000
            if entry.isreg():
                with path.open("rb") as content:
                    tar.addfile(entry, content)
            else:
                tar.addfile(entry)
    return lzma.compress(whole.getvalue(), preset=6)


def binned(sizes: Sequence[int], limit: int) -> list[list[int]]:
    """The indexes of `sizes` in bins of at most `limit`, few of them: the largest first, each into the first bin with room.

    Raises KitError if one alone is larger.
    """
    bins: list[list[int]] = []
    for index in sorted(range(len(sizes)), key=lambda index: (-sizes[index], index)):
        if sizes[index] > limit:
            raise KitError(
                f"one piece takes {sizes[index] / MIB:.1f} MiB compressed; the limit of an archive is {limit / MIB:.1f} MiB"
            )
        fitting = (each for each in bins if sum(sizes[i] for i in each) + sizes[index] <= limit)
        if (bin_ := next(fitting, None)) is None:
            bins.append([index])
        else:
            bin_.append(index)
    return [sorted(each) for each in bins]


def write_archives(out: Path, streams: Sequence[bytes], limit: int, most: int) -> list[Path]:
    """Put the pieces into as few archives as possible. Raises KitError if more than `most` are needed."""
    overhead = 16 * 1024  # of the outer tar, its first member included
    sizes = [len(stream) + 1024 for stream in streams]
    bins = binned(sizes, limit - overhead)
    if len(bins) > most:
        raise KitError(
            f"{sum(sizes) / MIB:.1f} MiB need {len(bins)} archives of at most {limit / MIB:.1f} MiB, more than {most}; "
            "raise --limit or --archives, or list more packages of the host"
        )
    kit = hashlib.sha256(b"".join(hashlib.sha256(stream).digest() for stream in streams)).hexdigest()[:16]
    for old in out.glob("kit-*of*.tar"):
        old.unlink()
    written = []
    for number, members in enumerate(bins, 1):
        path = out / f"kit-{number}of{len(bins)}.tar"
        with tarfile.open(path, "w") as tar:
            _add(tar, "part.json", json.dumps({"kit": kit, "part": number, "of": len(bins)}).encode())
            for index in members:
                _add(tar, f"{index:03}.tar.xz", streams[index])
        if path.stat().st_size > limit:
            raise KitError(
                f"{path} is larger than {limit / MIB:.1f} MiB"
            )  # pragma: no cover - the overhead above covers it
        written.append(path)
    return written


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))


def origin(wheels: Sequence[Path], changes: Sequence[str], archives: Sequence[Path]) -> str:
    """What is in the archives, where it comes from, under which licences, and what was changed."""
    lines = [
        "# Origin and licences",
        "",
        "deploy/gpu_kit.py made these archives from wheels of the Python Package Index, for a measurement on a GPU host.",
        "Each package keeps its own licence; its text is in its `.dist-info` folder where the wheel has one.",
        "",
        "| archive | MiB | SHA-256 |",
        "|---|---:|---|",
        *(
            f"| {p.name} | {p.stat().st_size / MIB:.1f} | `{hashlib.sha256(p.read_bytes()).hexdigest()}` |"
            for p in archives
        ),
        "",
        f"Changes to vLLM {VLLM} (Apache-2.0, https://github.com/vllm-project/vllm), made by that script:",
        "",
        *(f"- {change}." for change in changes),
        "",
        "A kernel whose code was blanked cannot run; those are for quantised weights and other GPUs. Nothing else was changed.",
        "",
        "| package | version | licence | wheel |",
        "|---|---|---|---|",
    ]
    for wheel in sorted(wheels):
        found, digest = metadata(wheel), hashlib.sha256(wheel.read_bytes()).hexdigest()
        lines.append(f"| {found['Name']} | {found['Version']} | {licence(found)} | {wheel.name}, `{digest[:16]}…` |")
    return "\n".join(lines) + "\n"


def licence(found: Message) -> str:
    """The licence that a package declares, in a few words."""
    if expression := found.get("License-Expression"):
        return expression
    classified = [c.rpartition(" :: ")[2] for c in found.get_all("Classifier", []) if c.startswith("License :: ")]
    declared = (found.get("License") or "").strip().splitlines()
    return ", ".join(classified) or (declared[0][:60] if declared else "see its files")


def build(options: argparse.Namespace) -> None:
    """Make the archives, and ORIGIN.md."""
    from pip._vendor.packaging.requirements import Requirement

    out, limit = options.out, int(options.limit * MIB)
    provided = host_packages(options.host.read_text()) | set(UNUSED)
    roots = [Requirement(line) for line in (f"vllm=={options.vllm}", *own_requirements())]
    found = Wheels(options.wheels or out / "wheels", options.glibc)
    wheels = list(closure(roots, provided, found.find, found.needs).values())
    say(f"unpacking {len(wheels)} packages")
    site = out / "tree" / "site"
    shutil.rmtree(site.parent, ignore_errors=True)
    found.install(wheels, site)
    changes = slim(site, options.architecture)
    announce_plugins(site)
    for change in changes:
        say(change.replace("`", ""))
    listed = pieces(site)
    total = sum(path.lstat().st_size for piece in listed for path in piece)
    say(f"compressing {total / MIB:.0f} MiB in {len(listed)} pieces; this takes minutes")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        streams = list(pool.map(lambda piece: packed(site, piece), listed))
    archives = write_archives(out, streams, limit, options.archives)
    (out / "ORIGIN.md").write_text(origin(wheels, changes, archives))
    for path in archives:
        say(f"{path}: {path.stat().st_size / MIB:.1f} MiB")
    if not options.keep_tree:
        shutil.rmtree(site.parent)


# On the GPU host


def unpack(archives: Iterable[Path], folder: Path) -> tuple[list[int], int]:
    """Unpack archives, unless they are unpacked already. Returns the parts that are there, and how many the kit has.

    Parts of another kit are removed first. Raises KitError.
    """
    for archive in archives:
        with tarfile.open(archive) as tar:
            first = tar.next()
            if first is None or first.name != "part.json":
                raise KitError(f"{archive} is no archive of deploy/gpu_kit.py")
            part = json.loads(_content(tar, first))
            if unpacked(folder)[0] not in ("", part["kit"]):
                say(f"removing another kit from {folder}")
                shutil.rmtree(folder)
            mark = folder / "parts" / f"{part['part']}.json"
            if mark.exists():
                continue
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                list(pool.map(lambda packed: _extract(packed, folder), _members(tar)))
            mark.parent.mkdir(exist_ok=True)
            mark.write_text(json.dumps(part))  # last, so that a part that was cut is unpacked again
            say(f"{archive.name} is unpacked")
    _, parts, of = unpacked(folder)
    return parts, of


def unpacked(folder: Path) -> tuple[str, list[int], int]:
    """The kit in a folder, its parts that are there, and how many it has. Empty, none and 0 without a kit."""
    marks = [json.loads(path.read_text()) for path in (folder / "parts").glob("*.json")]
    if not marks:
        return "", [], 0
    return marks[0]["kit"], sorted(mark["part"] for mark in marks), marks[0]["of"]


def _members(tar: tarfile.TarFile) -> Iterator[bytes]:
    while (member := tar.next()) is not None:
        yield _content(tar, member)


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    found = tar.extractfile(member)
    assert found is not None
    return found.read()


def _extract(packed: bytes, folder: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(lzma.decompress(packed))) as tar:
        for parent in {(folder / member.name).parent for member in tar}:
            parent.mkdir(
                parents=True, exist_ok=True
            )  # tarfile fails if another piece makes the same folder at this moment
        tar.extractall(folder, filter="data")


def compile_all(folder: Path) -> None:
    """Compile the modules with all cores now, rather than in each process that imports them first."""
    command = [sys.executable, "-m", "compileall", "-q", "-j", "0", str(folder / "site")]
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)  # some are templates


def lacking(text: str) -> list[str]:
    """The packages of a host's list that this host does not have."""
    from importlib.metadata import PackageNotFoundError, version

    missing = []
    for name in sorted(host_packages(text)):
        try:
            version(name)
        except PackageNotFoundError:
            missing.append(name)
    return missing


def check(site: Path, host: Path) -> str:
    """Whether the host has what its list says, and the kernels load and, on a GPU, compute what PyTorch does.

    Returns what was seen. Raises KitError.
    """
    if missing := lacking(host.read_text()):
        raise KitError(f"this host has no {', '.join(missing)}: take them off {host}, and build the kit again")
    if waiting := [name for name in KERNELS if not (site / name).exists()]:
        return f"{waiting[0]} is not unpacked yet"
    load_kernels(site)
    import torch

    if not torch.cuda.is_available():
        return "the kernels load; there is no GPU to run them on"
    try:
        compare_kernels()
    except RuntimeError as error:
        raise KitError(f"a kernel does not run on {torch.cuda.get_device_name()}: {error}") from error
    return f"the kernels load and compute on {torch.cuda.get_device_name()}"


def load_kernels(site: Path) -> None:
    """Load the libraries as vLLM does, and look for operators of each. Raises KitError."""
    import torch

    for name in KERNELS:
        try:
            torch.ops.load_library(str(site / name))
        except OSError as error:
            raise KitError(f"{name} does not load: {error}") from error
    for operator in ("_C.rms_norm", "_C.silu_and_mul", "_C.rotary_embedding", "_moe_C.topk_softmax", "_vllm_fa3_C.fwd"):
        space, name = operator.split(".")
        if not hasattr(getattr(torch.ops, space), name):
            raise KitError(f"the operator {operator} is missing")


def compare_kernels() -> None:
    """Two kernels of a pruned library beside PyTorch, on the GPU. Raises KitError, and RuntimeError if one does not run."""
    import torch

    generator = torch.Generator("cuda").manual_seed(1)
    given = torch.randn(64, 4096, device="cuda", dtype=torch.bfloat16, generator=generator)
    weight = torch.randn(4096, device="cuda", dtype=torch.bfloat16, generator=generator)
    normed, gated, wide = torch.empty_like(given), torch.empty_like(given[:, :2048]), given.float()
    torch.ops._C.rms_norm(normed, given, weight, 1e-5)
    torch.ops._C.silu_and_mul(gated, given)
    torch.cuda.synchronize()
    expected = {
        "rms_norm": (normed, wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5) * weight.float()),
        "silu_and_mul": (gated, torch.nn.functional.silu(wide[:, :2048]) * wide[:, 2048:]),
    }
    for name, (ours, reference) in expected.items():
        if not torch.allclose(ours.float(), reference, rtol=0.05, atol=0.05):
            raise KitError(f"{name} computes something else than PyTorch")


def archives_in(paths: Iterable[Path]) -> list[Path]:
    """The archives that are named, and those in folders. Raises KitError if there are none."""
    listed = [found for path in paths for found in (sorted(path.glob("kit-*of*.tar")) if path.is_dir() else [path])]
    if missing := [str(path) for path in listed if not path.exists()]:
        raise KitError(f"{', '.join(missing)} does not exist")
    return listed


def parser() -> argparse.ArgumentParser:
    """The command line."""
    whole = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = whole.add_subparsers(dest="command", required=True)
    made = commands.add_parser("build", help="make the archives")
    made.add_argument("--out", type=Path, default=ROOT / ".gpu-kit", help="folder of the archives (.gpu-kit)")
    made.add_argument("--limit", type=float, default=48.0, help="MiB of an archive at most (48)")
    made.add_argument("--archives", type=int, default=3, help="fail if more are needed (3)")
    made.add_argument(
        "--wheels", type=Path, help="folder of wheels; only those that are missing are fetched (OUT/wheels)"
    )
    made.add_argument("--vllm", default=VLLM, help=f"version of vLLM ({VLLM})")
    made.add_argument(
        "--architecture", type=int, default=ARCHITECTURE, help="compute capability of the GPU, times ten (90)"
    )
    made.add_argument("--glibc", type=int, default=35, metavar="N", help="the host's glibc is 2.N or newer (35)")
    made.add_argument("--keep-tree", action="store_true", help="leave the unpacked files in OUT/tree")
    lists = [made]
    for name, help_ in (("unpack", "unpack archives"), ("check", "load the kernels, and run some if there is a GPU")):
        command = commands.add_parser(name, help=help_)
        command.add_argument("--to", type=Path, default=FOLDER, help=f"folder outside the checkout ({FOLDER})")
        if name == "check":
            lists.append(command)
        else:
            command.add_argument("paths", type=Path, nargs="+", help="archives, or folders with archives")
    for command in lists:
        default = ROOT / "deploy" / "gpu-host.txt"
        command.add_argument(
            "--host", type=Path, default=default, help=f"list of the packages that the host has ({default})"
        )
    return whole


def main() -> int:
    """Run a command."""
    options = parser().parse_args()
    try:
        if options.command == "build":
            build(options)
        elif options.command == "check":
            say(check(options.to / "site", options.host))
        else:
            before = unpacked(options.to)[1]
            parts, of = unpack(archives_in(options.paths), options.to)
            if parts != before:
                compile_all(options.to)
            if not of or len(parts) < of:
                missing = ", ".join(str(part) for part in range(1, of + 1) if part not in parts) or "all"
                say(f"of {of} parts these are still missing in {options.to}: {missing}")
                return INCOMPLETE
    except KitError as error:
        say(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
