"""The acts that the audit log records: the only table of them. docs/audit.md describes each; a test compares the two.

Recorded is what somebody decides: terms, keys, who may enter, what becomes of a batch, a webhook or an engine, who looks at
contents, and what is refused. Not recorded are submits and polls, which have rows of their own and come by the thousand, and what
the steward does on time, such as the end of a window. tests/audit/surfaces.py names, for each route and each command, its acts
or why it has none.
"""

from enum import StrEnum


class Act(StrEnum):
    """What was done or refused."""

    POLICY_APPLY = "policy.apply"
    POLICY_ROLLBACK = "policy.rollback"
    POLICY_APPLIED = "policy.applied"
    POLICY_DENIED = "policy.denied"
    POLICY_WITHHELD = "policy.withheld"

    BUDGET_SET = "budget.set"
    BUDGET_REMOVE = "budget.remove"
    QUOTA_SET = "quota.set"

    KEY_CREATE = "key.create"
    KEY_ROTATE = "key.rotate"
    KEY_REVOKE = "key.revoke"
    OPERATOR_CREATE = "operator.create"
    OPERATOR_REVOKE = "operator.revoke"
    SECRET_KEY_RESEAL = "secret_key.reseal"  # noqa: S105

    ACCOUNT_CREATE = "account.create"
    ACCOUNT_SHARE = "account.share"
    ACCOUNT_RETENTION = "account.retention"
    ACCOUNT_WEBHOOK_HOSTS = "account.webhook_hosts"
    ACCOUNT_REDACT = "account.redact"
    ACCOUNT_DELETE = "account.delete"
    ACCOUNT_REMOVED = "account.removed"
    ACCOUNT_ROTATE_KEK = "account.rotate_kek"
    ACCOUNT_KEK_DESTROYED = "account.kek_destroyed"

    ENGINE_DRAIN = "engine.drain"
    ENGINE_DRAIN_NOW = "engine.drain_now"
    ENGINE_UNDRAIN = "engine.undrain"

    BATCH_CREATE = "batch.create"
    BATCH_PAUSE = "batch.pause"
    BATCH_RESUME = "batch.resume"
    BATCH_CANCEL = "batch.cancel"
    BATCH_RETRY = "batch.retry"
    BATCH_SHRED = "batch.shred"
    BATCH_DOWNLOAD = "batch.download"
    PIPELINE_PAUSE = "pipeline.pause"
    PIPELINE_RESUME = "pipeline.resume"
    PIPELINE_CANCEL = "pipeline.cancel"
    PIPELINE_RETRY = "pipeline.retry"
    PIPELINE_SHRED = "pipeline.shred"
    RESPONSE_DELETE = "response.delete"
    CONVERSATION_DELETE = "conversation.delete"
    CONVERSATION_CHANGE = "conversation.change"
    CONVERSATION_REVEAL = "conversation.reveal"
    FILE_DELETE = "file.delete"
    ITEM_REVEAL = "item.reveal"
    PLAYGROUND_RUN = "playground.run"

    WEBHOOK_CREATE = "webhook.create"
    WEBHOOK_CHANGE = "webhook.change"
    WEBHOOK_PAUSE = "webhook.pause"
    WEBHOOK_DISABLE = "webhook.disable"
    WEBHOOK_ENABLE = "webhook.enable"
    WEBHOOK_ROTATE = "webhook.rotate"
    WEBHOOK_TEST = "webhook.test"
    WEBHOOK_REDELIVER = "webhook.redeliver"
    WEBHOOK_REPLAY = "webhook.replay"
    WEBHOOK_DELETE = "webhook.delete"

    SESSION_INVITE = "session.invite"
    SESSION_START = "session.start"
    SESSION_REFUSED = "session.refused"
    SESSION_END = "session.end"
    SESSION_REVOKE = "session.revoke"
    ACCESS_REFUSED = "access.refused"

    DATABASE_RESTORED = "database.restored"
