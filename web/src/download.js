// Files by URL: one request tells the size and the version, then the whole file streams into the cache, and Python reads
// it from there. Without a cache it is read by HTTP Range, and from servers that have none it comes whole, as a Blob.

import { BLOCK, cacheFolder } from "./cache.js";
import { BlobSource, UrlSource, failed } from "./sources.js";

const TRIES = 3;
const PAUSE = 300; // ms before the second try, three times as long before the third
const STALLED = 30_000; // ms without a byte, after which a connection counts as broken
const OTHER_STALLED = 10_000; // ms that another tab's download may stand still

let warned = false;

// A source of a URL. `request` has credentials and headers, `onProgress` gets { done, total } of the download.
export async function openUrl(url, { cache = true, request = {}, onProgress, signal } = {}) {
  const folder = cache ? await cacheFolder() : null;
  const kept = await folder?.look(url);
  let asked;
  try {
    asked = await ask(url, request, signal, kept?.complete ? 1 : TRIES);
  } catch (error) {
    // Offline, or a server that is down: what is here was whole.
    if (kept?.complete && error.passing) {
      return Object.assign(await folder.read(url, kept, new Unreachable(url, error)), { offline: true });
    }
    throw error;
  }
  const { version, ranges, answer } = asked;
  if (kept?.complete && kept.version === version) {
    if (!ranges) await answer.body?.cancel();
    const found = await known(folder, url, kept, ranges ? new UrlSource(url, asked, request) : null);
    if (found) return found;
    return openUrl(url, { cache, request, onProgress, signal });
  }
  if (!ranges) {
    const blob = await whole(asked, onProgress, signal);
    if (folder) await caching(signal, () => locked(url, signal, () => storeBlob(folder, url, version, blob)));
    return new BlobSource(blob);
  }
  const source = new UrlSource(url, asked, request);
  if (!folder) return source;
  const context = { folder, source, onProgress, signal };
  const turn = async () => {
    const here = await folder.look(url);
    if (here?.version !== version || !here.complete) await fill(context);
  };
  const other = { onProgress, look: () => folder.look(url), version };
  await caching(signal, () => locked(url, signal, turn, other));
  const found = await folder.look(url);
  const usable = found?.version === version && found.bytes > 0;
  return usable ? await folder.read(url, found, source).catch(() => source) : source;
}

// A complete file of the cache. Where its server cannot send a block again, every block is checked before.
async function known(folder, url, kept, source) {
  try {
    if (source) return await folder.read(url, kept, source);
    const found = await folder.read(url, kept, new Unreachable(url, new Error("the server sends no parts of files")));
    try {
      for (let at = 0; at < kept.size; at += BLOCK) found.read(at, Math.min(BLOCK, kept.size - at));
    } catch {
      found.close();
      await folder.remove(url);
      return null;
    }
    return found;
  } catch (error) {
    if (error.name !== "NotFoundError") throw error;
    await folder.remove(url); // an index without its data
    return null;
  }
}

// Work on the cache, whose failure is never that of a load.
async function caching(signal, work) {
  try {
    return await work();
  } catch (error) {
    if (error.ofDownload || signal?.aborted) throw error;
    if (!warned) console.warn(`liveshape goes on without its cache of downloads: ${error.name}: ${error.message}`);
    warned = true;
  }
}

// One tab at a time downloads a file. Others wait as long as that one makes progress, which they tell as their own.
async function locked(url, signal, work, other) {
  if (!navigator.locks) return work();
  const name = `liveshape download ${url}`;
  const done = await navigator.locks.request(name, { ifAvailable: true }, async (lock) => lock && { value: await work() });
  if (done) return done.value;
  if (!other) return;
  const waiting = new AbortController();
  const stop = () => waiting.abort(signal.reason);
  signal?.addEventListener("abort", stop);
  let [bytes, since] = [0, performance.now()];
  const watching = setInterval(async () => {
    const kept = await other.look().catch(() => null);
    const now = kept?.version === other.version ? kept.bytes : 0;
    if (now > bytes) {
      [bytes, since] = [now, performance.now()];
      other.onProgress?.({ done: now, total: kept.size });
    } else if (performance.now() - since > OTHER_STALLED) {
      waiting.abort(new Error(`another tab has begun to download ${url} and does not go on`));
    }
  }, 500);
  try {
    return await navigator.locks.request(name, { signal: waiting.signal }, work);
  } finally {
    clearInterval(watching);
    signal?.removeEventListener("abort", stop);
  }
}

// The first byte of a file, for its size and version, or the whole answer of a server without ranges.
async function ask(url, request, signal, tries) {
  const answer = await requested(url, request, { Range: "bytes=0-0" }, signal, tries).catch((error) => {
    if (error.status !== 0) throw error;
    // Chromium fails where a server compresses although a part was asked for.
    return requested(url, request, {}, signal, 1).catch(() => Promise.reject(error));
  });
  const encoded = answer.headers.get("Content-Encoding");
  const size = Number(answer.headers.get("Content-Range")?.split("/")[1]);
  if (answer.status === 206 && size && !encoded) {
    await answer.arrayBuffer();
    return { answer, size, ranges: true, ...versionOf(answer.headers, size) };
  }
  let all = answer;
  if (answer.status === 206) {
    await answer.body?.cancel();
    all = await requested(url, request, {}, signal, tries);
  }
  // The length of a compressed answer is not that of the file.
  const length = all.headers.get("Content-Length");
  const known = all.headers.get("Content-Encoding") ? 0 : Number(length);
  return { answer: all, size: known, ranges: false, ...versionOf(all.headers, length) };
}

