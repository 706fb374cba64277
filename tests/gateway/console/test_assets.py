"""How the console's files are served."""

from __future__ import annotations

import re

import pytest
from antiphon.gateway import routes_console
from antiphon.gateway.errors import install_error_handlers
from antiphon.gateway.routes_console import FOLDER, TYPES, load_assets
from fastapi import FastAPI
from starlette.testclient import TestClient


@pytest.fixture
def client() -> TestClient:
    app = FastAPI()
    install_error_handlers(app)
    app.include_router(routes_console.router)
    return TestClient(app)


def test_the_page_is_html_and_loads_nothing_from_elsewhere(client: TestClient) -> None:
    page = client.get("/")
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"https?://", page.text)


def test_only_pictures_and_sound_may_come_as_blobs(client: TestClient) -> None:
    parts = [part.split() for part in client.get("/").headers["content-security-policy"].split(";")]
    assert {part[0] for part in parts if "blob:" in part} == {"img-src", "media-src"}
    assert next(part for part in parts if part[0] == "connect-src") == ["connect-src", "'self'"]


def test_every_file_that_the_page_names_exists(client: TestClient) -> None:
    for path in re.findall(r'(?:href|src)="(/console/[^"]+)"', client.get("/").text):
        assert client.get(path).status_code == 200, path


def test_every_module_that_a_module_imports_exists(client: TestClient) -> None:
    for path in FOLDER.rglob("*.js"):
        for name in re.findall(r'(?:from|import\() ?"(\.[^"]+)"', path.read_text(encoding="utf-8")):
            assert (path.parent / name).is_file(), f"{path.name} imports {name}"


@pytest.mark.parametrize(
    ("path", "kind"),
    [("js/main.js", "text/javascript; charset=utf-8"), ("css/base.css", "text/css; charset=utf-8"), ("mark.svg", "image/svg+xml")],
)
def test_types_do_not_depend_on_the_machine(client: TestClient, path: str, kind: str) -> None:
    assert client.get(f"/console/{path}").headers["content-type"] == kind


def test_a_browser_that_has_the_file_is_told_so(client: TestClient) -> None:
    first = client.get("/console/js/main.js")
    assert first.headers["cache-control"] == "no-cache"
    second = client.get("/console/js/main.js", headers={"if-none-match": f'"other", W/{first.headers["etag"]}'})
    assert second.status_code == 304
    assert second.content == b""


@pytest.mark.parametrize("path", ["nothing.js", "../routes_console.py", "%2e%2e/routes_console.py", "js", "js/", ""])
def test_nothing_but_the_files_is_served(client: TestClient, path: str) -> None:
    answer = client.get(f"/console/{path}")
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "not_found"


def test_every_file_of_the_folder_is_of_a_known_type() -> None:
    files = [path for path in FOLDER.rglob("*") if path.is_file()]
    assert len(load_assets(FOLDER)) == len(files)
    assert {path.suffix for path in files} <= set(TYPES)


def test_nothing_parses_text_as_html() -> None:
    for path in FOLDER.rglob("*.js"):
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", path.read_text(encoding="utf-8")), (
            path.name
        )
