"""`vllm bench serve`, started as a module: the `vllm` command needs a wheel of that name, and vLLM for CPU has another.

    python -m benchmarks.colocation.vllm_bench --backend openai … (the arguments of `vllm bench serve`)

It imports nothing of this project, so any environment with vLLM can run it.
"""

from vllm.benchmarks import serve
from vllm.utils.argparse_utils import FlexibleArgumentParser

if __name__ == "__main__":
    parser = FlexibleArgumentParser(prog="vllm bench serve")  # type: ignore[no-untyped-call]
    serve.add_cli_args(parser)
    serve.main(parser.parse_args())
