"""What the API refuses although the OpenAPI document allows it, since no JSON schema can say it: by operation and message."""

import re
from typing import Any, NamedTuple

from schemathesis.core.failures import AcceptedNegativeData
from schemathesis.openapi.checks import EnsureResourceAvailability, RejectedPositiveData, UnsupportedMethodResponse


class Rule(NamedTuple):
    """`where`: how the operations end; `said`: how our message reads; `why` no schema can say it."""

    where: str
    said: str
    why: str


_INFERENCE = r"/ai/run(/\{model\})?|/v1/(chat/completions|completions|embeddings|responses)"
_BUDGET = r"/budgets/(\{account\}/)?\{name\}"
RULES = [
    Rule(
        r"/ai/run(/\{model\})?",
        r"requests: a batch is queued; add \?queueRequest=true",
        "the query decides on the body",
    ),
    Rule(r"/ai/run(/\{model\})?", r"Bad input: queueRequest takes \{", "the query decides on the body"),
    Rule(_INFERENCE, r".*\bmin_tokens: must not be above", "it compares two numbers"),
    Rule(r"/v1/files", r"Invalid file format for Batch API\. Must be \.jsonl\.", "the lines of a file are no schema's"),
    Rule(r"/ai/run(/\{model\})?|/v1/batches", r"Idempotency-Key: this key was used", "it depends on earlier requests"),
    Rule(
        r"/usage(/\w+)?|/latency|/sessions",
        r"(before|after|since): .* (is not a period|ends before it begins)",
        "the calendar is no schema's",
    ),
    Rule(r"/usage(/\w+)?|/latency|/sessions", r"month: goes without since", "one parameter excludes the other"),
    Rule(r"/usage(/\w+)?|/latency|/sessions", r"tz: time zone .*: unknown", "there are hundreds of time zones"),
    Rule(r"/replay", r"since: must be a time with a time zone, and before until", "it compares two times"),
    Rule(r"/usage/compare", r"b: both variants are ", "it compares two parameters"),
    Rule(r"/.*", r"(?s)after: .* is not in this list", "it depends on what there is"),
    Rule(_INFERENCE + "|/v1/batches", r".*: unknown field(; did you mean|$)", "the query or a header may forbid them"),
    Rule(r"/.*", r".*\ba (string|key) contains the character .u0000", "it holds at any depth"),
    Rule(
        r"/.*", r"(?s).*\bthe number (does not fit into 64 bits|has more digits than a double)", "it holds at any depth"
    ),
    Rule(_INFERENCE, r".*: is set by Slackwater and may not be sent", "any other unknown field may be sent"),
    Rule(_INFERENCE, r".*: this model does not accept images$", "other models do"),
    Rule(_INFERENCE, r".*(text|query|contexts): is for embedding models; this model generates", "other models do"),
    Rule(_INFERENCE, r".*input: this model takes prompt or messages here", "other models do"),
    Rule(_INFERENCE, r".*n: this model answers with one choice", "other models do"),
    Rule(_INFERENCE, r".*the context window of (the model is )?[0-9]+", "it is the model's, and of the whole prompt"),
    Rule(
        _INFERENCE,
        r".*must be an integer between \S+ and \S+, got -?[0-9]+(\.0$|\.?[0-9]*e\+[0-9]+)",
        "1.0 is an integer there",
    ),
    Rule(
        _INFERENCE, r".*logprobs: must be true or false, got -?[0-9]+\.?[0-9]*(e\+[0-9]+)?$", "1.0 is an integer there"
    ),
    Rule(_INFERENCE, r".*a list of token ids, or a list of either, got \[", "1.0 is an integer there"),
    Rule(r"/subscriptions", r"destination\.max_in_flight: must be a whole number, not", "1.0 is an integer there"),
    Rule(
        r"/v1/batches", r"output_expires_after: the anchor must be created_at, the seconds", "1.0 is an integer there"
    ),
    Rule(r"/v1/batches", r"depends_on(\[[0-9]+\])?: ", "an id has two forms, and it depends on what there is"),
    Rule(
        r"/v1/pipelines(/check)?",
        r"(pipeline|input|stages|budget|limit|name|completion_window)\b",
        "a language is no schema's",
    ),
    Rule(r"/v1/batches", r"then\b", "no schema has a language"),
    Rule(r"/v1/uploads", r"expires_after: the anchor must be created_at, the seconds", "1.0 is an integer there"),
    Rule(r"/subscriptions", r"destination\.queue_id: must be 1 to [0-9]+ printable", "Unicode's list of them is long"),
    Rule(_BUDGET, r"(max_cost: must be more than 0|tz: time zone .*: unknown)", "no list or form has it"),
    Rule(
        _BUDGET,
        r"max_cost: budget '.*' counts what costs [A-Z]{3}, and keeps its currency",
        "it is that of the stored one",
    ),
    Rule(_BUDGET, r"key: the account has no", "it depends on what there is"),
    Rule(_BUDGET, r"(max_tokens|alerts_at): must be .*whole number", "1.0 is an integer there"),
    Rule(
        r"/admin/v1/(keys|quotas/\{account\}|policy/rollback)",
        r"\w+: must be a whole number, not",
        "1.0 is an integer there",
    ),
    Rule(r"/admin/v1/keys", r"models: no such model", "it depends on what there is"),
    Rule(r"/admin/v1/keys", r"(endpoints|networks|expires|pins): ", "networks, days and labels are no schema's"),
    Rule(r"/keys/\{key_id\}/rotate", r"overlap: must be a length of time", "it is a number of days at most"),
    Rule(r"/policy/rollback", r"policy: ", "it depends on what there is"),
    Rule(r"/ai/policy/test", r"policy: line [0-9]+: ", "the language of a policy is no schema's"),
    Rule(r"/ai/policy/test", r"last: must be a length of time", "it is a number of days at most"),
    Rule(r"/test", r"The receiver could not be reached: ", "no receiver runs"),
    Rule(r"/complete", r"(part_ids|md5)", "it depends on the upload's parts"),
    Rule(r"/parts", r"data: this part has [0-9]+ bytes, but the whole upload", "it depends on the upload"),
    Rule(r"/estimate", r"Only an uploaded batch file has an estimate$", "it depends on the file"),
    Rule(
        _INFERENCE,
        r".*input\[[0-9]+\]\.type: must be one of",
        "the document describes messages, and lets other items through",
    ),
    Rule(_INFERENCE, r".*input\[[0-9]+\].*: (remote|only data:)", "it holds at any depth"),
    Rule(r"/v1/uploads", r"bytes: must be an integer between 1 and [0-9]+$", "the operator sets the bound"),
]

