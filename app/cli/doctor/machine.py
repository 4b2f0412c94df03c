"""Checks of the machine: Python, processor, memory, disk, port."""

import os
import platform
import shutil
import sys
from pathlib import Path

import httpx

from app.api_url import base_url
from app.cli import privacy as modes
from app.cli.api_address import bind_problem
from app.cli.doctor.check import Check, fail, ok, warn
from app.settings import Settings

OLDEST_PYTHON = (3, 11)
GIB = 1024**3
ENGINE_GIB = 5  # vLLM for CPU with SmolLM2 and 2 GiB of KV cache, measured 4.6
ATTACH = "run vLLM elsewhere and attach to it: slackwater up --attach URL"
_OTHER_PORT = "stop the program that listens there, or choose another port: --port (SLACKWATER_PORT)"
CPUINFO = Path("/proc/cpuinfo")
MEMINFO = Path("/proc/meminfo")


def python(settings: Settings) -> Check:
    """Whether Python is new enough."""
    version = platform.python_version()
    if sys.version_info < OLDEST_PYTHON:
        return fail("python", version, "use Python 3.11 or newer: make install PYTHON=python3.12")
    return ok("python", f"{version} in {sys.prefix}")


def processor(settings: Settings) -> Check:
    """Whether the processor can run a managed engine."""
    kind = f"{platform.system()} {platform.machine()}"
    if settings.attached_to:
        return ok("processor", f"{kind}; the engine runs elsewhere")
    if shutil.which("nvidia-smi"):
        return ok("processor", f"{kind} with an NVIDIA driver")
    if kind != "Linux x86_64":
        return warn("processor", f"{kind}: no engine runs here", ATTACH)
    flags = CPUINFO.read_text().split()
    if "avx512f" in flags:
        return ok("processor", f"{kind} with AVX-512, {os.cpu_count()} cores")
    if "avx2" in flags:
        return warn("processor", f"{kind} with AVX2 only: the engine works, slowly", ATTACH)
    return fail("processor", f"{kind} without AVX2: vLLM for CPU does not run here", ATTACH)


def memory(settings: Settings) -> Check:
    """Whether there is enough memory for the parts that run here."""
    free = _available_bytes() / GIB
    seen = f"{free:.1f} GiB available"
    if settings.attached_to or free >= ENGINE_GIB:
        return ok("memory", seen)
    return warn("memory", f"{seen}; a managed engine takes about {ENGINE_GIB} GiB", f"free some, or {ATTACH}")


def disk(settings: Settings) -> Check:
    """Whether the data directory is writable and has free space."""
    folder = settings.data_dir
    while not folder.exists():
        folder = folder.parent
    if not os.access(folder, os.W_OK):
        return fail("disk", f"{folder} cannot be written", "choose another folder: SLACKWATER_DATA_DIR")
    free = shutil.disk_usage(folder).free / GIB
    seen = f"{free:.1f} GiB free for {settings.data_dir}"
    if free < 1:
        return fail("disk", seen, "free at least 1 GiB, or choose another folder: SLACKWATER_DATA_DIR")
    if free < 5:
        return warn("disk", seen, "results and uploads are stored there; have at least 5 GiB free")
    return ok("disk", seen)


def privacy(settings: Settings) -> Check:
    """Nobody else on this machine reads the data directory."""
    name, folder = "data directory", str(settings.data_dir)
    if command := modes.remedy(settings):
        return warn(name, f"others on this machine can read {folder}, or what is in it", command)
    return ok(name, f"{folder} is its owner's alone" if settings.data_dir.exists() else f"{folder} is not made yet")


def port(settings: Settings) -> Check:
    """Whether the API's port is free, or already used by Slackwater's API."""
    place = f"{settings.host}:{settings.port}"
    if problem := bind_problem(settings):
        if our_api(settings):
            return ok("port", f"{place} answers as Slackwater's API")
        return fail("port", f"{place}: {problem}", _OTHER_PORT)
    return ok("port", f"{place} is free")


def our_api(settings: Settings) -> bool:
    """Whether a Slackwater API listens on the API's port."""
    return slackwater_at(base_url(settings))


def slackwater_at(url: str) -> bool:
    """Whether a Slackwater API answers at this URL."""
    try:
        return bool(httpx.get(f"{url}/health", timeout=2).json() == {"status": "ok"})
    except (httpx.HTTPError, ValueError):
        return False


def _available_bytes() -> int:
    """Memory available without swapping. All memory, if the system does not report it."""
    if MEMINFO.exists():
        line = next(line for line in MEMINFO.read_text().splitlines() if line.startswith("MemAvailable:"))
        return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
