"""What an account has: one object of every kind that a path can name, and a fingerprint of all of it."""

from collections.abc import Callable
from typing import Any

from testing.waiting import wait_for
from tests.api.support import MODEL, line
from tests.system.stack import Account, Stack
from tests.walk.operations import Operation

# Prompts with these fail, and the engine's message quotes the prompt, as vLLM's may; or they are never answered.
FAILS, WAITS = "this-one-fails", "this-one-waits"
_FEWEST = 8  # characters of an id that stands nowhere by chance
_OWNED = {
    "tenant_id": "tenant_id = %s",
    "batch_id": "batch_id in (select batch_id from batch where tenant_id = %s)",
    "endpoint_id": "endpoint_id in (select endpoint_id from endpoint where tenant_id = %s)",
}
# What steward and notifier do meanwhile is theirs: tables, and columns of others. Samples say only that somebody asked; what a
# request used is booked a little later, and when a key was used last too.
_MOVING = {"request_sample", "batch_delta", "sched", "sched_delta", "line", "session_growth", "api_key"}
_MOVING |= {"delivery", "attempt", "event"}
_MOVING_COLUMNS = {
    "budget": ("spent", "reserved", "notified", "spent_in", "diverted_to", "window_from", "window_to"),
    "endpoint": ("failures", "failing_since", "open_until", "warned", "hinted_at", "modified_at"),
}


