"""For each route and each command that changes or reveals something: its acts, or why the audit log has none of it.

A new route or command that is in neither table fails test_every_act.py, which also calls those that have acts.
"""

from app.audit.acts import Act

Table = dict[str, tuple[Act, ...]]
Reasons = dict[str, str]

_SUBMIT = "a submit, a poll or a call: the hot path, whose rows name the key"
_FILE = "a part of a submit; the file has a row of its own"
_LOOK = "it only looks"
_VERBS = (Act.BATCH_PAUSE, Act.BATCH_RESUME, Act.BATCH_CANCEL)

_HOOKS = "event_subscriptions/subscriptions"
API: Table = {
    "post ai/batches/{request_id}/{verb}": _VERBS,
    "post ai/batches/{request_id}/retry": (Act.BATCH_RETRY,),
    "delete ai/batches/{request_id}": (Act.BATCH_SHRED,),
    "post v1/batches/{batch_id}/{verb}": _VERBS,
    "post v1/pipelines/{pipeline_id}/retry": (Act.PIPELINE_RETRY,),
    "delete v1/pipelines/{pipeline_id}": (Act.PIPELINE_SHRED,),
    "post v1/pipelines/{pipeline_id}/{verb}": (Act.PIPELINE_PAUSE, Act.PIPELINE_RESUME, Act.PIPELINE_CANCEL),
    "post v1/batches/{batch_id}/retry": (Act.BATCH_RETRY,),
    "delete v1/batches/{batch_id}": (Act.BATCH_SHRED,),
    "post v1/responses/{response_id}/cancel": (Act.BATCH_CANCEL,),
    "delete v1/responses/{response_id}": (Act.RESPONSE_DELETE,),
    "post v1/conversations/{conversation_id}": (Act.CONVERSATION_CHANGE,),
    "delete v1/conversations/{conversation_id}": (Act.CONVERSATION_DELETE,),
    "delete v1/conversations/{conversation_id}/items/{item_id}": (Act.CONVERSATION_CHANGE,),
    "delete v1/files/{file_id}": (Act.FILE_DELETE,),
    "put ai/budgets/{name}": (Act.BUDGET_SET,),
    "delete ai/budgets/{name}": (Act.BUDGET_REMOVE,),
    "post v1/webhook_endpoints": (Act.WEBHOOK_CREATE,),
    "post v1/webhook_endpoints/{endpoint_id}": (Act.WEBHOOK_CHANGE,),
    "post v1/webhook_endpoints/{endpoint_id}/rotate_secret": (Act.WEBHOOK_ROTATE,),
    "post v1/webhook_endpoints/{endpoint_id}/test": (Act.WEBHOOK_TEST,),
    "delete v1/webhook_endpoints/{endpoint_id}": (Act.WEBHOOK_DELETE,),
    f"post {_HOOKS}": (Act.WEBHOOK_CREATE,),
    f"patch {_HOOKS}/{{subscription_id}}": (Act.WEBHOOK_CHANGE, Act.WEBHOOK_ENABLE, Act.WEBHOOK_DISABLE),
    f"post {_HOOKS}/{{subscription_id}}/pause": (Act.WEBHOOK_PAUSE,),
    f"post {_HOOKS}/{{subscription_id}}/disable": (Act.WEBHOOK_DISABLE,),
    f"post {_HOOKS}/{{subscription_id}}/test": (Act.WEBHOOK_TEST,),
    f"post {_HOOKS}/{{subscription_id}}/rotate_secret": (Act.WEBHOOK_ROTATE,),
    f"post {_HOOKS}/{{subscription_id}}/deliveries/{{delivery_id}}/redeliver": (Act.WEBHOOK_REDELIVER,),
    f"post {_HOOKS}/{{subscription_id}}/replay": (Act.WEBHOOK_REPLAY,),
    f"delete {_HOOKS}/{{subscription_id}}": (Act.WEBHOOK_DELETE,),
    "post /admin/v1/accounts": (Act.ACCOUNT_CREATE,),
    "delete /admin/v1/accounts/{account}": (Act.ACCOUNT_DELETE,),
    "put /admin/v1/quotas/{account}": (Act.QUOTA_SET,),
    "post /admin/v1/keys": (Act.KEY_CREATE,),
    "post /admin/v1/keys/{key_id}/rotate": (Act.KEY_ROTATE,),
    "delete /admin/v1/keys/{key_id}": (Act.KEY_REVOKE,),
    "put /admin/v1/budgets/{account}/{name}": (Act.BUDGET_SET,),
    "delete /admin/v1/budgets/{account}/{name}": (Act.BUDGET_REMOVE,),
    "put /admin/v1/policy": (Act.POLICY_APPLY,),
    "post /admin/v1/policy/rollback": (Act.POLICY_ROLLBACK,),
}
API_WITHOUT: Reasons = {
    **dict.fromkeys(("post ai/run/{model}", "post ai/run", "post v1/batches", "post v1/pipelines"), _SUBMIT),
    **dict.fromkeys(
        ("post v1/chat/completions", "post v1/completions", "post v1/embeddings", "post v1/responses"), _SUBMIT
    ),
    **dict.fromkeys(("post v1/conversations", "post v1/conversations/{conversation_id}/items"), _SUBMIT),
    **dict.fromkeys(("post v1/files", "post v1/uploads", "post v1/uploads/{upload_id}/parts"), _FILE),
    **dict.fromkeys(("post v1/uploads/{upload_id}/complete", "post v1/uploads/{upload_id}/cancel"), _FILE),
    "post ai/policy/test": _LOOK,
    "post v1/pipelines/{pipeline_id}/items/{stage}/{item}/answer": "a program answers its items, by the thousand",
    "post v1/pipelines/check": _LOOK,
    "post events/ack": "a program takes its events from its queue, by the thousand",
}

