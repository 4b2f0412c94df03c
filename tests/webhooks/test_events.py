"""Claims about the data of events: what is written is read again, and rows of other versions can be read."""

import orjson
import pytest

from app import events
from app.events import (
    AUDIT_KINDS,
    BUDGET_KINDS,
    CONVERSATION_KINDS,
    ENDPOINT_KINDS,
    ITEM_KINDS,
    KINDS,
    PIPELINE_KINDS,
    POLICY_KINDS,
    QUOTA_KINDS,
    WAITING_KINDS,
    AuditData,
    BatchData,
    BatchFailure,
    BudgetData,
    ConversationData,
    Counts,
    EndpointData,
    EventData,
    EventKind,
    ItemData,
    PipelineData,
    PolicyData,
    QuotaData,
    WaitingData,
)

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
COMMON = {"request_id": "r", "account_id": "acme"}

OF_NO_BATCH = {
    ENDPOINT_KINDS: EndpointData(**COMMON, message="gone"),
    BUDGET_KINDS: BudgetData(**COMMON, budget="month", percent=75, message="spent"),
    CONVERSATION_KINDS: ConversationData(**COMMON, conversation="conv_1", tokens=3000, slope=120.5, turns=9),
    QUOTA_KINDS: QuotaData(**COMMON, quota="open_items", message="full"),
    POLICY_KINDS: PolicyData(**COMMON, version=3, message="in force"),
    AUDIT_KINDS: AuditData(**COMMON, row=7, checkpoint="{}", signature="00"),
}


def data(kind: EventKind) -> EventData:
    """Data with every field that an event of this kind can have."""
    if kind in ITEM_KINDS:
        return ItemData(**COMMON, traceparent=TRACE, item=0, reference="france")
    if kind in WAITING_KINDS:
        return WaitingData(**COMMON, item=0, reference="france", pipeline="pipe_1", stage="run")
    if kind in PIPELINE_KINDS:
        return PipelineData(
            **COMMON, pipeline="pipe_1", name="n", stage="run", batch="batch_1", counts=Counts(3, 1, 1, 1)
        )
    for kinds, of_no_batch in OF_NO_BATCH.items():
        if kind in kinds:
            return of_no_batch
    if kind == EventKind.TEST:
        return EventData(**COMMON)
    return BatchData(**COMMON, traceparent=TRACE, counts=Counts(3, 1, 1, 1), failure=BatchFailure("why", 5006, 400))


@pytest.mark.parametrize("kind", EventKind)
def test_the_data_of_every_kind_is_read_as_it_was_written(kind: EventKind) -> None:
    assert events.from_json(kind, events.to_json(data(kind))) == data(kind)


def test_the_fields_of_a_failure_are_stored_flat_and_absent_fields_not_at_all() -> None:
    assert orjson.loads(events.to_json(BatchData(**COMMON))) == COMMON
    stored = orjson.loads(events.to_json(BatchData(**COMMON, failure=BatchFailure("why", 5006, 400))))
    assert stored == COMMON | {"message": "why", "internal_code": 5006, "http_code": 400}


def test_rows_of_earlier_and_later_versions_can_be_read() -> None:
    earlier = orjson.dumps(COMMON | {"traceparent": None})
    assert events.from_json("batch.queued", earlier) == BatchData(**COMMON)
    later = orjson.dumps(
        COMMON | {"counts": {"total": 1, "succeeded": 1, "failed": 0, "unfinished": 0, "new": 1}, "x": 1}
    )
    assert events.from_json("batch.of_a_later_version", later) == BatchData(**COMMON, counts=Counts.of(1, 1, 0))


def test_a_subscription_can_name_every_kind_but_a_test() -> None:
    assert set(EventKind) - set(KINDS) == {EventKind.TEST}
    assert all(kind.value.count(".") == 1 for kind in KINDS)
