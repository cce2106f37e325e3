// The bytes of a constant as liveshape/graph/constants.py describes them, read from files in pieces: they go to the GPU
// without passing through Python.

const PIECE = 8 << 20;

// Trees are those of `described` in liveshape/device/page_device.py.
export function constantOf(tree, sources) {
  const [kind, ...given] = tree;
  if (kind === "range") return new Range(sources.get(given[0]), given[1], given[2]);
  if (kind === "paired") return new Paired(constantOf(given[0], sources), given[1], given[2]);
  if (kind === "transposed") return new Transposed(constantOf(given[0], sources), given[1], given[2]);
  return new Interleaved(given[0].map((each) => constantOf(each, sources)), given[1]);
}

// Writes a constant over the parts of a buffer, pairs of a number and its bytes; the last word is padded with zeros.
export function upload(write, parts, constant) {
  let part = 0;
  let offset = 0;
  for (let start = 0; start < constant.size; start += PIECE) {
    let bytes = constant.read(start, Math.min(PIECE, constant.size - start));
    if (bytes.length % 4) {
      const padded = new Uint8Array(Math.ceil(bytes.length / 4) * 4);
      padded.set(bytes);
      bytes = padded;
    }
    while (bytes.length) {
      const count = Math.min(bytes.length, parts[part + 1] - offset);
      write(parts[part], offset, bytes.subarray(0, count));
      bytes = bytes.subarray(count);
      offset += count;
      if (offset === parts[part + 1]) {
        part += 2;
        offset = 0;
      }
    }
  }
}

class Range {
  constructor(source, start, size) {
    Object.assign(this, { source, start, size });
  }

  read(at, bytes) {
    return this.source.read(this.start + at, bytes);
  }
}

class Interleaved {
  constructor(sources, runs) {
    Object.assign(this, { sources, runs });
    this.size = sources.reduce((sum, each) => sum + each.size, 0);
    this.width = runs.reduce((sum, run) => sum + run, 0);
  }

  read(at, bytes) {
    if (this.width === this.size) return this.#joined(at, bytes);
    const first = Math.floor(at / this.width);
    const count = Math.ceil((at + bytes) / this.width) - first;
    const made = new Uint8Array(count * this.width);
    let place = 0;
    this.sources.forEach((source, index) => {
      const run = this.runs[index];
      const rows = source.read(first * run, count * run);
      for (let period = 0; period < count; period++) {
        made.set(rows.subarray(period * run, (period + 1) * run), period * this.width + place);
      }
      place += run;
    });
    return made.subarray(at - first * this.width, at - first * this.width + bytes);
  }

  // Of a single period: sources one behind the other, of which only what is asked for is read.
  #joined(at, bytes) {
    const made = new Uint8Array(bytes);
    let start = 0;
    for (const source of this.sources) {
      const first = Math.max(at - start, 0);
      const count = Math.min(at + bytes - start, source.size) - first;
      if (count > 0) made.set(source.read(first, count), start + first - at);
      start += source.size;
    }
    return made;
  }
}

class Paired {
  constructor(source, block, run) {
    Object.assign(this, { source, block, run, size: source.size });
  }

  read(at, bytes) {
    const { block, run } = this;
    const first = Math.floor(at / block) * block;
    const rows = this.source.read(first, Math.ceil((at + bytes) / block) * block - first);
    const made = new Uint8Array(rows.length);
    for (let start = 0; start < rows.length; start += block) {
      for (let half = 0; half < block / 2; half += run) {
        made.set(rows.subarray(start + half, start + half + run), start + 2 * half);
        made.set(rows.subarray(start + block / 2 + half, start + block / 2 + half + run), start + 2 * half + run);
      }
    }
    return made.subarray(at - first, at - first + bytes);
  }
}

class Transposed {
  constructor(source, rows, bytes) {
    Object.assign(this, { source, rows, bytes, size: source.size });
  }

  read(at, bytes) {
    const Items = { 1: Uint8Array, 2: Uint16Array, 4: Uint32Array }[this.bytes];
    this.items ??= new Items(this.source.read(0, this.size).slice().buffer);
    const columns = this.items.length / this.rows;
    const run = this.rows * this.bytes;
    const first = Math.floor(at / run);
    const last = Math.ceil((at + bytes) / run);
    const made = new Items((last - first) * this.rows);
    for (let column = first, place = 0; column < last; column++) {
      for (let row = 0; row < this.rows; row++) made[place++] = this.items[row * columns + column];
    }
    return new Uint8Array(made.buffer).subarray(at - first * run, at - first * run + bytes);
  }
}
