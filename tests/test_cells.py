"""Claims about the cell that an id names. Today every id names cell 0."""

from collections.abc import Callable
from datetime import timedelta
from uuid import UUID, uuid4

import httpx
import pytest

from app import cells, clock
from app.db.pool import Database
from app.files import ids
from tests.api.support import line, submit, uploaded


@pytest.mark.parametrize("cell", [0, 1, 0xABC, 4095])
@pytest.mark.parametrize(("new", "version"), [(cells.new_id, 8), (cells.new_timed_id, 7)])
def test_an_id_names_its_cell_where_a_proxy_can_read_it(new: Callable[[int], UUID], version: int, cell: int) -> None:
    made = new(cell)
    assert str(made).split("-")[2] == f"{version}{cell:03x}"
    assert (made.version, made.variant) == (version, uuid4().variant)
    assert new(cell) != made


def test_an_id_tells_its_time_if_it_has_one() -> None:
    begin = clock.now()
    made = cells.made_at(cells.new_timed_id())
    assert made is not None
    assert begin - timedelta(milliseconds=1) < made <= clock.now()
    assert [cells.made_at(each) for each in (cells.new_id(), uuid4(), UUID(f"{12 * 'f'}70008{15 * '0'}"))] == 3 * [None]


async def test_every_id_that_is_given_out_today_names_cell_0(client: httpx.AsyncClient, database: Database) -> None:
    request_id = await submit(client)
    file_id = await uploaded(client, line(1))
    body = {"input_file_id": file_id, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    batch_id = (await client.post("/v1/batches", json=body)).json()["id"]
    await client.get(f"/v1/batches/batch_{request_id.replace('-', '')}")  # now it has output files, too
    async with database.durable() as conn:
        numbers = await (await conn.execute("select batch_id, request_id from batch")).fetchall()
        files = await (await conn.execute("select output_file_id, error_file_id from file_batch")).fetchall()
    assert len(numbers) == len(files) == 2
    assert {number >> 50 & 0xFFF for number, _ in numbers} == {0}
    public = [UUID(request_id), UUID(batch_id.removeprefix("batch_")), ids.parse_id(file_id)]
    assert public[2] is not None
    assert str(public.pop()).split("-")[2] == "7000"
    for each in (*public, *(request for _, request in numbers), *sum(files, ())):
        assert each is not None
        assert str(each).split("-")[2] == "8000"


async def test_the_number_of_a_batch_leaves_the_bits_of_the_cell_free_until_2068(database: Database) -> None:
    async with database.durable() as conn:
        [(day,)] = await (await conn.execute("select next_batch_id() >> 36")).fetchall()
        [(last,)] = await (await conn.execute("select date '2068-11-08' - date '2024-01-01'")).fetchall()
    assert 0 < day < last < 1 << 14
