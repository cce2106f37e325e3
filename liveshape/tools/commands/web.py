"""`liveshape web`: a static folder with a page that runs a model in the browser; and a server to look at it here."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path
from typing import Any

from liveshape.disk import room_in
from liveshape.errors import InputError
from liveshape.export.runnable import Conversion
from liveshape.export.sources.opening import located
from liveshape.graph.activation_kinds import AUTO
from liveshape.serve.service import model_name
from liveshape.tools.console import counted, print_text, size_text, upload_bar
from liveshape.tools.model_argument import AS_USUAL, runnable_model
from liveshape.tools.web_page.site_files import SiteFiles, chat_site, check_links, form_site, is_language_model
from liveshape.tools.web_page.site_folder import check_folder, write_site
from liveshape.tools.web_page.site_server import LOOPBACK, site_server
from liveshape.tools.web_page.web_runtime import runtime_files
from liveshape.tools.wrapping import wrapped

HOST, PORT = "127.0.0.1", 8080
_ROOM = "free some of it, or name a folder of another disk with -o"


def web(
    model: str,
    *,
    out: str | None = None,
    serve: bool = False,
    host: str | None = None,
    port: int | None = None,
    runtime: str | None = None,
    method: str | None = None,
    force: bool = False,
    half_cache: bool = False,
    activations: str = AUTO,
    conversion: Conversion = AS_USUAL,
) -> int:
    """Write the site of a model into a folder, serve it until Ctrl-C, or both; exit code 0.

    Example: `web("story", out="site")`.
    """
    if out is None and not serve:
        raise InputError("say where the site goes: -o FOLDER writes it, --serve shows it on this machine")
    for flag, value in (("--host", host), ("--port", port)):
        if value is not None and not serve:
            raise InputError(f"{flag} {value} is of a server: give --serve, too")
    if out is not None:
        check_folder(Path(out), force)
    found = runtime_files(runtime)
    check_links(located(model))
    with runnable_model(model, conversion) as path:
        name = model_name(model)
        if is_language_model(path):
            _refuse(model, "a language model, which has one method", {"--method": method})
            options = _options(half_cache, activations, conversion.max_context)
            files = chat_site(path, name, found, options)
        else:
            asked = {"--max-context": conversion.max_context, "--half-cache": half_cache or None}
            _refuse(model, "a program and no language model", asked)
            files = form_site(path, name, found, method or "forward")
        if out is not None:
            files = _written(files, Path(out))
        if serve:
            _serve(files, HOST if host is None else host, PORT if port is None else port)
    return 0


def _options(half_cache: bool, activations: str, max_context: int | None) -> dict[str, Any]:
    """What `loadLanguageModel` is called with, where it is not the default."""
    options = {"halfCache": half_cache, "activations": activations, "maxContext": max_context}
    usual = {"halfCache": False, "activations": AUTO, "maxContext": None}
    return {name: value for name, value in options.items() if value != usual[name]}


def _refuse(model: str, what: str, flags: dict[str, Any]) -> None:
    for flag, value in flags.items():
        if value is not None:
            raise InputError(f"{model} is {what}: {flag} says nothing about it")


def _written(files: SiteFiles, out: Path) -> SiteFiles:
    with upload_bar("copying") as progress, room_in(str(out), _ROOM):
        size = write_site(files, out, progress)
    print_text(f"{out}: {counted(len(files), 'file')}, {size_text(size)}; any web server can serve it")
    return {name: out / name for name in files}  # not what else the folder has


def _serve(files: SiteFiles, host: str, port: int) -> None:
    with site_server(files, host, port) as server:
        if host not in LOOPBACK:
            note = (
                f"warning: everybody who can reach {host} can read the model; and browsers offer WebGPU to other "
                "machines only by https, which a server before this one must add"
            )
            print(wrapped(note, sys.stderr), file=sys.stderr)
        print(f"open {server.url}   (Ctrl-C ends)", flush=True)
        before = signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            pass  # how a server ends
        finally:
            signal.signal(signal.SIGTERM, before)
