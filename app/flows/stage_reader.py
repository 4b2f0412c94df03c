"""Reads the stages of a definition, one after the other. Pure."""

import re
from typing import Any

import orjson

from app.engines.requests import CHAT, COMPLETIONS, EMBEDDINGS, RESPONSES, response_format
from app.flows import conditions, validity
from app.flows.conditions import Condition
from app.flows.given import Given, slots
from app.flows.scopes import RESERVED, Scope
from app.flows.stages import (
    INPUT,
    INPUT_NAME,
    MOST_IN_LIST,
    Again,
    BySize,
    ByValue,
    Each,
    External,
    Input,
    OfStage,
    Otherwise,
    Pack,
    Pick,
    Request,
    Single,
    Stage,
    Work,
)

_FIELDS = (
    *("id", "after", "model", "endpoint", "body", "when", "otherwise", "each", "max", "pack"),
    *("pick", "external", "depends_on", "reask", "escalate"),
)
_ENDPOINTS = (CHAT, COMPLETIONS, RESPONSES, EMBEDDINGS)
_NOT_IN_CHAIN = ("after", "each", "pack")
_NOT_BESIDE = {
    "pick": ("external", "model", "endpoint", "body", "each", "pack", "reask", "escalate"),
    "external": ("model", "endpoint", "reask", "escalate"),
}
_ID = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_MOST_REASKS, _USUAL_EACH = 3, 100
_LONGEST_TIMEOUT = 7 * 86_400.0
_LONGEST_NAME = 200


