// Downloads kept in the origin private file system: a file by blocks, and an index with a digest of each. A block counts
// once its digest is in the index, and is checked when it is read first, so that whatever a tab that was killed, a full
// disk or another program left there is never taken for the file.

export const BLOCK = 1 << 20;
const FOLDER = "liveshape";
const HEADER = 8192; // bytes of the index before the rows of its blocks
const ROW = 8; // of a block: its digest, and the digest again with the block's number, so that half a row counts for none
const FORMAT = 1;
const MARK = 0x6c697665;

// A digest of 32 bits, as of xxHash's rounds: every change of one word changes it, and it runs at the speed of memory.
export function digest(bytes, seed) {
  const words = new Uint32Array(bytes.buffer, bytes.byteOffset, bytes.length >> 2);
  let [a, b, c, d] = [seed + 1, seed + 2, seed + 3, seed + 4];
  let at = 0;
  for (const end = words.length - 3; at < end; at += 4) {
    a = round(a, words[at]);
    b = round(b, words[at + 1]);
    c = round(c, words[at + 2]);
    d = round(d, words[at + 3]);
  }
  let sum = round(round(round(round(bytes.length, a), b), c), d);
  for (; at < words.length; at++) sum = round(sum, words[at]);
  for (at *= 4; at < bytes.length; at++) sum = round(sum, bytes[at]);
  sum = Math.imul(sum ^ (sum >>> 15), 0x85ebca77);
  return (sum ^ (sum >>> 13)) >>> 0;
}

function round(sum, word) {
  const mixed = (sum + Math.imul(word, 0x85ebca77)) | 0;
  return Math.imul((mixed << 13) | (mixed >>> 19), 0x9e3779b1);
}

// The folder of this origin; null where there is none, as in a private window of some browsers.
export async function cacheFolder() {
  try {
    const root = await navigator.storage.getDirectory();
    return new CacheFolder(await root.getDirectoryHandle(FOLDER, { create: true }));
  } catch {
    return null;
  }
}

export class CacheFolder {
  constructor(folder) {
    this.folder = folder;
  }

  // What is kept of a URL, or null. Nothing is locked: another tab may be writing it.
  async look(url) {
    try {
      return await this.#index(await nameOf(url));
    } catch (error) {
      if (error.name === "NotFoundError") return null;
      throw error;
    }
  }

  async #index(name) {
    const file = await (await this.folder.getFileHandle(`${name}.index`)).getFile();
    return Kept.from(await file.arrayBuffer());
  }

  // Opens a file for its missing blocks; what was kept of another version goes. Throws where another tab has it open.
  async write(url, version, size) {
    const name = await nameOf(url);
    // The data first: while it is locked elsewhere, the index must stay as it is.
    const data = await this.#handle(`${name}.data`, "readwrite");
    let index;
    try {
      index = await this.#handle(`${name}.index`, "readwrite");
      return new CacheWriter(data, index, new Kept(url, version, size));
    } catch (error) {
      index?.close();
      data.close();
      throw error;
    }
  }

  async #handle(name, mode) {
    const file = await this.folder.getFileHandle(name, { create: mode === "readwrite" });
    return file.createSyncAccessHandle({ mode });
  }

  // A source of what is kept, with `other` for blocks that are missing or damaged; several tabs may read at once.
  async read(url, kept, other) {
    const name = await nameOf(url);
    let data;
    try {
      data = await this.#handle(`${name}.data`, "read-only");
    } catch (error) {
      if (error.name === "NotFoundError") throw error;
      // Browsers without read-only handles lock the file for one tab, and others read it as a File.
      data = new FileHandle(await (await this.folder.getFileHandle(`${name}.data`)).getFile());
    }
    return new CachedSource(data, kept, other, (number) => this.#forget(name, number));
  }

  // Takes a block out of the index, so that the next load fetches it.
  async #forget(name, number) {
    const index = await this.#handle(`${name}.index`, "readwrite");
    index.write(new Uint8Array(ROW), { at: HEADER + number * ROW });
    index.close();
  }

  async remove(url) {
    const name = await nameOf(url);
    await this.folder.removeEntry(`${name}.index`);
    await this.folder.removeEntry(`${name}.data`).catch(() => {});
  }

  // Every file: its URL, the bytes that are here, and whether these are all.
  async list() {
    const found = [];
    for await (const name of this.folder.keys()) {
      if (!name.endsWith(".index")) continue;
      const kept = await this.#index(name.slice(0, -".index".length)).catch(() => null);
      if (kept) found.push({ url: kept.url, bytes: kept.bytes, size: kept.size, complete: kept.complete });
    }
    return found;
  }

  // Removes every file. One that a model has open loses its index now, and its bytes when they are free.
  async clear() {
    const names = await Array.fromAsync(this.folder.keys());
    for (const name of names.sort().reverse()) await this.folder.removeEntry(name).catch(() => {}); // the index first
  }
}

// The index of a file: which version, and the digests of the blocks that are there.
export class Kept {
  constructor(url, version, size, rows) {
    Object.assign(this, { url, version, size });
    this.blocks = Math.ceil(size / BLOCK);
    this.rows = rows ?? new Uint32Array(2 * this.blocks);
  }

  static from(buffer) {
    if (buffer.byteLength < HEADER) return null;
    const [bytes, mark] = new Uint32Array(buffer, 0, 2);
    const text = new Uint8Array(buffer, ROW, Math.min(bytes, HEADER - ROW));
    if (digest(text, MARK) !== mark) return null;
    const { format, url, version, size } = JSON.parse(new TextDecoder().decode(text));
    if (format !== FORMAT) return null;
    const rows = new Uint32Array(2 * Math.ceil(size / BLOCK));
    rows.set(new Uint32Array(buffer, HEADER, Math.min(rows.length, Math.floor((buffer.byteLength - HEADER) / 4))));
    return new Kept(url, version, size, rows);
  }

