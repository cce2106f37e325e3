"""The sites of `liveshape web` in Chromium: what a person sees there is what the native engine computes."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from liveshape import load
from liveshape.errors import FormatError
from liveshape.llm import LanguageModel, generate
from liveshape.llm.text.tokenizer import Tokenizer
from liveshape.shipped import shipped, shipped_model
from tests.support.browser import FLAGS, of_the_system
from tests.support.chat_model import write_folder_model

pytestmark = pytest.mark.slow

PATIENCE = 600_000  # milliseconds on a software adapter, on a busy machine
BEGINNING = "Once upon a time"


@contextmanager
def served(*words: object) -> Iterator[str]:
    """The address that `liveshape web --serve` prints."""
    command = [sys.executable, "-m", "liveshape", "web", *map(str, words), "--serve", "--port", "0"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as running:
        assert running.stdout is not None
        try:
            yield next(line for line in running.stdout if line.startswith("open ")).split()[1]
        finally:
            running.terminate()


@contextmanager
def opened(browser: Browser, url: str, script: str = "") -> Iterator[Page]:
    """A page, whose scripts may not fail and whose policy may not be broken."""
    context = browser.new_context(viewport={"width": 1200, "height": 900}, accept_downloads=True)
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda line: wrong.append(line.text) if line.type == "error" else None)
    if script:
        page.add_init_script(script)
    page.goto(url)
    yield page
    assert wrong == []
    context.close()


def wait_for(place: Locator, text: str) -> None:
    expect(place).to_contain_text(text, timeout=PATIENCE)


# Chat


def set_up(page: Page, **settings: float) -> None:
    page.get_by_role("button", name="Settings", exact=True).click()
    for name, value in settings.items():
        page.locator(f"[name={name}]").fill(str(value))
    page.get_by_role("button", name="Done", exact=True).click()


def begin(page: Page, text: str) -> None:
    page.get_by_role("textbox", name="Message", exact=True).fill(text)
    page.keyboard.press("Enter")


def answer(page: Page) -> Locator:
    return page.get_by_role("article", name="Answer").last


def ask(page: Page, text: str) -> None:
    begin(page, text)
    expect(answer(page)).to_have_attribute("aria-busy", "false", timeout=PATIENCE)


def said(page: Page) -> list[str]:
    """The contents of all messages of the only conversation, as they are kept."""
    script = "() => Object.entries(localStorage).filter(([name]) => name.startsWith('liveshape.conversation.'))"
    ((_, text),) = page.evaluate(script)
    return [message["content"] for message in json.loads(text)["messages"]]


@pytest.fixture(scope="module")
def story_site() -> Iterator[str]:
    with served("story") as url:
        yield url


def test_a_model_without_a_template_continues_text_as_python_does(gpu_browser: Browser, story_site: str) -> None:
    with opened(gpu_browser, story_site) as page:
        expect(page.get_by_text("This model continues text: write how it begins.")).to_be_visible()
        wait_for(page.locator("#engine"), "a software adapter")
        set_up(page, temperature=0, max_tokens=12)
        ask(page, BEGINNING)
        wait_for(answer(page), "tokens/s")
        expect(answer(page)).to_contain_text("12 tokens")
        expect(answer(page)).to_contain_text("ended at the limit of tokens")
        ask(page, "The end came")
        first, written, second, more = said(page)
        with LanguageModel.load(shipped_model()) as model:
            tokenizer = Tokenizer.load(shipped_model())
            options: dict[str, Any] = {"max_tokens": 12, "temperature": 0, "raw": True}
            assert written == generate(model, tokenizer, BEGINNING, **options)
            model.reset()
            assert more == generate(model, tokenizer, f"{first}{written} {second}", **options)


def test_stop_ends_an_answer_and_the_next_one_comes(gpu_browser: Browser, story_site: str) -> None:
    with opened(gpu_browser, story_site) as page:
        begin(page, BEGINNING)
        wait_for(answer(page), "tokens/s")
        page.get_by_role("button", name="Stop").click()
        expect(answer(page)).to_contain_text("stopped", timeout=5_000)
        kept = said(page)[1]
        assert len(kept.split()) < 100, "the whole context was written"
        set_up(page, temperature=0, max_tokens=3)
        ask(page, "And then")
        expect(answer(page)).to_contain_text("3 tokens")
        assert said(page)[1] == kept


def test_messages_go_through_the_template_and_two_conversations_take_turns(
    gpu_browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIVESHAPE_CACHE", str(tmp_path / "cache"))
    write_folder_model(tmp_path / "tiny")
    with served(tmp_path / "tiny", "-o", tmp_path / "site") as url, opened(gpu_browser, url) as page:
        expect(page.locator("#model-name")).to_have_text("tiny")
        expect(page.get_by_text("This model continues text")).to_have_count(0)
        set_up(page, temperature=0, max_tokens=8)
        begin(page, "cat")
        page.get_by_role("button", name="New", exact=True).click()
        ask(page, "dog")
        page.get_by_role("navigation").get_by_role("button", name="cat", exact=True).click()
        expect(answer(page)).to_have_attribute("aria-busy", "false", timeout=PATIENCE)
        kept = page.evaluate("() => Object.values(localStorage)")
        found = [json.loads(each)["messages"] for each in kept if "messages" in each]
        assert [reply["state"] for _, reply in found] == ["done"] * 2, [reply.get("error") for _, reply in found]
        written = {question["content"]: reply["content"] for question, reply in found}
    folder = tmp_path / "site" / "model"
    tokenizer = Tokenizer.load(folder)
    with LanguageModel.load(folder) as model:
        for word in ("cat", "dog"):
            model.reset()
            asked = [{"role": "user", "content": word}]
            assert written[word] == generate(model, tokenizer, asked, max_tokens=8, temperature=0)


# The form


@pytest.fixture(scope="module")
def demo_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    site = tmp_path_factory.mktemp("demo") / "site"
    with served("demo", "-o", site) as url:
        yield url, site


def run(page: Page) -> None:
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.locator("#run")).to_be_enabled(timeout=PATIENCE)


def output(page: Page, place: int, path: Path) -> Any:
    """An output, as its download has it."""
    with page.expect_download() as download:
        page.get_by_role("button", name="Download .npy").nth(place).click()
    download.value.save_as(path)
    return np.load(path)


def test_a_form_runs_at_the_size_of_its_slider(
    gpu_browser: Browser, demo_site: tuple[str, Path], tmp_path: Path
) -> None:
    x = np.random.default_rng(1).standard_normal((1, 31, 64)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "long.npy", np.zeros((1, 129, 64), np.float32))
    with opened(gpu_browser, demo_site[0]) as page, load(shipped("demo")) as model:
        expect(page.locator("#run")).to_be_enabled(timeout=PATIENCE)
        page.get_by_role("slider").fill("7")
        given, found = page.locator("#inputs .card"), page.locator("#outputs .card")
        expect(given.locator(".shape")).to_have_text("1x7x64")
        page.get_by_label("Contents of input 0").select_option("Zeros")
        run(page)
        expect(found.locator(".shape")).to_have_text("1x7x64")
        wanted = model(np.zeros((1, 7, 64), np.float32))
        np.testing.assert_allclose(output(page, 0, tmp_path / "zeros.npy"), wanted, 1e-5, 1e-5)
        page.get_by_label("File for input 0").set_input_files(tmp_path / "long.npy")
        expect(given).to_contain_text("long.npy is 1x129x64; input 0 is up to 1x128x64")
        page.get_by_label("File for input 0").set_input_files(tmp_path / "x.npy")
        expect(page.get_by_role("slider")).to_have_value("31")
        run(page)
        y = model(x)
        np.testing.assert_allclose(output(page, 0, tmp_path / "y.npy"), y, 1e-5, 1e-5)
        shown = dict(zip(found.locator("dt").all_inner_texts(), found.locator("dd").all_inner_texts(), strict=True))
        for name, value in {"min": y.min(), "max": y.max(), "mean": y.mean()}.items():
            assert float(shown[name]) == pytest.approx(float(value), rel=1e-4, abs=1e-5)
        numbers = [float(each) for each in found.locator(".numbers li").all_inner_texts()]
        np.testing.assert_allclose(numbers, y.reshape(-1)[: len(numbers)], 1e-4, 1e-5)
        page.get_by_role("slider").fill("9")
        run(page)
        expect(page.get_by_role("alert")).to_contain_text("the file is 1x31x64, the sizes above say 1x9x64")
        page.get_by_label("Contents of input 0").select_option("Numbers")
        page.get_by_role("textbox", name="Numbers").fill("1, two")
        run(page)
        expect(page.get_by_role("alert")).to_have_text("input 0: “two” is not a number")
        page.get_by_role("textbox", name="Numbers").fill("0.5")
        page.keyboard.press("Control+Enter")
        expect(page.get_by_role("alert")).to_be_hidden()
        expect(found.locator(".shape")).to_have_text("1x9x64", timeout=PATIENCE)


def png(pixels: Any) -> bytes:
    """An RGB picture, unfiltered."""
    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    chunks = {
        b"IHDR": struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0),
        b"IDAT": zlib.compress(rows),
        b"IEND": b"",
    }
    written = b"\x89PNG\r\n\x1a\n"
    for kind, content in chunks.items():
        written += struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
    return written


def write_picture_program(path: Path) -> None:
    """Blurs a picture of any size, and scores it in a vector; the signature names height and width."""
    import torch

    from liveshape.export.module.torch_export import ModuleSource, lower

    class Blur(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("weight", torch.ones(3, 1, 3, 3) / 9)
            self.head = torch.nn.Linear(3, 10)

        def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            blurred = torch.nn.functional.conv2d(image, self.weight, padding=1, groups=3)
            return blurred, self.head(image.mean(3).mean(2))

    torch.manual_seed(0)
    sizes = {2: torch.export.Dim("height", min=8, max=64), 3: torch.export.Dim("width", min=8, max=64)}
    source = ModuleSource(Blur().eval(), (torch.rand(1, 3, 64, 64),), {"image": sizes})
    lower(source, path)


def test_a_picture_goes_in_and_pictures_and_plots_come_out(gpu_browser: Browser, tmp_path: Path) -> None:
    write_picture_program(tmp_path / "blur.pte")
    pixels = np.random.default_rng(2).integers(0, 256, (24, 40, 3), np.uint8)
    (tmp_path / "picture.png").write_bytes(png(pixels))
    unit = pixels.astype(np.float32).transpose(2, 0, 1)[None] / 255
    mean, deviation = (np.float32(each).reshape(1, 3, 1, 1) for each in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))
    site = served(tmp_path / "blur.pte")
    with site as url, opened(gpu_browser, url) as page, load(tmp_path / "blur.pte") as model:
        expect(page.locator("#run")).to_be_enabled(timeout=PATIENCE)
        page.get_by_role("slider", name="height").fill("24")
        page.get_by_role("slider", name="width").fill("40")
        page.get_by_label("File for image").set_input_files(tmp_path / "picture.png")
        for scale, x in {"0 to 1": unit, "ImageNet's mean and deviation": (unit - mean) / deviation}.items():
            page.get_by_label("Values of the picture").select_option(scale)
            run(page)
            for place, wanted in enumerate(model(x)):
                found = output(page, place, tmp_path / "out.npy")
                assert found.shape == wanted.shape
                np.testing.assert_allclose(found, wanted, 1e-4, 1e-4)
        picture, plot = page.locator("#outputs .card").all()
        assert picture.locator("canvas").evaluate("(canvas) => [canvas.width, canvas.height]") == [40, 24]
        assert plot.locator("rect.bar").count() == 10
        assert plot.locator("canvas").count() == 0


# What is missing or broken


def test_a_broken_model_is_told_in_the_words_of_the_package(gpu_browser: Browser, tmp_path: Path) -> None:
    site = tmp_path / "site"
    with served("demo", "-o", site) as url:
        content = bytearray((site / "model" / "model.pte").read_bytes())
        content[4:8] = b"ET99"
        (site / "model" / "model.pte").write_bytes(content)
        with pytest.raises(FormatError) as native:
            load(site / "model" / "model.pte")
        with opened(gpu_browser, url) as page:
            wait_for(page.locator("#engine.bad"), str(native.value).partition(": ")[2])
            expect(page.locator("#run")).to_be_disabled()


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("delete Navigator.prototype.gpu", "This browser has no WebGPU"),
        ("Object.defineProperty(window, 'isSecureContext', { value: false })", "open it by https"),
        ("GPU.prototype.requestAdapter = async () => null", "found no GPU"),
    ],
)
def test_what_the_browser_lacks_is_said(gpu_browser: Browser, story_site: str, script: str, told: str) -> None:
    with opened(gpu_browser, story_site, script) as page:
        wait_for(page.locator("#engine.bad"), told)
        begin(page, BEGINNING)
        wait_for(answer(page).get_by_role("alert"), told)


def test_a_browser_without_webgpu_is_told(gpu_browser: Browser, demo_site: tuple[str, Path]) -> None:
    plain = gpu_browser.browser_type.launch(executable_path=of_the_system(), args=list(FLAGS))
    with opened(plain, demo_site[0]) as page:
        wait_for(page.locator("#engine.bad"), "WebGPU")
        expect(page.locator("#run")).to_be_disabled()
    plain.close()
