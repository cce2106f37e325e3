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

// A file of a server that knows HTTP Range, read by synchronous requests, as workers may.
export class UrlSource {
  constructor(url, size, request, version) {
    Object.assign(this, { url, size, request, version });
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
    this.check(asked.status, asked.getResponseHeader("ETag"));
    const found = new Uint8Array(asked.response ?? 0);
    if (found.length !== bytes) {
      throw failed(`${this.url}: bytes ${start} to ${start + bytes}`, 0, `${found.length} came`);
    }
    return found;
  }

  // An answer must be a part, and of the version that the first answer was of.
  check(status, tag) {
    if (status !== 206) throw failed(this.url, status, "a part was asked for");
    if (tag && !this.version.startsWith(`${tag} `)) {
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
    this.fs = fs;
    this.file = fs.openSync(path, "r");
    this.size = fs.fstatSync(this.file).size;
  }

  read(start, bytes) {
    const found = new Uint8Array(bytes);
    const count = this.fs.readSync(this.file, found, 0, bytes, start);
    return found.subarray(0, count);
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
