"""`python -m workers.gpu.engine PORT`: become the vLLM server of the catalogue's model, without a worker."""

import os
import sys

import app.quick_start  # noqa: F401
from app import processes
from app import settings as configuration
from app.engines import catalogue
from app.engines import model_weights as weights
from app.user_errors import guarded
from workers.gpu.managed_engine import vllm_command, vllm_environment


def main(port: int) -> None:
    """Prepare the weights if need be, then replace this process by the engine."""
    processes.keep_private()
    settings = configuration.load()
    model = catalogue.load(settings.models_file).resolve(settings.engine_model)
    if model is None:
        sys.exit(f"SLACKWATER_ENGINE_MODEL names no model of the catalogue: {settings.engine_model}")
    weights.prepare(settings, model)
    os.execve(sys.executable, vllm_command(model, settings.data_dir, port), vllm_environment(model))  # noqa: S606


if __name__ == "__main__":
    guarded(lambda: main(int(sys.argv[1])))
