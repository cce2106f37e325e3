"""Downloads of a page and their cache in Chromium: nothing is fetched twice, and nothing that is damaged is read."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from playwright.sync_api import Page

from liveshape.shipped import shipped_model
from tests.web.page_host import Faults

pytestmark = pytest.mark.slow

MODEL = shipped_model() / "model.pte"
NAME = "story/model.pte"
BLOCK = 1 << 20
SCRIPT = """async ({ name, given }) => {
    const worker = globalThis.downloads ??= new Worker("/test/downloads.js", { type: "module" });
    return new Promise((resolve, reject) => {
        worker.onmessage = ({ data }) => resolve(data);
        worker.onerror = (event) => reject(new Error(event.message));
        worker.postMessage({ name, given });
    });
}"""


def tell(page: Page, name: str, **given: Any) -> Any:
    return page.evaluate(SCRIPT, {"name": name, "given": given})


def read(page: Page, path: str = f"/{NAME}", **given: Any) -> dict[str, Any]:
    """What the worker read of a file, or its error."""
    url = page.evaluate("(path) => new URL(path, location.href).href", path)
    told = tell(page, "read", url=url, **given)
    found: dict[str, Any] = told.get("result", told)
    if "digest" in found:
        assert found["digest"] == hashlib.sha256(MODEL.read_bytes()).hexdigest()
    return found


def restart(page: Page) -> None:
    page.evaluate("() => { globalThis.downloads?.terminate(); globalThis.downloads = undefined; }")


def cached(page: Page) -> Any:
    return page.evaluate("async () => (await import('/dist/index.js')).cached()")


def test_a_second_read_takes_one_request_and_one_byte(page: Page, host: tuple[str, Faults]) -> None:
    size = MODEL.stat().st_size
    found = read(page)
    assert found["kind"] == "CachedSource"
    done = [row["done"] for row in found["progress"]]
    assert done == sorted(done)
    assert found["progress"][-1] == {"done": size, "total": size}
    assert len(host[1].asked(NAME)) == 2, "one for the version, one for all"
    host[1].requests.clear()
    again = read(page)
    assert (host[1].asked(NAME), again["progress"]) == (["bytes=0-0"], [])
    (row,) = cached(page)
    assert (row["bytes"], row["size"], row["complete"]) == (size, size, True)
    assert row["url"].endswith(NAME)


def test_offline_and_a_server_that_is_down(page: Page, host: tuple[str, Faults]) -> None:
    host[1].status = lambda name, asked: 503 if name == NAME else 0
    told = read(page)
    assert f"{NAME}: 503" in told["error"]
    assert len(host[1].asked(NAME)) == 3, "tried three times"
    host[1].reset()
    read(page)
    host[1].status = lambda name, asked: 503 if name == NAME else 0
    assert read(page)["kind"] == "CachedSource"
    host[1].reset()
    page.context.set_offline(True)
    assert read(page)["kind"] == "CachedSource"
    assert host[1].asked(NAME) == []
    page.context.set_offline(False)


def test_a_new_version_replaces_the_old_one(page: Page, host: tuple[str, Faults]) -> None:
    read(page)
    host[1].salt = b"another"
    host[1].bytes_sent.clear()
    read(page)
    assert host[1].bytes_sent[NAME] > MODEL.stat().st_size
    assert len(cached(page)) == 1
    assert len(tell(page, "names")["result"]) == 2


@pytest.mark.parametrize("ranges", [True, False])
def test_a_server_that_tells_no_version_is_asked_for_all_again(
    page: Page, host: tuple[str, Faults], ranges: bool
) -> None:
    host[1].tags, host[1].ranges = False, ranges
    for _ in range(2):
        host[1].bytes_sent.clear()
        read(page)
        assert host[1].bytes_sent[NAME] >= MODEL.stat().st_size
    assert len(cached(page)) == 1
    page.context.set_offline(True)
    assert read(page)["kind"] == "CachedSource"
    page.context.set_offline(False)


def test_a_file_that_is_replaced_meanwhile_is_no_mixture(page: Page, host: tuple[str, Faults]) -> None:
    host[1].tags, host[1].modified = False, "Mon, 16 Nov 2026 10:00:00 GMT"

    def cut(name: str) -> int | None:
        if name != NAME:
            return None
        host[1].cut, host[1].modified = lambda _: None, "Tue, 17 Nov 2026 10:00:00 GMT"
        return 2 * BLOCK + 1000

    host[1].cut = cut
    assert "has changed while it was read: load it again" in read(page)["error"]
    assert read(page)["kind"] == "CachedSource"


def test_other_bytes_than_were_asked_for(page: Page, host: tuple[str, Faults]) -> None:
    host[1].surplus = bytes(5)
    assert read(page)["kind"] == "CachedSource", "more than was asked for is left out"
    page.evaluate("async () => (await import('/dist/index.js')).clearCache()")
    host[1].reset()
    host[1].starts_over = True
    host[1].cut = lambda name: 2 * BLOCK + 1000 if name == NAME else None
    assert "on were asked for, and bytes 0-" in read(page)["error"]


def test_a_damaged_block_is_fetched_again(page: Page, host: tuple[str, Faults]) -> None:
    read(page)
    tell(page, "damage", at=BLOCK + 77)
    host[1].requests.clear()
    read(page)
    first, *others = host[1].asked(NAME)
    assert first == "bytes=0-0"
    assert others, "from the network"
    assert all(BLOCK <= int(str(each)[6:].split("-")[0]) < 2 * BLOCK for each in others)
    host[1].requests.clear()
    found = read(page)
    assert host[1].asked(NAME) == ["bytes=0-0", f"bytes={BLOCK}-{2 * BLOCK - 1}"], "the cache was mended"
    assert found["progress"]
    host[1].requests.clear()
    read(page)
    assert host[1].asked(NAME) == ["bytes=0-0"]


@pytest.mark.parametrize("at", [9, 8192, 8196, 8192 + 8 * 3 + 5])
def test_a_damaged_index_counts_for_nothing(page: Page, host: tuple[str, Faults], at: int) -> None:
    read(page)
    tell(page, "damage", at=at, of=".index")
    read(page)
    (row,) = cached(page)
    assert row["complete"]


def test_a_damaged_block_without_ranges_or_network(page: Page, host: tuple[str, Faults]) -> None:
    host[1].ranges = False
    assert read(page)["kind"] == "BlobSource"
    assert read(page)["kind"] == "CachedSource"
    tell(page, "damage", at=77)
    assert read(page)["kind"] == "BlobSource"
    assert read(page)["kind"] == "CachedSource"
    tell(page, "damage", at=77)
    page.context.set_offline(True)
    told = read(page)
    page.context.set_offline(False)
    assert "bytes 0 to 300001 of its cached copy are damaged" in told["error"]


def test_a_worker_that_is_killed_in_the_middle_goes_on_there(page: Page, host: tuple[str, Faults]) -> None:
    host[1].cut = lambda name: 2 * BLOCK + 1000 if name == NAME else None
    die = """
        const { write } = CacheFolder.prototype;
        CacheFolder.prototype.write = async function (...given) {
            const writer = await write.apply(this, given);
            const { put } = writer;
            // Killed between the data of a block and its row in the index.
            writer.put = (number, bytes) => {
                if (number < 2) return put.call(writer, number, bytes);
                writer.data.write(bytes, { at: number * 1048576 });
                close();
                throw new Error("dead");
            };
            return writer;
        };
    """
    script = f"(data) => Promise.race([({SCRIPT})(data), new Promise((end) => setTimeout(end, 3000))])"
    url = f"{host[0]}/{NAME}"
    page.evaluate(script, {"name": "read", "given": {"url": url, "hook": die}})
    restart(page)
    (row,) = cached(page)
    assert (row["bytes"], row["complete"]) == (2 * BLOCK, False)
    host[1].reset()
    read(page)
    assert host[1].asked(NAME) == ["bytes=0-0", f"bytes={2 * BLOCK}-{MODEL.stat().st_size - 1}"]


def test_a_connection_that_breaks_goes_on_where_it_was(page: Page, host: tuple[str, Faults]) -> None:
    host[1].cut = lambda name: 700_000 if name == NAME else None
    found = read(page)
    assert found["kind"] == "CachedSource"
    size = MODEL.stat().st_size
    assert found["progress"][-1] == {"done": size, "total": size}
    starts = [int(str(asked)[6:].split("-")[0]) for asked in host[1].asked(NAME)[1:]]
    assert len(starts) > size // 700_000
    assert starts == sorted(starts), "never back"
    assert starts[-1] >= size - 700_000


def test_a_connection_that_brings_nothing_is_told(page: Page, host: tuple[str, Faults]) -> None:
    host[1].cut = lambda name: 0 if name == NAME else None
    told = read(page)
    assert f"{NAME}: the download broke off at byte 0 of {MODEL.stat().st_size}, 3 times" in told["error"]
    host[1].reset()
    assert read(page)["kind"] == "CachedSource"


def test_a_full_quota_goes_on_without_and_says_so_once(page: Page, host: tuple[str, Faults]) -> None:
    full = """
        const { write } = FileSystemSyncAccessHandle.prototype;
        let left = 2500000;
        FileSystemSyncAccessHandle.prototype.write = function (bytes, where) {
            left -= bytes.length;
            if (left < 0) throw new DOMException("no space", "QuotaExceededError");
            return write.call(this, bytes, where);
        };
    """
    found = read(page, hook=full)
    assert [text for text in found["warned"] if "QuotaExceededError" in text]
    found = read(page)
    assert len(found["warned"]) == 1
    (row,) = cached(page)
    assert (row["bytes"], row["complete"]) == (2 * BLOCK, False)


def test_without_the_cache(page: Page, host: tuple[str, Faults]) -> None:
    found = read(page, options={"cache": False}, piece=BLOCK)
    assert found["kind"] == "UrlSource"
    assert cached(page) == []
    left = 2

    def busy(name: str, asked: str | None) -> int:
        nonlocal left
        left -= name == NAME and asked != "bytes=0-0"
        return 503 if 0 <= left < 2 else 0

    host[1].status = busy
    assert read(page, options={"cache": False}, piece=BLOCK)["kind"] == "UrlSource"
    assert left < 0, "ranges are tried again"


@pytest.mark.parametrize("fault", ["compressed", "ranges", "redirect"])
def test_servers_of_all_kinds(page: Page, host: tuple[str, Faults], fault: str) -> None:
    host[1].ranges = fault == "redirect"
    host[1].compressed = fault == "compressed"
    path = f"/moved/{NAME}" if fault == "redirect" else f"/{NAME}"
    found = read(page, path)
    assert "error" not in found, found
    assert found["progress"][-1]["done"] == MODEL.stat().st_size
    sent = host[1].bytes_sent[NAME]
    again = read(page, path)
    assert again["kind"] == "CachedSource"
    assert fault != "redirect" or host[1].bytes_sent[NAME] == sent + 1
    assert cached(page)[0]["url"].endswith(path)


def test_headers_and_credentials_go_with_every_request(page: Page, host: tuple[str, Faults]) -> None:
    page.context.add_cookies([{"name": "who", "value": "me", "url": host[0]}])
    for cache in (True, False):
        host[1].reset()
        request = {"headers": {"Authorization": "Bearer 7"}, "credentials": "include"}
        read(page, options={"request": request, "cache": cache}, piece=2 * BLOCK)
        found = [heard for name, heard in host[1].heard if name == NAME]
        assert len(found) >= 2
        assert {(heard.get("Authorization"), heard.get("Cookie")) for heard in found} == {("Bearer 7", "who=me")}


def test_what_is_not_there(page: Page, host: tuple[str, Faults]) -> None:
    assert "nothing.pte: 404" in read(page, "/demo/nothing.pte")["error"]
    assert len(host[1].asked("demo/nothing.pte")) == 1, "and is not asked for again"


def test_two_tabs_read_at_once_and_one_downloads(page: Page, host: tuple[str, Faults]) -> None:
    other = page.context.new_page()
    other.goto(page.url)
    url = f"{host[0]}/{NAME}"
    begin = f"(data) => {{ globalThis.found = ({SCRIPT})(data); }}"
    for each in (page, other):
        each.evaluate(begin, {"name": "read", "given": {"url": url, "keep": True}})
    found = [each.evaluate("() => globalThis.found") for each in (page, other)]
    assert [each["result"]["kind"] for each in found] == ["CachedSource", "CachedSource"], found
    assert sorted(map(str, host[1].asked(NAME))) == sorted(
        ["bytes=0-0", "bytes=0-0", f"bytes=0-{MODEL.stat().st_size - 1}"]
    )
    # A new version cannot replace what the first tab has open.
    host[1].salt = b"another"
    assert read(other)["kind"] == "UrlSource"
    other.close()


def test_a_tab_that_stands_still_does_not_stop_others(page: Page, host: tuple[str, Faults]) -> None:
    url = f"{host[0]}/{NAME}"
    page.evaluate(
        "(url) => { navigator.locks.request(`liveshape download ${url}`, () => new Promise(() => {})); }", url
    )
    other = page.context.new_page()
    other.set_default_timeout(100_000)
    other.goto(page.url)
    found = read(other)
    assert "another tab" in found["warned"][0]
    assert found["kind"] == "UrlSource"
    other.close()


def test_an_abort_in_the_middle_of_a_download(page: Page, host: tuple[str, Faults]) -> None:
    assert "AbortError" in read(page, abortAfter=2)["error"]
    assert read(page)["kind"] == "CachedSource"


def test_clearing(page: Page, host: tuple[str, Faults]) -> None:
    read(page, keep=True)
    page.evaluate("async () => (await import('/dist/index.js')).clearCache()")
    assert cached(page) == [], "although the data is open"
    restart(page)
    page.evaluate("async () => (await import('/dist/index.js')).clearCache()")
    assert tell(page, "names")["result"] == []
    assert read(page)["kind"] == "CachedSource"
