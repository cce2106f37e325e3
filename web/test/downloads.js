// A worker that downloads as that of liveshape does, without Python: for tests/web/test_cache.py.

import { CacheFolder, cacheFolder } from "../dist/cache.js";
import { openUrl } from "../dist/download.js";

const sources = [];
const warned = [];
console.warn = (text) => warned.push(text);

const calls = {
  // Opens a URL and reads it in pieces; `hook` is code that runs before.
  async read({ url, options, piece = 300_001, hook, keep = false, abortAfter }) {
    if (hook) await new Function("CacheFolder", `return (async () => { ${hook} })()`)(CacheFolder);
    const progress = [];
    const stopping = new AbortController();
    const onProgress = (row) => {
      progress.push(row);
      if (progress.length === abortAfter) stopping.abort();
    };
    const source = await openUrl(url, { ...options, onProgress, signal: stopping.signal });
    sources.push(source);
    const made = new Uint8Array(source.size);
    for (let at = 0; at < source.size; at += piece) made.set(source.read(at, Math.min(piece, source.size - at)), at);
    const found = await crypto.subtle.digest("SHA-256", made);
    const digest = Array.from(new Uint8Array(found), (byte) => byte.toString(16).padStart(2, "0")).join("");
    if (!keep) source.close?.();
    return { digest, kind: source.constructor.name, progress, warned };
  },

  // Changes a byte of every file of data, as a disk may.
  async damage({ at, of = ".data" }) {
    const { folder } = await cacheFolder();
    for await (const [name, file] of folder.entries()) {
      if (!name.endsWith(of)) continue;
      const handle = await file.createSyncAccessHandle();
      const byte = new Uint8Array(1);
      handle.read(byte, { at });
      byte[0] ^= 0x40;
      handle.write(byte, { at });
      handle.close();
    }
  },

  async names() {
    return Array.fromAsync((await cacheFolder()).folder.keys());
  },
};

onmessage = async ({ data: { name, given } }) => {
  try {
    postMessage({ result: await calls[name](given) });
  } catch (error) {
    postMessage({ error: `${error.name}: ${error.message}`, warned });
  }
};