  header() {
    const { url, version, size } = this;
    const text = new TextEncoder().encode(JSON.stringify({ format: FORMAT, url, version, size }));
    if (text.length > HEADER - ROW) throw new Error(`${url}: an address of ${text.length} bytes is too long for the cache`);
    const made = new Uint8Array(HEADER);
    made.set(text, ROW);
    new Uint32Array(made.buffer, 0, 2).set([text.length, digest(text, MARK)]);
    return made;
  }

  has(number) {
    return this.rows[2 * number + 1] === check(number, this.rows[2 * number]);
  }

  set(number, found) {
    this.rows.set([found, check(number, found)], 2 * number);
    return this.rows.subarray(2 * number, 2 * number + 2);
  }

  // The bytes of a block: the last one may be short.
  span(number) {
    return Math.min(BLOCK, this.size - number * BLOCK);
  }

  get bytes() {
    let sum = 0;
    for (let number = 0; number < this.blocks; number++) if (this.has(number)) sum += this.span(number);
    return sum;
  }

  get complete() {
    return this.bytes === this.size;
  }

  // The first run of blocks that are missing from `start` on, as [first, end], or null.
  missing(start = 0) {
    let first = start;
    while (first < this.blocks && this.has(first)) first++;
    if (first >= this.blocks) return null;
    let end = first + 1;
    while (end < this.blocks && !this.has(end)) end++;
    return [first, end];
  }
}

const check = (number, found) => (found ^ MARK ^ Math.imul(number + 1, 0x9e3779b1)) >>> 0;

// Writes blocks of a file, in any order.
class CacheWriter {
  constructor(data, index, wanted) {
    Object.assign(this, { data, index });
    const buffer = new Uint8Array(index.getSize());
    index.read(buffer, { at: 0 });
    const found = Kept.from(buffer.buffer);
    this.kept = found?.url === wanted.url && found.version === wanted.version && found.size === wanted.size ? found : wanted;
    if (this.kept === found) return;
    index.truncate(0); // no block of the old version may count for the new one
    data.truncate(0);
    store(index, wanted.header(), 0);
  }

  put(number, bytes) {
    store(this.data, bytes, number * BLOCK);
    const row = this.kept.set(number, digest(bytes, number));
    try {
      store(this.index, new Uint8Array(row.buffer, row.byteOffset, ROW), HEADER + number * ROW);
    } catch (error) {
      row.fill(0);
      throw error;
    }
  }

  close() {
    this.data.close();
    this.index.close();
  }
}

function store(handle, bytes, at) {
  const count = handle.write(bytes, { at });
  if (count !== bytes.length) throw new DOMException(`${count} of ${bytes.length} bytes were written`, "QuotaExceededError");
}

// A File with the calls of a handle.
class FileHandle {
  constructor(file) {
    this.file = file;
    this.reader = new FileReaderSync();
  }

  read(into, { at }) {
    const found = new Uint8Array(this.reader.readAsArrayBuffer(this.file.slice(at, at + into.length)));
    into.set(found);
    return found.length;
  }

  close() {}
}

export class CachedSource {
  #checked = new Set(); // blocks whose digest was right
  #bad = new Set();
  #scratch = null;

  constructor(data, kept, other, forget) {
    Object.assign(this, { data, kept, other, forget, size: kept.size });
  }

  read(start, bytes) {
    const made = new Uint8Array(bytes);
    const end = start + bytes;
    let lacking = start; // where bytes that the cache does not have begin
    for (let at = start; at < end; ) {
      const number = Math.floor(at / BLOCK);
      const next = Math.min(end, (number + 1) * BLOCK);
      if (this.#read(number, at, made.subarray(at - start, next - start))) {
        this.#fetch(made, start, lacking, at);
        lacking = next;
      }
      at = next;
    }
    this.#fetch(made, start, lacking, end);
    return made;
  }

  // Whether the bytes from `at` on, all of one block, were read and are right.
  #read(number, at, into) {
    if (!this.kept.has(number) || this.#bad.has(number)) return false;
    try {
      if (this.#checked.has(number)) return this.data.read(into, { at }) === into.length;
      const span = this.kept.span(number);
      // A digest is of whole words: a view that begins between two is read by way of the scratch.
      const whole = into.length === span && into.byteOffset % 4 === 0;
      const block = whole ? into : (this.#scratch ??= new Uint8Array(BLOCK)).subarray(0, span);
      const count = this.data.read(block, { at: number * BLOCK });
      if (count === span && digest(block, number) === this.kept.rows[2 * number]) {
        if (!whole) into.set(block.subarray(at - number * BLOCK, at - number * BLOCK + into.length));
        this.#checked.add(number);
        return true;
      }
    } catch (error) {
      console.warn(`liveshape: the cached copy of ${this.kept.url} cannot be read: ${error.message}`);
    }
    this.#bad.add(number);
    this.forget(number).catch(() => {}); // another tab may have the index open
    return false;
  }

  #fetch(made, start, from, to) {
    if (from < to) made.set(this.other.read(from, to - from), from - start);
  }

  close() {
    this.data.close();
  }
}

async function nameOf(url) {
  const found = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(url));
  return Array.from(new Uint8Array(found, 0, 16), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
