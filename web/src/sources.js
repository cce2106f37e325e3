// Files that Python reads by ranges, synchronously, and that never are in its memory as a whole: a File or Blob, a URL
// of a server that knows HTTP Range, a file of Node, or bytes that a page has.

export class BytesSource {
  constructor(bytes) {
    this.bytes = bytes;
    this.size = bytes.length;
  }

  read(start, bytes) {
    return this.bytes.subarray(start, start + bytes);
  }
}

export class BlobSource {
  constructor(blob) {
    this.size = blob.size;
    this.blob = blob;
    this.reader = new FileReaderSync(); // of workers alone
  }

  read(start, bytes) {
    return new Uint8Array(this.reader.readAsArrayBuffer(this.blob.slice(start, start + bytes)));
  }
}

const TRIES = 3;

// A file of a server that knows HTTP Range, read by synchronous requests, as workers may. Its first answer told the size,
// the version, and the headers that a later answer is compared with.
export class UrlSource {
  constructor(url, { size, version, validators }, request) {
    Object.assign(this, { url, size, version, validators, request });
  }

  read(start, bytes) {
    for (let attempt = 1; ; attempt++) {
      try {
        return this.#read(start, bytes);
      } catch (error) {
        if (attempt === TRIES || !error.passing) throw error;
        pause(300 * 3 ** (attempt - 1));
      }
    }
  }

  #read(start, bytes) {
    const { credentials, headers } = this.request;
    const asked = new XMLHttpRequest();
    asked.open("GET", this.url, false);
    asked.responseType = "arraybuffer";
    asked.withCredentials = credentials === "include";
    for (const [name, value] of Object.entries({ ...headers, Range: `bytes=${start}-${start + bytes - 1}` })) {
      asked.setRequestHeader(name, value);
    }
    try {
      asked.send();
    } catch (error) {
      throw failed(`${this.url}: bytes ${start} to ${start + bytes}`, 0, error.message);
    }
    this.check(asked.status, (name) => asked.getResponseHeader(name), start);
    const found = new Uint8Array(asked.response ?? 0);
    if (found.length !== bytes) {
      throw failed(`${this.url}: bytes ${start} to ${start + bytes}`, 0, `${found.length} came`);
    }
    return found;
  }

  // An answer must be the part that was asked for, and of the file that the first answer was of.
  check(status, header, start) {
    if (status !== 206) throw failed(this.url, status, "a part was asked for");
    const range = header("Content-Range");
    const [, first, total] = range?.match(/^bytes (\d+)-\d+\/(\d+|\*)$/i) ?? [];
    if (Number(first) !== start) {
      throw new Error(`${this.url}: bytes from ${start} on were asked for, and ${range ?? "others"} came`);
    }
    const others = Object.entries(this.validators).some(([name, value]) => value && (header(name) ?? value) !== value);
    if (others || (total !== "*" && Number(total) !== this.size)) {
      throw new Error(`${this.url} has changed while it was read: load it again`);
    }
  }
}

// The error of a request; `passing` if another try may succeed. A status of 0 is a connection that failed.
export function failed(what, status, reason) {
  const passing = status === 0 || status === 408 || status === 429 || status >= 500;
  const told = status ? `${what}: ${status} ${reason}`.trim() : `${what}: no answer (${reason}); is the network there?`;
  return Object.assign(new Error(told), { status, passing });
}

// Waits in a synchronous call.
function pause(milliseconds) {
  const { buffer } = new WebAssembly.Memory({ initial: 1, maximum: 1, shared: true });
  Atomics.wait(new Int32Array(buffer), 0, 0, milliseconds);
}

export class NodeSource {
  constructor(fs, path) {
    Object.assign(this, { fs, path });
    this.file = fs.openSync(path, "r");
    const { size, mtimeMs } = fs.fstatSync(this.file);
    Object.assign(this, { size, mtimeMs });
  }

  read(start, bytes) {
    const found = new Uint8Array(Math.max(0, Math.min(bytes, this.size - start)));
    const count = this.fs.readSync(this.file, found, 0, found.length, start);
    const { size, mtimeMs } = this.fs.fstatSync(this.file);
    if (count < found.length || size !== this.size || mtimeMs !== this.mtimeMs) {
      throw new Error(`${this.path} has changed while it was read: load it again`);
    }
    return found;
  }

  close() {
    this.fs.closeSync(this.file);
  }
}

const EIO = 29; // of Emscripten

// A file of Python's own file system whose bytes are those of a source. An exception of JavaScript would end Python for
// good, so that a read that fails is an OSError there, and its reason stays in the source's `failure`.
export function mount(FS, folder, name, source) {
  FS.mkdirTree(folder);
  const node = FS.createFile(folder, name, {}, true, false);
  Object.defineProperty(node, "usedBytes", { get: () => source.size });
  node.stream_ops = {
    ...node.stream_ops,
    read(stream, buffer, offset, length, position) {
      const count = Math.min(length, source.size - position);
      if (count <= 0) return 0;
      try {
        buffer.set(source.read(position, count), offset);
      } catch (error) {
        source.failure = error.message;
        throw new FS.ErrnoError(EIO);
      }
      return count;
    },
  };
}
