"""Conversations for the tests of the console, as rows: their prompts grow with each turn."""

from uuid import uuid4

import orjson

from app.db.pool import Database
from app.sessions import service
from app.tenants import service as tenants

MODEL = "smollm2-135m-instruct"
GIVEN = [{"type": "message", "role": "user", "content": "what are tides"}]
ANSWER = {"output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "the sea"}]}]}

_SESSION = """
insert into session (session_id, tenant_id, version, slope, base, summary, meta)
values (%(session_id)s, %(tenant_id)s, %(turns)s, %(slope)s, %(base)s, %(summary)s, %(meta)s)"""
_TURNS = """
insert into turn (turn_id, tenant_id, session_id, n, state, model, input, output, prompt_tokens, cached_tokens, completion_tokens,
                  created_at, finished_at)
select gen_random_uuid(), %(tenant_id)s, %(session_id)s, n, 'done', %(model)s, %(given)s, %(answer)s, 100 + 60 * n, 60 * (n - 1),
       20, now() - make_interval(mins => %(turns)s - n + 1), now() - make_interval(mins => %(turns)s - n)
from generate_series(1, %(turns)s) n"""


async def begin(
    database: Database,
    account: str = "acme",
    *,
    turns: int = 3,
    name: str = "",
    slope: float | None = 60.0,
    base: int = 0,
    model: str | None = MODEL,
) -> str:
    """A conversation with so many answered turns. `base`: a summary stands for those up to this one. Returns its id."""
    session_id = uuid4()
    values = {"session_id": session_id, "turns": turns, "slope": slope, "base": base, "model": model}
    values |= {"given": orjson.dumps(GIVEN), "answer": orjson.dumps(ANSWER), "summary": b"tides" if base else None}
    values["meta"] = orjson.dumps({"name": name} if name else {}).decode()
    async with database.transaction() as conn:
        values["tenant_id"] = await tenants.ensure_tenant(conn, account)
        for statement in (_SESSION, _TURNS):
            await conn.execute(statement, values)
    return service.name(session_id)
