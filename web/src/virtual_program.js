// A model.pte that nobody has written: its head comes from Python, and its constants are made of a GGUF file's or of
// safetensors' own bytes when they are read, as liveshape/export/virtual_program.py describes them.

import { FORMATS, floats, grouped } from "./ggml_blocks.js";
import { rounded } from "./quantize.js";

const PIECE = 4 << 20; // weights that are made at once
const PADDING = 0x88; // two codes of 4 bits that are 0

export class VirtualProgram {
  #parts;
  #matrices = new Map();

  // `stored` are bytes of the file; sources are those of the model's files by their paths.
  constructor(stored, { size, tensors, parts }, sources) {
    this.size = size;
    const matrices = this.#matrices;
    const tensorOf = (name) => new Tensor(name, tensors[name], sources.get(tensors[name].path));
    this.#parts = parts.map((part) => ({ ...part, read: reader(part) }));

    function reader(part) {
      if (part.kind === "stored") return (at, bytes) => stored.subarray(part.at + at, part.at + at + bytes);
      if (part.kind === "repeated") return (at, bytes) => repeated(part, at, bytes);
      if (part.kind === "floats") return floatsReader(tensorOf(part.tensor), part.bytes / 4);
      if (!matrices.has(part.tensor)) matrices.set(part.tensor, new Matrix(tensorOf(part.tensor), part));
      return matrices.get(part.tensor).reader(part);
    }
  }

  // Forgets what it keeps for parts that were not read yet: the program is loaded, or will not be.
  release() {
    for (const matrix of this.#matrices.values()) matrix.release();
  }

  read(start, bytes) {
    const made = new Uint8Array(Math.max(0, Math.min(bytes, this.size - start)));
    const end = start + made.length;
    try {
      for (let index = this.#first(start); index < this.#parts.length && this.#parts[index].offset < end; index++) {
        const part = this.#parts[index];
        const at = Math.max(start - part.offset, 0);
        const count = Math.min(end - part.offset, part.bytes) - at;
        if (count > 0) made.set(part.read(at, count), part.offset + at - start);
      }
    } catch (error) {
      this.failure = error.message;
      throw error;
    }
    return made;
  }

  // The last part that begins at a byte or before it.
  #first(start) {
    let [low, high] = [0, this.#parts.length];
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (this.#parts[middle].offset <= start) low = middle;
      else high = middle;
    }
    return low;
  }
}

const bytesOf = (numbers) => new Uint8Array(numbers.buffer, numbers.byteOffset, numbers.byteLength);

// Bytes of numbers of 4 bytes, from any byte on: `make` gives those from a place to another.
function words(at, bytes, make) {
  const first = Math.floor(at / 4);
  return bytesOf(make(first, Math.ceil((at + bytes) / 4))).subarray(at - 4 * first, at - 4 * first + bytes);
}

function repeated({ value }, at, bytes) {
  return value === 0 ? new Uint8Array(bytes) : words(at, bytes, (first, last) => new Float32Array(last - first).fill(value));
}

// Numbers of a tensor, with zeros behind them up to a count.
function floatsReader(tensor, count) {
  return (at, bytes) =>
    words(at, bytes, (first, last) => {
      const made = new Float32Array(Math.min(last, count) - first);
      const until = Math.min(last, tensor.rows * tensor.width);
      if (first >= until) return made;
      const row = Math.floor(first / tensor.width);
      const numbers = tensor.floats(row, Math.ceil(until / tensor.width));
      made.set(numbers.subarray(first - row * tensor.width, until - row * tensor.width));
      return made;
    });
}

// A tensor of a file, in the order of rows that the model has.
class Tensor {
  constructor(name, { path, offset, format, shape, pairs, plus }, source) {
    Object.assign(this, { name, path, offset, shape, pairs, plus, source, format: FORMATS[format] });
    // A vector is one row.
    this.rows = shape.length > 1 ? shape[0] : 1;
    this.width = shape.slice(shape.length > 1 ? 1 : 0).reduce((product, size) => product * size, 1);
    this.rowBytes = (this.width / this.format.weights) * this.format.bytes;
  }

  floats(first, last) {
    let made = floats(this.format, this.bytes(first, last));
    if (this.pairs && this.shape.length === 1) made = made.map((_, place) => made[this.#stored(place)]);
    if (this.plus) for (let i = 0; i < made.length; i++) made[i] += this.plus;
    return made;
  }

  // The bytes of rows, from one to another.
  bytes(first, last) {
    if (!this.pairs || this.shape.length === 1) return this.#read(first, last);
    const { size } = this.pairs;
    const begin = Math.floor(first / size) * size;
    const rows = this.#read(begin, Math.ceil(last / size) * size);
    const made = new Uint8Array((last - first) * this.rowBytes);
    for (let row = first; row < last; row++) {
      const place = (this.#stored(row) - begin) * this.rowBytes;
      made.set(rows.subarray(place, place + this.rowBytes), (row - first) * this.rowBytes);
    }
    return made;
  }

  // Where the file has a row: of each head it has the rotated ones in pairs, the model in halves.
  #stored(row) {
    const { size, rotated } = this.pairs;
    const place = row % size;
    if (place >= rotated) return row;
    return row - place + (place < rotated / 2 ? 2 * place : 2 * place - rotated + 1);
  }

  #read(first, last) {
    const start = this.offset + first * this.rowBytes;
    const bytes = this.source.read(start, (last - first) * this.rowBytes);
    if (bytes.length < (last - first) * this.rowBytes) {
      throw new Error(`${this.path}: the file was cut, it has no bytes ${start + bytes.length} and more; load it again`);
    }
    return bytes;
  }
}

// A group-quantized matrix. Codes are made by rows when they are read; what belongs to groups of them is kept from then
// on until it was read as often as the program uses it, so that no byte of the source is read twice.
class Matrix {
  #waiting = new Map(); // parts of groups, and how often they will be read
  #kept = null; // { scales, minima, sums, known } of all rows
  #summed = false; // whether the program has sums of it

