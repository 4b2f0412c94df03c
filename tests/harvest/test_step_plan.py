"""The plan never exceeds what is allowed, and wastes nothing of it."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from app.settings import Settings
from tests.harvest.drawn_steps import CAP, model_of, models, syncs
from workers.engine.step_model import StepModel
from workers.engine.step_plan import PlanLimits, StepPlan, Sync, allowed_seconds, plan

LIMITS = PlanLimits.of(Settings.model_construct())


decodes = st.lists(st.integers(1, 8000), max_size=256)
prefills = st.lists(st.tuples(st.integers(1, 8000), st.integers(0, 8000)), max_size=8)
budgets = st.builds(
    lambda **drawn: replace(LIMITS, **drawn),
    itl_budget=st.floats(0, 0.1),
    tolerance=st.floats(0, 0.2),
    itl_stretch=st.floats(0, 2),
    idle_step=st.floats(0, 0.1),
    idle_stretch=st.floats(1, 2),
    urgency=st.floats(0, 1),
    chunk=st.integers(16, CAP),
)


def work(decided: StepPlan, sync: Sync, contexts: list[int], wants: list[tuple[int, int]]) -> tuple[int, int]:
    """Tokens and context of the planned step, counted the plain way."""
    tokens = sync.tokens + decided.decodes + sum(decided.chunks)
    context = sync.context + sum(contexts[: decided.decodes])
    context += sum(c for (_, c), chunk in zip(wants, decided.chunks, strict=True) if chunk)
    return tokens, context


@given(models, syncs, decodes, prefills, budgets)
def test_beside_synchronous_work_the_step_stays_within_the_allowed_seconds(
    model: StepModel, sync: Sync, contexts: list[int], wants: list[tuple[int, int]], limits: PlanLimits
) -> None:
    decided = plan(model, sync, contexts, wants, CAP, limits)
    tokens, context = work(decided, sync, contexts, wants)
    allowed = allowed_seconds(model, sync, limits)
    alone = model.predict(sync.tokens, sync.context)
    assert tokens == decided.tokens <= CAP
    assert model.predict(tokens, context) <= max(allowed, alone) * (1 + 1e-6)
    assert model.predict(tokens + decided.room, context) <= max(allowed, alone) * (1 + 1e-6)
    if sync.waiting:
        assert decided.room == sum(decided.chunks) == 0
    assert sum(decided.chunks) + decided.room <= limits.chunk


@given(models, syncs, decodes, budgets)
def test_the_first_decode_left_out_would_not_have_fitted(
    model: StepModel, sync: Sync, contexts: list[int], limits: PlanLimits
) -> None:
    decided = plan(model, sync, contexts, [], CAP, limits)
    if decided.decodes < len(contexts):
        tokens, context = work(decided, sync, contexts, [])
        longer = model.predict(tokens + 1, context + contexts[decided.decodes])
        assert tokens == CAP or longer >= decided.allowed * (1 - 1e-6)


@given(models, decodes, prefills, budgets)
def test_without_synchronous_work_something_always_advances(
    model: StepModel, contexts: list[int], wants: list[tuple[int, int]], limits: PlanLimits
) -> None:
    decided = plan(model, Sync(), contexts, wants, CAP, limits)
    assert decided.tokens + decided.room > 0
    if contexts or wants:
        assert decided.tokens > 0


@given(models, syncs, decodes, budgets, st.integers(1, 500))
def test_more_synchronous_tokens_never_let_more_batch_in_under_a_fixed_budget(
    model: StepModel, sync: Sync, contexts: list[int], limits: PlanLimits, more: int
) -> None:
    fixed = replace(LIMITS, itl_budget=limits.itl_budget, itl_stretch=0, tolerance=0)
    busier = Sync(min(CAP, sync.tokens + more), sync.context, present=True)
    quieter = Sync(sync.tokens, sync.context, present=True)
    if model.predict(busier.tokens, busier.context) > fixed.itl_budget:
        return
    assert (
        plan(model, busier, contexts, [], CAP, fixed).decodes <= plan(model, quieter, contexts, [], CAP, fixed).decodes
    )


def test_an_untaught_model_gives_batch_nothing_beside_synchronous_work_and_little_without() -> None:
    raw = StepModel()
    assert plan(raw, Sync(tokens=1, present=True), [10] * 50, [(500, 0)], CAP, LIMITS).tokens == 1
    assert plan(raw, Sync(), [10] * 50, [(5000, 0)], CAP, LIMITS).tokens <= 256


def test_a_prefill_gets_what_fits_however_little_and_before_it_is_through_nobody_enters() -> None:
    """On a slow engine that is all there ever is beside synchronous work; frozen, it would hold its slot for ever."""
    model = model_of((0.009, 1e-4, 0.0, 0.0, 192.0))
    tight = replace(LIMITS, itl_budget=0.0091 + 5e-4 + 1e-6, itl_stretch=0, tolerance=0)
    found = plan(model, Sync(tokens=1, present=True), [], [(200, 14), (200, 0)], CAP, tight)
    assert (found.chunks, found.room) == ([5, 0], 0)