// What tells a file from another one at the same URL. A server that says neither is believed nothing: no later answer is of
// the same version, and what is kept serves offline alone.
function versionOf(headers, size) {
  const validators = Object.fromEntries(["ETag", "Last-Modified"].map((name) => [name, headers.get(name)]));
  const known = Object.values(validators).some(Boolean) ? Object.values(validators) : [crypto.randomUUID()];
  return { validators, version: [...known, size].join(" ") };
}

// Tries again what may pass: no connection, a server that is busy.
async function requested(url, { credentials, headers }, more, signal, tries = TRIES) {
  for (let attempt = 1; ; attempt++) {
    let problem;
    try {
      const options = { credentials, headers: { ...headers, ...more }, cache: "no-store", signal };
      const answer = await fetch(url, options);
      if (answer.ok) return answer;
      problem = failed(url, answer.status, answer.statusText);
      await answer.body?.cancel();
    } catch (error) {
      if (signal?.aborted) throw signal.reason;
      problem = failed(url, 0, error.message);
    }
    if (attempt >= tries || !problem.passing) throw ofDownload(problem);
    await new Promise((resolve) => setTimeout(resolve, PAUSE * 3 ** (attempt - 1)));
  }
}

const ofDownload = (error) => Object.assign(error, { ofDownload: true });

// Streams the missing blocks of a file into the cache; a connection that breaks goes on where it was.
async function fill({ folder, source, onProgress, signal }) {
  const { url, size, version, request } = source;
  const writer = await folder.write(url, version, size);
  try {
    const { kept } = writer;
    const block = new Uint8Array(BLOCK);
    let done = kept.bytes;
    onProgress?.({ done, total: size });
    for (let run = kept.missing(); run; run = kept.missing(run[1])) {
      const end = Math.min(size, run[1] * BLOCK);
      let at = run[0] * BLOCK;
      for (let failures = 0; at < end; ) {
        const began = at;
        const answer = await requested(url, request, { Range: `bytes=${at}-${end - 1}` }, signal);
        try {
          source.check(answer.status, (name) => answer.headers.get(name), at);
        } catch (error) {
          throw ofDownload(error);
        }
        try {
          for await (const whole of chunks(answer.body)) {
            const chunk = whole.subarray(0, end - at); // a server may send more than it was asked for
            for (let taken = 0; taken < chunk.length; ) {
              const number = Math.floor(at / BLOCK);
              const place = at - number * BLOCK;
              const count = Math.min(chunk.length - taken, kept.span(number) - place);
              block.set(chunk.subarray(taken, taken + count), place);
              taken += count;
              at += count;
              if (place + count < kept.span(number)) continue;
              writer.put(number, block.subarray(0, place + count));
              onProgress?.({ done: (done += place + count), total: size });
            }
            if (at >= end) break;
          }
        } catch (error) {
          if (signal?.aborted) throw signal.reason;
          if (error.name !== "TypeError" && error.name !== "NetworkError") throw error; // of the cache, as a full quota
        }
        failures = at > began ? 0 : failures + 1;
        if (failures === TRIES) {
          const problem = new Error(`${url}: the download broke off at byte ${at} of ${size}, ${TRIES} times: load it again`);
          throw ofDownload(problem);
        }
        if (at < end) await new Promise((resolve) => setTimeout(resolve, PAUSE));
      }
    }
  } finally {
    writer.close();
  }
}

// What a body brings; ReadableStream is no async iterator everywhere.
async function* chunks(body) {
  const reader = body.getReader();
  try {
    for (;;) {
      let timer;
      const stalled = new Promise((_, reject) => {
        timer = setTimeout(() => reject(new TypeError(`nothing came for ${STALLED / 1000} s`)), STALLED);
      });
      const { done, value } = await Promise.race([reader.read(), stalled]).finally(() => clearTimeout(timer));
      if (done) return;
      yield value;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

// A whole answer as a Blob, which the browser keeps outside of this worker's memory.
async function whole({ answer, size }, onProgress, signal) {
  const blobs = [];
  let [parts, bytes, done] = [[], 0, 0];
  try {
    for await (const chunk of chunks(answer.body)) {
      parts.push(chunk);
      bytes += chunk.length;
      done += chunk.length;
      if (bytes < BLOCK) continue;
      onProgress?.({ done, total: Math.max(size, done) });
      blobs.push(new Blob(parts));
      [parts, bytes] = [[], 0];
    }
    onProgress?.({ done, total: done });
  } catch (error) {
    if (signal?.aborted) throw signal.reason;
    throw new Error(`${answer.url}: the download broke off after ${done} bytes: ${error.message}; load it again`);
  }
  return new Blob([...blobs, ...parts]);
}

async function storeBlob(folder, url, version, blob) {
  const writer = await folder.write(url, version, blob.size);
  try {
    for (let number = 0; number < writer.kept.blocks; number++) {
      const part = blob.slice(number * BLOCK, (number + 1) * BLOCK);
      writer.put(number, new Uint8Array(await part.arrayBuffer()));
    }
  } finally {
    writer.close();
  }
}

// Where no block can be fetched again.
class Unreachable {
  constructor(url, reason) {
    Object.assign(this, { url, reason });
  }

  read(start, bytes) {
    const bytesOf = `bytes ${start} to ${start + bytes} of its cached copy are damaged`;
    throw new Error(`${this.url}: ${bytesOf}, and cannot be fetched: ${this.reason.message}`);
  }
}