# An unknown parameter of a query is ignored or warned of; the tests send their key with every request, and name few accounts.
_IGNORED = re.compile(
    r"query: violates `additionalProperties`|in query - object with unexpected|header: violates `required` \(was Authorization\)"
    r"|in body - account: Invalid enum value"
)


def is_known(failure: Any, case: Any, response: Any) -> bool:
    """Whether a check failed for one of these, or only for what the client here always mends or the API always ignores."""
    if isinstance(failure, AcceptedNegativeData):
        if response.status_code in (414, 431):
            return True  # refusals that the check does not know: the URL is too long
        if re.search(r"parameter `\w+` in path - incorrect type", failure.message):
            return True  # a path has only texts: null is a name
        named = re.search(r"parameter `(\w+)` in query", failure.message)
        if named and isinstance((case.query or {}).get(named[1], ""), list | dict | None):
            return True  # a query has only texts: of a list the last one arrives and counts, of an object nothing but a name
        broken = re.findall(r"(?:- |component: )(\w+: violates .*|in \w+ - .*)", failure.message)
        return bool(broken) and all(_IGNORED.match(each) for each in broken)
    if isinstance(failure, EnsureResourceAvailability):
        if "No such part object" in response.text:
            return True  # the upload is there, the part that the case names is not
        return "Only a response that was created with background" in response.text  # the others are not stored
    if isinstance(failure, UnsupportedMethodResponse):
        # A POST there is a verb, of which there are few; another method reads the last part of the path as an id.
        return re.search(
            r"Invalid URL \(|Could not route to", response.text
        ) is not None or case.operation.path.endswith("/pipelines/check")
    if not isinstance(failure, RejectedPositiveData) or response.status_code not in (400, 422, 424):
        return False
    said = response.json()["errors"][0]["message"]
    path = case.operation.path
    return any(re.search(f"({rule.where})$", path) and re.match(rule.said, said) for rule in RULES)
