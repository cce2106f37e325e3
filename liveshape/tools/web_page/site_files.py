"""What a site consists of, by the paths of its files: the page, the runtime, and the model as it is on disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from liveshape.errors import InputError, UnsupportedError
from liveshape.graph import Limits
from liveshape.llm.program.token_graph import CONTEXT, LENGTH
from liveshape.llm.text.tokenizer import Tokenizer
from liveshape.lower.problems import by_operator
from liveshape.metadata import TensorInfo
from liveshape.program.compile_target import CompileTarget
from liveshape.program.files import program_file
from liveshape.program.program import load_program
from liveshape.tools.program_report import planned_method, report_of
from liveshape.tools.web_page.static_html import chat_html, form_html

SiteFiles = Mapping[str, Path | bytes]

PAGE, MODEL = "index.html", "model.pte"
# Beside the program, as a page reads them; all but the first may be missing.
_TEXTS = (
    "tokenizer.json",
    "tokenizer_config.json",
    "generation_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "chat_template.json",
)


def check_links(model: Path) -> None:
    """Refuse a model whose texts are links to files elsewhere: a site is public, and copies what they lead to. Those of
    the Hub's cache lead to its blobs.

    Example: `check_links(Path("SmolLM2-135M-Instruct"))`.
    """
    folder = model if model.is_dir() else model.parent
    homes = (folder.resolve(), folder.resolve().parent.parent / "blobs")
    for name in _TEXTS:
        place = folder / name
        if place.is_symlink() and not any(place.resolve().is_relative_to(home) for home in homes):
            raise InputError(
                f"{place} is a link to {place.resolve()}, outside of the model, and all may read what a site has: "
                "copy that file there if it belongs to the model"
            )


def is_language_model(path: Path) -> bool:
    """Whether a path is a language model: a program with its metadata, in a folder or with its tokenizer beside it.

    Example: `is_language_model(Path("SmolLM2-135M-Instruct-pte"))`.
    """
    program = program_file(path)
    with load_program(CompileTarget(), str(program)) as opened:
        named = {plan.name for plan in opened.file.plans} & {CONTEXT, LENGTH}
    return bool(named) and (path.is_dir() or (program.parent / _TEXTS[0]).exists())


def chat_site(path: Path, name: str, runtime: Mapping[str, Path], options: Mapping[str, Any]) -> SiteFiles:
    """The site of a language model: a page to chat, or to continue text where it has no chat template.

    Example: `chat_site(Path("smollm"), "smollm", runtime_files(), {"maxContext": 4096})`.
    """
    program = program_file(path)
    tokenizer = Tokenizer.load(program)
    texts = {each: place for each in _TEXTS if (place := program.parent / each).exists()}
    files = {MODEL: program, **texts}
    facts = {
        "name": name,
        "chat": tokenizer.chat_template is not None,
        "bytes": sum(place.stat().st_size for place in files.values()),
        "files": list(files),
        "options": dict(options),
    }
    return _site(chat_html(facts), files, runtime)


def form_site(path: Path, name: str, runtime: Mapping[str, Path], method: str) -> SiteFiles:
    """The site of any other program: a form with its inputs, whose legal sizes are found by planning it.

    Example: `form_site(Path("model.pte"), "model", runtime_files(), "forward")`.
    """
    program = program_file(path)
    with load_program(CompileTarget(), str(program)) as opened:
        opened.metadata(method)  # raises an error that lists the methods
        plan = opened.file.method(method)
        report = report_of(opened.file, plan, planned_method(opened.file, plan, opened.data, Limits()))
    if report.problems:
        lines = "\n".join(f"  {each}" for each in by_operator(report.problems))
        raise UnsupportedError(f"{program} cannot run in a page:\n{lines}")
    if report.host:
        names = ", ".join(sorted({each.operator for each in report.host}))
        raise UnsupportedError(
            f"{program} cannot run in a page: {names} has no kernel, and a page has no torch to compute it on the host"
        )
    facts = {
        "name": name,
        "method": method,
        "bytes": program.stat().st_size,
        "inputs": [_input(info, report.baked.get(info.name, {})) for info in report.inputs],
        "outputs": [asdict(info) for info in report.outputs],
    }
    return _site(form_html(facts), {MODEL: program}, runtime)


def _input(info: TensorInfo, baked: Mapping[int, str]) -> dict[str, Any]:
    return {**asdict(info), "baked": {str(axis): reason for axis, reason in baked.items()}}


def _site(page: bytes, model: Mapping[str, Path], runtime: Mapping[str, Path]) -> SiteFiles:
    return {
        PAGE: page,
        **{f"model/{name}": place for name, place in model.items()},
        **{f"liveshape/{name}": place for name, place in runtime.items()},
    }
