"""Claims about the start of programs."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROGRAM = """
import gc
usual = gc.get_threshold()
import app.quick_start
assert gc.get_threshold() > usual
from app.user_errors import guarded
guarded(lambda: print(gc.get_threshold() == usual, gc.get_freeze_count() > 0))
"""


def test_every_program_that_serves_imports_quick_start_before_any_other_module_of_ours() -> None:
    programs = [file for part in ("app", "workers") for file in (ROOT / part).glob("*/__main__.py")]
    assert len(programs) == 6
    for program in programs:
        ours = [
            line
            for line in program.read_text().splitlines()
            if line.startswith(("import app", "from app", "from workers"))
        ]
        assert ours[0].split("  #")[0] == "import app.quick_start", program


def test_a_program_looks_for_garbage_as_usual_once_it_runs_but_not_in_its_modules() -> None:
    run = subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True)
    assert run.stdout.split() == ["True", "True"]
