"""Run by build.mjs in Pyodide itself, so that bytecode is of its Python: the archives of a page.

liveshape.zip has the package and its kernels, the stand-ins for compiled packages, and jinja2. Of Python's library it
is what these import, by their import statements. Both are stored, not deflated: servers compress what they send.
"""

import ast
import importlib.util
import marshal
import os
import zipfile

# What runs only outside of a page: commands, servers, the checker, engines with threads, exporters.
LEFT_OUT = (
    *("cli", "__main__", "runtime", "tools", "serve", "check", "demo", "llm/batch", "llm/serving", "llm/embedding"),
    *("export/module", "export/file", "export/sources", "export/weights", "export/conversions", "export/folder"),
    *("export/runnable", "run/torch_host"),
    *(f"device/{name}" for name in ("wgpu_native", "wgpu_callbacks", "wgpu_types", "dawn", "dawn_futures", "webgpu")),
    *(f"device/{name}" for name in ("software_driver", "watching", "submitting", "readback", "passes")),
)
# What Python and Pyodide take before the first import, or inside of functions.
BASE = (
    *(
        "site",
        "_sitebuiltins",
        "codecs",
        "io",
        "abc",
        "os",
        "stat",
        "posixpath",
        "genericpath",
        "warnings",
        "linecache",
    ),
    *(
        "traceback",
        "tokenize",
        "importlib.resources",
        "importlib.metadata",
        "importlib.util",
        "importlib.abc",
        "keyword",
    ),
    *("encodings", "encodings.aliases", "encodings.utf_8", "encodings.ascii", "encodings.latin_1", "encodings.cp437"),
    "encodings.unicode_escape",  # of the strings in chat templates
    *("encodings.idna", "asyncio", "zipfile", "annotationlib", "_py_warnings", "shutil", "tempfile", "webbrowser"),
)
WHOLE = ("_pyodide", "pyodide", "importlib", "json", "re", "collections", "concurrent")  # whole packages


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


def imported(text: bytes, name: str, *, everywhere: bool) -> set[str]:
    """The modules that a text imports, inside of functions only if it is asked for."""
    package = name.removesuffix(".py").removesuffix("/__init__").split("/")
    package = package if name.endswith("/__init__.py") else package[:-1]
    found: set[str] = set()
    waiting = [ast.parse(text)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = [*package[: len(package) + 1 - node.level], *(node.module or "").split(".")] if node.level else []
            module = ".".join(each for each in base if each) if node.level else node.module or ""
            found |= {module, *(f"{module}.{each.name}" for each in node.names)}
        if everywhere or not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            waiting += ast.iter_child_nodes(node)
    return found


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
            else:
                archive.writestr(zipfile.ZipInfo(name), text)


def in_page(name: str) -> bool:
    plain = name.removeprefix("liveshape/").removesuffix(".py")
    return not any(plain == each or plain.startswith(f"{each}/") for each in LEFT_OUT)


package = {name: text for name, text in files("/source/liveshape", "liveshape").items() if in_page(name)}
package |= files("/source/web/python", "")
for name in ("jinja2", "markupsafe"):
    package |= {each: text for each, text in files(f"/packages/{name}", name).items() if each.endswith(".py")}
write("/dist/liveshape.zip", package, "")

with zipfile.ZipFile("/stdlib.zip") as given:
    library = {entry.filename: given.read(entry) for entry in given.infolist() if not entry.is_dir()}


def place(module: str) -> str | None:
    path = module.replace(".", "/")
    return next((each for each in (f"{path}.py", f"{path}/__init__.py") if each in library), None)


wanted = {
    module for name, text in package.items() if name.endswith(".py") for module in imported(text, name, everywhere=True)
}
ours = {name for name in library if name.partition("/")[0] in WHOLE}
wanted |= {
    module for name in ours if name.endswith(".py") for module in imported(library[name], name, everywhere=False)
}
direct = {*wanted, *BASE}
kept = dict.fromkeys(ours)
waiting = sorted(direct)
while waiting:
    module = waiting.pop()
    parent = module.rpartition(".")[0]
    name = place(module)
    if name is None or name in kept:
        continue
    kept[name] = None
    waiting += [parent] if parent else []
    waiting += imported(library[name], name, everywhere=module in direct and not module.startswith("encodings"))
others = {name for name in library if not name.endswith(".py")}
write(
    "/dist/pyodide/python_stdlib.zip",
    {name: library[name] for name in library if name in kept or name in others},
    "/lib",
)
print(f"{len(kept)} of {len(library)} files of Python's library, {len(package)} of the package")
