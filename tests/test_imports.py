"""What imports what: light, wgpu in device/wgpu_native.py alone, torch in export/module/ and the way out alone."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import liveshape
import liveshape.llm

ROOT = Path(liveshape.__file__).parent

# From the ground up: a module imports from its own line and from the lines above it.
ORDER = [
    (
        "cache_folder",
        "debug_log",
        "driver_folder",
        "errors",
        "named_function",
        "option_names",
        "packages",
        "progress",
        "shipped",
    ),
    ("disk",),
    ("formats",),
    ("graph",),
    ("kernels",),
    ("ops",),
    ("lower",),
    ("plan",),
    ("device",),
    ("run",),
    ("metadata",),
    ("program",),
    ("runtime", "model"),
    ("demo",),
    ("export",),
    ("llm",),
    ("check",),
    ("serve",),
    ("tools",),
    ("cli",),
    ("__main__",),
]
LEVEL = {name: level for level, names in enumerate(ORDER) for name in names}
HEAVY = ("torch", "executorch", "wgpu")


def modules() -> Iterator[tuple[str, Path]]:
    """Every module of the package with its dotted name below `liveshape`."""
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield ".".join(part for part in parts if part != "__init__"), path


@functools.cache
def imported(path: Path, for_types: bool = False) -> tuple[str, ...]:
    """The dotted names that a file imports, inside of functions too; those for type checkers alone if asked."""
    return tuple(_imported(path, ast.parse(path.read_text()), for_types))


def _imported(path: Path, tree: ast.Module, for_types: bool) -> Iterator[str]:
    hidden = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for inner in ast.walk(node)
        if not for_types
    }
    for node in ast.walk(tree):
        if id(node) in hidden:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: import from liveshape by its full name"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def loaded_by(statement: str) -> set[str]:
    """The modules that a fresh interpreter has after a statement."""
    code = f"import sys\n{statement}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_liveshape_is_light() -> None:
    loaded = loaded_by("import liveshape; liveshape.__version__")
    assert not loaded & {*HEAVY, "numpy", "rich"}
    assert len(loaded - loaded_by("pass")) < 60, "few modules, so that it is quick"


@pytest.mark.parametrize(
    "name", ["formats", "graph", "kernels", "ops", "lower.lowering", "plan.compiling", "runtime", "model", "cli"]
)
def test_no_gpu_and_no_torch_below_the_device(name: str) -> None:
    assert not loaded_by(f"import liveshape.{name}") & set(HEAVY)


def test_help_of_every_command_imports_nothing_that_is_slow() -> None:
    statement = """
import contextlib, io
from liveshape.cli import _parser, main
(commands,) = (each.choices for each in _parser()._actions if isinstance(each.choices, dict))
with contextlib.redirect_stdout(io.StringIO()):
    codes = [main(["--help"]), *(main([name, "--help"]) for name in commands)]
assert len(codes) > 10 and not any(codes)
"""
    assert not loaded_by(statement) & {*HEAVY, "numpy", "rich", "tokenizers", "jinja2"}


FRONT = ("errors", "disk", "formats", "graph", "kernels", "ops", "lower", "plan")


def test_the_front_of_the_house_imports_the_standard_library_alone() -> None:
    for name, path in modules():
        if name.split(".")[0] in FRONT:
            foreign = {each.split(".")[0] for each in imported(path)} - {*sys.stdlib_module_names, "liveshape"}
            assert not foreign, f"{name} imports {sorted(foreign)}"


@pytest.mark.parametrize("blocked", [("numpy", "wgpu", "rich"), ("numpy", "wgpu", "rich", "mmap", "ctypes")])
def test_a_program_is_lowered_and_planned_without_anything_else(blocked: tuple[str, ...]) -> None:
    code = f"""
import sys
for name in {blocked!r}:
    sys.modules[name] = None
import liveshape.lower.lowering, liveshape.plan.compiling
from liveshape.formats import open_program
with open_program(sys.argv[1]) as program:
    plan = liveshape.plan.compiling.compile(liveshape.lower.lowering.lower(program, "forward", {{}}))
