"""The chunks of a submit: its items cut by model, each chunk with its line of the ledger."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from app import crypto
from app.batches.intake.spool import Spool
from app.engines.catalogue import Model
from app.metering import families
from app.metering.families import NONE
from app.metering.lines import MIXED, LineParts, parts_of
from app.metering.spend_labels import SpendLabels
from app.queue.chunking import NewChunk, cut
from app.settings import Settings
from app.tenants.service import Tenant

_NO_BEGINNING = ""


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose items they are: account and key, labels, kind of batch, and the engine's route of most items."""

    tenant: Tenant
    labels: SpendLabels
    kind: str
    endpoint: str


def chunks_by_model(intake: Spool, settings: Settings) -> list[list[NewChunk]]:
    """The chunks of each model of the intake, in the order of its models. Items without a model are those of the first."""
    tokens, items = settings.chunk_tokens, settings.chunk_items
    if len(intake.models) < 2:
        return [cut(intake.est_tokens, max_tokens=tokens, max_items=items, keys=intake.warm_keys)]
    chunks = []
    for place in range(len(intake.models)):
        seqs = [seq for seq, model in enumerate(intake.model_of) if model == place]
        estimates, keys = [intake.est_tokens[seq] for seq in seqs], [intake.warm_keys[seq] for seq in seqs]
        chunks.append(cut(estimates, max_tokens=tokens, max_items=items, keys=keys, seqs=seqs))
    return chunks


def lines_of(
    intake: Spool, settings: Settings, owner: Owner, models: Sequence[Model], cuts: Sequence[Sequence[NewChunk]]
) -> tuple[list[LineParts], list[list[LineParts]]]:
    """The line of each model's items as a whole, which a retry uses, and the line of each of its chunks."""
    named = _Portions(intake, owner, families.of(crypto.secret_key(settings)))

    def line(model: Model, portion: tuple[str, str]) -> LineParts:
        family, endpoint = portion
        labels = replace(owner.labels, family=family)
        tenant = owner.tenant
        return parts_of(tenant.tenant_id, tenant.key_id, labels, model.name, owner.kind, model.price, endpoint)

    own = [line(model, named.of_all) for model in models]
    return own, [[line(model, named.of(chunk)) for chunk in part] for model, part in zip(models, cuts, strict=True)]


class _Portions:
    """The prompt family and the endpoint of chunks. `mixed`: several in one chunk. A label names the family of all."""

    def __init__(self, intake: Spool, owner: Owner, known: families.Families) -> None:
        self._intake = intake
        self._owner = owner
        self._families = known
        self._beginnings = list(intake.beginnings)
        self._names: dict[int, str] = {}
        self._counts: Counter[int] | None = None

    @property
    def of_all(self) -> tuple[str, str]:
        """Family and endpoint of the batch as a whole."""
        return self._named(set(self._intake.beginning_of), set(self._intake.endpoint_of))

    def of(self, chunk: NewChunk) -> tuple[str, str]:
        """Family and endpoint of a chunk."""
        begin, route = self._intake.beginning_of, self._intake.endpoint_of
        if chunk.seqs is None:
            items = slice(chunk.lo, chunk.hi + 1)
            return self._named(set(begin[items]), set(route[items]))
        return self._named({begin[seq] for seq in chunk.seqs}, {route[seq] for seq in chunk.seqs})

    def _named(self, beginnings: set[int], endpoints: set[int]) -> tuple[str, str]:
        endpoint = self._intake.endpoints[next(iter(endpoints))] if len(endpoints) == 1 else MIXED
        return self._family(beginnings), endpoint or self._owner.endpoint

    def _family(self, beginnings: set[int]) -> str:
        if self._owner.labels.family != NONE:
            return self._owner.labels.family
        found = beginnings - {self._intake.beginnings.get(_NO_BEGINNING)}
        if len(found) > 1 or -1 in found:
            return MIXED
        return self._name(next(iter(found))) if found else NONE

    def _name(self, index: int) -> str:
        if index not in self._names:
            if self._counts is None:
                self._counts = Counter(self._intake.beginning_of)
            whose = self._owner.tenant.tenant_id, self._owner.labels.workflow
            self._names[index] = self._families.name(*whose, self._beginnings[index], self._counts[index])
        return self._names[index]
