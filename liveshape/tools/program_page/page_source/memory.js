// Memory over program order: a row for each block, as high as it has bytes, and in it the tensors that share it, each
// from the first to the last node that needs it.

const LEAST_ROW = 3;
const AXIS = 26;

class MemoryView {
  constructor(state) {
    this.state = state;
    this.canvas = element("canvas", { tabIndex: 0, role: "application" });
    this.canvas.setAttribute("aria-label", "Memory over program order. Arrow keys go from tensor to tensor, Enter selects its node.");
    this.caption = element("p", { className: "caption", role: "status" });
    this.chart = element("div", { className: "chart" }, this.canvas);
    this.summary = element("div", { className: "summary" });
    this.constants = element("div", {});
    byId("memory").replaceChildren(this.summary, this.caption, this.chart, this.constants);
    this.surface = new Surface(this.canvas, (context, width, height) => this._draw(context, width, height));
    this._listen();
    state.on("method", () => this._begin());
    state.on("selection colour", () => this.surface.paint());
    state.on("sizes", () => this._fillConstants());
  }

  repaint() {
    this.surface.paint();
  }

  _begin() {
    const { memory, count } = this.state.method;
    this.focused = -1;
    this.rects = [];
    this.palette = new Palette(this.state.method);
    this.chart.hidden = this.caption.hidden = !memory;
    if (!memory) {
      this.summary.replaceChildren(element("p", { className: "bad" }, "The memory need is not known while the method cannot be planned."));
      this.constants.replaceChildren();
      return;
    }
    const rows = memory.storages.map(([block, bytes, first, last, persistent, values]) => ({ block, bytes, first, last, persistent, values }));
    this.persistent = rows.filter((row) => row.persistent);
    this.storages = rows.filter((row) => !row.persistent).sort((one, other) => one.first - other.first || one.block - other.block);
    const used = new Set(this.storages.map((row) => row.block));
    this.blocks = memory.blocks.map((bytes, block) => ({ block, bytes })).filter(({ block }) => used.has(block)).sort((one, other) => other.bytes - one.bytes);
    this.inUse = new Array(count + 2).fill(0);
    for (const { first, last, bytes } of this.storages) for (let at = first; at <= last; at++) this.inUse[at + 1] += bytes;
    const cards = [
      ["weights", memory.weights, "constants of the file"],
      ["state", memory.state, "kept from call to call"],
      ["activations", memory.activations, `${bytesText(memory.unshared)} without sharing`],
      ["staging", memory.staging, "results on their way to the host"],
      ["params", memory.params, "arguments of kernels"],
      ["total", memory.total, "of the GPU"],
    ];
    this.summary.replaceChildren(...cards.map(([name, bytes, note]) =>
      element("div", { className: `card ${name}` }, element("b", {}, bytesText(bytes)), element("span", {}, name), element("small", {}, note))));
    this._tell();
    this._fillConstants();
    this.surface.resize();
  }

  _fillConstants() {
    const { method } = this.state;
    if (!method.memory) return;
    const largest = [...this.persistent].sort((one, other) => other.bytes - one.bytes).slice(0, 12);
    const rows = largest.map(({ bytes, values }) => {
      const [value] = values;
      const node = method.readers[value]?.[0];
      const name = method.values[value].name;
      return element("tr", {},
        element("td", {}, node === undefined ? name : button(name, () => this.state.select(node))),
        element("td", {}, method.values[value].kind),
        element("td", { className: "code" }, `${method.values[value].dtype} ${method.shapeText(value)}`),
        element("td", { className: "number" }, bytesText(bytes)));
    });
    this.constants.replaceChildren(section("The largest that are kept from call to call", element("table", {}, element("tbody", {}, rows))));
  }

  _tell() {
    const { method } = this.state;
    const row = this.storages[this.focused];
    if (!row) {
      const peak = this.inUse.reduce((most, bytes) => Math.max(most, bytes), 0);
      const shared = `${counted(this.storages.length, "tensor")} in ${counted(this.blocks.length, "block")}`;
      this.caption.textContent = `Activations over program order: ${shared}, at most ${bytesText(peak)} needed at once. Point at one to see what it is.`;
      return;
    }
    const names = row.values.map((value) => method.values[value].name);
    const shown = names.length > 3 ? `${names.slice(0, 3).join(", ")} and ${names.length - 3} more` : names.join(", ");
    const from = row.first < 0 ? "the inputs" : `node ${row.first}`;
    const to = row.last >= method.count ? "the end" : `node ${row.last}`;
    this.caption.textContent = `${shown}: ${bytesText(row.bytes)} ${method.shapeText(row.values[0])}, from ${from} to ${to}, block ${row.block} of ${bytesText(method.memory.blocks[row.block])}`;
  }

