"""Which files of a folder a page takes, by what its server and its cache answer; in Node, without a GPU."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.web.test_node import NODE, WEB

pytestmark = pytest.mark.slow

# `open` as download.js has it: a source of the cache, or what the server has; a failure that passes is marked.
SCRIPT = """
import { modelFiles } from "./src/model_files.js";
const { answers, cached, offline } = JSON.parse(process.argv[1]);
const asked = (url) => answers[url.split("/").pop()] ?? 404;
globalThis.fetch = async (url) => ({ status: asked(url), ok: asked(url) < 400, body: null });
const bytes = new TextEncoder().encode(JSON.stringify({ weight_map: { a: "one.safetensors" } }));
const open = async (url) => {
  const name = url.split("/").pop();
  if (offline ? !cached.includes(name) : asked(url) >= 400)
    throw Object.assign(new Error(name), { status: asked(url), passing: offline || asked(url) >= 500 });
  return { size: bytes.length, read: () => bytes, close() {}, offline };
};
try {
  console.log(JSON.stringify(Object.keys(await modelFiles("http://host/model/", "http://host/", open)).sort()));
} catch (error) {
  console.log(JSON.stringify(error.message));
}
"""
FOLDER = ["config.json", "tokenizer.json"]
SHARDED = [*FOLDER, "model.safetensors.index.json", "one.safetensors"]
INDEX = "model.safetensors.index.json"


def taken(answers: dict[str, int], cached: list[str] | None = None) -> list[str] | str:
    """The files by name, or what failed; with a cache the server is down."""
    given = json.dumps({"answers": answers, "cached": cached or [], "offline": cached is not None})
    command = [str(NODE), "--input-type=module", "-e", SCRIPT, given]
    run = subprocess.run(command, cwd=WEB, capture_output=True, text=True, timeout=60, check=True)
    found: list[str] | str = json.loads(run.stdout)
    return found


def here(*names: str) -> dict[str, int]:
    return dict.fromkeys(names, 200)


def test_a_folder_of_a_server() -> None:
    assert taken(here("tokenizer.json", "model.pte")) == ["model.pte", "tokenizer.json"]
    assert taken(here(*FOLDER, "model.pte")) == ["config.json", "model.pte", "tokenizer.json"]
    assert taken(here(*FOLDER)) == ["config.json", "model.safetensors", "tokenizer.json"]
    assert taken(here(*FOLDER, INDEX)) == sorted(SHARDED)


def test_a_server_that_fails_at_the_program_is_an_error() -> None:
    assert taken({**here(*FOLDER, "model.safetensors"), "model.pte": 503}) == "model.pte"


@pytest.mark.parametrize("status", [503, 404])
def test_offline_the_cache_says_what_there_is(status: int) -> None:
    """Whatever a server that is down, or one that took its place, answers."""
    answers = dict.fromkeys([*SHARDED, "model.pte"], status)
    assert taken(answers, [*FOLDER, "model.pte"]) == ["config.json", "model.pte", "tokenizer.json"]
    assert taken(answers, FOLDER) == ["config.json", "model.safetensors", "tokenizer.json"]
    assert taken(answers, [*FOLDER, INDEX]) == sorted(SHARDED)
