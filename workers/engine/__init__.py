"""What runs inside the engine's own processes: a package of its own that needs vLLM and nothing else.

The main package has it as `workers.engine`. The wheel slackwater-vllm has the same files as `slackwater_vllm`.
"""

__version__ = "0.2.0.dev0"  # of both wheels
