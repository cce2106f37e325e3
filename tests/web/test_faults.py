"""What goes wrong in a page, in Chromium: each fault has a clear error within seconds, and calling again recovers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page

from liveshape import load
from liveshape.llm import LanguageModel, Sampling
from liveshape.shipped import shipped, shipped_model
from tests.web.page_host import Faults

pytestmark = pytest.mark.slow

IDS = [1, 403, 407, 261]
WORKER = "dist/worker.js"
# Devices as they are made, and how many kernels they compile, seen from outside of the package.
WATCHED = b"""
    globalThis.devices = [];
    globalThis.compiled = { ahead: 0, late: 0 };
    const { requestDevice } = GPUAdapter.prototype;
    GPUAdapter.prototype.requestDevice = async function (...given) {
        const made = await requestDevice.apply(this, given);
        devices.push(made);
        return made;
    };
    const { createComputePipelineAsync, createComputePipeline } = GPUDevice.prototype;
    GPUDevice.prototype.createComputePipelineAsync = function (...given) {
        compiled.ahead += 1;
        return createComputePipelineAsync.apply(this, given);
    };
    GPUDevice.prototype.createComputePipeline = function (...given) {
        compiled.late += 1;
        return createComputePipeline.apply(this, given);
    };
"""
PRELUDE = """
    const liveshape = await import("/dist/index.js");
    const told = (promise) => promise.then(() => null, (error) => `${error.name}: ${error.message}`);
    const row = (size) => ({ data: new Float32Array(size * 64).map((_, at) => Math.sin(at)), shape: [1, size, 64] });
    const block = () => liveshape.load("/demo/block.pte");
    const tokens = async (model, count) => {
        const found = [];
        for await (const { token } of model.stream(ids, { maxTokens: count, temperature: 0 })) found.push(token);
        return found;
    };
