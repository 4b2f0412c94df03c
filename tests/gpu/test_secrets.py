"""Claims about what an engine that a worker starts can read of its worker."""

import subprocess
import sys

import pytest

from app.engines import catalogue
from app.settings import Settings
from tests.needs import only
from workers.gpu.managed_engine import vllm_environment

# Two children of one user; of each, another process of that user reads environment and memory.
LOOK = """
import os, signal
from pathlib import Path
from app import processes
if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
    processes._libc.prctl(processes._PR_SET_DUMPABLE, 1, 0, 0, 0)
def is_readable(hidden, name):
    ready, tell = os.pipe()
    if not (child := os.fork()):
        if hidden:
            processes.keep_unreadable()
        os.write(tell, b"x")
        signal.pause()
    os.read(ready, 1)
    try:
        Path(f"/proc/{child}/{name}").open("rb").close()
        return True
    except PermissionError:
        return False
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
print([is_readable(hidden, name) for hidden in (False, True) for name in ("environ", "mem")])
"""


@only(sys.platform == "linux", "only Linux hides a process from others of its user")
def test_nobody_of_the_same_user_reads_the_environment_or_the_memory_of_a_worker() -> None:
    done = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, check=False)
    assert done.stdout == "[True, True, False, False]\n", done.stderr


def test_an_engine_inherits_no_setting_and_no_credential_of_its_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    model = catalogue.load(Settings().models_file).resolve("smollm2-135m-instruct")
    assert model is not None
    secrets = ("SLACKWATER_SECRET_KEY", "SLACKWATER_DATABASE_URL", "AWS_SECRET_ACCESS_KEY", "PGPASSWORD", "VAULT_TOKEN")
    for name in (*secrets, "HF_TOKEN"):
        monkeypatch.setenv(name, "s3cret")
    found = vllm_environment(model)
    assert [name for name, value in found.items() if value == "s3cret"] == ["HF_TOKEN"]
