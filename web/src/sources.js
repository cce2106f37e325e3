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

export class UrlSource {
  constructor(url, size, tag) {
    Object.assign(this, { url, size, tag });
  }

  // Asks for the size, and whether the server answers ranges; null where it does not.
  static async open(url) {
    const answer = await fetch(url, { headers: { Range: "bytes=0-0" } });
    if (!answer.ok) throw new Error(`${url}: ${answer.status} ${answer.statusText}`);
    await answer.arrayBuffer();
    const size = Number(answer.headers.get("Content-Range")?.split("/")[1]);
    return answer.status === 206 && size ? new UrlSource(url, size, answer.headers.get("ETag")) : null;
  }

  read(start, bytes) {
    const request = new XMLHttpRequest(); // synchronous, as workers may
    request.open("GET", this.url, false);
    request.responseType = "arraybuffer";
    request.setRequestHeader("Range", `bytes=${start}-${start + bytes - 1}`);
    request.send();
    const found = new Uint8Array(request.response ?? 0);
    if (request.status !== 206 || found.length !== bytes) {
      throw new Error(`${this.url}: bytes ${start} to ${start + bytes}: status ${request.status}, ${found.length} came`);
    }
    if (this.tag && request.getResponseHeader("ETag") !== this.tag) {
      throw new Error(`${this.url} has changed while it was read: load it again`);
    }
    return found;
  }
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
