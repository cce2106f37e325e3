"""Run by build.mjs in Pyodide itself, so that bytecode is of its Python: the archives of a page.

liveshape.zip has the package and its kernels, the stand-ins for compiled packages, and jinja2. Of Python's library it
is what these import, by their import statements. Both are stored, not deflated: servers compress what they send.
"""

from __future__ import annotations

import ast
import importlib.util
import marshal
import os
import re
import sys
import zipfile
from collections.abc import Iterator
from importlib.machinery import FrozenImporter

# What no page calls, though functions that it has import it: servers, engines with threads, exporters, other devices.
LEFT_OUT = (
    *("cli", "runtime", "tools", "serve", "check", "demo", "cache_folder", "driver_folder"),
    *("llm/batch", "llm/serving", "llm/embedding"),
    *("export/module", "export/conversions", "export/runnable", "run/torch_host"),
    *(f"export/sources/{name}" for name in ("opening", "hub", "llama2c", "lora")),
    *(f"device/{name}" for name in ("wgpu_native", "dawn", "webgpu", "software_driver", "submitting", "readback")),
)
# What is imported by name: of the package, and by Python and Pyodide as they start.
STARTS = (
    *("liveshape_page", "liveshape.model", "liveshape.kernels.wgsl", "numpy.typing", "tokenizers", "jinja2"),
    *("encodings.aliases", "encodings.utf_8", "encodings.ascii", "encodings.latin_1", "encodings.cp437"),
    *("encodings.unicode_escape", "encodings.utf_8_sig"),
    *("traceback", "concurrent.futures.thread"),
    *("_pyodide", "_pyodide._core_docs", "_pyodide.docstring", "_pyodide.jsbind", "_pyodide._future_helper"),
    *("pyodide", "pyodide._package_loader", "pyodide.code", "pyodide.ffi", "pyodide.webloop"),
)
# Comments of a kernel that kernels/kernel.py reads.
DECLARES = re.compile(
    r"// (?:\w+:(?:,? (?:f32|f16|i32|u32))+$|live |scratch |words |unchecked: |parts: |composable|subgroups up to )"
)
SKIPPED = re.compile(r"TYPE_CHECKING|sys\.platform == ['\"]win|os\.name == ['\"]nt|__name__ == ['\"]__main__")


# Import statements


def imported(text: bytes, name: str, *, everywhere: bool) -> set[str]:
    """The modules that a text imports, inside of functions only if it is asked for."""
    package = name.removesuffix(".py").removesuffix("/__init__").split("/")
    package = package if name.endswith("/__init__.py") else package[:-1]
    found: set[str] = set()
    for node in statements(ast.parse(text), everywhere=everywhere):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = [*package[: len(package) + 1 - node.level], *(node.module or "").split(".")] if node.level else []
            module = ".".join(each for each in base if each) if node.level else node.module or ""
            found |= {module, *(f"{module}.{each.name}" for each in node.names)}
    return found


def statements(tree: ast.AST, *, everywhere: bool) -> Iterator[ast.AST]:
    """The nodes that may be run here: neither of type checkers, nor of Windows, nor in place of what Python has."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, ast.If) and SKIPPED.search(ast.unparse(node.test)):
            waiting += node.orelse
        elif (
            isinstance(node, ast.Try)
            and not everywhere
            and "ImportError" in " ".join(ast.unparse(each.type) for each in node.handlers if each.type)
        ):
            # Of Python's library such modules are compiled and there, or they are dispensable.
            replaced = any(isinstance(each, (ast.Import, ast.ImportFrom)) for row in node.handlers for each in row.body)
            waiting += [*(node.body if replaced else ()), *node.orelse, *node.finalbody]
        elif everywhere or not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            waiting += ast.iter_child_nodes(node)


def reached(package: dict[str, bytes], library: dict[str, bytes]) -> set[str]:
    """The files that a page may import: of the package inside of functions, too, of Python's library at its top."""
    everything = package | library
    kept: set[str] = set()
    waiting = [(module, "") for module in STARTS]
    while waiting:
        module, importer = waiting.pop()
        path = module.replace(".", "/")
        name = next((each for each in (f"{path}.py", f"{path}/__init__.py") if each in everything), None)
        if name is None or name in kept or is_frozen(module):
            continue
        if is_left_out(name):
            if module in imported(everything[importer], importer, everywhere=False):
                raise SystemExit(f"{importer} needs {name}, which archives.py leaves out")
            continue
        kept.add(name)
        found = imported(everything[name], name, everywhere=name in package)
        waiting += [(each, name) for each in (module.rpartition(".")[0], *sorted(found))]
    return kept


