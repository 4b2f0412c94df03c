"""The budgets of a run, and what must hold of them: some of it is checked at every write."""

import asyncio
import random
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.budgets import service as budgets
from app.budgets import sql
from app.budgets.service import DEAD_SECONDS
from app.db.pool import Database
from app.engines import catalogue
from app.policy import service as policies
from app.settings import DEMO_MODELS
from app.tenants import service as tenants
from tests.crash.history import SERVED, UNSERVED, History
from tests.crash.installation import Postgres

ROOMY, STRICT, DIVERTED = "amber", "birch", "coral"  # the accounts by their budgets
TIGHT = "tight"  # the name of the budget that each of them has
ACCOUNTS = (ROOMY, STRICT, DIVERTED)
WORKFLOWS = ("index", "tagging")
SPARE = "spare"  # a model to which coral's work is diverted; the same engines serve it
EUROS = "euros"  # a model that is priced in another currency, and the name of its budget; the same engines serve it
_MODELS = f"""
[models.{SPARE}]
serves = "{SERVED}"
price = {{ input = 0.01, cached_input = 0.0025, output = 0.025, currency = "USD" }}

[models.{EUROS}]
serves = "{SERVED}"
price = {{ input = 0.10, cached_input = 0.025, output = 0.25, currency = "EUR" }}

[models.{UNSERVED}]
context_window = 2048
capabilities = ["async_queue"]
price = {{ input = 0.01, cached_input = 0.0025, output = 0.025, currency = "USD" }}
"""


@dataclass(slots=True)
class Tight:
    """A budget whose money ends and is raised. Amounts are tokens, or 10^-9 of a currency. `item`: what the next chunk may need.
    After a retry it may be more, because then only the estimates of its items are known.
    """

    account: str
    name: str
    currency: str | None  # None: it is of tokens
    terms: dict[str, Any]
    max: int
    step: int
    item: int
    changing: asyncio.Lock = field(default_factory=asyncio.Lock)

    def left(self, unspent: float) -> float:
        """What is left, as the API shows it, in this budget's unit."""
        return unspent * (1e9 if self.currency else 1)

    def given(self) -> dict[str, Any]:
        """The terms as the API takes them."""
        most = {"max_cost": f"{self.max / 1e9:.9f} {self.currency}"} if self.currency else {"max_tokens": self.max}
        return {**self.terms, **most, "period": "total"}


def tight_budgets() -> list[Tight]:
    """Of birch one that reserves the maximum, in tokens, of coral one in each currency."""
    alerts = {"alerts_at": [25]}
    return [
        Tight(STRICT, TIGHT, None, {"reserve": "maximum"}, max=1_500, step=1_500, item=700),
        Tight(DIVERTED, TIGHT, "USD", alerts, max=15_000, step=9_000, item=9_000),
        Tight(DIVERTED, EUROS, "EUR", alerts, max=15_000, step=9_000, item=9_000),
    ]


def models_of(account: str) -> Sequence[str]:
    """The models for which an account submits, each as often as it stands here."""
    return (SERVED, SERVED, EUROS) if account == DIVERTED else (SERVED,)


def models_file(folder: Path) -> Path:
    """A catalogue with the spare model."""
    file = folder / "models.toml"
    shutil.copyfile(DEMO_MODELS, file)
    with file.open("a") as models:
        models.write(_MODELS)
    return file


# From half of its budget on, work of coral that is not critical moves to the spare model.
_POLICY = f"""
[[rule]]
id = "short"
when = {{ account = "{DIVERTED}", budget = ">=50", critical = false }}
fallback = ["{SPARE}"]
"""

# What `slackwater_budget_overshoot_bound` says of a budget.
_BOUND = f"""select value from ({sql.GAUGES.replace("%(dead_seconds)s", str(DEAD_SECONDS))}) gauge (name, of, value)
  where gauge.name = 'budget_overshoot_bound'
    and of = (select account_id from tenant where tenant_id = new.tenant_id) || '/' || new.name"""
# Notes every moment in which more is reserved than a budget has, or more is spent than that and its bound when something was
# reserved for the last time.
_WATCH = f"""
create table overspent (at timestamptz default clock_timestamp(), text text);
create table bound (budget_id int primary key, beyond float8 not null);
create function note_bound() returns trigger language plpgsql as $$ begin
  insert into bound select new.budget_id, coalesce(({_BOUND}), 'infinity')
    on conflict (budget_id) do update set beyond = excluded.beyond;
  return null;
end $$;
create trigger bound after update on budget for each row when (new.reserved > old.reserved) execute function note_bound();
create function note_overspent() returns trigger language plpgsql as $$
  declare known float8 := coalesce((select beyond from bound where budget_id = new.budget_id), 0);
begin
  if new.reserved > old.reserved or new.spent > new.max + known then
    insert into overspent (text) values (format('%s of %s: spent %s, reserved %s (before: %s, %s), bound %s',
      new.name, new.max, new.spent, new.reserved, old.spent, old.reserved, known));
  end if;
  return null;
end $$;
create trigger overspent after update on budget for each row when (new.spent + new.reserved > new.max and new.max >= old.max)
  execute function note_overspent()"""


