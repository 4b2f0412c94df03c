"""The queueing snippet of the Workers AI launch post, run against Slackwater. Needs nothing but Python.

python examples/env_ai.py --url http://127.0.0.1:8700 --account local --key KEY
"""

import argparse
import json
import time
import urllib.request


class AI:
    """`env.AI` of a Worker: `run(model, input, options)` over HTTP."""

    def __init__(self, url, account, key):
        self.base, self.key = f"{url}/client/v4/accounts/{account}/ai/run/", key

    def run(self, model, content, options=None):
        query = "?queueRequest=true" if (options or {}).get("queueRequest") else ""
        headers = {"authorization": f"Bearer {self.key}", "content-type": "application/json"}
        request = urllib.request.Request(self.base + model + query, json.dumps(content).encode(), headers)
        with urllib.request.urlopen(request) as response:
            return json.load(response)["result"]


def main():
    """Submit three requests, poll until they are neither queued nor running, print the answers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8700")
    parser.add_argument("--account", default="local")
    parser.add_argument("--key", required=True)
    parser.add_argument("--model", default="@cf/moonshotai/kimi-k2.6")
    options = parser.parse_args()
    ai = AI(options.url, options.account, options.key)

    # 1. Push a batch of requests into the queue.
    questions = ["What is the capital of France?", "Tell me a joke.", "Why is the sky blue?"]
    requests = [
        {"messages": [{"role": "user", "content": text}], "max_tokens": 64, "external_reference": f"question-{number}"}
        for number, text in enumerate(questions, 1)
    ]
    request_id = ai.run(options.model, {"requests": requests}, {"queueRequest": True})["request_id"]
    print("queued as", request_id)

    # 2. Retrieve the results.
    while (result := ai.run(options.model, {"request_id": request_id})).get("status") in ("queued", "running"):
        print(result["status"])
        time.sleep(1)
    for response in result["responses"]:
        answer = response["result"]["choices"][0]["message"]["content"] if response["success"] else response
        print(f"{response['external_reference']}: {answer}")
    print("usage:", json.dumps(result["usage"]))


if __name__ == "__main__":
    main()
