"""What wgpudawn would cost in a page: encoding and reading through it beside the JavaScript device, in one Pyodide.

Run: python -m bench.web_wgpudawn --cffi WHEEL --wgpudawn WHEEL [--turns 60] [--starts 3] [--json FILE]

A step is 248 dispatches of 30 kernels in one compute pass, each with a bind group and an offset of its own; its time
ends with the submit. A turn has eight steps in a row of every way, after waiting for the GPU; the first of them finds
the caches of the processor cold. Then the same in a browser that ignores the calls of dispatches: what is left is the
host's. The page is isolated: its clock counts in 5 us. The wheels are those of Pyodide, of the same Python as
web/node_modules/pyodide has.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any
from zipfile import ZipFile

from rich.console import Console
from rich.table import Table

import liveshape
from tests.support.browser import WEBGPU_FLAGS, chromium, node
from tests.web.page_host import hosted

PACKAGE = Path(liveshape.__file__).parent
WEB = PACKAGE.parent / "web"
ISOLATED = {"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Embedder-Policy": "require-corp"}
DISPATCHES, KERNELS, WARM_UP, IN_A_ROW = 248, 30, 10, 8

# Of every page: Pyodide with archives unpacked, and how long each part took.
_OPEN = """async (archives) => {
  const { loadPyodide } = await import("/pyodide/pyodide.mjs");
  const python = globalThis.python = await loadPyodide({ indexURL: "/pyodide/" });
  python.runPython("import sys; sys.path.insert(0, '/packages')");
  const found = { isolated: crossOriginIsolated };
  for (const name of archives) {
    const bytes = new Uint8Array(await (await fetch(`/archives/${name}`)).arrayBuffer());
    const begin = performance.now();
    python.unpackArchive(bytes, "zip", { extractDir: "/packages" });
    found[name] = performance.now() - begin;
  }
  return found;
}"""
_RUN = "async (text) => JSON.parse(await python.runPythonAsync(text))"

# The start of wgpudawn; COMPILED: with bytecode, as a page's archives have it.
_START = """
import compileall, json, sys, time

def milliseconds(begin):
    return 1e3 * (time.perf_counter() - begin)

found = {}
if COMPILED:
    compileall.compile_dir("/packages/wgpudawn", quiet=2)
begin = time.perf_counter()
import wgpudawn.backends.dawn
found["import"] = milliseconds(begin)
begin = time.perf_counter()
adapter = wgpudawn.gpu.request_adapter_sync(power_preference="high-performance")
device = adapter.request_device_sync()
found["open"] = milliseconds(begin)
files = [each.__file__ for each in list(sys.modules.values()) if getattr(each, "__file__", None)]
found["files"] = [each.removeprefix("/packages/") for each in files if each.startswith("/packages/")]
json.dumps(found)
"""

# Every way to encode a step, and to read, in one page.
_MEASURE = '''
import json, time
from array import array
from types import SimpleNamespace

import wgpudawn
from pyodide.code import run_js
from wgpudawn.backends.dawn import _api, ffi, lib

from liveshape.device.page_opening import open_page
from liveshape.device.page_device import PageBound
from liveshape.device.page_steps import PageHandle
from liveshape.device.passes import PublicRecorder, RawRecorder
from liveshape.device.protocol import Command
from liveshape.plan.params import Slot

ALIGNMENT, THREADS, PARAM_BYTES = 256, 64, 16
BYTES = 4 * THREADS
# A step by JavaScript alone, and a browser that does nothing with the calls of a dispatch.
TIMED = """(gpu, id) => {
  const begin = performance.now();
  gpu.submit("step", id, 0, 0);
  return performance.now() - begin;
}"""
IDLE = """for (const name of ["setPipeline", "setBindGroup", "dispatchWorkgroups"]) {
  GPUComputePassEncoder.prototype[name] = () => {};
}"""
PARAMS = array("I")
for place in range(DISPATCHES):
    PARAMS.extend((place, *(0,) * (ALIGNMENT // 4 - 1)))
WANTED = [sum(kernel + place for place in range(kernel, DISPATCHES, KERNELS)) for kernel in range(KERNELS)]

def text(kernel):
    return f"""