async def watch(postgres: Postgres) -> None:
    """Note from now on what `judge` looks for."""
    await postgres.rows(_WATCH)


def first_budgets(roomy_tokens: int) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Account, name and terms of each budget."""
    yield ROOMY, TIGHT, {"max_tokens": roomy_tokens, "period": "total"}
    for tight in tight_budgets():
        yield tight.account, tight.name, tight.given()


async def begin(postgres: Postgres, models: Path, roomy_tokens: int) -> None:
    """Give each account its budget, let coral's work move, and watch them."""
    await watch(postgres)
    async with Database(postgres.url, size=1) as database, database.transaction() as conn:
        await policies.apply(conn, _POLICY, catalogue.load(models), "the run")
        for account, name, terms in first_budgets(roomy_tokens):
            tenant_id = await tenants.find_tenant(conn, account)
            await budgets.put(conn, tenant_id, name, terms)


def labels(rng: random.Random) -> dict[str, str]:
    """The labels of a batch. Work that is not critical may be diverted."""
    return {
        "x-slackwater-workflow": rng.choice(WORKFLOWS),
        "x-slackwater-critical": rng.choice(("true", "false")),
    }


# By budget: what it has reserved and spent, and what the ledger has for it.
_BUDGETS = """
select t.account_id, b.name, b.max, b.reserved, b.spent, coalesce(sum(case b.unit when 'tokens' then u.prompt + u.output
    else ((u.prompt - u.cached) * l.price_in + u.cached * l.price_cached + u.output * l.price_out) / 1000 end), 0)::int8
from budget b join tenant t using (tenant_id)
left join line l on l.tenant_id = b.tenant_id and b.scope_value in ('', l.workflow)
  and (b.unit = 'tokens' or l.currency = b.currency)
left join usage u using (line_id) group by t.account_id, b.budget_id order by 1, 2"""

# By account: the tokens of queued work in the ledger, those of diverted work among them, and the tokens of the stored results.
_TOKENS = """
select t.account_id, coalesce(u.tokens, 0)::int8, coalesce(u.diverted, 0)::int8, coalesce(r.tokens, 0)::int8 from tenant t
left join (select l.tenant_id, sum(prompt + output) as tokens, sum(prompt + output) filter (where l.model = 'spare') as diverted
           from usage join line l using (line_id) where l.kind <> 'sync' group by 1) u using (tenant_id)
left join (select b.tenant_id, sum(r.prompt_tokens + r.completion_tokens) as tokens
           from item_result r join batch b using (batch_id) group by 1) r using (tenant_id)"""

_WAITING = """
select format('%s chunks wait for money of budgets %s: the first has %s items, and may cost %s and %s tokens', count(*),
         (select string_agg(format('%s (max %s, spent %s, reserved %s)', name, max, spent, reserved), ', ') from budget
          where budget_id = any(c.budgets)),
         (array_agg(c.n order by c.deadline, c.chunk_id))[1], (array_agg(c.maximum_cost order by c.deadline, c.chunk_id))[1],
         (array_agg(c.maximum_tokens order by c.deadline, c.chunk_id))[1])
from chunk c where c.state = 'unreserved' group by c.budgets"""


async def judge(postgres: Postgres, history: History) -> None:
    """Check that nothing is reserved any more, that each budget has spent what the ledger has, and that none was overspent."""
    history.details += [text for (text,) in await postgres.rows(_WAITING)]
    for account, name, most, reserved, spent, booked in await postgres.rows(_BUDGETS):
        history.notes[f"{account} has spent of budget {name}"] = spent
        if reserved or spent != booked:
            what = f"{name} of {account} has {most}, {spent} spent, {reserved} reserved; the ledger has {booked}"
            history.wrong("unaccounted", f"budget {what}")
    for account, booked, diverted, stored in await postgres.rows(_TOKENS):
        history.notes["tokens of diverted work"] += diverted
        if booked != stored:
            history.wrong("unaccounted", f"{booked} tokens of {account} in the ledger, {stored} in the results")
    for (text,) in await postgres.rows("select text from overspent order by at limit 20"):
        history.wrong("overspent", text)
