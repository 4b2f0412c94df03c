import httpx, sys
from app.access.roles import Role
async def test_wip(sign_in, site, database):
    from tests.console import operations_data
    async with database.transaction() as conn:
        await operations_data.fill(conn, samples=500)
    client = await sign_in(Role.OPERATOR, None)
    loud = httpx.AsyncClient(transport=httpx.ASGITransport(app=site), base_url="http://127.0.0.1:8701", cookies=client.cookies)
    for path in open("/tmp/c5_paths").read().split():
        answer = await loud.get(path)
        assert answer.status_code == 200, answer.text[-3000:]
