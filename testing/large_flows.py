"""5,000 pipelines and 10,000 conversations as rows, for the plans and the times of the console."""

from uuid import UUID

import orjson

PIPELINES, STAGES = 5_000, 4  # with the input
CONVERSATIONS, TURNS = 10_000, 3
_FIRST_BATCH = 1_000_000  # beyond those of a large installation


def pipeline(number: int) -> UUID:
    """The id of a pipeline, from 1. The higher the number, the newer. Each hundredth is open."""
    return UUID(f"00000000-0000-0001-0000-{number:012}")


def conversation(number: int) -> UUID:
    """The id of a conversation, from 1. The higher the number, the newer."""
    return UUID(f"00000000-0000-0009-0000-{number:012}")


_FLOW = {
    "name": "flow",
    "input": {"items": True},
    "stages": [
        {"id": f"stage-{n}", "model": "toy", "body": {"messages": [{"role": "user", "content": "{{item.text}}"}]}}
        for n in range(1, STAGES)
    ],
}

# For the 25 accounts and the model of a large installation.
SQL = f"""
insert into batch (batch_id, request_id, tenant_id, model, endpoint, total, ok, deadline, state, finalized_at, created_at, name,
                   kind, pipeline_id)
  select base + {STAGES} * g + n, ('00000000-0000-0001-000' || n || '-' || lpad(g::text, 12, '0'))::uuid,
         1 + g % 25, 'toy', case when n > 0 then '/v1' else '' end, 100, 60, now(),
         case when g % 100 = 0 then 'open' else 'completed' end, case when g % 100 <> 0 then now() end,
         now() - make_interval(secs => {PIPELINES} - g), case when n = 0 then 'flow-' || g else 'stage-' || n end, 'stage',
         base + {STAGES} * g
  from (select (next_batch_id() >> 36 << 36) + {_FIRST_BATCH} as base) b, generate_series(1, {PIPELINES}) g,
       generate_series(0, {STAGES} - 1) n;
insert into pipeline (pipeline_id, request_id, tenant_id, name, state, definition, inputs, deadline, created_at, finalized_at)
  select batch_id, request_id, tenant_id, name, state, '{orjson.dumps(_FLOW).decode()}', 100, now(), created_at, finalized_at
  from batch where pipeline_id = batch_id;
insert into stage (pipeline_id, n, batch_id, name)
  select pipeline_id, batch_id - pipeline_id, batch_id, name from batch where pipeline_id is not null;
insert into session (session_id, tenant_id, version, slope, used_at)
  select ('00000000-0000-0009-0000-' || lpad(g::text, 12, '0'))::uuid, 1 + g % 25, {TURNS}, g % 7 - 3,
         now() - make_interval(secs => {CONVERSATIONS} - g) from generate_series(1, {CONVERSATIONS}) g;
insert into turn (turn_id, tenant_id, session_id, n, state, model, input)
  select gen_random_uuid(), tenant_id, session_id, n, 'done', 'toy', '[]' from session, generate_series(1, {TURNS}) n"""
