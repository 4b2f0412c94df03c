"""Cuts the requests of children into chunks, under the budgets of this moment."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.batches import batch_usage
from app.budgets import service as budgets
from app.budgets.rules import ItemSizes
from app.budgets.service import Look
from app.db.pool import Connection, Database
from app.engines.catalogue import Catalogue, Model
from app.engines.service import ensure_pool
from app.errors import BadInput
from app.metering import lines
from app.pipelines.children import Made, Request, Slice
from app.pipelines.running import RunningStage
from app.pipelines.writing import Target
from app.queue.chunking import cut
from app.settings import Settings


@dataclass(frozen=True, slots=True)
class Preparer:
    """For one step."""

    settings: Settings
    models: Catalogue

    async def targets(self, database: Database, of: Slice) -> tuple[list[Target], Look]:
        """Where the requests of a slice go, and the budgets by which they were cut."""
        asked: dict[tuple[int, str], list[tuple[Made, Request]]] = {}
        for number, made in of.made.items():
            for each in made:
                if (request := each.request) is not None:
                    name = request.model or of.running.stages[number].model
                    asked.setdefault((number, name), []).append((each, request))
        models = [self._model(name) for _, name in asked]
        line_ids = [
            await self._line(database, of.running.stages[number], model)
            for (number, _), model in zip(asked, models, strict=True)
        ]
        async with database.relaxed() as conn:
            look = await budgets.look(conn, line_ids)
            targets = [
                await self._target(conn, number, model, line_id, requests, look)
                for ((number, _), requests), model, line_id in zip(asked.items(), models, line_ids, strict=True)
            ]
        return targets, look

    def _model(self, name: str) -> Model:
        model = self.models.resolve(name)
        if model is None:
            raise BadInput(f"{name} is not in the catalogue any more")
        return model

    async def _line(self, database: Database, stage: RunningStage, model: Model) -> int | None:
        """The line of requests of this stage with this model. Another than the stage's has its price of this moment."""
        if stage.line_id is None or model.name == stage.model:
            return stage.line_id
        async with database.relaxed() as conn:
            [own] = await lines.parts(conn, [stage.line_id])
        moved = lines.moved(own.parts, model.name, model.price)
        return (await batch_usage.line_ids(database, [moved]))[moved]

    async def _target(
        self,
        conn: Connection,
        number: int,
        model: Model,
        line_id: int | None,
        made: Sequence[tuple[Made, Request]],
        look: Look,
    ) -> Target:
        facts = [request.facts for _, request in made]
        under, amounts = look.of_line.get(line_id), None
        if under is not None:
            sizes = ItemSizes(
                [fact.est_tokens for fact in facts],
                [fact.answer_tokens for fact in facts],
                [fact.most_tokens for fact in facts],
                [len(request.body) for _, request in made],
            )
            amounts = under.queued_amounts(sizes, model.context_window)
        chunks = cut(
            [fact.est_tokens for fact in facts],
            max_tokens=self.settings.chunk_tokens,
            max_items=self.settings.chunk_items,
            keys=[hash((each.affinity, request.facts.prefix)) for each, request in made],
            seqs=[each.seq for each, _ in made],
            line_id=line_id,
            amounts=amounts,
        )
        return Target(number, model.name, line_id, await ensure_pool(conn, model.served), chunks)