_HOOK = "/console/webhooks/{endpoint_id}"
CONSOLE: Table = {
    "/console/login": (Act.SESSION_START,),
    "/console/logout": (Act.SESSION_END,),
    "/console/access/{session_id:int}/revoke": (Act.SESSION_REVOKE,),
    "/console/policy/apply": (Act.POLICY_APPLY,),
    "/console/policy/versions/{policy_id:int}/rollback": (Act.POLICY_ROLLBACK,),
    "/console/playground": (Act.KEY_CREATE, Act.PLAYGROUND_RUN, Act.KEY_REVOKE),
    "/console/batches/new": (Act.BATCH_CREATE,),
    "/console/batches/selected": (Act.BATCH_PAUSE,),
    "/console/batches/{batch_id}/{verb}": (*_VERBS, Act.BATCH_RETRY),
    "/console/batches/{batch_id}/download": (Act.BATCH_DOWNLOAD,),
    "/console/batches/{batch_id}/items/{seq:int}/reveal": (Act.ITEM_REVEAL,),
    "/console/pipelines/{pipeline_id}/{verb}": (
        Act.PIPELINE_PAUSE,
        Act.PIPELINE_RESUME,
        Act.PIPELINE_CANCEL,
        Act.PIPELINE_RETRY,
    ),
    "/console/conversations/{conversation_id}/turns/{n:int}/reveal": (Act.CONVERSATION_REVEAL,),
    "/console/engines/{name}/{verb}": (Act.ENGINE_DRAIN, Act.ENGINE_DRAIN_NOW, Act.ENGINE_UNDRAIN),
    f"{_HOOK}/deliveries/{{delivery_id}}/redeliver": (Act.WEBHOOK_REDELIVER,),
    f"{_HOOK}/replay": (Act.WEBHOOK_REPLAY,),
    f"{_HOOK}/rotate": (Act.WEBHOOK_ROTATE,),
    f"{_HOOK}/test": (Act.WEBHOOK_TEST,),
    f"{_HOOK}/pause": (Act.WEBHOOK_PAUSE,),
    f"{_HOOK}/disable": (Act.WEBHOOK_DISABLE,),
    f"{_HOOK}/enable": (Act.WEBHOOK_ENABLE,),
    f"{_HOOK}/delete": (Act.WEBHOOK_DELETE,),
    "/console/webhooks/new": (Act.WEBHOOK_CREATE,),
    "/console/keys/new": (Act.KEY_CREATE,),
    "/console/keys/{key_id}/revoke": (Act.KEY_REVOKE,),
    "/console/spend/budgets/new": (Act.BUDGET_SET,),
    "/console/spend/budgets/{budget_id:int}": (Act.BUDGET_SET,),
    "/console/spend/budgets/{budget_id:int}/delete": (Act.BUDGET_REMOVE,),
}
CONSOLE_WITHOUT: Reasons = {
    "/console/theme": "it is a cookie of the browser",
    "/console/batches/views": "it is a cookie of the browser",
    "/console/batches/new/file": _FILE,
    "/console/policy/test": _LOOK,
}

