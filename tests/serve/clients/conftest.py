"""A live `liveshape serve` of the shipped model with an encoder, for all clients; none of them may ask the net."""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

# Before any client is imported.
os.environ |= {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "OPENAI_API_KEY": "none",
    "OPENAI_BASE_URL": "http://127.0.0.1:9/v1",  # a client that forgets its own address reaches nobody
}

ROOT = Path(__file__).resolve().parents[3]
PYTHON = os.environ.get("LIVESHAPE_PYTHON", str(ROOT / ".venv" / "bin" / "python"))
# The story goes on from the last words: whatever a client sends fits its context of 512 tokens.
TEMPLATE = "{% if tools %}Tools. {% endif %}{{ (messages[-1]['content'] or 'Once')[-200:] }}"
ENCODER = """
import pathlib, sys
from tests.support.encoders import dynamic, write_encoder
write_encoder(pathlib.Path(sys.argv[1]), dynamic())
"""


@dataclass(frozen=True)
class Server:
    """Where it is; `model` and `encoder` are what clients call them."""

    url: str
    model: str = "story"
    encoder: str = "tiny"

    @property
    def base(self) -> str:
        """The base URL of OpenAI's clients."""
        return f"{self.url}/v1"


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("served")
    template, encoder = folder / "template.jinja", folder / "tiny"
    template.write_text(TEMPLATE)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([PYTHON, "-c", ENCODER, str(encoder)], check=True, env=environment, cwd=ROOT)
    options = ["--port", "0", "--chat-template", str(template), "--embeddings", str(encoder), "--any-model"]
    log = folder / "log.jsonl"
    with log.open("w") as out:
        process = subprocess.Popen([PYTHON, "-m", "liveshape", "serve", *options], stderr=out, env=environment)
        try:
            yield Server(_ready(process, log))
        finally:
            process.terminate()
            process.wait(60)


def _ready(process: subprocess.Popen[bytes], log: Path) -> str:
    """The address of a server, once it answers."""
    url = None
    while True:
        assert process.poll() is None, log.read_text()
        for line in log.read_text().splitlines() if url is None else ():
            told = json.loads(line) if line.startswith("{") else {}
            url = told.get("url", url)
        if url is not None:
            try:
                with urllib.request.urlopen(f"{url}/health", timeout=60):
                    return str(url)
            except OSError:
                pass
        time.sleep(0.2)
