"""Claims about what a server does with its memory."""

import platform
import subprocess
import sys
from pathlib import Path

from testing.waiting import LIMIT_SECONDS
from tests.needs import only

ROOT = Path(__file__).parents[1]
# What is in use lies above all that is free: without a trim, the C library keeps all of it.
PROGRAM = """
import time
from pathlib import Path
from app.memory import trim_often

def resident_mb():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6

memory = [bytearray(60_000) for _ in range(2_000)]
del memory[:-1]
before = resident_mb()
trim_often(every_seconds=0.05)
end = time.monotonic() + 200
while resident_mb() > before - 80 and time.monotonic() < end:
    time.sleep(0.05)
print(before - resident_mb() > 80)
"""


@only(platform.libc_ver()[0] == "glibc", "only glibc keeps what is free and can be told to trim")
def test_memory_that_is_free_goes_back_to_the_system_though_memory_above_it_is_in_use() -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], check=False, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_SECONDS
    )
    assert (run.stdout.strip(), run.stderr) == ("True", "")
