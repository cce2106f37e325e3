"""Every block of README.md and docs is run as it is written, in a folder of its own; the network alone is left out.

In place of the Hub and of `model.gguf` there is a small model with random weights; `pip`, `make`, `python -m venv` and
Ray's commands (tests/serve/test_ray.py runs them) are not run: what they name must be there. A server that a page
starts listens at a port that is free, in place of 8000, and ends with the page. Blocks of a page share names and files,
those of docs/howto files alone. Of a workflow of GitHub Actions the commands of ours are run.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from liveshape.cli import main
from liveshape.ops import OPS
from liveshape.serve.fleet_options import FleetOptions
from tests.support.chat_model import write_adapter, write_folder_model, write_gguf_model

ROOT = Path(__file__).parent.parent
HOWTOS = sorted((ROOT / "docs" / "howto").glob("*.md"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *HOWTOS]
# Two pages of how-tos run at every change: they take no torch, start no server and measure nothing. The others would
# take `make test` more than a minute, and run in `make test-export`.
_QUICK_HOWTOS = ("language-models.md", "programs.md")
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NOT_RUN = ("pip", "make", "python", "ray", "serve")
_OF_A_WORKFLOW = ("sudo", "pytest")
_OF_THE_NETWORK = ("--install-software-driver",)  # tests/cli/test_software_driver.py has it
_PORT = 8000
_VARIABLE = re.compile(r"([A-Z_]+)=(.*)")


@dataclass(frozen=True)
class Block:
    """What stands between two fences."""

    language: str
    text: str


def blocks_of(page: Path) -> list[Block]:
    return [Block(language, text) for language, text in _BLOCK.findall(page.read_text(encoding="utf-8"))]


def lines_of(block: Block) -> Iterator[list[str]]:
    """The commands of a shell block: all of its lines, or in a transcript those behind a $."""
    lines = block.text.replace("\\\n", "").splitlines()
    typed = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")] or lines
    for line in typed:
        words = shlex.split(line, comments=True)
        if words:
            yield words


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_has_a_language(page: Path) -> None:
    assert {block.language for block in blocks_of(page)} <= {"js", "sh", "python", "yaml"}, "what is not run"


@pytest.fixture
def _operators_of_a_page() -> Iterator[None]:
    """A page may define an operator of its own, which no other test must see."""
    known = {*OPS}
    yield
    for name in OPS.keys() - known:
        del OPS[name]


def runs() -> Iterator[Any]:
    """Every page with blocks, as a parameter."""
    for page in PAGES:
        if blocks_of(page):
            name = page.relative_to(ROOT).as_posix().removeprefix("docs/")
            slow = page in HOWTOS and page.name not in _QUICK_HOWTOS
            yield pytest.param(page, id=name, marks=[pytest.mark.slow] if slow else [])


@pytest.mark.usefixtures("_operators_of_a_page")
@pytest.mark.parametrize("page", [*runs()])
def test_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(tmp_path, monkeypatch)
    names: dict[str, Any] = {"__name__": "__main__"}
    port = free_port()
    with contextlib.ExitStack() as servers:
        for written in blocks_of(page):
            block = Block(written.language, written.text.replace(f":{_PORT}", f":{port}"))
            if "import micropip" in block.text or "liveshape web" in block.text:
                continue  # they need the runtime of pages: tests/web/test_notebook.py and test_site.py run them
            if block.language == "python":
                if page in HOWTOS:
                    names = {"__name__": "__main__"}  # who comes from the index copies one block
                exec(compile(block.text, page.name, "exec"), names)
                continue
            if block.language == "yaml":
                run_workflow(block, monkeypatch)
                continue
            if block.language == "js":
                continue  # tests/web/test_node.py runs it
            for words in lines_of(block):
                if words[:2] == ["liveshape", "serve"] and words[-1] == "&":
                    servers.enter_context(server(words[1:-1], port))
                else:
                    check_or_run(words, monkeypatch)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        port: int = bound.getsockname()[1]
        return port


@contextlib.contextmanager
def server(words: list[str], port: int) -> Iterator[None]:
    """A server in the background, as a shell starts it with &, until the page ends: what follows waits for it."""
    command = [sys.executable, "-m", "liveshape", *words, "--port", str(port)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    with subprocess.Popen(command, env=environment) as running:
        try:
            yield
            assert running.poll() is None, "the server has ended"
        finally:
            running.terminate()


def run_workflow(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps of a workflow that are ours, on the adapter that its job asks for."""
    for job in yaml.safe_load(block.text)["jobs"].values():
        ran = 0
        for step in job["steps"]:
            assert ("run" in step) is not ("uses" in step), step
            for words in lines_of(Block("sh", step.get("run", ""))):
                if words[0] in _OF_A_WORKFLOW:
                    continue
                ran += words[0] == "liveshape"
                check_or_run([*(f"{name}={value}" for name, value in job["env"].items()), *words], monkeypatch)
        assert ran, "no step of this job is ours"