"""


def run(page: Page, body: str) -> Any:
    """What the body of an asynchronous function returns."""
    return page.evaluate(f"async (ids) => {{ {PRELUDE} {body} }}", IDS)


def same(data: list[float], size: int) -> None:
    x = np.sin(np.arange(size * 64)).astype(np.float32).reshape(1, size, 64)
    with load(shipped("demo")) as model:
        np.testing.assert_allclose(np.float32(data).reshape(x.shape), model(x), 1e-5, 1e-5)


def native(count: int) -> list[int]:
    with LanguageModel.load(shipped_model()) as model:
        return list(model.stream(IDS, Sampling(), max_tokens=count))


def ended(page: Page) -> None:
    """Wait until no worker is left."""
    for _ in range(100):
        if not page.workers:
            return
        page.wait_for_timeout(100)
    raise AssertionError(f"left: {page.workers}")


def test_a_lost_device_and_a_dead_worker(page: Page, host: tuple[str, Faults]) -> None:
    host[1].prelude[WORKER] = WATCHED
    run(page, "globalThis.model = await block();")
    page.workers[0].evaluate("() => devices.at(-1).destroy()")
    found = run(page, "return [await told(model.run(row(7))), await told(model.close())];")
    assert found[0].startswith("DeviceError: the device was lost: ")
    assert found[1] is None
    same(run(page, "globalThis.model = await block(); return [...(await model.run(row(7))).data];"), 7)
    (worker,) = page.workers
    script = "globalThis.waiting = told((async () => { for (;;) await model.run(row(128)); })());"
    run(page, script)
    worker.evaluate("() => { close(); }")
    assert "worker of liveshape was ended" in run(page, "return waiting;")
    body = "const model = await block(); const out = await model.run(row(7)); await model.close();"
    data, memory = run(page, f"{body} return [[...out.data], await liveshape.memory()];")
    same(data, 7)
    assert memory == 0
    assert len(page.workers) == 1, "those before are gone"


@pytest.mark.parametrize(
    "name",
    [
        "dist/pyodide/pyodide.asm.wasm",
        "dist/pyodide/pyodide.asm.mjs",
        "dist/pyodide/pyodide-lock.json",
        "dist/liveshape.zip",
        "dist/runtime.js",
        "dist/worker.js",
    ],
)
def test_a_file_of_the_package_that_is_missing(page: Page, host: tuple[str, Faults], name: str) -> None:
    host[1].missing = {name}
    page.set_default_timeout(30_000)
    told = run(page, "return told(block());")
    # Of a module that another imports a browser says nothing.
    assert ("worker.js" if name in ("dist/runtime.js", "dist/worker.js") else name) in told
    assert "serve all of the package's dist/" in told
    ended(page)
    if name == "dist/pyodide/pyodide.asm.wasm":
        host[1].missing = set()
        page.set_default_timeout(600_000)
        same(run(page, "return [...(await (await block()).run(row(7))).data];"), 7)


def test_a_page_without_webgpu(page: Page) -> None:
    page.add_init_script("delete Navigator.prototype.gpu")
    page.reload()
    assert "this browser has no WebGPU: use a current Chrome" in run(page, "return told(block());")


def test_no_adapter_then_one(page: Page, host: tuple[str, Faults]) -> None:
    host[1].prelude[WORKER] = b"GPU.prototype.requestAdapter = async () => null;\n"
    assert "WebGPU offers no adapter" in run(page, "return told(block());")
    host[1].reset()
    same(run(page, "return [...(await (await block()).run(row(7))).data];"), 7)


def test_without_jspi(page: Page, host: tuple[str, Faults]) -> None:
    host[1].prelude[WORKER] = b"delete WebAssembly.Suspending;\n"
    body = """
        const model = await block();
        const [first, second] = await Promise.all([model.run(row(7)), model.run(row(128))]);
        const language = await liveshape.loadLanguageModel("/story/");
        const found = await tokens(language, 10);
        const stopping = new AbortController();
        const streamed = [];
        const aborted = told((async () => {
            for await (const { token } of language.stream(ids, { temperature: 0, signal: stopping.signal })) {
                streamed.push(token);
                if (streamed.length === 3) stopping.abort();
            }
        })());
        return [[...first.data], [...second.data], found, await aborted, streamed, await tokens(language, 5)];
    """
    first, second, found, aborted, streamed, after = run(page, body)
    same(first, 7)
    same(second, 128)
    assert found == native(10)
    assert aborted.startswith("AbortError")
    assert streamed == native(3)
    assert after == native(5)


def test_small_limits_memory_denied_and_kernels(page: Page, host: tuple[str, Faults]) -> None:
    deny = b"""
        globalThis.left = 5;
        const { popErrorScope } = GPUDevice.prototype;
        GPUDevice.prototype.popErrorScope = async function () {
            const found = await popErrorScope.call(this);
            return globalThis.left-- === 0 ? new GPUOutOfMemoryError("no memory") : found;
        };
    """
    host[1].prelude[WORKER] = WATCHED + deny
    body = """
        const limits = { maxStorageBufferBindingSize: 2 ** 27, maxComputeWorkgroupStorageSize: 16384,
                         maxStorageBuffersPerShaderStage: 8 };
        await liveshape.device({ features: [], limits, powerPreference: "low-power" });
        return told(block());
    """
    told = run(page, body)
    assert told.startswith("DeviceError: ")
    assert "could not allocate " in told
    assert run(page, "return liveshape.memory();") == 0
    same(run(page, "globalThis.model = await block(); return [...(await model.run(row(7))).data];"), 7)
    granted = page.workers[0].evaluate("() => [devices[0].limits.maxStorageBufferBindingSize, ...devices[0].features]")
    assert granted[0] == 1 << 27
    assert not {"shader-f16", "subgroups"} & set(granted[1:])
    run(page, "globalThis.story = await liveshape.loadLanguageModel('/story/');")
    before = page.workers[0].evaluate("() => compiled")
    body = "for (const size of [128, 1, 7, 64]) await model.run(row(size)); return tokens(story, 20);"
    assert run(page, body) == native(20)
    assert page.workers[0].evaluate("() => compiled") == before
    assert before["late"] == 0
    assert run(page, "await story.close(); await model.close(); return liveshape.memory();") == 0


def test_aborted_loads_free_everything(page: Page, host: tuple[str, Faults]) -> None:
    body = """
        const found = [];
        for (const stage of ["download", "upload", "compile"]) {
            const stopping = new AbortController();
            const onProgress = (row) => { if (row.stage === stage) stopping.abort(); };
            const options = { onProgress, signal: stopping.signal };
            found.push([await told(liveshape.loadLanguageModel("/story/", options)), await liveshape.memory()]);
        }
        const model = await liveshape.loadLanguageModel("/story/");
        return [found, await tokens(model, 5)];
    """
    found, tokens = run(page, body)
    assert [(error.split(":")[0], memory) for error, memory in found] == [("AbortError", 0)] * 3
    assert tokens == native(5)


def test_the_second_visit_is_offline_and_damage_is_mended(page: Page, host: tuple[str, Faults]) -> None:
    body = """
        const stages = [];
        const onProgress = (row) => stages.push(row);
        const model = await liveshape.loadLanguageModel("/story/", { onProgress });
        const found = await tokens(model, 10);
        await model.close();
        return [found, stages, await liveshape.cached()];
    """
    wanted = native(10)
    host[1].cut = lambda name: 900_000 if name == "story/model.pte" else None
    found, stages, cached = run(page, body)
    assert found == wanted
    order = ["download", "upload", "compile"]
    assert sorted({row["stage"] for row in stages}, key=order.index) == order
    download = [row for row in stages if row["stage"] == "download"]
    (program,) = (row["size"] for row in cached if row["url"].endswith("model.pte"))
    assert download[-1]["done"] == download[-1]["total"] == program
    assert all(row["complete"] for row in cached)
    host[1].status = lambda name, asked: 503 if name.startswith("story/") else 0
    found, stages, _ = run(page, body)
    assert found == wanted
    assert {row["stage"] for row in stages} == {"upload", "compile"} or {row["stage"] for row in stages} == {"upload"}
    host[1].reset()
    damage = """
        const root = await navigator.storage.getDirectory();
        const folder = await root.getDirectoryHandle("liveshape");
        for await (const [name, file] of folder.entries()) {
            const { size } = await file.getFile();
            if (!name.endsWith(".data") || size < 1e6) continue;
            const stream = await file.createWritable({ keepExistingData: true });
            await stream.write({ type: "write", position: size - 1000, data: new Uint8Array(900).fill(7) });
            await stream.close();
        }
    """
    run(page, damage)
    found, _, _ = run(page, body)
    assert found == wanted
    assert len(host[1].asked("story/model.pte")) > 1, "the block was fetched"


def test_two_tabs(page: Page, host: tuple[str, Faults]) -> None:
    other = page.context.new_page()
    other.goto(page.url)
    begin = "globalThis.found = liveshape.loadLanguageModel('/story/').then((model) => tokens(model, 10));"
    for each in (page, other):
        run(each, begin)
    found = [run(each, "return globalThis.found;") for each in (page, other)]
    assert found == [native(10)] * 2
    assert sum(asked != "bytes=0-0" for asked in host[1].asked("story/model.pte")) == 1, "one download for both"


def test_frames_go_on_while_a_model_streams(page: Page) -> None:
    body = """
        const model = await liveshape.loadLanguageModel("/story/");
        const tasks = [];
        const durations = (entries) => entries.map((each) => each.duration);
        const observer = new PerformanceObserver((list) => tasks.push(...durations(list.getEntries())));
        observer.observe({ type: "longtask" });
        let found, streamed, streaming, frames;
        // Other work on the machine may block a page now and then; what streams would block it every time.
        for (let attempt = 0; attempt < 5 && (!streamed || streamed.length); attempt++) {
            let going = true;
            [frames, tasks.length] = [0, 0];
            const count = () => { frames += 1; if (going) requestAnimationFrame(count); };
            requestAnimationFrame(count);
            const began = performance.now();
            found = await tokens(model, 60);
            streaming = performance.now() - began;
            going = false;
            streamed = [...tasks, ...durations(observer.takeRecords())];
        }
        // The counter must be able to fail: a task of 120 ms of the page's own is seen.
        tasks.length = 0;
        const until = performance.now() + 120;
        while (performance.now() < until);
        await new Promise((resolve) => setTimeout(resolve, 200));
        return { found, streamed, seen: tasks, frames, streaming };
    """
    found = run(page, body)
    assert found["found"] == native(60)
    assert found["seen"], "the observer sees long tasks"
    assert found["streamed"] == [], "the main thread was blocked for more than 50 ms"
    assert found["frames"] > 0.03 * found["streaming"], f"{found['frames']} frames in {found['streaming']} ms"


def test_nothing_waits_for_frames(page: Page, host: tuple[str, Faults]) -> None:
    """A tab in the background has no frames, and its timers come once a second."""
    late = "globalThis.requestAnimationFrame = () => 0;"
    timers = (
        "{ const set = setTimeout; globalThis.setTimeout = (f, ms, ...r) => set(f, Math.max(ms ?? 0, 1000), ...r); }"
    )
    host[1].prelude[WORKER] = f"{late}\n".encode()
    page.add_init_script(f"{late} {timers} Object.defineProperty(document, 'hidden', {{ value: true }});")
    page.reload()
    body = "const model = await liveshape.loadLanguageModel('/story/'); return tokens(model, 10);"
    assert run(page, body) == native(10)


def test_an_abort_comes_within_a_token(page: Page) -> None:
    body = """
        const model = await liveshape.loadLanguageModel("/story/");
        const stopping = new AbortController();
        let seen = 0, after = 0;
        const reading = (async () => {
            for await (const response of model.stream("Once", { raw: true, signal: stopping.signal })) {
                seen += 1;
                if (stopping.signal.aborted) after += 1;
            }
        })();
        while (seen < 5) await new Promise((resolve) => setTimeout(resolve, 1));
        stopping.abort();
        const error = await told(reading);
        return [error, after, (await tokens(model, 5)).length];
    """
    error, after, count = run(page, body)
    assert error.startswith("AbortError")
    assert (after, count) == (0, 5)
