"""Which files a page takes, by what its server and its cache answer, and aborts; in Node, without a GPU."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.browser import node
from tests.web.test_node import WEB

pytestmark = pytest.mark.slow

# `open` as download.js has it: a source of the cache, or what the server has; a failure that passes is marked.
SCRIPT = """
import { modelFiles } from "./src/model_files.js";
const { answers, cached, offline, shard } = JSON.parse(process.argv[1]);
const asked = (url) => answers[url.split("/").pop()] ?? 404;
const headers = { get: () => (asked("page") < 400 ? "text/html; charset=utf-8" : "application/octet-stream") };
const heard = [];
globalThis.fetch = async (url, options) => {
  heard.push(options);
  return { status: asked(url), ok: asked(url) < 400, body: null, headers };
};
const text = asked("page") < 400 ? "<!DOCTYPE html><html></html>" : JSON.stringify({ weight_map: { a: shard } });
const open = async (url) => {
  const name = url.split("/").pop();
  if (offline ? !cached.includes(name) : asked(url) >= 400)
    throw Object.assign(new Error(name), { status: asked(url), passing: offline || asked(url) >= 500 });
  const bytes = new TextEncoder().encode(name === "tokenizer.json" || name === "config.json" ? "{}" : text);
  return { size: bytes.length, read: () => bytes, close() {}, offline };
};
const request = { credentials: "include", headers: { Authorization: "Bearer a" }, signal: null };
try {
  const found = await modelFiles("http://host/model/", "http://host/", open, request);
  for (const { credentials, headers } of heard) {
    if (credentials !== "include" || headers.Authorization !== "Bearer a") throw new Error("asked without its headers");
  }
  console.log(JSON.stringify(Object.keys(found).sort()));
} catch (error) {
  console.log(JSON.stringify(error.message));
}
"""
FOLDER = ["config.json", "tokenizer.json"]
SHARDED = [*FOLDER, "model.safetensors.index.json", "one.safetensors"]
INDEX = "model.safetensors.index.json"


def taken(answers: dict[str, int], cached: list[str] | None = None, shard: Any = "one.safetensors") -> list[str] | str:
    """The files by name, or what failed; with a cache the server is down."""
    given = {"answers": answers, "cached": cached or [], "offline": cached is not None, "shard": shard}
    found: list[str] | str = in_node(SCRIPT, given)
    return found


def in_node(script: str, given: Any = None) -> Any:
    """What a script that reads web/src prints."""
    command = [node(), "--input-type=module", "-e", script, json.dumps(given)]
    run = subprocess.run(command, cwd=WEB, capture_output=True, text=True, timeout=60, check=True)
    return json.loads(run.stdout)


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


@pytest.mark.parametrize(
    "shard",
    [
        "../../home/pyodide/_hashlib.py",
        "https://other/one.safetensors",
        "//other/one.safetensors",
        "..\\one.safetensors",
        "%2e%2e/one.safetensors",
        "one.safetensors?x",
        "one.pte",
        7,
    ],
)
def test_an_index_names_files_beside_it_alone(shard: str | int) -> None:
    """What is asked for has the headers of its page's author, and is mounted where Python may import from."""
    told = taken(here(*FOLDER, INDEX), shard=shard)
    assert told == f"{INDEX} names {json.dumps(shard)}: a .safetensors file of the same folder is needed"


def test_a_page_for_what_is_missing_is_no_file() -> None:
    """As servers of single-page applications have it."""
    everything = here(*FOLDER, INDEX, "model.pte", "chat_template.jinja", "page")
    assert taken(everything) == ["config.json", "model.safetensors", "tokenizer.json"]


FOLDERS = """
import { modelFiles, topFiles } from "./src/model_files.js";
const file = (value) => {
  return Object.defineProperty(new File([value], value.split("/").pop()), "webkitRelativePath", { value });
};
const names = ["old/model.safetensors", "config.json", "model.safetensors", "old/deep/config.json"];
const all = names.map((name) => file(`out/${name}`));
const found = await modelFiles(topFiles(all), "http://host/", null);
const twice = await modelFiles(all, "http://host/", null).catch((error) => error.message);
console.log(JSON.stringify([await Promise.all(Object.values(found).map((each) => each.text())), twice]));
"""


def test_a_checkpoint_inside_of_a_chosen_folder_is_not_its_model() -> None:
    found, twice = in_node(FOLDERS)
    assert found == ["out/config.json", "out/model.safetensors"]
    assert twice == "two files are called model.safetensors: give the files of one folder"


ABORTS = """
import { LanguageModel } from "./src/models.js";
import { WorkerRunner } from "./src/worker_runner.js";
const sent = [];
let worker;
globalThis.Worker = class {
  constructor() { worker = this; }
  postMessage(message) { sent.push([message.name ?? "abort", message.given ?? []]); }
};
const stopping = new AbortController();
const name = (error) => error.name;
const loading = new WorkerRunner("x", () => {}).tell("load", [{}], { signal: stopping.signal }).catch(name);
stopping.abort();
worker.onmessage({ data: { id: 1, result: { id: 7 } } }); // was on its way
const late = new AbortController();
const calls = [];
const call = async (called) => {
  calls.push(called);
  if (called === "begin") late.abort();
  return called === "next" ? new Promise(() => {}) : 1; // of a token that never comes
};
const stream = new LanguageModel({ call }, { id: 1 }).stream("a", { signal: late.signal });
const streamed = await stream.next().catch(name);
console.log(JSON.stringify([await loading, sent, streamed, calls]));
"""


def test_an_abort_at_any_time_frees_all_and_is_at_once() -> None:
    loading, sent, streamed, calls = in_node(ABORTS)
    assert (loading, streamed, calls) == ("AbortError", "AbortError", ["begin", "next", "end"])
    assert sent == [["load", [{}]], ["abort", []], ["discard", [{"id": 7}]]]


CUT = """
import fs from "node:fs";
import { NodeSource } from "./src/sources.js";
const [path] = JSON.parse(process.argv[1]);
const source = new NodeSource(fs, path);
const first = source.read(60, 10).length;
fs.truncateSync(path, 16);
let told = "";
try { source.read(0, 64); } catch (error) { told = error.message; }
console.log(JSON.stringify([first, told]));
"""


def test_a_file_that_is_cut_while_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "model.pte"
    path.write_bytes(bytes(64))
    first, told = in_node(CUT, [str(path)])
    assert (first, told) == (4, f"{path} has changed while it was read: load it again")