struct Params {{ add: u32, a: u32, b: u32, c: u32 }}
@group(0) @binding(0) var<storage, read_write> x: array<u32>;
@group(0) @binding(1) var<uniform> params: Params;
@compute @workgroup_size({THREADS}) fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
    if (id.x < {THREADS}u) {{ x[id.x] += {kernel}u + params.add; }}
}}"""

def commands_of(bounds):
    made = []
    for place in range(DISPATCHES):
        slot = Slot(ALIGNMENT * place)
        slot.grid = (1 + place % 3, 1, 1)
        made.append(Command(bounds[place % KERNELS], slot, f"kernel {place % KERNELS}"))
    return made


class Wgpudawn:
    # A device of wgpudawn with the kernels of a step.

    def __init__(self):
        adapter = wgpudawn.gpu.request_adapter_sync(power_preference="high-performance")
        self.name = " ".join(adapter.info[name] for name in ("vendor", "architecture"))
        self.device = device = adapter.request_device_sync()
        usage, stage = wgpudawn.BufferUsage, wgpudawn.ShaderStage.COMPUTE
        uniforms = device.create_buffer(size=4 * len(PARAMS), usage=usage.UNIFORM | usage.COPY_DST)
        device.queue.write_buffer(uniforms, 0, PARAMS)
        self.staging = device.create_buffer(size=16, usage=usage.MAP_READ | usage.COPY_DST)
        self.buffers, bounds = [], []
        for kernel in range(KERNELS):
            buffer = device.create_buffer(size=BYTES, usage=usage.STORAGE | usage.COPY_SRC | usage.COPY_DST)
            uniform = {"type": "uniform", "has_dynamic_offset": True, "min_binding_size": PARAM_BYTES}
            layout = device.create_bind_group_layout(entries=[
                {"binding": 0, "visibility": stage, "buffer": {"type": "storage"}},
                {"binding": 1, "visibility": stage, "buffer": uniform},
            ])
            pipeline = device.create_compute_pipeline(
                layout=device.create_pipeline_layout(bind_group_layouts=[layout]),
                compute={"module": device.create_shader_module(code=text(kernel)), "entry_point": "main"},
            )
            group = device.create_bind_group(layout=layout, entries=[
                {"binding": 0, "resource": {"buffer": buffer, "offset": 0, "size": BYTES}},
                {"binding": 1, "resource": {"buffer": uniforms, "offset": 0, "size": PARAM_BYTES}},
            ])
            self.buffers.append(buffer)
            bounds.append(SimpleNamespace(
                pipeline=pipeline, bind_group=group, has_params=True,
                raw_pipeline=pipeline._internal, raw_bind_group=group._internal,
            ))
        self.commands = commands_of(bounds)
        native = SimpleNamespace(ffi=ffi, lib=lib, calls=_api.libf, submit=submit_raw, heuristics=None)
        self.public, self.raw = PublicRecorder(device, device.queue), RawRecorder(native, device, device.queue)
        self.rows = []
        for each in self.commands:
            offset = ffi.new("uint32_t[1]", [each.slot.offset])
            self.rows.append((each.bound.raw_pipeline, each.bound.raw_bind_group, offset, each.slot.grid))

    def wait(self):
        self.device.queue.on_submitted_work_done_sync()

    def step(self, recorder):
        recorder.submit(recorder.finish(recorder.encode((), self.commands, (), "step")))

    def bare(self):
        # The C calls and nothing else, with all arguments made before.
        encoder = lib.wgpuDeviceCreateCommandEncoder(self.device._internal, ffi.NULL)
        handle = lib.wgpuCommandEncoderBeginComputePass(encoder, ffi.NULL)
        pipelines, groups = lib.wgpuComputePassEncoderSetPipeline, lib.wgpuComputePassEncoderSetBindGroup
        dispatch = lib.wgpuComputePassEncoderDispatchWorkgroups
        for pipeline, group, offset, (x, y, z) in self.rows:
            pipelines(handle, pipeline)
            groups(handle, 0, group, 1, offset)
            dispatch(handle, x, y, z)
        lib.wgpuComputePassEncoderEnd(handle)
        lib.wgpuComputePassEncoderRelease(handle)
        work = lib.wgpuCommandEncoderFinish(encoder, ffi.NULL)
        lib.wgpuCommandEncoderRelease(encoder)
        lib.wgpuQueueSubmit(self.device.queue._internal, 1, ffi.new("WGPUCommandBuffer[1]", [work]))
        lib.wgpuCommandBufferRelease(work)

    def read_buffer(self):
        return bytes(self.device.queue.read_buffer(self.buffers[0], 0, 16))

    def read_staging(self):
        encoder = self.device.create_command_encoder()
        encoder.copy_buffer_to_buffer(self.buffers[0], 0, self.staging, 0, 16)
        self.device.queue.submit([encoder.finish()])
        self.staging.map_sync(wgpudawn.MapMode.READ)
        found = bytes(self.staging.read_mapped())
        self.staging.unmap()
        return found

    def sums(self):
        return [self.device.queue.read_buffer(each, 0, 4).cast("I")[0] for each in self.buffers]


def submit_raw(queue, work):  # as liveshape/device/dawn.py does
    _api.libf.wgpuQueueSubmit(queue, 1, ffi.new("WGPUCommandBuffer[1]", [work]))
    return -1


class Page:
    # The page's own device with the same kernels.

    def __init__(self, device):
        self.device, gpu = device, device._gpu
        uniforms = device.uniforms(4 * len(PARAMS))
        device.write(uniforms, 0, PARAMS)
        self.staging, self.buffers, bounds = device.staging(16), [], []
        for kernel in range(KERNELS):
            buffer = device.buffer(BYTES, "x")
            made = gpu.pipeline(f"kernel {kernel}", text(kernel), "w", PARAM_BYTES)
            pipeline = PageHandle(gpu.drop, "pipeline", made)
            windows = (buffer.parts[0][0].handle, 0, BYTES, uniforms.parts[0][0].handle, 0, PARAM_BYTES)
            group = PageHandle(gpu.drop, "group", gpu.bind(pipeline.id, array("d", windows)))
            self.buffers.append(buffer)
            bounds.append(PageBound(group, pipeline, True))
        self.commands = commands_of(bounds)
        self.device.submit(self.commands)
        self.timed = run_js(TIMED)

    def wait(self):
        self.device.flush()

    def step(self):
        self.device.submit(self.commands)

    def move(self, count):
        for command in self.commands[:count]:
            x, y, z = command.slot.grid
            command.slot.grid = 1 + x % 3, y, z

    def alone(self):
        # The same step by JavaScript alone.
        return self.timed(self.device._gpu, self.device._steps._kept[id(self.commands)].handle.id) / 1e3

    def read(self):
        self.device.submit((), [(self.buffers[0], 0, 16, self.staging, 0)])
        return bytes(self.device.read(self.staging, 16))

    def sums(self):
        found = []
        for buffer in self.buffers:
            self.device.submit((), [(buffer, 0, 4, self.staging, 0)])
            found.append(array("I", self.device.read(self.staging, 4))[0])
        return found


begin = time.perf_counter()
opened = await open_page()
page_open = 1e3 * (time.perf_counter() - begin)
theirs, ours = Wgpudawn(), Page(opened)
STEPS = {
    "wgpudawn, public classes": (theirs, lambda: theirs.step(theirs.public), None),
    "wgpudawn, C calls as dawn.py makes them": (theirs, lambda: theirs.step(theirs.raw), None),
    "wgpudawn, C calls and nothing else": (theirs, theirs.bare, None),
    "page device, no grid moved": (ours, ours.step, None),
    "page device, 60 grids moved": (ours, ours.step, lambda: ours.move(60)),
    "page device, all grids moved": (ours, ours.step, lambda: ours.move(DISPATCHES)),
    "page device, JavaScript alone": (ours, ours.alone, None),
}
READS = {
    "wgpudawn, read_buffer": (theirs, theirs.read_buffer, None),
    "wgpudawn, map_sync of a kept staging buffer": (theirs, theirs.read_staging, None),
    "page device, read": (ours, ours.read, None),
}

def measured(ways, in_a_row):
    # Times of what comes first after waiting, and of what follows at once.
    times = {name: {"first": [], "next": []} for name in ways}
    for turn in range(-WARM_UP, TURNS):
        for name, (device, work, before) in ways.items():
            device.wait()
            for place in range(in_a_row):
                if before is not None:
                    before()
                begin = time.perf_counter()
                told = work()
                taken = time.perf_counter() - begin
                if turn >= 0:
                    times[name]["next" if place else "first"].append(1e3 * (told if isinstance(told, float) else taken))
    return times

found = {"adapter": theirs.name, "page open": page_open, "steps": measured(STEPS, IN_A_ROW)}
found["reads"] = measured(READS, 1)
# Every kernel has counted: all steps of each way, and the first step of the page's.
each = (TURNS + WARM_UP) * IN_A_ROW
for device, steps in ((theirs, 3 * each), (ours, 4 * each + 1)):
    wanted = [steps * number for number in WANTED]
    assert device.sums() == wanted, (device.sums(), wanted)
assert theirs.read_buffer() == theirs.read_staging() == array("I", [3 * each * WANTED[0]] * 4).tobytes()
run_js(IDLE)
found["idle"] = measured(STEPS, IN_A_ROW)
json.dumps(found)
'''


@contextmanager
def opened(browser: Any, url: str, archives: Iterable[str]) -> Iterator[tuple[Any, dict[str, Any]]]:
    """An isolated page with Pyodide and these archives, and how long each took to unpack."""
    profile = browser.new_context()
    profile.set_default_timeout(600_000)
    page = profile.new_page()
    page.route(f"{url}/", lambda route: route.fulfill(headers=ISOLATED, content_type="text/html", body=""))
    page.goto(f"{url}/")
    try:
        yield page, page.evaluate(_OPEN, list(archives))
    finally:
        profile.close()


def pack(target: Path) -> None:
    """The package and the page's stand-in for numpy, as one archive."""
    with ZipFile(target, "w") as archive:
        for path in sorted(each for each in PACKAGE.rglob("*") if each.suffix in (".py", ".js", ".wgsl")):
            archive.write(path, path.relative_to(PACKAGE.parent))
        for path in sorted((WEB / "python" / "numpy").glob("*.py")):
            archive.write(path, f"numpy/{path.name}")