  _draw(context, width, height) {
    const { method } = this.state;
    context.fillStyle = theme.paper;
    context.fillRect(0, 0, width, height);
    if (!method.memory || !this.blocks.length) return;
    const total = this.blocks.reduce((sum, { bytes }) => sum + bytes, 0) || 1;
    const room = height - AXIS - LEAST_ROW * this.blocks.length;
    const tops = new Map();
    let top = 0;
    for (const { block, bytes } of this.blocks) {
      const high = LEAST_ROW + (Math.max(room, 0) * bytes) / total;
      tops.set(block, [top, high]);
      top += high;
    }
    const step = width / (method.count + 2);
    const x = (at) => (at + 1) * step;
    const selected = typeof this.state.selected === "number" ? this.state.selected : null;
    this.rects = this.storages.map((row, number) => {
      const [begin, high] = tops.get(row.block);
      const share = row.bytes / (method.memory.blocks[row.block] || 1);
      const rect = { left: x(row.first), top: begin, width: Math.max(x(row.last + 1) - x(row.first), 1.5), height: Math.max(high * share - 1, 2) };
      const uses = selected !== null && row.values.some((value) => this._touches(value, selected));
      context.fillStyle = number === this.focused || uses ? theme.accent : this._colour(row);
      context.fillRect(rect.left, rect.top, Math.max(rect.width - 0.5, 1), rect.height);
      return rect;
    });
    context.strokeStyle = theme.line;
    context.beginPath();
    for (const [begin] of tops.values()) {
      context.moveTo(0, begin);
      context.lineTo(width, begin);
    }
    context.moveTo(0, top);
    context.lineTo(width, top);
    context.stroke();
    if (selected !== null && selected < method.count) {
      context.fillStyle = theme.accent;
      context.fillRect(x(selected) + step / 2 - 0.75, 0, 1.5, top);
    }
    context.fillStyle = theme.soft;
    context.font = `11px ${theme.sans}`;
    context.textBaseline = "middle";
    const ticks = Math.min(method.count, Math.max(2, Math.floor(width / 110)));
    for (let tick = 0; tick <= ticks; tick++) {
      const node = Math.round((tick * (method.count - 1)) / ticks);
      context.textAlign = tick === ticks ? "right" : tick ? "center" : "left";
      context.fillText(tick ? String(node) : `node ${node}`, Math.min(x(node), width - 2), top + AXIS / 2);
    }
    context.textAlign = "left";
  }

  // That of the operator which writes it.
  _colour(row) {
    const { method } = this.state;
    const writer = row.values.flatMap((value) => method.writers[value])[0];
    const hue = writer === undefined ? undefined : this.palette.hues.get(method.nodes[writer].kind.label);
    if (hue === undefined) return theme.edge;
    return theme.dark ? `hsl(${hue} 32% 44%)` : `hsl(${hue} 45% 72%)`;
  }

  _touches(value, node) {
    const { method } = this.state;
    return method.writers[value]?.includes(node) || method.readers[value]?.includes(node);
  }

  _focus(number) {
    this.focused = number;
    this._tell();
    this.surface.paint();
  }

  _choose() {
    const row = this.storages[this.focused];
    if (!row) return;
    const node = row.values.flatMap((value) => this.state.method.writers[value] ?? [])[0];
    if (node !== undefined) this.state.select(node, "memory");
  }

  _listen() {
    this.canvas.addEventListener("pointermove", (event) => {
      const bounds = this.canvas.getBoundingClientRect();
      const [x, y] = [event.clientX - bounds.left, event.clientY - bounds.top];
      const found = this.rects.findIndex((rect) => x >= rect.left && x <= rect.left + rect.width && y >= rect.top && y <= rect.top + rect.height);
      if (found !== this.focused) this._focus(found);
    });
    this.canvas.addEventListener("pointerleave", () => this._focus(-1));
    this.canvas.addEventListener("click", () => this._choose());
    this.canvas.addEventListener("keydown", (event) => {
      const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
      if (event.key in steps) this._focus(Math.min(Math.max(this.focused + steps[event.key], 0), this.storages.length - 1));
      else if (event.key === "Enter") this._choose();
      else if (event.key === "Escape") this._focus(-1);
      else return;
      event.preventDefault();
    });
  }
}
