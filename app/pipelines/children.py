"""What becomes of results that are handed on: items of the stages below, and what packs wait for. Pure.

`Slice.hand_on` is for results, `Slice.pack` for packs that have all their inputs.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import orjson

from app.batches.validation.text_generation import ItemError as InvalidItem
from app.batches.validation.text_generation import ItemFacts
from app.engines.outcome import ErrorClass
from app.flows import counting, rendering
from app.flows.answers import Outside
from app.flows.counting import Change
from app.flows.items import Asked, Child, Copied, Lineage, Parked, Refused
from app.flows.problems import ItemError, Reason
from app.flows.stages import MOST_PARKED, Pick, Stage
from app.pipelines.reading import Item
from app.pipelines.running import Running
from app.policy.placeholders import restored_text
from app.policy.redaction import Merging
from app.policy.vaults import NO_VALUES


@dataclass(frozen=True, slots=True)
class Request:
    """A request as it will be queued. `body`: JSON, without its model. `values`: of the placeholders in it. `model`: to which the
    policy moved it; None: that of its stage.
    """

    body: bytes
    facts: ItemFacts
    values: Mapping[str, str]
    model: str | None = None


class Governing(Protocol):
    """What the policy makes of what is to be stored, by pipeline and stage. Raises InvalidItem for what may not be."""

    def request(self, running: Running, stage: int, asked: Asked, values: Mapping[str, str]) -> Request:
        """A request. `values`: of its placeholders."""

    def protected(
        self, running: Running, stage: int, body: bytes, values: Mapping[str, str]
    ) -> tuple[bytes, Mapping[str, str]]:
        """JSON that is no request, and the values of its placeholders, of which some are `values`."""

    def decided(self, running: Running, stage: int) -> Mapping[str, Any] | None:
        """What rules decided about the requests of a stage so far. None: nothing."""

    def scrubbed(self, running: Running, stage: int, text: str) -> str:
        """A text about an item, without sensitive values."""


@dataclass(slots=True)
class Made:
    """An item of a stage. `request`: of one that is to run. `body`: what a parked item asks outside; the result of one that has
    its result already, with `ok` and, if it is an error, its class. `timeout`: seconds, of a parked item. `values`: of the
    placeholders in it.
    """

    seq: int
    reference: str | None = None
    affinity: str | None = None
    request: Request | None = None
    body: bytes = b"{}"
    ok: bool | None = None
    error: str | None = None
    timeout: float | None = None
    values: Mapping[str, str] = field(default_factory=lambda: NO_VALUES)

    @property
    def given(self) -> bytes:
        """What it asks a model, or outside. One that has its result asks nothing."""
        if self.request is not None:
            return self.request.body
        return self.body if self.timeout is not None else b"{}"


@dataclass(slots=True)
class StageCounts:
    """What was added to a stage; see the columns of `stage`."""

    taken: int = 0
    ran: int = 0
    passed: int = 0
    dropped: int = 0
    refused: int = 0


@dataclass(slots=True)
class Slice:
    """What one transaction will write for one pipeline. `made`, `counts`: by the number of the stage. `changes`: of what packs
    wait for, by stage and number. `copied`: by stage, the stages whose answers it has.
    """

    running: Running
    rules: Governing
    made: defaultdict[int, list[Made]] = field(default_factory=lambda: defaultdict(list))
    counts: defaultdict[int, StageCounts] = field(default_factory=lambda: defaultdict(StageCounts))
    changes: Counter[tuple[int, int]] = field(default_factory=Counter)
    copied: defaultdict[int, set[int]] = field(default_factory=lambda: defaultdict(set))

    def policies(self, stage: int) -> Iterator[Mapping[str, Any]]:
        """What rules decided about what was made for a stage: about its requests, and about those whose answers it has."""
        for of in (stage, *self.copied[stage]):
            if (decided := self.rules.decided(self.running, of)) is not None:
                yield decided
        for of in self.copied[stage]:
            if (kept := self.running.stages[of].policy) is not None:
                yield kept

    def hand_on(self, stage: int, items: Iterable[Item]) -> None:
        """Make the children of these items of a stage, and count the packs that got an input."""
        flow = self.running.flow
        children = flow.children(stage)
        for item in items:
            if not item.again:
                self._change(counting.arrived(flow, stage, item.seq))
            for child in children:
                if child.pack is None:
                    self._single(child, item)

    def pack(self, stage: Stage, number: int, members: Sequence[Item], common: Item | None) -> None:
        """Make a pack of these items of the parent. `common`: what all have one of, in a pack of a stage."""
        flow, counts = self.running.flow, self.counts[stage.number]
        parts = [item for item in members if rendering.is_part(flow, stage, item.lineage)]
        counts.taken += len(members)
        counts.dropped += len(members) - len(parts)
        above, values = common.lineage if common else None, NO_VALUES
        lineages = [part.lineage for part in parts]
        if any(each.values for each in (*lineages, above) if each):
            lineages, above, values = _merged(lineages, above)
        child = rendering.packed(flow, stage, lineages, len(members) - len(parts), above)
        if child is None:
            self._change(counting.never(flow, stage.number, number))
            return
        reference = common.reference if common else None
        self._add(stage, number, reference or f"{stage.name}-{number}", None, child, None, values)

    def _single(self, stage: Stage, item: Item) -> None:
        """The items that a map or a fan-out makes of one."""
        flow, counts = self.running.flow, self.counts[stage.number]
        counts.taken += not item.again
        first = counting.child_number(flow, stage, item.seq)
        made = rendering.children(flow, stage, item.lineage, may_run=self._may_run(stage))
        if not made:
            counts.dropped += not item.again
            if not item.again:
                self._change(counting.never(flow, stage.number, first))
            return
        if item.again:  # it was dropped before, with what would have come of it
            counts.dropped -= 1
            self._change(counting.never(flow, stage.number, first), -1)
        if stage.each:
            self._change(counting.fanned_out(flow, stage, item.seq, len(made)))
        for k, child in enumerate(made):
            reference = item.reference if stage.each is None else f"{item.reference or item.seq}.{k}"
            self._add(stage, first + k, reference, item.affinity, child, item.error, item.lineage.values)

    def _may_run(self, stage: Stage) -> bool:
        if stage.share >= 1:
            return True
        known, new = self.running.stages[stage.number], self.counts[stage.number]
        return known.ran + new.ran < self.running.may_run(stage, known.taken + new.taken)

    def _add(
        self,
        stage: Stage,
        seq: int,
        reference: str | None,
        affinity: str | None,
        child: Child,
        error: str | None,
        values: Mapping[str, str],
    ) -> None:
        if (
            isinstance(child, Parked)
            and self.running.stages[stage.number].open + len(self.made[stage.number]) >= MOST_PARKED
        ):
            child = Refused(rendering.no_room(stage))
        try:
            made = self._made(stage, seq, child, error, values)
        except InvalidItem as invalid:  # of what is redacted, or of the policy
            made = self._refused(
                seq, stage, f"an item of stage {stage.name!r} may not run: {invalid}", Reason.NOT_VALID
            )
        made.reference = reference
        made.affinity = (made.request.facts.affinity if made.request else None) or affinity
        self.made[stage.number].append(made)

    def _made(self, stage: Stage, seq: int, child: Child, error: str | None, values: Mapping[str, str]) -> Made:
        """One item. `error`: the class of the parent's error. `values`: of its placeholders. Raises InvalidItem."""
        counts, running, rules = self.counts[stage.number], self.running, self.rules
        match child:
            case Asked():
                request = rules.request(running, stage.number, child, values)
                counts.ran += 1
                return Made(seq, request=request, values=request.values)
            case Parked(body, timeout):
                asked, values = rules.protected(running, stage.number, orjson.dumps(body), values)
                counts.ran += 1
                return Made(seq, body=asked, timeout=timeout, values=values)
            case Copied(ok, copied):
                copied, values = rules.protected(running, stage.number, copied, values)
                counts.passed += 1
                self.copied[stage.number].add(stage.work.of if isinstance(stage.work, Pick) else stage.parent)
                why = None if ok else error or ErrorClass.FAILED.value
                return Made(seq, body=copied, ok=ok, error=why, values=values)
            case Refused(problem):  # whose message may quote what was restored
                return self._refused(seq, stage, rules.scrubbed(running, stage.number, problem.message), problem.reason)

    def _refused(self, seq: int, stage: Stage, message: str, reason: Reason) -> Made:
        self.counts[stage.number].refused += 1
        return Made(seq, body=ItemError(reason, message).body, ok=False, error=ErrorClass.INVALID.value)

    def _change(self, changes: Iterable[Change], sign: int = 1) -> None:
        for stage, number, delta in changes:
            self.changes[stage, number] += sign * delta