def brotli(data: bytes) -> int:
    """Bytes after brotli, as servers have it at best."""
    text = """const { BROTLI_PARAM_QUALITY: q, BROTLI_PARAM_LGWIN: w } = require("zlib").constants;
    const data = require("fs").readFileSync(0);
    console.log(require("zlib").brotliCompressSync(data, { params: { [q]: 11, [w]: 24 } }).length);"""
    return int(subprocess.run([node(), "-e", text], input=data, capture_output=True, check=True).stdout)


def downloads(wheels: Iterable[Path], loaded: set[str]) -> dict[str, tuple[int, int]]:
    """What a page would load more, (bytes, with brotli), by kind: only the modules that are imported, and the glue."""
    kinds: dict[str, bytes] = {}
    for wheel in wheels:
        with ZipFile(wheel) as archive:
            for name in archive.namelist():
                if name in loaded or name.endswith("emdawn_glue.js"):
                    kind = "Python" if name.endswith(".py") else Path(name).name.split(".")[0]
                    kinds[kind] = kinds.get(kind, b"") + archive.read(name)
    return {kind: (len(data), brotli(data)) for kind, data in kinds.items()}


def table(results: dict[str, Any]) -> Table:
    """Everything in one table."""
    title = f"A page's GPU through wgpudawn, on {results['adapter']}"
    made = Table("what", "median after waiting", "median in a row", "least", title=title)
    titles = {"steps": "step", "idle": "step, dispatches ignored", "reads": "16 bytes"}
    for kind, title in titles.items():
        for name, times in results[kind].items():
            medians = [f"{median(each):.3f} ms" if each else "" for each in (times["first"], times["next"])]
            made.add_row(f"{title}: {name}", *medians, f"{min(times['first'] + times['next']):.3f} ms")
    for name in ("unpack", "import", "import of bytecode", "open"):
        times = results["start"][name]
        made.add_row(f"start: {name}", f"{median(times):.0f} ms", "", f"{min(times):.0f} ms")
    made.add_row("start: the page device's open", f"{results['page open']:.0f} ms")
    for kind, (plain, small) in results["downloads"].items():
        made.add_row(f"download: {kind}", f"{small / 1e3:.1f} kB", "", f"{plain / 1e3:.0f} kB plain")
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--cffi", type=Path, metavar="WHEEL", required=True)
    parser.add_argument("--wgpudawn", type=Path, metavar="WHEEL", required=True)
    parser.add_argument("--turns", type=int, default=60)
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results here, too")
    options = parser.parse_args()
    wheels, names = (options.cffi, options.wgpudawn), ("cffi.zip", "wgpudawn.zip")
    start: dict[str, list[float]] = {"unpack": [], "import": [], "import of bytecode": [], "open": []}
    with tempfile.TemporaryDirectory() as home:
        for wheel, name in zip(wheels, names, strict=True):
            (Path(home) / name).write_bytes(wheel.read_bytes())
        pack(Path(home) / "liveshape.zip")
        roots = {"pyodide": WEB / "node_modules" / "pyodide", "archives": Path(home)}
        with hosted(**roots) as (url, _), chromium(WEBGPU_FLAGS) as browser:
            for compiled in (False, True) * options.starts:
                with opened(browser, url, names) as (page, unpacked):
                    begun = page.evaluate(_RUN, f"COMPILED = {compiled}\n{_START}")
                start["import of bytecode" if compiled else "import"].append(begun["import"])
                start["open"].append(begun["open"])
                start["unpack"].append(sum(unpacked[name] for name in names))
            with opened(browser, url, (*names, "liveshape.zip")) as (page, unpacked):
                numbers = (DISPATCHES, KERNELS, WARM_UP, IN_A_ROW, options.turns)
                text = f"DISPATCHES, KERNELS, WARM_UP, IN_A_ROW, TURNS = {numbers}\n{_MEASURE}"
                results: dict[str, Any] = page.evaluate(_RUN, text)
            results |= {"browser": browser.version, "isolated": unpacked["isolated"], "start": start}
    results["downloads"] = downloads(wheels, set(begun["files"]))
    Console(width=120).print(table(results))
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
