"""docs/attach.md, "Try it on this machine": its blocks are pasted, on a real vLLM that the page starts."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app import processes
from app.engines import catalogue, model_weights
from app.environment import foreign_environment
from app.settings import Settings
from testing.waiting import LOADING_SECONDS, wait_for
from tests.timing import note
from tests.walking import Block, Shell, blocks

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
MODEL = "smollm2-135m-instruct"
READY = {"vllm": "Application startup complete", "slackwater up": "One answer now:"}
PORTS = ("SLACKWATER_PORT", "SLACKWATER_CONSOLE_PORT", "SLACKWATER_WORKER_METRICS_PORT", "ENGINE_PORT")


def section(title: str) -> list[Block]:
    """The blocks of one section of the page that are run."""
    page = (ROOT / "docs" / "attach.md").read_text()
    return [block for block in blocks(page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]) if not block.skipped]


@pytest.fixture
def shell(clone: Path) -> Iterator[Shell]:
    """The reader's shell, after `make demo`: the model is in the reader's folder."""
    model = catalogue.load(Settings().models_file).resolve(MODEL)
    assert model is not None
    model_weights.prepare(Settings(), model)
    (clone / ".slackwater" / "models").mkdir(mode=0o700, parents=True)
    (clone / ".slackwater" / "models" / MODEL).symlink_to(model.path(Settings().data_dir))
    own = {
        "HOME": str(clone),
        "NO_PROXY": "127.0.0.1,localhost",
        "HF_HUB_OFFLINE": "1",
        "PATH": f"{sys.prefix}/bin{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        **{name: str(processes.free_port()) for name in PORTS},
    }
    with Shell(clone, {**foreign_environment(), **own}) as shell:
        yield shell


def test_an_engine_on_this_machine_is_attached_as_the_page_says(shell: Shell) -> None:
    said = ""
    for block in section("Try it on this machine"):
        if not block.background:
            said += shell.paste(block)
            continue
        output = shell.start(block)
        [word] = [word for part, word in READY.items() if part in block.code]
        wait_for(lambda output=output, word=word: word in output.read_text(), word, seconds=LOADING_SECONDS)
    streams = [line for line in said.splitlines() if line.startswith("stream ")]
    note("; ".join(streams))
    assert "serves team-llm" in said
    assert len(streams) == 5
    assert "100 of 100 succeeded" in said
    assert shell.ended() == []