def without_model(body: Mapping[str, Any]) -> bytes:
    """A request's body as it is stored: its model is that of its batch."""
    return orjson.dumps({key: value for key, value in body.items() if key != "model"})


def value_of(running: Running, stage: Stage, lineage: Lineage) -> Hashable | None:
    """What a pack by value groups this item of its parent by; None: it belongs to no pack."""
    flow = running.flow
    found = rendering.group(flow, stage, lineage) if rendering.is_part(flow, stage, lineage) else None
    if isinstance(found, str) and lineage.values:  # equal values have different placeholders in different items
        same = {name: hashlib.sha256(value.encode()).hexdigest() for name, value in lineage.values.items()}
        return restored_text(found, same)
    return found


def _merged(
    lineages: Iterable[Lineage], common: Lineage | None
) -> tuple[list[Lineage], Lineage | None, Mapping[str, str]]:
    """Lineages with one mapping of placeholders."""
    merging = Merging()

    def renamed(of: Lineage) -> Lineage:
        return Lineage(
            merging.item(of.line, of.values, of_engine=False),
            {
                n: each.with_body(merging.body(each.body, of.values, of_engine=not isinstance(each, Outside)))
                for n, each in of.answers.items()
            },
            {n: merging.item(each, of.values) for n, each in of.requests.items()},
        )

    above = renamed(common) if common else None
    return [renamed(each) for each in lineages], above, merging.values
