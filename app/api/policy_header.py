"""The header that says which rules of the policy decided about a request, and which model answers it."""

from fastapi import Request

from app.admission.admission import Admission
from app.api import response_headers

HEADER = "x-slackwater-policy"


def add(request: Request, admission: Admission, model: str) -> None:
    """`12; rule=small-first; model=llama-8b`. Nothing is added where no rule had a say."""
    rules = admission.outcome.rules
    if rules:
        name = model.encode("ascii", "replace").decode()
        text = f"{admission.policy.policy_id}; rule={','.join(rules)}; model={name}"
        response_headers.add(request, {HEADER: text})
