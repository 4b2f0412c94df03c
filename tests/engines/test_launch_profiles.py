"""The examples of deploy/models: each is a complete catalogue, and vLLM's own parser accepts every command line in it."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from app.engines import catalogue
from workers.gpu.managed_engine import vllm_command

FOLDER = Path(__file__).parents[2] / "deploy" / "models"
FILES = sorted(FOLDER.glob("*.toml"))
PARSE = """
import json, sys
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser
for arguments in json.load(sys.stdin):
    make_arg_parser(FlexibleArgumentParser()).parse_args(arguments)
    print("fine")
"""


def written(file: Path) -> list[list[str]]:
    """Arguments of the `vllm serve` commands in a file's comments."""
    text = "\n".join(line.removeprefix("#").strip() for line in file.read_text().splitlines())
    joined = text.replace("\\\n", " ").splitlines()
    return [shlex.split(line.removeprefix("$ vllm serve ")) for line in joined if line.startswith("$ vllm serve ")]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_each_example_is_a_whole_catalogue_of_models_that_can_be_started(file: Path) -> None:
    models = catalogue.load(file).models
    assert models
    for model in models.values():
        assert "async_queue" in model.capabilities
        assert model.description
        assert model.engine_arguments(Path("/data"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_no_comment_is_longer_than_a_screen(file: Path) -> None:
    shipped = Path(catalogue.__file__).parents[1] / "models.toml"
    assert all(len(line) < 120 for each in (file, shipped) for line in each.read_text().splitlines())


def test_the_large_example_has_every_way_to_split_a_model() -> None:
    said = [word for command in written(FOLDER / "kimi-k2.5.toml") for word in command]
    for way in ("--pipeline-parallel-size", "--data-parallel-size", "--enable-expert-parallel", "--kv-transfer-config"):
        assert way in said
    kimi = catalogue.load(FOLDER / "kimi-k2.5.toml").resolve("moonshotai/Kimi-K2.5")
    assert kimi is not None
    assert "--tensor-parallel-size" in kimi.to_launch().flags


@pytest.mark.slow
def test_vllm_knows_every_flag_of_the_examples() -> None:
    commands = [command for file in FILES for command in written(file)]
    for file in FILES:
        for model in catalogue.load(file).models.values():
            commands.append(vllm_command(model, Path("/data"), 8000)[4:])
    done = subprocess.run(
        [sys.executable, "-c", PARSE], input=json.dumps(commands), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("fine") == len(commands) == 12
