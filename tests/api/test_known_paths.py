"""Claims about the hint to a path that is no route."""

import re

import pytest
from fastapi import FastAPI
from starlette.routing import Route

from app.api import known_paths

BASE = " Correct the client's base_url"


@pytest.fixture
def routes(application: FastAPI) -> list[str]:
    return [route.path for route in application.routes if isinstance(route, Route)]


def test_every_route_of_openais_api_is_named_behind_any_wrong_base(routes: list[str]) -> None:
    paths = [re.sub(r"\{[^}]*\}", "1", route) for route in routes if route.startswith("/v1/")]
    assert len(paths) > 30
    for path in paths:
        for wrong in (path.removeprefix("/v1"), f"/v1{path}", f"/api{path}", f"/v2{path.removeprefix('/v1')}"):
            assert known_paths.hint(routes, wrong) == f"did you mean {path}?{BASE}"


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/v1/chat/completion", "/v1/chat/completions"),
        ("/v1/chat/completions/", "/v1/chat/completions"),
        ("/v1/file/file-1/contents", "/v1/files/file-1/content"),
        ("/v1/webhook_endpoint", "/v1/webhook_endpoints"),
    ],
)
def test_a_slip_of_the_pen_is_corrected_and_the_base_is_left_alone(routes: list[str], path: str, meant: str) -> None:
    assert known_paths.hint(routes, path) == f"did you mean {meant}?"


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/v1",
        "/v1/nothing",
        "/v1/moderations",
        "/v1/threads/1/messages",
        "/v1/batches/1/cancelled",
        "/admin/v1/files",
    ],
)
def test_what_is_like_no_route_has_no_hint(routes: list[str], path: str) -> None:
    assert known_paths.hint(routes, path) == ""