class Belongings:
    """One object of every kind in one account. `ids`: by the name of a path's parameter. Its texts begin with `words`, its
    names, labels and addresses with `names`.
    """

    def __init__(self, stack: Stack, account: Account, receiver: str) -> None:
        self._receiver = receiver
        self.client, self.key, self._stack = account.client, account.key, stack
        self._removed: set[str] = set()
        name = self.account = account.name
        self.words, self.names, self.budget = f"{name}s-own-words", f"{name}s-own-names", f"{name}s-budget"
        self._own = f"/client/v4/accounts/{name}"
        self.ids = {"account_id": name, "account": name, "model": MODEL, "verb": "cancel", "seq": "0"}
        self.ids["engine"] = stack.query("select name from engine where state = 'ready' order by name")[0][0]
        self.ids |= {"name": self.budget, "custom_id": self.names, "stage": "first", "item": "0"}

    def fill(self) -> None:
        """Make one of each."""
        fault = {"match": FAILS, "mode": "status", "status": 400, "message": f"the prompt {self.words} is not good"}
        self._stack.script(fault, {"match": WAITS, "mode": "hang"})
        for make in dict.fromkeys(self._makers.values()):
            make()

    def renew(self, *names: str) -> None:
        """Make new ones of these, which what was sent before may have ended or removed."""
        for make in dict.fromkeys(self._makers[name] for name in names if name in self._makers):
            make()

    def ready_for(self, operation: Operation) -> None:
        """Make what it changes or removes anew, also what an earlier one has removed, and in the state that it needs."""
        changed = [] if operation.method == "get" else operation.needs[-1:]
        renewed = {*changed, *self._removed.intersection(operation.needs)}
        self.renew(*renewed)
        self._removed -= renewed
        self._removed |= {*changed} if operation.method == "delete" else set()
        needed = {
            "post ai/batches/{request_id}/{verb}": self._open_batch,
            "post v1/batches/{batch_id}/{verb}": self._open_openai_batch,
            "post v1/responses/{response_id}/cancel": self._open_response,
            "get ai/usage/compare": self._used_variants,
            "post v1/pipelines/{pipeline_id}/retry": self._ended_pipeline,
            "delete v1/pipelines/{pipeline_id}": self._ended_pipeline,
        }
        if operation.name in needed:
            needed[operation.name]()

    @property
    def named(self) -> dict[str, str]:
        """The ids that stand nowhere by chance. The budget's is no secret: /metrics names budgets."""
        known = {"account_id", "account", "model", "engine", "name"}
        return {name: value for name, value in self.ids.items() if len(value) >= _FEWEST and name not in known}

    def shown_by(self, text: str, asked: str) -> list[str]:
        """What of it an answer shows that its request did not name."""
        secrets = {self.words, self.names, *self.named.values()}
        return [secret for secret in secrets if secret in text and secret not in asked]

    def fingerprint(self) -> dict[str, str]:
        """A hash of the account's rows in each table that names an account, a batch or an endpoint."""
        [(tenant,)] = self._stack.query("select tenant_id from tenant where account_id = %s", self.account)
        columns = self._stack.query(
            "select table_name, array_agg(column_name::text) from information_schema.columns"
            " where table_schema = 'public' and table_name not like '%\\_20%' group by 1"
        )
        hashes, tables = [], []
        for table, names in columns:
            by = next((column for column in _OWNED if column in names), None)
            if by is None or table in _MOVING:
                continue
            row = " - ".join(("to_jsonb(t)", *(f"'{column}'" for column in _MOVING_COLUMNS.get(table, ()))))
            tables.append(table)
            rows = f"select ({row})::text h from {table} t where {_OWNED[by]}"
            hashes.append(f"(select md5(string_agg(h, ',' order by h)) from ({rows}) r)")
        [row] = self._stack.query(f"select {', '.join(hashes)}", *[tenant] * len(hashes))
        return dict(zip(tables, map(str, row), strict=True))

    # ------------------------------------------------------------ what is in another state

    def _open_batch(self) -> None:
        """Make the batch one that waits for its answer."""
        run = f"{self._own}/ai/run/{MODEL}?queueRequest=true"
        self.ids["request_id"] = self._made(run, {"requests": [{"messages": self._says(WAITS)}]})["request_id"]

    def _open_openai_batch(self) -> None:
        asked = {"custom_id": "a", "body": {"model": MODEL, "messages": self._says(WAITS)}}
        whole = {"endpoint": "/v1/chat/completions", "completion_window": "24h", "requests": [asked]}
        self.ids["batch_id"] = self._made("/v1/batches", whole)["id"]

    def _open_response(self) -> None:
        """Make the response one that waits for its answer."""
        self._background(f"{self.words} {WAITS}")

    def _ended_pipeline(self) -> None:
        """Cancel the pipeline."""
        path = f"/v1/pipelines/{self.ids['pipeline_id']}"
        self._made(f"{path}/cancel", {})
        self._wait(path, lambda found: found["status"] == "cancelled")

    def _used_variants(self) -> None:
        """Send a request of each of the variants `x` and `y`."""
        for variant in ("x", "y"):
            body = {"model": MODEL, "messages": self._says(), "max_tokens": 1}
            answer = self.client.post("/v1/chat/completions", json=body, headers={"x-slackwater-variant": variant})
            assert answer.status_code == 200, answer.text
        self._wait(f"{self._own}/ai/usage/compare?a=x&b=y", lambda found: found["success"])

    # ------------------------------------------------------------ one of each

    @property
    def _makers(self) -> dict[str, Callable[[], None]]:
        """What makes that which a parameter names. `delivery_id` waits for the batches of `request_id` and `batch_id`."""
        return {
            **{"subscription_id": self._subscription, "endpoint_id": self._endpoint, "name": self._budget},
            **{"file_id": self._file, "batch_id": self._openai_batch, "request_id": self._batch},
            **{"response_id": self._response, "conversation_id": self._conversation, "item_id": self._conversation},
            **{"upload_id": self._upload, "pipeline_id": self._pipeline, "item": self._pipeline},
            **{"delivery_id": self._delivery, "key_id": self._key},
        }

    def _made(self, path: str, content: dict[str, Any], method: str = "POST") -> Any:
        answer = self.client.request(method, path, json=content)
        assert answer.status_code == 200, f"{method} {path}: {answer.text}"
        return answer.json().get("result") or answer.json()

    def _wait(self, path: str, ready: Callable[[Any], Any]) -> Any:
        """Until this holds of what the path answers."""
        return wait_for(lambda: ready(self.client.get(path).json()), what=path)

    def _says(self, more: str = "") -> list[dict[str, str]]:
        return [{"role": "user", "content": f"{self.words} {more}"}]

    def _subscription(self) -> None:
        """A subscription whose receiver has accepted the test event."""
        webhook = {"type": "webhook", "url": f"{self._receiver}/{self.names}"}
        wanted = {"name": self.names, "source": {"type": "workersAi.model"}, "destination": webhook}
        wanted["events"] = ["batch.queued", "batch.succeeded"]
        below = f"{self._own}/event_subscriptions/subscriptions"
        self.ids["subscription_id"] = self._made(below, wanted)["id"]
        self._wait_for_the_test_event()

    def _endpoint(self) -> None:
        url = f"{self._receiver}/{self.names}"
        wanted = {"name": self.names, "url": url, "event_types": ["batch.completed"]}
        self.ids["endpoint_id"] = self._made("/v1/webhook_endpoints", wanted)["id"]
        self._wait_for_the_test_event()

    def _wait_for_the_test_event(self) -> None:
        """Until the receiver of the newest webhook has accepted it."""
        states = (
            "select endpoint.state from endpoint join tenant using (tenant_id) where account_id = %s"
            " order by endpoint.created_at desc limit 1"
        )
        wait_for(lambda: self._stack.query(states, self.account) == [("active",)], what="the test event")

    def _budget(self) -> None:
        self._made(f"{self._own}/ai/budgets/{self.budget}", {"max_cost": "5 USD"}, "PUT")

    def _batch(self) -> None:
        """A batch of which one item has failed."""
        asked = [
            {"messages": self._says(more), "max_tokens": 5, "external_reference": f"{self.names} {n}"}
            for n, more in enumerate(("", FAILS))
        ]
        run = f"{self._own}/ai/run/{MODEL}?queueRequest=true&tags={self.names}"
        batch = self.ids["request_id"] = self._made(run, {"requests": asked})["request_id"]
        self._wait(f"{self._own}/ai/batches/{batch}", lambda found: found["result"]["status"] == "completed")

    def _file(self) -> None:
        self.ids["file_id"] = self._uploaded(self._line())

    def _line(self) -> bytes:
        return line(1).replace(b"line 1", self.words.encode())

    def _uploaded(self, content: bytes) -> str:
        file = {"file": (f"{self.names}.jsonl", content)}
        answer = self.client.post("/v1/files", data={"purpose": "batch"}, files=file)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["id"])

    def _openai_batch(self) -> None:
        file = self._uploaded(self._line() + line(2).replace(b"line 2", FAILS.encode()))
        whole = {"input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
        batch = self.ids["batch_id"] = self._made("/v1/batches", whole | {"metadata": {"about": self.names}})["id"]
        self.ids["output_file_id"] = self._wait(f"/v1/batches/{batch}", lambda found: found.get("output_file_id"))
        self._uploaded(line(1).replace(b'"messages"', b'"temperature":"%s","messages"' % self.words.encode()))
        assert self.words in self.client.get("/v1/files").text, "an invalid line is quoted"

    def _response(self) -> None:
        made = self._background(self.words)
        self._wait(f"/v1/responses/{made}", lambda found: found["status"] == "completed")

    def _background(self, said: str) -> str:
        wanted = {"model": MODEL, "input": said, "background": True}
        self.ids["response_id"] = str(self._made("/v1/responses", wanted)["id"])
        return self.ids["response_id"]

    def _conversation(self) -> None:
        begun = {"items": self._says(), "metadata": {"about": self.names}}
        talk = self.ids["conversation_id"] = self._made("/v1/conversations", begun)["id"]
        self._made("/v1/responses", {"model": MODEL, "input": self.words, "conversation": talk})
        items = self.client.get(f"/v1/conversations/{talk}/items").json()["data"]
        assert self.words in str(items), "a turn has them"
        self.ids["item_id"] = items[0]["id"]

    def _upload(self) -> None:
        data = self._line()
        sent = {"filename": self.names, "purpose": "batch", "bytes": len(data), "mime_type": "application/jsonl"}
        upload = self.ids["upload_id"] = self._made("/v1/uploads", sent)["id"]
        part = self.client.post(f"/v1/uploads/{upload}/parts", files={"data": data})
        assert part.status_code == 200, part.text
        self.ids["part_id"] = part.json()["id"]

    def _pipeline(self) -> None:
        """A pipeline with an item that waits for an answer from outside."""
        outside = {"id": "first", "external": {"timeout": "1h"}, "body": {"code": f"{self.words} {{{{item.text}}}}"}}
        asks = {"id": "next", "model": MODEL, "body": {"messages": self._says("{{text}}")}}
        lines = {"items": [{"custom_id": self.names, "text": self.words}]}
        flow = {"name": self.names, "input": lines, "stages": [outside, asks]}
        pipeline = self.ids["pipeline_id"] = self._made("/v1/pipelines", flow)["id"]
        self._wait(f"/v1/pipelines/{pipeline}/waiting", lambda found: found["data"])

    def _delivery(self) -> None:
        path = f"{self._own}/event_subscriptions/subscriptions/{self.ids['subscription_id']}/deliveries"
        self.ids["delivery_id"] = str(self._wait(path, lambda found: found["result"])[0]["id"])

    def _key(self) -> None:
        self.ids["key_id"] = self.client.get(f"{self._own}/ai/keys").json()["result"][0]["id"]
