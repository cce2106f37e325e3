"""Where the runtime of pages is: the files of `make web`, inside of the installed package or in a checkout."""

from __future__ import annotations

from pathlib import Path

import liveshape
from liveshape.errors import InputError

# Where a wheel has it (scripts/wheel_runtime.py), and where `make web` puts it.
_PLACES = (Path(__file__).with_name("runtime"), Path(liveshape.__file__).parents[1] / "web" / "dist")
_NEEDED = ("index.js", "worker.js", "liveshape.zip", "pyodide/pyodide.mjs")
_ELSEWHERE = ("node.js",)  # what no page loads


def runtime_files(folder: str | None = None) -> dict[str, Path]:
    """The files of the runtime that a page loads, by their paths below its folder.

    Example: `runtime_files("web/dist")["index.js"]`.
    """
    places = _PLACES if folder is None else (Path(folder),)
    found = next((place for place in places if all((place / name).is_file() for name in _NEEDED)), None)
    if found is None:
        given = f"--runtime {folder}" if folder is not None else "this installation"
        raise InputError(
            f"{given} has no runtime for pages ({', '.join(_NEEDED)}). In a checkout of liveshape, run "
            "`make web && pip install .`, which puts it into the installation; or `make web`, and here "
            "--runtime CHECKOUT/web/dist"
        )
    files = {path.relative_to(found).as_posix(): path for path in sorted(found.rglob("*")) if path.is_file()}
    return {name: path for name, path in files.items() if name not in _ELSEWHERE and not name.endswith(".d.ts")}
