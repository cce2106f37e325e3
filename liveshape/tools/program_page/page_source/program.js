// A method of the program as the document has it: what its nodes, values and sizes are at one of the samples.

async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text.trim()), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

const NOTHING = { steps: [], read: 0, written: 0, operations: 0, bytes: 0 };

class Method {
  constructor(document) {
    Object.assign(this, document);
    this.count = this.nodes.length;
    this.nodes.forEach((node, index) => {
      node.index = index;
      node.kind = this.classes[node.class];
      for (const list of ["inputs", "outputs", "changes", "from", "scratch"]) node[list] ??= [];
      node.bad = node.problem ?? node.host ?? "";
    });
    this.records = this.records.map(([steps, read, written, operations]) => ({
      steps, read, written, operations, bytes: read + written,
    }));
    this.byClass = new Map();
    for (const node of this.nodes) {
      if (!this.byClass.has(node.class)) this.byClass.set(node.class, []);
      this.byClass.get(node.class).push(node.index);
    }
    this._connect();
    this._fold();
    this._divergences();
  }

  // Leaves of the picture are nodes, then inputs, then outputs of the method.
  _connect() {
    this.edges = [];
    this.readers = this.values.map(() => []);
    this.writers = this.values.map(() => []);
    const last = new Map();
    this.inputs.forEach((value, place) => last.set(value, this.count + place));
    for (const node of this.nodes) {
      const before = new Set();
      node.inputs.forEach((value) => {
        this.readers[value].push(node.index);
        if (this.values[value].kind !== "scalar" && last.has(value)) before.add(last.get(value));
      });
      for (const from of before) this.edges.push([from, node.index]);
      if (!node.inputs.length && node.problem) this._guess(node, last);
      for (const value of [...node.outputs, ...node.changes, ...node.scratch]) {
        this.writers[value].push(node.index);
        last.set(value, node.index);
      }
    }
    this.outputs.forEach((value, place) => {
      if (last.has(value)) this.edges.push([last.get(value), this.count + this.inputs.length + place]);
    });
    this.leaves = this.count + this.inputs.length + this.outputs.length;
  }

  // What a part that cannot run reads and writes is not known: it stands between its neighbours of the file, and is
  // taken to write what nothing else does.
  _guess(node, last) {
    const before = node.index ? node.index - 1 : this.count;
    if (before < this.count + this.inputs.length) this.edges.push([before, node.index, true]);
    const written = new Set([...last.keys(), ...this.nodes.flatMap((each) => [...each.outputs, ...each.changes])]);
    const end = this.count + this.inputs.length;
    const following = this.nodes.slice(node.index + 1).find((each) => each.problem || each.inputs.some((value) => this._lacks(value, written)));
    if (following) this.edges.push([node.index, following.index, true]);
    this.outputs.forEach((value, place) => {
      if (!following && this._lacks(value, written)) this.edges.push([node.index, end + place, true]);
    });
  }

  _lacks(value, written) {
    return this.values[value].kind === "activation" && !written.has(value);
  }

  _fold() {
    let number = 0;
    const made = ([name, first, last, alike, inner], parent) => {
      const fold = { id: number++, name, first, last, alike, parent };
      fold.folds = inner.map((each) => made(each, fold));
      return fold;
    };
    this.folds = this.folds.map((each) => made(each, null));
    this.foldOf = new Array(this.count).fill(null); // the innermost
    const visit = (fold) => {
      this.foldOf.fill(fold, fold.first, fold.last);
      fold.folds.forEach(visit);
    };
    this.folds.forEach(visit);
  }

  _divergences() {
    for (const each of this.check?.divergences ?? []) {
      for (const place of each.places) (this.nodes[place].divergences ??= []).push(each);
    }
  }

  // Samples

  get points() {
    return this.axes.reduce((count, axis) => count * axis.values.length, 1);
  }

  point(positions) {
    return this.axes.reduce((place, axis, index) => place * axis.values.length + positions[index], 0);
  }

  sizeAt(size, point) {
    const held = this.sizes[size];
    return held !== null && typeof held === "object" ? held.values[point] : held;
  }

  sizeText(size) {
    const held = this.sizes[size];
    if (held === null) return "?";
    if (typeof held !== "object") return String(held);
    if (held.text) return held.text;
    const seen = held.values.filter((each) => each !== null);
    return `${Math.min(...seen)}..${Math.max(...seen)} (sampled)`;
  }

  shapeText(value) {
    const held = this.values[value];
    if (held.kind === "scalar") return this.sizeText(held.size);
    return `[${this.shapes[held.shape].map((size) => this.sizeText(size)).join(", ")}]`;
  }

  moves(value) {
    const held = this.values[value];
    const sizes = held.kind === "scalar" ? [held.size] : this.shapes[held.shape];
    return sizes.some((size) => this.sizes[size] !== null && typeof this.sizes[size] === "object");
  }

  shapeAt(value, point) {
    const held = this.values[value];
    if (held.kind === "scalar") return String(this.sizeAt(held.size, point) ?? "?");
    return `[${this.shapes[held.shape].map((size) => this.sizeAt(size, point) ?? "?").join(", ")}]`;
  }

  // Bytes at the sample, from those at the bound: a size that never moves is its bound.
  bytesAt(value, point) {
    const held = this.values[value];
    if (held.kind === "scalar") return 0;
    let bytes = held.bytes;
    this.shapes[held.shape].forEach((size, axis) => {
      const now = this.sizeAt(size, point);
      if (now !== null && held.bound[axis]) bytes *= now / held.bound[axis];
    });
    return Math.ceil(bytes);
  }

  record(index, point) {
    const row = this.behaviours[this.nodes[index].behaviour];
    const place = row?.[point];
    return place === undefined || place === null ? NOTHING : this.records[place];
  }

  kernelsOf(steps) {
    return steps.map(([kernel]) => kernelName(this.kernels[kernel])).join(" + ");
  }

  // The kernels of a node along one axis while the others stay: [kernels, first size, last size] in a row.
  routes(index, axis, positions) {
    const found = [];
    this.axes[axis].values.forEach((size, place) => {
      const at = positions.map((position, other) => (other === axis ? place : position));
      const point = this.point(at);
      if (this.refused[point]) return;
      const kernels = this.kernelsOf(this.record(index, point).steps) || "none";
      const before = found[found.length - 1];
      if (before && before[0] === kernels) before[2] = size;
      else found.push([kernels, size, size]);
    });
    return found;
  }

  // What is measured of a node: bytes and operations at the sample, seconds of a profile.
  measure(index, what, point, profile) {
    if (what === "time") return this.profiles?.[profile]?.nodes[index] ?? 0;
    return this.record(index, point)[what] ?? 0;
  }

  layerOf(index) {
    const names = [];
    for (let fold = this.foldOf[index]; fold; fold = fold.parent) if (fold.parent) names.unshift(fold.name);
    return names.join(", ");
  }
}
