"""The models of a pipeline's stages, and whether a request of each stage could run.

What is rendered later passes the same checks as a submit. Here a request is checked before there is any item: its placeholders
get a stand-in, and a problem of a field with placeholders is not reported, since the values may mend it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from app.admission.admission import Admission
from app.batches.submit import rules_of
from app.batches.validation.openai_lines import ROUTES
from app.batches.validation.text_generation import ItemError, ItemFacts
from app.engines.catalogue import QUEUED, Catalogue, Model
from app.errors import BadInput
from app.flows.counting import listed
from app.flows.given import slots
from app.flows.language import LanguageError, parse_path
from app.flows.stages import Again, Definition, Request, Stage
from app.flows.templates import Template
from app.queue.answer_lengths import UsualLength

_STAND_IN = "…"


@dataclass(frozen=True, slots=True)
class StageModels:
    """The model of each stage that asks one, by the stage's number."""

    by_stage: Mapping[int, Model]

    def of(self, stage: Stage) -> Model | None:
        """The model of a stage; None: it asks none."""
        return self.by_stage.get(stage.number)


def place_of(flow: Definition, stage: Stage, field: str = "", *, root: str = "stages") -> str:
    """Where a field of a stage is in the definition, like `stages[1].model`."""
    inside = {"escalate": ".escalate"}.get(stage.name.partition(".")[2], "")
    return f"{root}[{listed(flow, stage)}]{inside}" + (f".{field}" if field else "")


def _bad(flow: Definition, stage: Stage, field: str, message: str, root: str) -> BadInput:
    param = place_of(flow, stage, field, root=root)
    return BadInput(f"{param} of stage {stage.name.partition('.')[0]!r}: {message}", param=param)


def resolved(flow: Definition, catalogue: Catalogue, *, root: str = "stages") -> StageModels:
    """The models of the stages. Raises BadInput for one that is unknown or cannot do what its stage asks."""
    found = {}
    for stage in flow.stages:
        if isinstance(stage.work, Request | Again):
            found[stage.number] = _model(flow, stage, stage.work, catalogue, root)
    return StageModels(found)


def _model(flow: Definition, stage: Stage, work: Request | Again, catalogue: Catalogue, root: str) -> Model:
    model = catalogue.resolve(work.model)
    if model is None:
        message = catalogue.unknown(work.model)
        raise _bad(flow, stage, "model", message, root)
    if QUEUED not in model.capabilities or model.task != ROUTES[work.endpoint][0]:
        message = f"{work.model!r} does not take queued requests on {work.endpoint}; choose another model"
        raise _bad(flow, stage, "model", message, root)
    return model


def check_budget(flow: Definition, models: StageModels) -> None:
    """Raise BadInput where the budget of a definition does not count what a stage costs."""
    if flow.usd is not None:
        found = ((flow.stage(n).name, model.name, model.price) for n, model in models.by_stage.items())
        check_counted((stage, model, price.currency if price else None) for stage, model, price in found)


def check_counted(stages: Iterable[tuple[str, str, str | None]]) -> None:
    """Raise BadInput where a budget does not count what a stage costs. `stages`: of each its name, its model, and the currency of
    its price; None: it has no price.
    """
    for stage, model, currency in stages:
        if currency != "USD":
            paid = f"is paid in {currency}" if currency else "has no price"
            message = f"budget.usd: {model} of stage {stage!r} {paid}, so no budget can count it; leave the budget out"
            raise BadInput(message, param="budget.usd")


def check_requests(
    flow: Definition, models: StageModels, admission: Admission, usual: UsualLength, *, root: str = "stages"
) -> None:
    """Check a request of each stage as far as it is known before there are items. Raises BadInput, PolicyDenied."""
    for stage in flow.stages:
        model = models.of(stage)
        if model is None:
            continue
        if isinstance(stage.work, Request):
            try:
                _check_request(stage.work, model, admission, usual)
            except ItemError as error:
                if not _may_mend(stage.work.body, error.field):
                    field = f"body.{error.field}" if error.field else "body"
                    raise _bad(flow, stage, field, error.message, root) from None
        elif isinstance(stage.work, Again):
            admission.admit(model, _minimal(model), stage.work.endpoint, lambda *_: NO_FACTS)


def _check_request(work: Request, model: Model, admission: Admission, usual: UsualLength) -> None:
    item = {name: _stood_in(value) for name, value in work.body.items()} | {"model": model.name}
    admission.admit(model, item, work.endpoint, partial(examined, work.endpoint, usual))


def examined(endpoint: str, usual: UsualLength, model: Model, item: dict[str, Any]) -> ItemFacts:
    """The facts about a request of a stage. Raises ItemError."""
    return ROUTES[endpoint][1](item, rules_of(model, usual))


NO_FACTS = ItemFacts(None, 0, wants_json=False, affinity=None, prefix="", answer_tokens=0, most_tokens=0)


def _minimal(model: Model) -> dict[str, Any]:
    return {"model": model.name, "messages": [{"role": "user", "content": _STAND_IN}]}


def _stood_in(value: Any) -> Any:
    """A value of a body with stand-ins for its placeholders."""
    if isinstance(value, Template):
        return "".join(each if isinstance(each, str) else _STAND_IN for each in value.pieces)
    if isinstance(value, dict):
        return {name: _stood_in(each) for name, each in value.items()}
    return [_stood_in(each) for each in value] if isinstance(value, list) else value


def _may_mend(body: Mapping[str, Any], field: str) -> bool:
    """Whether values of placeholders could make this field right."""
    try:
        path = parse_path(field) if field else None
    except LanguageError:
        return True
    if path is None:
        return any(True for _ in slots(dict(body)))
    found: Any = body
    for key in (path.root, *path.keys):
        if isinstance(found, Template):
            return True
        try:
            found = found[key]
        except (KeyError, IndexError, TypeError):
            return any(True for _ in slots(found))
    return any(True for _ in slots(found))