  constructor(tensor, { layout, kept }) {
    Object.assign(this, { tensor, layout, kept, groups: tensor.width / layout.group });
  }

  reader(part) {
    if (part.kind === "codes") return (at, bytes) => this.#codes(part, at, bytes);
    this.#summed ||= part.kind === "sums";
    this.#waiting.set(part, part.uses);
    return (at, bytes) => {
      const left = this.#waiting.get(part) ?? 1;
      this.#waiting.set(part, left);
      const made = words(at, bytes, (first, last) => this.#ofGroups(part, first, last));
      const ended = at + bytes === part.bytes;
      if (ended && left === 1) this.#waiting.delete(part);
      else this.#waiting.set(part, left - ended);
      if (!this.#waiting.size) this.release();
      return made;
    };
  }

  release() {
    this.#waiting.clear();
    this.#kept = null;
  }

  // Quantized rows, in pieces; each is told to `take` with its first row and its number of rows.
  #rows(first, last, take) {
    const step = Math.max(1, Math.floor(PIECE / this.tensor.width));
    for (let row = first; row < last; row += step) {
      const until = Math.min(row + step, last);
      const { tensor, layout } = this;
      const made = this.kept
        ? grouped(tensor.format, tensor.bytes(row, until))
        : rounded(tensor.floats(row, until), layout);
      if (![made.scales, made.minima ?? []].every((numbers) => numbers.every(Number.isFinite))) {
        throw new Error(`${tensor.name}: rows ${row} to ${until} have weights that are no finite numbers`);
      }
      if (this.#waiting.size) this.#keep(made, row, until);
      take(made, row, until - row);
    }
  }

  #keep({ codes, scales, minima }, row, until) {
    const [rows, groups] = [this.tensor.rows, this.groups];
    this.#kept ??= {
      known: new Uint8Array(rows),
      scales: new Float32Array(rows * groups),
      minima: minima && new Float32Array(rows * groups),
      sums: this.#summed ? new Int32Array(rows * groups) : null,
    };
    const kept = this.#kept;
    kept.known.fill(1, row, until);
    kept.scales.set(scales, row * groups);
    kept.minima?.set(minima, row * groups);
    if (!kept.sums) return;
    const { group } = this.layout;
    for (let i = 0; i < scales.length; i++) {
      let sum = 0;
      for (let j = 0; j < group; j++) sum += codes[i * group + j];
      kept.sums[row * groups + i] = sum;
    }
  }

  #codes({ shape: [count, width] }, at, bytes) {
    const first = Math.floor(at / width);
    const last = Math.min(Math.ceil((at + bytes) / width), count);
    const made = new Uint8Array((last - first) * width).fill(this.layout.bits === 4 ? PADDING : 0);
    this.#rows(first, Math.min(last, this.tensor.rows), ({ codes }, row, rows) => {
      const target = made.subarray((row - first) * width);
      if (this.layout.bits === 8) target.set(new Uint8Array(codes.buffer));
      else for (let i = 0; i < rows; i++) pack(codes, i * this.tensor.width, this.tensor.width, target, i * width);
    });
    return made.subarray(at - first * width, at - first * width + bytes);
  }

  // Numbers of groups from a place to another of (rows, groups), or of (groups, rows) where they lie by groups.
  #ofGroups({ kind, shape }, first, last) {
    const [rows, groups] = [this.tensor.rows, this.groups];
    const byGroup = kind === "scales_by_group" || kind === "sums";
    this.#make(...(byGroup ? [0, rows] : [Math.floor(first / groups), Math.min(Math.ceil(last / groups), rows)]));
    const numbers = this.#kept[byGroup && kind !== "sums" ? "scales" : kind];
    const made = new numbers.constructor(last - first);
    if (!byGroup) {
      made.set(numbers.subarray(first, last));
      return made;
    }
    for (let place = first; place < last; place++) {
      const row = place % shape[1];
      if (row < rows) made[place - first] = numbers[row * groups + Math.floor(place / shape[1])];
    }
    return made;
  }

  // Makes the rows of a range that are not known.
  #make(first, last) {
    for (let row = first; row < last; row++) {
      if (this.#kept?.known[row]) continue;
      let until = row + 1;
      while (until < last && !this.#kept?.known[until]) until++;
      this.#rows(row, until, () => {});
    }
  }
}

// Codes of a row two to a byte, raised by 8, the even one in the low nibble.
function pack(codes, at, width, target, place) {
  for (let i = 0; i < width; i += 2) {
    const high = i + 1 < width ? codes[at + i + 1] + 8 : 8;
    target[place + (i >> 1)] = (codes[at + i] + 8) | (high << 4);
  }
}
