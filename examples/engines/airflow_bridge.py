"""An Airflow DAG whose batch is run by the operator that Airflow has for OpenAI. Its connection holds Slackwater's address. Put
this file and `slackwater_batches.py` into Airflow's folder of DAGs:

    export AIRFLOW_CONN_SLACKWATER='{"conn_type": "openai", "host": "http://127.0.0.1:8700/v1", "password": "sk_sw_…"}'
    python airflow_bridge.py "First prompt" "Second prompt"   # runs the DAG once, in this process
"""

import json
import sys
from typing import Any

from airflow.providers.openai.hooks.openai import OpenAIHook
from airflow.providers.openai.operators.openai import OpenAITriggerBatchOperator
from airflow.sdk import dag, task
from slackwater_batches import ROUTE, answers, lines, output

CONNECTION = "slackwater"


class RunBatch(OpenAITriggerBatchOperator):
    """Renders the key of the batch too, so that another attempt of the task finds the batch of the first."""

    template_fields = (*OpenAITriggerBatchOperator.template_fields, "batch_kwargs")


@task
def upload(*, params: dict[str, Any] | None = None) -> str:
    """The id of a file with the requests."""
    content = "\n".join(map(json.dumps, lines(params["prompts"]))).encode()
    return OpenAIHook(CONNECTION).conn.files.create(file=("requests.jsonl", content), purpose="batch").id


@task
def show(batch_id: str) -> None:
    """Print the answers."""
    client = OpenAIHook(CONNECTION).conn
    for n, answer in answers(client, output(client.batches.retrieve(batch_id))).items():
        print(f"{n}: {answer}")


@dag(schedule=None, params={"prompts": ["Name a tide."]})
def slackwater() -> None:
    """Upload, run, show."""
    run = RunBatch(
        task_id="run_batch",
        conn_id=CONNECTION,
        file_id=upload(),
        endpoint=ROUTE,
        wait_seconds=2,
        batch_kwargs={"extra_headers": {"Idempotency-Key": "{{ run_id }}/{{ task.task_id }}"}},
    )
    show(run.output)


run_batch = slackwater()

if __name__ == "__main__":
    finished = run_batch.test(run_conf={"prompts": sys.argv[1:]})
    sys.exit(finished.state != "success")