class StageReader:
    """Reads stages in their order. `place`: the field that lists them. `chained`: they are a chain behind a batch.

    `stages`: what was read.
    """

    def __init__(self, source: Input, place: str, endpoint: str = CHAT, *, chained: bool = False) -> None:
        self.stages: list[Stage] = []
        self.place = place
        self._source, self._endpoint, self._chained = source, endpoint, chained
        self._ids = {INPUT_NAME: INPUT}  # of each id, the stage with its final answer
        self._read = 0

    def read(self, value: Any) -> None:
        """Read the next stage of the list. Raises BadInput."""
        name = value.get("id") if isinstance(value, dict) else None
        owner = name if isinstance(name, str) and _ID.fullmatch(name) else ""
        given = Given(value, f"{self.place}[{self._read}]", _FIELDS, owner)
        self._read += 1
        name = self._name(given)
        self._check_neighbours(given)
        parent = self._after(given)
        scope = self._below(parent)
        each, pack = self._each(given, scope), self._pack(given, parent, scope)
        stage = Stage(
            number=len(self.stages) + 1,
            name=name,
            parent=parent,
            when=given.condition("when", scope, "ok" if scope.answer else "true"),
            otherwise=self._otherwise(given, scope, pack),
            work=self._work(given, _of_body(self._single(scope, pack), scope, each, pack)),
            each=each,
            pack=pack,
            depends_on=self._depends_on(given),
            single=self._single(scope, pack),
        )
        self.stages.append(stage)
        self._add_reasks(given, stage)
        self._add_escalation(given, stage)
        self._ids[name] = len(self.stages)

    def _name(self, given: Given) -> str:
        name = given.value.get("id")
        if not isinstance(name, str) or not _ID.fullmatch(name):
            form = "1 to 32 of a-z, 0-9, '_' and '-', beginning with a letter"
            raise given.bad("id", f"must be {form}; every stage needs one")
        if name in RESERVED:
            raise given.bad("id", f"{name!r} has a meaning in templates; choose another name")
        if name in self._ids:
            raise given.bad("id", f"{name!r} is used by an earlier stage; give every stage its own")
        return name

    def _check_neighbours(self, given: Given) -> None:
        if self._chained and (odd := next((each for each in _NOT_IN_CHAIN if given.has(each)), None)):
            raise given.bad(odd, "is not possible in then, where each line passes every stage; submit a pipeline")
        for name, others in _NOT_BESIDE.items():
            if given.has(name) and (odd := next((each for each in others if given.has(each)), None)):
                raise given.bad(odd, f"cannot stand beside {name}; remove one of them")
        if given.has("each") and given.has("pack"):
            raise given.bad("pack", "cannot stand beside each; make two stages of them")
        if given.has("max") and not given.has("each"):
            raise given.bad("max", "needs each; the most of a pack is pack.max")

    def _after(self, given: Given) -> int:
        """The parent: by default the stage above, with its re-asks and escalation."""
        return self._named(given, "after", given.value["after"]) if given.has("after") else len(self.stages)

    def _named(self, given: Given, field: str, name: Any) -> int:
        if not isinstance(name, str) or name not in self._ids:
            known = ", ".join(self._ids)
            raise given.bad(field, f"must name an earlier stage, not {str(name)[:60]!r}; choose from {known}")
        return self._ids[name]

    def _below(self, parent: int) -> Scope:
        """What can be read of the parent's item."""
        if parent == INPUT:
            return Scope(self._source.below, answer=self._source.answers)
        return Scope(self.stages[parent - 1].below, answer=True)

    def _single(self, scope: Scope, pack: Pack | None) -> Single:
        """What one item of the new stage has one of each."""
        match pack:
            case None:
                return scope.single
            case OfStage(stage):
                return self._below(stage).single
        return Single()

    def _otherwise(self, given: Given, scope: Scope, pack: Pack | None) -> Otherwise:
        found = given.choice("otherwise", ("drop", "pass"), "pass" if self._chained else "drop")
        if found == "drop":
            if self._chained:
                raise given.bad("otherwise", "must be pass in then, where each line ends in a file of the last stage")
            return "drop"
        if pack:
            raise given.bad("otherwise", "must be drop in a pack: it leaves out the items for which when does not hold")
        if not scope.answer:
            raise given.bad("otherwise", "must be drop here: the input has no answers that could be passed on")
        return "pass"

    def _each(self, given: Given, scope: Scope) -> Each | None:
        if not given.has("each"):
            return None
        return Each(given.path("each", scope), given.whole("max", 1, MOST_IN_LIST, _USUAL_EACH))

    def _pack(self, given: Given, parent: int, scope: Scope) -> Pack | None:
        if not given.has("pack"):
            return None
        pack = given.inner("pack", ("size", "of", "by", "max", "min"))
        ways = [name for name in ("size", "of", "by") if pack.has(name)]
        if len(ways) != 1:
            raise given.bad("pack", 'must have one of size, of and by, like {"by": "json.topic", "max": 50}')
        if ways == ["size"]:
            return self._by_size(pack, parent)
        most = pack.whole("max", 1, MOST_IN_LIST, MOST_IN_LIST)
        least = pack.whole("min", 1, most, 1)
        if ways == ["by"]:
            return ByValue(pack.path("by", scope), most, least)
        of = self._named(pack, "of", pack.value["of"])
        if (of != INPUT and of not in scope.single.names.values()) or (of == INPUT and not scope.single.line):
            raise pack.bad("of", "must name a stage above of which each item has one; behind a pack, nothing above it")
        if of == parent:
            raise pack.bad("of", "names the parent, so every pack would have one item; name the stage above a fan-out")
        return OfStage(of, most, least)

    def _by_size(self, pack: Given, parent: int) -> BySize:
        if pack.has("max"):
            raise pack.bad("max", "cannot stand beside size; remove it")
        if self._fanned(parent):
            raise pack.bad("size", "needs neighbours, and behind a fan-out there are none; pack with of or by first")
        size = pack.whole("size", 1, MOST_IN_LIST)
        return BySize(size, pack.whole("min", 1, size, 1))

    def _fanned(self, number: int) -> bool:
        """Whether the numbers of a stage's items have gaps, because a fan-out above was not packed."""
        while number != INPUT:
            stage = self.stages[number - 1]
            if stage.each:
                return True
            match stage.pack:
                case None:
                    number = stage.parent
                case OfStage(of):
                    number = of
                case _:
                    return False
        return False

    def _depends_on(self, given: Given) -> tuple[int, ...]:
        names = given.value.get("depends_on") or []
        if not isinstance(names, list) or INPUT_NAME in names:
            raise given.bad("depends_on", 'must be a list of earlier stages, like ["extract"]')
        return tuple(dict.fromkeys(self._named(given, "depends_on", name) for name in names))

    def _work(self, given: Given, scope: Scope) -> Work:
        if given.has("pick"):
            return self._pick(given, scope)
        body = given.body("body", scope)
        if given.has("external"):
            outside = given.inner("external", ("timeout",))
            return External(body, outside.seconds("timeout", _LONGEST_TIMEOUT, "2h"))
        if "model" in body:
            raise given.bad("body", "stands beside body, in the stage; move it there", ".model")
        endpoint = given.choice("endpoint", _ENDPOINTS, self._endpoint)
        model = given.text("model", _LONGEST_NAME, "llama-8b")
        return Request(endpoint, model, body, _schema(given, body, endpoint))

    def _pick(self, given: Given, scope: Scope) -> Pick:
        pick = given.inner("pick", ("from", "index"))
        of = self._named(pick, "from", pick.value.get("from"))
        if of == INPUT or of not in scope.single.names.values():
            raise pick.bad("from", "must name a stage above of which each item has one")
        return Pick(of, pick.path("index", scope))

    def _add_reasks(self, given: Given, stage: Stage) -> None:
        if not given.has("reask"):
            return
        times = given.whole("reask", 1, _MOST_REASKS)
        if not isinstance(stage.work, Request) or stage.work.endpoint != CHAT or "messages" not in stage.work.body:
            raise given.bad("reask", f"needs a conversation: messages in the body, and the endpoint {CHAT}")
        if stage.work.schema is None:
            raise given.bad("reask", "needs to know what is valid: set response_format in the body")
        for n in range(1, times + 1):
            last = self.stages[-1]
            name = f"{stage.name}.reask" + ("" if n == 1 else str(n))
            again = Again(last.number, CHAT, stage.work.model, stage.work.schema, with_answer=True)
            self._repeat(name, again, conditions.parse("ok and not valid"))

    def _add_escalation(self, given: Given, stage: Stage) -> None:
        if not given.has("escalate"):
            return
        assert isinstance(stage.work, Request)
        escalate = given.inner("escalate", ("model", "when", "most"))
        model = escalate.text("model", _LONGEST_NAME, "llama-70b")
        again = Again(stage.number, stage.work.endpoint, model, stage.work.schema, with_answer=False)
        when = escalate.condition("when", self._below(len(self.stages)), "not valid")
        self._repeat(f"{stage.name}.escalate", again, when, escalate.number("most", 1, 1.0))

    def _repeat(self, name: str, again: Again, when: Condition, share: float = 1.0) -> None:
        """Add a stage that repeats requests of the one before, and passes on what needs no repetition."""
        parent = len(self.stages)
        single = self._below(parent).single
        self.stages.append(Stage(parent + 1, name, parent, when, "pass", again, share=share, single=single))