_API = "it calls the API, which records it"
_PART = "it runs or stops parts, which record what they do"
COMMANDS: Table = {
    "account create": (Act.ACCOUNT_CREATE,),
    "account delete": (Act.ACCOUNT_DELETE,),
    "account quota": (Act.QUOTA_SET,),
    "account retention": (Act.ACCOUNT_RETENTION,),
    "account share": (Act.ACCOUNT_SHARE,),
    "account webhook-hosts": (Act.ACCOUNT_WEBHOOK_HOSTS,),
    "budget set": (Act.BUDGET_SET,),
    "budget rm": (Act.BUDGET_REMOVE,),
    "console login": (Act.SESSION_INVITE,),
    "console revoke": (Act.SESSION_REVOKE,),
    "engine drain": (Act.ENGINE_DRAIN,),
    "engine undrain": (Act.ENGINE_UNDRAIN,),
    "key create": (Act.KEY_CREATE,),
    "key rotate": (Act.KEY_ROTATE,),
    "key revoke": (Act.KEY_REVOKE,),
    "operator create": (Act.OPERATOR_CREATE,),
    "operator revoke": (Act.OPERATOR_REVOKE,),
    "policy apply": (Act.POLICY_APPLY,),
    "policy rollback": (Act.POLICY_ROLLBACK,),
    "restored": (Act.DATABASE_RESTORED,),
    "secret-key reseal": (Act.SECRET_KEY_RESEAL,),
}
_LOOKS = (
    *(
        "account list",
        "account show",
        "audit list",
        "audit verify",
        "audit key",
        "batch list",
        "batch show",
        "budget list",
    ),
    *(
        "capacity",
        "compare",
        "console sessions",
        "doctor",
        "engine",
        "engine list",
        "events",
        "incidents",
        "key list",
        "key show",
        "listen",
    ),
    *(
        "logs",
        "model list",
        "operator list",
        "policy diff",
        "policy show",
        "policy test",
        "results",
        "secret-key status",
    ),
    *(
        "settings",
        "spend",
        "spend check",
        "spend explain",
        "spend export",
        "spend latency",
        "spend prices",
        "spend sessions",
        "status",
        "top",
    ),
    *("pipeline check", "pipeline item", "pipeline list", "pipeline results", "pipeline show", "pipeline watch"),
    *("subscription deliveries", "subscription delivery", "subscription list", "subscription show", "why"),
)
_CALLS = (
    *("batch cancel", "batch pause", "batch resume", "batch retry", "batch rm", "submit", "subscription create"),
    *("subscription queue", "subscription rotate", "subscription pause", "subscription disable", "subscription enable"),
    *("pipeline submit", "pipeline pause", "pipeline resume", "pipeline cancel", "pipeline retry", "pipeline rm"),
    *("subscription delete", "subscription redeliver", "subscription replay", "subscription test", "shadow"),
)
COMMANDS_WITHOUT: Reasons = {
    **dict.fromkeys(_LOOKS, _LOOK),
    **dict.fromkeys(_CALLS, _API),
    **dict.fromkeys(
        ("api", "console", "demo", "down", "engine run", "gpu-worker", "maintenance", "notifier", "steward", "up"),
        _PART,
    ),
    **dict.fromkeys(("engine door", "model prepare", "login", "logout"), "it writes files of this machine"),
    "audit export": "it copies the audit log itself",
    "migrate": "it changes the schema, whose revision the database names",
    "shred": "it works on a database of its own",
    "redact": "it needs a rule and a value: tests/sealing/test_redacting.py holds its row",
    "account rotate-kek": "it needs sealed contents: tests/sealing/test_at_rest.py holds its two rows",
}

# Not the effect of a route or a command: refusals, what rules do, and what the steward ends.
OF_THEMSELVES = {
    *(Act.POLICY_APPLIED, Act.POLICY_DENIED, Act.POLICY_WITHHELD, Act.ACCESS_REFUSED, Act.SESSION_REFUSED),
    *(Act.ACCOUNT_REMOVED, Act.ACCOUNT_REDACT, Act.ACCOUNT_ROTATE_KEK, Act.ACCOUNT_KEK_DESTROYED),
}
