"""`liveshape serve` as a process: it listens, loads, answers, and ends by a signal when its answers have."""

from __future__ import annotations

import _imp
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from liveshape.cli import main
from liveshape.errors import InputError
from liveshape.serve.running import _interrupt
from tests.llm.texts import CHAT_TEMPLATE

PATIENCE = 1800
KEY = {"Authorization": "Bearer s3cret"}


@contextmanager
def process(*words: str) -> Iterator[tuple[subprocess.Popen[str], Iterator[dict[str, Any]], int]]:
    """The process, the lines of its log, and its port."""
    command = [sys.executable, "-m", "liveshape", "serve", *words, "--port", "0"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as running:
        assert running.stderr is not None
        lines = (json.loads(line) for line in running.stderr if line.startswith("{"))
        try:
            listening = next(lines)
            assert listening["event"] == "listening"
            yield running, lines, int(listening["url"].rsplit(":", 1)[1])
        finally:
            running.kill()


def ask(port: int, path: str, body: Any = None, headers: dict[str, str] | None = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    connection.request("GET" if body is None else "POST", path, body and json.dumps(body), headers or {})
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


def test_it_answers_while_it_loads_and_lets_an_answer_end_at_a_signal(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("s3cret\n")
    (tmp_path / "chat.jinja").write_text(CHAT_TEMPLATE)
    words = ["--api-key-file", str(tmp_path / "key"), "--chat-template", str(tmp_path / "chat.jinja")]
    with process(
        "story",
        *words,
        "--name",
        "teller",
        "--max-context",
        "300",
        "--grace",
        "100",
        "--cache-size",
        "3MiB",
        "--max-sequences",
        "8",
    ) as (running, lines, port):
        assert ask(port, "/health")[1]["status"] in ("loading", "ok")
        assert ask(port, "/v1/models")[0] == 401
        engine = next(line for line in lines if line["event"] == "engine")
        assert (engine["sequences"], engine["context"]) == (8, 300)
        assert engine["one_at_a_time"] is None
        assert engine["pages"] * 16 * 8 * 2 * 4 * 32 * 4 <= engine["cache_bytes"] <= 4 << 20
        assert next(line for line in lines if line["event"] != "request")["event"] == "ready"
        status, models = ask(port, "/v1/models", None, KEY)
        assert [(model["id"], model["max_context"]) for model in models["data"]] == [("teller", 300)]
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        body = {"messages": [{"role": "user", "content": "Once"}], "stream": True, "max_tokens": 60, "temperature": 0}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), KEY)
        answer = connection.getresponse()
        begun = answer.read(10)
        running.send_signal(signal.SIGTERM)
        assert (begun + answer.read()).rstrip().endswith(b"data: [DONE]")
        assert running.wait(PATIENCE) == 0
        *_, request, ended = lines
        assert (request["path"], request["status"]) == ("/v1/chat/completions", 200)
        assert ended["event"] == "ended"
    assert status == 200


def test_a_signal_ends_it_while_it_loads() -> None:
    with process("story") as (running, _, _):
        running.send_signal(signal.SIGINT)
        assert running.wait(PATIENCE) in (0, 130)


def test_a_model_that_is_not_there_ends_it_as_it_ends_every_command(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", str(tmp_path / "none.gguf"), "--port", "0"]) == 2
    assert "liveshape: " in capfd.readouterr().err


@pytest.mark.parametrize("words", [[], ["--deterministic"]])
def test_the_order_of_sums_reaches_the_engine(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def opened(opening: Any) -> Any:
        raise InputError(f"deterministic: {opening.keywords['deterministic']}")

    monkeypatch.setattr("liveshape.tools.commands.serve.RemoteEngine", opened)
    assert main(["serve", "story", "--port", "0", *words]) == 2
    assert f"deterministic: {bool(words)}" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--api-key", ""], "a key is"),
        (["--api-key", "a", "--api-key-file", "b"], "give one of them"),
        (["--port", "99999"], "is not a port"),
        (["--host", "no.such.host.example.invalid"], "cannot listen"),
        (["--lookahead-tokens", "0"], "above 0"),
        (["--max-sequences", "0"], "above 0"),
        (["--cache-size", "4 gigabytes"], "KiB, MiB, GiB or TiB"),
        (["--cache-size", "0"], "is not a size"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_wrong_usage_is_told(words: list[str], reason: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "story", "--port", "0", *words]) == 2
    assert reason in " ".join(capfd.readouterr().err.split())


def _interrupted_in_an_import() -> None:
    _imp.acquire_lock()
    signal.raise_signal(signal.SIGINT)
    _imp.release_lock()
    while True:
        time.sleep(0.001)


def test_no_interrupt_leaves_the_lock_of_imports_held() -> None:
    """The server's thread imports as well, and would wait for it for ever."""
    before = signal.signal(signal.SIGINT, _interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            _interrupted_in_an_import()
        assert not _imp.lock_held()
    finally:
        signal.signal(signal.SIGINT, before)
