"""The step budget is one law: the controller outside the engine and the scheduler inside it allow the same seconds."""

import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.headroom.arrivals import SyncLoad
from app.headroom.controller import SYNC_EXPECTED_SECONDS
from app.headroom.signals import StepTime
from app.settings import Settings
from testing.waiting import LIMIT_SECONDS
from tests.harvest.drawn_steps import CAP, model_of, models, syncs
from tests.headroom.support import DEFAULT, SHIPPED, WIDE, law, look
from workers.engine.page_folder import VARIABLE, OwnPage
from workers.engine.quiet import Quiet
from workers.engine.step_budget import StepBudget
from workers.engine.step_model import StepModel
from workers.engine.step_plan import Sync, plan
from workers.gpu.harvest_control import HarvestControl

BUDGET = StepBudget.of(SHIPPED)
NOW = 1e4
milliseconds = st.floats(0.1, 200)
settings = st.builds(
    Settings.model_construct,
    itl_budget_ms=milliseconds,
    itl_stretch=st.floats(1, 4),
    itl_ceiling_ms=milliseconds,
    idle_step_ms=milliseconds,
    idle_stretch=st.floats(1, 4),
    prompt_stretch=st.floats(1, 1.2),
)
urgencies = st.floats(-1, 2)


def outside(model: StepModel, sync: Sync, urgency: float, chosen: Settings, quiet: Quiet | None = None) -> float:
    """Seconds that L1 allows, as its decision reports them. Its steps take so long that it compares them with the budget."""
    steps = StepTime(
        measured=1e6,
        alone=model.predict(sync.tokens, sync.context),
        decode=model.predict(sync.decoding, sync.decode_context),
        shortest=model.predict(1, 0),
        per_request=0.0,
    )
    limits = replace(DEFAULT, step=StepBudget.of(chosen))
    arrivals = SyncLoad(open=1) if sync.present else None
    decision = law(look(NOW, sync=arrivals, steps=steps, urgent=urgency), replace(WIDE, quiet=quiet), limits)
    assert decision.signal == "step_seconds"
    return decision.threshold


def inside(model: StepModel, sync: Sync, urgency: float, chosen: Settings) -> float:
    """Seconds that L2 allows, by the commands that it reads from the control page."""
    with tempfile.TemporaryDirectory() as folder:
        control = HarvestControl.of(chosen.model_copy(update={"data_dir": Path(folder)}))
        control.open()
        own = OwnPage(Path(control.environment[VARIABLE]), 0, b"one engi")
        control.command(urgency)
        commands = own.page.commands()
        own.close()
        control.close()
    assert commands is not None
    return plan(model, sync, [], [], CAP, commands).allowed


@given(models, syncs, st.booleans(), urgencies, settings, st.floats(SYNC_EXPECTED_SECONDS, NOW))
def test_both_layers_allow_the_same_seconds(
    model: StepModel, sync: Sync, present: bool, urgency: float, chosen: Settings, silence: float
) -> None:
    quiet = Quiet(NOW - silence)
    sync = sync if present else Sync(quiet=quiet.step(NOW))
    assert outside(model, sync, urgency, chosen, quiet) == inside(model, sync, urgency, chosen)


@given(*[st.floats(0, 0.2)] * 3, urgencies, st.floats(0, 400))
def test_silence_lengthens_idle_steps_only(
    decode: float, alone: float, shortest: float, urgency: float, quiet: float
) -> None:
    beside = [BUDGET.allowed(decode, alone, shortest, urgency, sync=True, quiet=q) for q in (0.0, quiet)]
    assert beside[0] == beside[1]
    idle = BUDGET.allowed(decode, alone, shortest, urgency, sync=False)
    assert BUDGET.allowed(decode, alone, shortest, urgency, sync=False, quiet=quiet) == max(idle, quiet)


def test_a_deadline_adds_nothing_to_a_step_that_synchronous_decoding_itself_makes_longer() -> None:
    assert BUDGET.allowed(0.040, 0.0, 0.0, 0.5, sync=True) == pytest.approx(0.044)  # 1.1 times the decodes
    assert BUDGET.allowed(0.010, 0.0, 0.0, 0.5, sync=True) == pytest.approx(0.036)  # half the way from 22 to 50 ms
    slow = Sync(tokens=1, decoding=1, present=True)
    assert outside(model_of((0.04, 1e-9, 0.0, 0.0, 192.0)), slow, 0.5, SHIPPED) == pytest.approx(0.044, rel=1e-3)


@given(*[st.floats(0, 0.2)] * 3, urgencies, urgencies)
def test_a_nearer_deadline_never_allows_a_shorter_step_and_never_one_beyond_the_ceiling(
    decode: float, alone: float, shortest: float, one: float, other: float
) -> None:
    less, more = (BUDGET.allowed(decode, alone, shortest, u, sync=True) for u in sorted((one, other)))
    assert less <= more <= max(BUDGET.itl_ceiling, BUDGET.allowed(decode, alone, shortest, 0, sync=True))


def test_the_planner_and_the_control_page_import_only_the_standard_library_and_our_own_pure_modules() -> None:
    """They run in vLLM's process, which must not need the dependencies of the worker."""
    code = (
        "import sys; before = set(sys.modules); import workers.engine.worker_link;"
        "names = {name.split('.')[0] for name in set(sys.modules) - before};"
        "print(*sorted(names - sys.stdlib_module_names - {'app', 'workers'}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=LIMIT_SECONDS
    )
    assert done.stdout.split() == []
