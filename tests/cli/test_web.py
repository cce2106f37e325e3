"""`liveshape web`: what it writes, what it refuses, and how its server answers. No browser: tests/web/test_site.py."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from liveshape.llm.text.tokenizer import Tokenizer
from liveshape.serve.page import SCRIPTS, digest, source
from liveshape.shipped import shipped, shipped_model
from liveshape.tools.web_page.site_folder import MARK, write_site
from liveshape.tools.web_page.site_server import SiteServer, site_server
from liveshape.tools.web_page.static_html import _FORM, chat_html, form_html
from liveshape.tools.web_page.web_runtime import runtime_files
from tests.cli.calls import Capture, call
from tests.support.chat_model import TEMPLATE, write_folder_model, write_gguf_model

RUNTIME = ("index.js", "worker.js", "liveshape.zip", "pyodide/pyodide.mjs", "pyodide/pyodide.asm.wasm", "node.js")


@pytest.fixture
def runtime(tmp_path: Path) -> Path:
    """Files of the names that `make web` writes, which none of these tests runs."""
    folder = tmp_path / "runtime"
    for name in (*RUNTIME, "index.d.ts"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"// {name}\n")
    return folder


def names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def facts_of(page: bytes) -> Any:
    (text,) = re.findall(r"^.*const SITE = (.*);$", page.decode(), re.MULTILINE)
    return json.loads(text)


def parts(page: bytes) -> tuple[str, str]:
    """The style and the script."""
    found = [re.findall(rf"<{tag}\b[^>]*>(.*?)</{tag}>", page.decode(), re.DOTALL) for tag in ("style", "script")]
    return found[0][0], found[1][0]


def test_a_language_model_becomes_a_chat(runtime: Path, tmp_path: Path, capsys: Capture) -> None:
    code, out, _ = call(capsys, "web", "story", "-o", tmp_path / "site", "--runtime", runtime, "--max-context", 64)
    assert code == 0
    assert "site: " in out
    site, story = tmp_path / "site", shipped_model()
    texts = {"tokenizer.json", "tokenizer_config.json", "generation_config.json"}
    loaded = {f"liveshape/{name}" for name in RUNTIME if name != "node.js"}
    assert names(site) == {"index.html", MARK, *(f"model/{name}" for name in ("model.pte", *texts)), *loaded}
    for name in ("model.pte", *texts):
        assert (site / "model" / name).read_bytes() == (story / name).read_bytes()
    facts, options = facts_of((site / "index.html").read_bytes()), {"maxContext": 64}
    assert (facts["name"], facts["chat"], facts["options"]) == ("story", False, options)
    assert set(facts["files"]) == {"model.pte", *texts}
    assert facts["bytes"] == sum((story / name).stat().st_size for name in facts["files"])


def test_a_checkpoint_is_converted_and_its_template_makes_it_a_chat(
    runtime: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIVESHAPE_CACHE", str(tmp_path / "cache"))
    write_gguf_model(tmp_path / "tiny.gguf")
    code, _, err = call(capsys, "web", tmp_path / "tiny.gguf", "-o", tmp_path / "site", "--runtime", runtime)
    assert code == 0
    assert "converting" in err
    facts = facts_of((tmp_path / "site" / "index.html").read_bytes())
    assert (facts["name"], facts["chat"]) == ("tiny", True)
    assert {f"model/{name}" for name in facts["files"]} < names(tmp_path / "site")


def test_a_template_of_its_own_file_goes_along(
    runtime: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """chat_template.json, as processors of transformers write it: into the conversion, and into the site."""
    monkeypatch.setenv("LIVESHAPE_CACHE", str(tmp_path / "cache"))
    write_folder_model(tmp_path / "tiny")
    (tmp_path / "tiny" / "tokenizer_config.json").rename(tmp_path / "tiny" / "chat_template.json")
    assert call(capsys, "web", tmp_path / "tiny", "-o", tmp_path / "site", "--runtime", runtime)[0] == 0
    facts = facts_of((tmp_path / "site" / "index.html").read_bytes())
    assert (facts["chat"], "chat_template.json" in facts["files"]) == (True, True)
    assert Tokenizer.load(tmp_path / "site" / "model").chat_template == TEMPLATE


def test_another_program_becomes_a_form_with_its_live_sizes(runtime: Path, tmp_path: Path, capsys: Capture) -> None:
    assert call(capsys, "web", "demo", "-o", tmp_path / "site", "--runtime", runtime)[0] == 0
    assert "model/model.pte" in names(tmp_path / "site")
    facts = facts_of((tmp_path / "site" / "index.html").read_bytes())
    ((given,), (_,)) = facts["inputs"], facts["outputs"]
    assert given["bounds"] == [1, 128, 64]
    # The file does not say so; the plan does.
    assert [dim["status"] for dim in given["dims"]] == ["static", "dynamic", "static"]
    assert facts["method"] == "forward"


def test_a_folder_of_somebody_else_is_not_written_into(runtime: Path, tmp_path: Path, capsys: Capture) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "letter.txt").write_text("mine")
    (site / "model").mkdir()
    (site / "model" / "other.txt").write_text("mine, too")
    web = ("web", "demo", "-o", site, "--runtime", runtime)
    code, _, err = call(capsys, *web)
    assert code == 2
    assert "was not made by `liveshape web`" in err
    assert names(site) == {"letter.txt", "model/other.txt"}
    assert call(capsys, *web, "--force")[0] == 0
    assert (site / "letter.txt").read_text() == "mine"
    assert "model/other.txt" not in names(site), "the folders of a site are whole"
    before = (site / "index.html").read_bytes()
    (site / "index.html").write_text("old")
    assert call(capsys, *web)[0] == 0, "it is known as ours"
    assert (site / "index.html").read_bytes() == before
    assert not [name for name in names(site) if ".part" in name]
    (tmp_path / "file").write_text("")
    assert "is a file" in call(capsys, "web", "demo", "-o", tmp_path / "file", "--runtime", runtime)[2]


def test_what_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    def full(done: int, total: int) -> None:
        if done == total:
            raise OSError(28, "No space left on device")

    files = {"index.html": b"new", "model/model.pte": b"new"}
    with pytest.raises(OSError, match="space"):
        write_site(files, tmp_path / "fresh", full)
    assert not (tmp_path / "fresh").exists()
    write_site({"index.html": b"old", "model/model.pte": b"old"}, tmp_path / "site")
    with pytest.raises(OSError, match="space"):
        write_site(files, tmp_path / "site", full)
    assert {(tmp_path / "site" / name).read_bytes() for name in files} == {b"old"}
    assert write_site(files, tmp_path / "site") == 6
    assert {(tmp_path / "site" / name).read_bytes() for name in files} == {b"new"}
    assert names(tmp_path / "site") == {*files, MARK}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("demo", "-o FOLDER writes it, --serve"),
        ("demo -o site --port 80", "--port 80 is of a server"),
        ("nothing.pte -o site", "nothing.pte"),
        ("demo -o site --method other", "forward"),
        ("demo -o site --max-context 64", "--max-context"),
        ("demo -o site --quant 4w", "--quant"),
        ("story -o site --method forward", "--method"),
        ("demo -o site --serve --host 203.0.113.7", "cannot listen"),
    ],
)
def test_refusals(
    arguments: str, told: str, runtime: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = call(capsys, "web", *arguments.split(), "--runtime", runtime)
    assert (code, told in err) == (2, True), err


def test_links_out_of_a_model_are_not_published(runtime: Path, tmp_path: Path, capsys: Capture) -> None:
    """A template that is a link to a private file is text that a template may be."""
    (tmp_path / "secret.txt").write_text("a private key")
    hub = tmp_path / "hub"
    model, linked = hub / "snapshots" / "1", tmp_path / "model"
    shutil.copytree(shipped_model(), model)
    (hub / "blobs").mkdir()
    (model / "tokenizer.json").rename(hub / "blobs" / "5e")
    (model / "tokenizer.json").symlink_to("../../blobs/5e")
    assert call(capsys, "web", model, "-o", tmp_path / "site", "--runtime", runtime)[0] == 0
    shutil.copytree(shipped_model(), linked)
    (linked / "chat_template.jinja").symlink_to("../secret.txt")
    code, _, err = call(capsys, "web", linked, "-o", tmp_path / "other", "--runtime", runtime)
    assert code == 2
    assert "chat_template.jinja is a link to" in err
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    "name", ["</script><script>alert(1)", '"><img src=x onerror=alert(1)>', "{{style}}", "..x", "a\u2028b", "n" * 250]
)
def test_no_name_of_a_model_becomes_html(name: str, runtime: Path, tmp_path: Path, capsys: Capture) -> None:
    folder = tmp_path / name.replace("/", "\N{DIVISION SLASH}")
    shutil.copytree(shipped_model(), folder)
    assert call(capsys, "web", "-o", tmp_path / "site", "--runtime", runtime, "--", folder)[0] == 0
    page = (tmp_path / "site" / "index.html").read_bytes()
    assert facts_of(page)["name"] == folder.name
    assert not any(part in page for part in (b"<script>alert", b"<img src=x"))


def test_without_a_runtime_it_says_what_to_do(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("liveshape.tools.web_page.web_runtime._PLACES", (tmp_path,))
    code, _, err = call(capsys, "web", "demo", "-o", tmp_path / "site")
    assert code == 2
    assert "this installation has no runtime for pages" in err
    assert "`make web && pip install .`" in err
    assert not (tmp_path / "site").exists()


def test_a_runtime_inside_of_the_package_comes_first(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("liveshape.tools.web_page.web_runtime._PLACES", (runtime / "none", runtime))
    assert set(runtime_files()) == {*RUNTIME} - {"node.js"}


@pytest.mark.parametrize("page", [chat_html({"name": "</script>{{style}}"}), form_html({"name": "</script>"})])
def test_the_pages_are_whole_and_allow_themselves_alone(page: bytes) -> None:
    text = page.decode()
    (policy,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="(.*?)">', text)
    style, script = parts(page)
    rules = dict(each.split(" ", 1) for each in policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == f"{digest(script)} 'self'"
    assert rules["style-src"] == digest(style)
    assert "unsafe" not in policy
    assert text.index("http-equiv") < text.index("<style")
    assert facts_of(page)["name"].startswith("</script>")
    assert not re.findall(r"\b(?:innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval)\b *[=(]", script)
    assert set(re.findall(r"""\b(?:src|href)=["']?([^"'> ]{4})""", text)) <= {"data", "#ico", "#mes", "#run"}


def test_the_chat_is_the_page_of_the_server_with_another_api() -> None:
    script = parts(chat_html({"name": "story"}))[1]
    assert [name for name in SCRIPTS if source(name) not in script] == ["api.js"]
    form = parts(form_html({"name": "block"}))[1]
    assert all(source(name) in form for name in _FORM if name in SCRIPTS)


# The server


FILES: dict[str, Path | bytes] = {"index.html": b"<!doctype html>", "a/b.wasm": bytes(100), "c.mjs": b"export {}"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SiteServer]:
    (tmp_path / "outside.txt").write_text("outside")
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "model.pte").write_bytes(bytes(range(256)) * 8)
    with serving({**FILES, "model.pte": tmp_path / "site" / "model.pte"}) as opened:
        yield opened