def is_left_out(name: str) -> bool:
    plain = name.removeprefix("liveshape/").removesuffix(".py")
    return name.startswith("liveshape/") and any(f"{plain}/".startswith(f"{each}/") for each in LEFT_OUT)


def is_frozen(module: str) -> bool:
    """Whether it is in WebAssembly already, where Python looks first."""
    found = getattr(sys.modules.get(module), "__spec__", None) or FrozenImporter.find_spec(module)
    return found is not None and found.origin == "frozen"


# Smaller files


def compiled(text: bytes, name: str) -> bytes:
    """Bytecode without docstrings, which nobody reads in a page."""
    tree = ast.parse(text, name)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and ast.get_docstring(
            node, clean=False
        ):
            node.body = node.body[1:] or [ast.copy_location(ast.Pass(), node.body[0])]
    code = compile(tree, name, "exec", dont_inherit=True, optimize=0)
    return importlib.util.MAGIC_NUMBER + bytes(12) + marshal.dumps(code)


def bare_kernel(text: str) -> str:
    """A kernel's file without comments that only people read, blank lines and margins."""
    lines = (line.strip() for line in text.splitlines())
    kept = (line if DECLARES.match(line) else line.partition("//")[0].rstrip() for line in lines)
    return "".join(f"{line}\n" for line in kept if line)


# Archives


def files(folder: str, prefix: str) -> dict[str, bytes]:
    """Sources and kernels below a folder, by their names in the archive."""
    found = {}
    for home, folders, names in os.walk(folder):
        folders[:] = sorted(each for each in folders if each != "__pycache__")
        for name in sorted(names):
            path = os.path.join(home, name)
            if name.endswith((".py", ".wgsl")):
                with open(path, "rb") as file:
                    found[os.path.join(prefix, os.path.relpath(path, folder))] = file.read()
    return found


def write(path: str, found: dict[str, bytes], home: str) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, text in found.items():
            if name.endswith(".py"):
                archive.writestr(zipfile.ZipInfo(f"{name}c"), compiled(text, f"{home}/{name}"))
            elif name.endswith(".wgsl"):
                archive.writestr(zipfile.ZipInfo(name), bare_kernel(text.decode()))
            else:
                archive.writestr(zipfile.ZipInfo(name), text)


def main() -> None:
    package = files("/source/liveshape", "liveshape") | files("/source/web/python", "")
    for name in ("jinja2", "markupsafe", "flatbuffers"):
        package |= files(f"/packages/{name}", name)
    with zipfile.ZipFile("/stdlib.zip") as given:
        library = {entry.filename: given.read(entry) for entry in given.infolist() if not entry.is_dir()}
    kept = reached(package, library)
    ours = [name for name in package if name in kept or name.endswith(".wgsl")]
    theirs = [name for name in library if name in kept]
    write("/dist/liveshape.zip", {name: package[name] for name in ours}, "")
    write("/dist/pyodide/python_stdlib.zip", {name: library[name] for name in theirs}, "/lib")
    print(f"{len(theirs)} of {len(library)} files of Python's library, {len(ours)} of {len(package)} of the package")


if __name__ == "__main__":
    main()
