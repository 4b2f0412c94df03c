"""Runs requests twice on a real engine, once with yields and once without, and compares the answers."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import orjson
import pytest

from app.engines.continuation import Continuation
from testing.waiting import LIMIT_SECONDS
from tests.gpu.world import MODEL, Running, World
from workers.gpu.requests_in_engine import ItemProgress, SentRequest, Task

NEAR = 1e-3  # two best tokens so close in log probability may change places with the company a step has
WORDS = [
    "tide",
    "harbour",
    "slack",
    "water",
    "lighthouse",
    "anchor",
    "current",
    "moon",
    "gravel",
    "salt",
    "wind",
    "chart",
    "rope",
    "ferry",
]
EMOJI = "🌊🐟🦀🐙⛵🌙🧭🐚"
CHINESE = "潮水涨落之间有片刻平静。海面如镜，船只停泊，灯塔照亮港口。"

Item = dict[str, Any]


def items(count: int) -> list[Item]:
    """Mixed requests: chats and raw completions, short and long prompts, ended by length or by the model, and text of which
    a character takes several tokens.
    """
    kinds: Sequence[Callable[[int], Item]] = (
        lambda n: {"prompt": f"Tell me about the {WORDS[n % len(WORDS)]}, please.", "max_tokens": 14 + n % 9},
        lambda n: {"prompt": EMOJI[n % 8 :] + EMOJI * 2, "raw": True, "max_tokens": 20, "ignore_eos": True},
        lambda n: {"prompt": _words(n, 60 + 6 * n), "max_tokens": 14 + n % 9, "ignore_eos": True},
        lambda n: {"prompt": CHINESE[n % 20 :] + CHINESE, "raw": True, "max_tokens": 20, "ignore_eos": True},
        lambda n: {"messages": [{"role": "user", "content": _words(n, 12)}], "max_completion_tokens": 14 + n % 9},
    )
    return [kinds[n % len(kinds)](n) for n in range(count)]


def _words(n: int, count: int) -> str:
    return f"{n}: " + " ".join(WORDS[(n + k * (n % 5 + 1)) % len(WORDS)] for k in range(count))


@dataclass
class Said:
    """What came of one run of one item."""

    choice: dict[str, Any]
    prompt_tokens: int
    completion_tokens: int
    yields: int
    transcript: Continuation
    cuts: list[list[int]] = field(default_factory=list)  # the output so far at each yield


@dataclass(frozen=True)
class Comparison:
    """Both runs, and the differences by the gap between the two best tokens where they part."""

    cut: list[Said]
    whole: list[Said]
    gaps: dict[int, float]
    through_characters: int

    @property
    def yielded(self) -> list[int]:
        """Items that yielded at least once."""
        return [seq for seq, said in enumerate(self.cut) if said.yields]

    @property
    def different(self) -> list[int]:
        """Items whose difference no near-tie explains."""
        return [seq for seq, gap in self.gaps.items() if gap > NEAR]

    def summary(self) -> str:
        """Everything that is worth saying."""
        yielded, cut = self.yielded, self.cut
        same = sum(seq not in self.gaps for seq in yielded)
        near = sum(gap <= NEAR for gap in self.gaps.values())
        hit = [seq for seq in yielded if cut[seq].transcript.resumed_cached]
        cached = sum(cut[seq].transcript.resumed_cached for seq in yielded)
        context = sum(len(cut[seq].transcript.prompt_ids) + len(cut[seq].cuts[-1]) for seq in yielded)
        return (
            f"{len(yielded)} requests cut {sum(said.yields for said in cut)} times: {same} say the same, "
            f"{near} differ at a near-tie, {len(self.different)} otherwise; {self.through_characters} cuts went through a "
            f"character; {len(hit)} found their prefix in the cache on resume, {cached} of {context} tokens"
        )


async def compared(world: World, count: int, monkeypatch: pytest.MonkeyPatch) -> Comparison:
    """Run `count` items with yields, then in one piece: so no cache of the one helps the other's resumes."""
    asked = items(count)
    cut = await _run(world, asked, monkeypatch, _cut_at)
    whole = await _run(world, asked, monkeypatch, lambda seq: [])
    key = world.settings.engine_api_key.get_secret_value()
    shown = {"authorization": f"Bearer {key}"} if key else {}
    async with httpx.AsyncClient(base_url=world.settings.engine_url, headers=shown, timeout=LIMIT_SECONDS) as engine:
        gaps = {}
        for seq, (one, other) in enumerate(zip(cut, whole, strict=True)):
            if one.transcript.output_ids != other.transcript.output_ids:
                gaps[seq] = await _gap(engine, one.transcript, other.transcript)
        halves = [await _text(engine, ids) for said in cut for ids in said.cuts]
    through = sum(text.endswith("\N{REPLACEMENT CHARACTER}") for text in halves)
    return Comparison(cut, whole, gaps, through)