@contextmanager
def serving(files: Mapping[str, Path | bytes]) -> Iterator[SiteServer]:
    with site_server(files) as opened:
        threading.Thread(target=opened.serve_forever, args=(0.02,), daemon=True).start()
        yield opened
        opened.shutdown()


def ask(server: SiteServer, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    connection.putrequest(method, path, skip_host="Host" in headers)
    for name, value in headers.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, {name.lower(): value for name, value in answer.getheaders()}, content


def test_files_come_with_their_types(server: SiteServer) -> None:
    wanted = {"/": "text/html; charset=utf-8", "/index.html?x": "text/html; charset=utf-8"}
    wanted |= {"/a/b.wasm": "application/wasm", "/c.mjs": "text/javascript; charset=utf-8"}
    wanted |= {"/model.pte": "application/octet-stream"}
    for path, kind in wanted.items():
        status, headers, content = ask(server, path)
        assert (status, headers["content-type"]) == (200, kind)
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["accept-ranges"] == "bytes"
        assert int(headers["content-length"]) == len(content) > 0
        status, head, none = ask(server, path, "HEAD")
        assert (status, head["content-length"], none) == (200, headers["content-length"], b"")
    assert "'wasm-unsafe-eval'" in ask(server, "/c.mjs")[1]["content-security-policy"]


@pytest.mark.parametrize(
    ("asked", "begin", "end"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=5-9", 5, 10),
        ("bytes=2040-", 2040, 2048),
        ("bytes=-8", 2040, 2048),
        ("bytes=2000-99999", 2000, 2048),
        ("bytes=-99999", 0, 2048),
    ],
)
def test_ranges(server: SiteServer, asked: str, begin: int, end: int) -> None:
    whole = bytes(range(256)) * 8
    status, headers, content = ask(server, "/model.pte", Range=asked)
    assert (status, content) == (206, whole[begin:end])
    assert headers["content-range"] == f"bytes {begin}-{end - 1}/2048"


@pytest.mark.parametrize("asked", ["bytes=2048-", "bytes=9-5", "bytes=-0"])
def test_a_range_of_nothing(server: SiteServer, asked: str) -> None:
    status, headers, _ = ask(server, "/model.pte", Range=asked)
    assert (status, headers["content-range"]) == (416, "bytes */2048")


@pytest.mark.parametrize("asked", ["bytes=-", "bytes=0-1,5-6", "lines=1-2", "bytes=a-b", f"bytes={'9' * 5000}-"])
def test_what_is_no_range_gets_the_whole(server: SiteServer, asked: str) -> None:
    status, _, content = ask(server, "/model.pte", Range=asked)
    assert (status, len(content)) == (200, 2048)


def test_a_file_that_changes_has_another_tag(server: SiteServer) -> None:
    path = server.files["model.pte"]
    assert isinstance(path, Path)
    tag = ask(server, "/model.pte")[1]["etag"]
    assert ask(server, "/model.pte", If_None_Match=tag)[0] == 304
    assert ask(server, "/model.pte", If_Range=tag, Range="bytes=0-3")[0] == 206
    time.sleep(0.02)
    path.write_bytes(b"other")
    other = ask(server, "/model.pte", If_None_Match=tag)
    assert (other[0], other[2]) == (200, b"other")
    assert other[1]["etag"] != tag
    assert ask(server, "/model.pte", If_Range=tag, Range="bytes=0-3")[0] == 200, "a range of the old file"


@pytest.mark.parametrize(
    "path",
    [
        *("/../outside.txt", "/a/../../outside.txt", "/%2e%2e/outside.txt", "/..%2foutside.txt", "/a\\..\\outside.txt"),
        *("//etc/passwd", "/etc/passwd", "/a", "/a/", "/model.pte/", "/a%00b", "/c.mjs%00"),
    ],
)
def test_nothing_else_is_served(server: SiteServer, path: str) -> None:
    status, _, content = ask(server, path)
    assert status == 404
    assert b"outside" not in content


def test_other_names_and_methods_are_refused(server: SiteServer) -> None:
    assert ask(server, "/", Host="evil.example")[0] == 403
    assert ask(server, "/", Host="[")[0] == 403
    assert ask(server, "/", Host="localhost:1234")[0] == 200
    assert [ask(server, "/", method)[0] for method in ("POST", "PUT", "DELETE")] == [501] * 3


def test_a_connection_answers_several_requests(server: SiteServer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    for _ in range(3):
        connection.request("GET", "/model.pte", headers={"Range": "bytes=0-9"})
        assert connection.getresponse().read() == bytes(range(10))
    connection.close()


@pytest.mark.parametrize("kept", [False, True])
def test_it_serves_until_a_signal(runtime: Path, tmp_path: Path, kept: bool) -> None:
    words = ["web", str(shipped("demo")), "--serve", "--port", "0", "--runtime", str(runtime)]
    command = [sys.executable, "-m", "liveshape", *words, *(["-o", str(tmp_path / "site")] if kept else [])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        line = next(line for line in running.stdout if line.startswith("open "))
        port = int(line.split()[1].rstrip("/").rsplit(":", 1)[1])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request("GET", "/model/model.pte", headers={"Range": "bytes=4-5"})
        assert connection.getresponse().read() == b"ET"
        running.send_signal(signal.SIGTERM if kept else signal.SIGINT)
        assert running.wait(20) == 0
    assert (tmp_path / "site").exists() == kept


def test_it_serves_nothing_else_of_a_folder(
    runtime: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    (site / "notes").mkdir(parents=True)
    (tmp_path / "outside.txt").write_text("outside")
    for name in (".env", "notes/letter.txt"):
        (site / name).write_text("mine")
    (site / "link.txt").symlink_to(tmp_path / "outside.txt")
    tables: list[Mapping[str, Path | bytes]] = []
    monkeypatch.setattr("liveshape.tools.commands.web._serve", lambda files, host, port: tables.append(files))
    web = ("web", "demo", "-o", site, "--force", "--serve", "--runtime", runtime)
    assert call(capsys, *web)[0] == 0
    with serving(tables[0]) as opened:
        for path in ("/.env", "/notes/letter.txt", "/link.txt", f"/{MARK}"):
            assert ask(opened, path)[0] == 404, path
        for name in ("index.html", "model/model.pte", "liveshape/index.js"):
            assert ask(opened, f"/{name}")[2] == (site / name).read_bytes()