def _of_body(single: Single, scope: Scope, each: Each | None, pack: Pack | None) -> Scope:
    """What the body of a stage can read. `scope`: what its `when` can."""
    if pack:
        return Scope(single, answer=False, parts=scope)
    return Scope(single, answer=scope.answer, each=each is not None)


def _schema(given: Given, body: dict[str, Any], endpoint: str) -> bytes | None:
    """The JSON schema that the answers to this body must fit; None: any text is good."""
    place = ".text.format" if endpoint == RESPONSES else ".response_format"
    wanted = body.get("text") if endpoint == RESPONSES else body
    wanted = wanted.get(place.rpartition(".")[2]) if isinstance(wanted, dict) else None
    if not isinstance(wanted, dict):
        return None
    if any(True for _ in slots(wanted)):
        raise given.bad("body", "is one for all items of a stage; write it without placeholders", place)
    if wanted.get("type") == "json_object":
        return validity.ANY_OBJECT
    if wanted.get("type") != "json_schema":
        return None
    holder = wanted if endpoint == RESPONSES else response_format(wanted).get("json_schema")
    schema = holder.get("schema") if isinstance(holder, dict) else None
    if not isinstance(schema, dict):
        raise given.bad("body", "must have a JSON schema as an object", place)
    found = orjson.dumps(schema)
    if problem := validity.schema_problem(found):
        raise given.bad("body", f"has a schema that cannot be checked: {problem}", place)
    return found