def _cut_at(seq: int) -> list[int]:
    """Early, late, or both; a chat, which may end after a few tokens, always early."""
    chat = seq % 5 in (0, 4)
    return [9] if seq % 3 == 1 and not chat else [1, 9] if seq % 6 == 0 else [1]


async def _run(
    world: World, asked: Sequence[Item], monkeypatch: pytest.MonkeyPatch, cuts: Callable[[int], list[int]]
) -> list[Said]:
    """One batch of all items; each yields when as many of its tokens are heard as `cuts` lists."""
    batch = await world.submit(asked, chunk=16)
    kept: dict[int, ItemProgress] = {}
    made: dict[int, list[list[int]]] = {seq: [] for seq in range(len(asked))}
    async with world.worker() as running:
        with monkeypatch.context() as patch:
            _keep_progress(patch, running, kept)
            cutter = asyncio.create_task(_cut(patch, running, kept, cuts, made))
            await world.finished(batch)
            cutter.cancel()
    columns = "seq, ok, body, prompt_tokens, completion_tokens, yields"
    rows = await world.fetch(f"select {columns} from item_result where batch_id = %s order by seq", batch)
    said = []
    for seq, ok, body, prompt, completion, yields in rows:
        answer = orjson.loads(bytes(body))
        assert ok, (seq, answer)
        transcript = kept[seq].transcript
        assert transcript is not None, f"item {seq} was not taken as a stream"
        assert answer["usage"]["prompt_tokens"] == prompt
        assert answer["usage"]["completion_tokens"] == completion
        said.append(Said(answer["choices"][0], prompt, completion, yields, transcript, made[seq]))
    return said


def _keep_progress(patch: pytest.MonkeyPatch, running: Running, kept: dict[int, ItemProgress]) -> None:
    """What the worker keeps of each item stays readable after the item is settled."""
    runner = running.worker._runner
    run = runner.run

    async def keeping(task: Task, progress: ItemProgress, tenant_id: int, *more: Any) -> Any:
        kept[progress.item.seq] = progress
        return await run(task, progress, tenant_id, *more)

    patch.setattr(runner, "run", keeping)


async def _cut(
    patch: pytest.MonkeyPatch,
    running: Running,
    kept: dict[int, ItemProgress],
    cuts: Callable[[int], list[int]],
    made: dict[int, list[list[int]]],
) -> None:
    """The worker's own yield, at the tokens we choose: who yields is ours to say, everything else is as it ships."""
    puller, ledger = running.worker._puller, running.worker._runner.ledger

    def number(call: SentRequest) -> int:
        return next(seq for seq, progress in kept.items() if progress.transcript is call.transcript)

    def due(call: SentRequest) -> bool:
        at = cuts(number(call))[call.yields : call.yields + 1]
        assert call.transcript is not None
        return bool(at) and len(call.transcript.output_ids) >= max(at[0], call.transcript.started)

    while True:
        await asyncio.sleep(0.01)
        chosen = {task: call for task, call in ledger.calls.items() if due(call)}
        if not chosen:
            continue
        for call in chosen.values():
            assert call.transcript is not None
            made[number(call)].append(list(call.transcript.output_ids))
        patch.setattr(ledger, "victims", lambda surplus, leaving, chosen=tuple(chosen), **_: list(chosen)[:surplus])
        puller.yield_requests(len(chosen))
        await asyncio.sleep(0)  # the aborted leave


async def _gap(engine: httpx.AsyncClient, one: Continuation, other: Continuation) -> float:
    """How far apart the two best tokens are, in log probability, where the runs part."""
    pairs = zip(one.output_ids, other.output_ids, strict=False)
    same = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one.output_ids), len(other.output_ids)))
    prompt = [*one.prompt_ids, *one.output_ids[:same]]
    body = {"model": MODEL, "prompt": prompt, "max_tokens": 1, "temperature": 0, "logprobs": 2}
    choice = (await engine.post("/v1/completions", json=body)).raise_for_status().json()["choices"][0]
    best = sorted(choice["logprobs"]["top_logprobs"][0].values(), reverse=True)
    return float(best[0] - best[1])


async def _text(engine: httpx.AsyncClient, ids: Sequence[int]) -> str:
    answer = await engine.post("/detokenize", json={"model": MODEL, "tokens": list(ids)})
    return str(answer.raise_for_status().json()["prompt"])
