"""A GPU: the same as `engine`, with sizes and rates that suit one, and a model of the catalogue that --model names.

Without a GPU, or without a vLLM for it, the result says so under `not_run`. `SLACKWATER_MODELS_FILE` names the catalogue.
"""

import argparse
from typing import Any

from app.headroom.gpu import GpuProbe
from app.settings import visible_gpus
from benchmarks.colocation import track_engine

SIZES = {"rate": 8.0, "words": 400, "tokens": 120, "batch_words": 700, "batch_tokens": 256}


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of this track."""
    track_engine.add_arguments(command)
    command.set_defaults(**SIZES)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Figures and verdict, or why there are none."""
    if obstacle := _obstacle():
        return {"not_run": obstacle, "arms": {}}
    return track_engine.run(options)


def _obstacle() -> str | None:
    gpus = GpuProbe(visible_gpus()).read()
    if not gpus:
        return "NVML finds no GPU on this machine"
    from vllm.platforms import current_platform

    if not current_platform.is_cuda_alike():
        return f"{gpus[0].name} is here, but the vLLM that is installed is not built for it"
    return None