assert plan.routes and plan.kernels and plan.memory.blocks
assert all(variant.source for variant in plan.kernels)
"""
    path = ROOT / "demo" / "block.pte"
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_public_name_can_be_had() -> None:
    assert all(getattr(liveshape, name) is not None for name in liveshape.__all__)
    assert dir(liveshape) == sorted(liveshape.__all__)
    assert dir(liveshape.llm) == sorted(liveshape.llm.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        _ = liveshape.nothing


def test_the_version_is_that_of_the_package() -> None:
    project = (ROOT.parent / "pyproject.toml").read_text()
    assert re.findall(r'^version = "(.*)"$', project, re.MULTILINE) == [liveshape.__version__]


def test_only_the_device_imports_wgpu_and_only_export_and_the_host_fallback_import_torch() -> None:
    for name, path in modules():
        roots = {each.split(".")[0] for each in imported(path)}
        assert "wgpu" not in roots or name == "device.wgpu_native", f"{name} imports wgpu"
        assert "wgpudawn" not in roots or name == "device.dawn", f"{name} imports wgpudawn"
        knows_torch = name.startswith("export.module.") or name == "run.torch_host"
        assert not roots & {"torch", "executorch", "torchao"} or knows_torch, f"{name} imports torch"


def test_the_protocol_and_the_backends_are_all_that_others_know_of_devices() -> None:
    """A second library, and the device of a browser, plug in below them."""
    known = {f"liveshape.device.{name}" for name in ("protocol", "backends")}
    around = [
        (str(path), path) for folder in ("bench", "tests/support") for path in (ROOT.parent / folder).rglob("*.py")
    ]
    for name, path in (*modules(), *around):
        below = {each.rpartition(".")[0] for each in imported(path) if each.startswith("liveshape.device")}
        assert name.startswith("device") or below <= known, f"{name} imports {below - known}"
    libraries = {
        f"liveshape.device.{name}" for name in ("adapters", "dawn", "library", "offers", "webgpu", "wgpu_native")
    }
    for path in (ROOT.parent / "tests").rglob("*.py"):
        if path.parent.name != "device" and path.name != "test_packaging.py":
            below = {each for each in imported(path) if each in libraries or each.rpartition(".")[0] in libraries}
            assert not below, f"{path} imports {below}"


def test_a_device_needs_no_library_to_be_known() -> None:
    assert not loaded_by("import liveshape.device.protocol, liveshape.device.backends") & {*HEAVY, "numpy", "ctypes"}


def test_nothing_points_up() -> None:
    for name, path in modules():
        own = name.split(".")[0]
        if not own:
            continue  # the package itself only names things
        assert own in LEVEL, f"{name} has no place in ORDER yet"
        for target in imported(path):
            if target.startswith("liveshape.") and (other := target.split(".")[1]) not in vars(liveshape)["__all__"]:
                assert other in LEVEL, f"{name} imports {target}, which has no place in ORDER yet"
                assert LEVEL[other] <= LEVEL[own], f"{name} imports {other}, which is above it"


@functools.cache
def imports() -> dict[str, set[str]]:
    """The modules of the package, by dotted name, and which of them each imports anywhere, for types alone too."""
    paths = {".".join(("liveshape", name)).rstrip("."): path for name, path in modules()}

    def module_of(name: str) -> str:
        while name and name not in paths:
            name = name.rpartition(".")[0]
        return name

    return {
        name: {module_of(each) for each in imported(path, for_types=True)} - {"", name} for name, path in paths.items()
    }


def circles(edges: dict[str, set[str]]) -> list[set[str]]:
    """The strongly connected components of more than one node, by what each reaches."""
    reached: dict[str, set[str]] = {}
    for start in edges:
        found, waiting = set[str](), [start]
        while waiting:
            new = edges[waiting.pop()] - found
            found |= new
            waiting += new
        reached[start] = found
    within = {node: frozenset(other for other in reached[node] if node in reached[other]) for node in edges}
    return [set(each) for each in {each for each in within.values() if each}]


def test_circles_are_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [{"b", "c"}]
    assert imports()["liveshape.plan.plan_state"] >= {"liveshape.plan.groups", "liveshape.plan.plan"}


def test_no_modules_import_one_another_in_a_circle() -> None:
    assert circles(imports()) == []


def test_folders_of_a_room_import_one_another_in_one_direction() -> None:
    def place(name: str) -> str:
        """A folder of a room is one place, and each module beside it another: `llm.engine`, `llm.arguments`."""
        return ".".join(name.split(".")[1:3])

    places: dict[str, set[str]] = {}
    for name, targets in imports().items():
        places.setdefault(place(name), set()).update({place(target) for target in targets} - {place(name)})
    assert circles(places) == []