def check_or_run(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    given = ""
    if words[0] == "echo":  # echo TEXT | command
        given, words = words[1] + "\n", words[words.index("|") + 1 :]
    with monkeypatch.context() as environment:
        while assigned := _VARIABLE.fullmatch(words[0]):  # NAME=VALUE command
            environment.setenv(*assigned.groups())
            words = words[1:]
        run_command(words, given, environment)


def run_command(words: list[str], given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = words[0].rsplit("/")[-1]
    if program in _NOT_RUN:
        exists(program, words)
        return
    if program == "curl":
        done = subprocess.run(
            [*words, "--fail", "--silent", "--show-error"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{shlex.join(words)}: {done.stderr}"
        return
    assert program == "liveshape", f"{words[0]} is not run by this test"
    words = [word for word in words if word not in _OF_THE_NETWORK]
    words, target = (words[:-2], words[-1]) if words[-2:-1] == [">"] else (words, None)  # command > FILE
    monkeypatch.setattr(sys, "stdin", io.StringIO(given))
    told, complained = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(complained):
        code = main(words[1:])
    assert code == 0, f"{shlex.join(words)} ended with {code}: {complained.getvalue()[-2000:]}"
    if target is not None:
        Path(target).write_text(told.getvalue(), encoding="utf-8")


def exists(program: str, words: list[str]) -> None:
    """What a command that is not run names: targets of the Makefile, extras of the package, modules of ours."""
    if program == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert set(words[1:]) <= set(targets)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for named in re.findall(r"liveshape[\w.-]*\[([\w,]+)\]", " ".join(words)):
        assert set(named.split(",")) <= extras.keys()
    if program == "serve":
        served_by_ray(*words[1:])
    if words[:2] == ["python", "-m"] and words[2].startswith("bench."):
        assert (ROOT / f"{words[2].replace('.', '/')}.py").exists()


def served_by_ray(command: str, target: str, *options: str) -> None:
    """A config file that is there, or a name of liveshape/serve/ray.py with options that a fleet has."""
    if command == "deploy":
        assert (ROOT / target).exists()
        return
    module, _, name = target.partition(":")
    assert command == "run"
    assert module == "liveshape.serve.ray"
    assert name in ("app", "build")
    FleetOptions.read(dict(option.split("=") for option in options))


def prepare(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with what a reader has: a GGUF file, an adapter and a text; and a Hub that has one model."""
    for name in ("model.gguf", "SmolLM2-135M-Instruct.Q4_1.gguf"):
        write_gguf_model(folder / name)
    write_folder_model(folder / "hub")
    write_adapter(folder / "my-lora")
    (folder / "book.txt").write_text("Once upon a time there was a little dog. " * 40)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("LIVESHAPE_CACHE", str(folder / "cache"))
    monkeypatch.setattr("liveshape.export.sources.opening.fetched", lambda name: folder / "hub")
