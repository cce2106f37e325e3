// The nodes as a table, of which only the rows in view are elements: the same program for the keyboard and for readers
// of the screen.

const ROW = 34;

class TableView {
  constructor(state) {
    this.state = state;
    this.shown = new Map(); // rows by their place
    this.sort = { by: "index", down: false };
    this.head = element("div", { className: "row head", role: "row" });
    this.body = element("div", { className: "rows" });
    this.scroller = element("div", { className: "scroller", tabIndex: 0, role: "grid", "aria-label": "Nodes" }, this.head, this.body);
    byId("list").replaceChildren(this.scroller);
    this.scroller.addEventListener("scroll", () => this._render(), { passive: true });
    this.scroller.addEventListener("keydown", (event) => this._key(event));
    new ResizeObserver(() => this._render()).observe(this.scroller);
    state.on("method sizes colour", () => this._fill());
    state.on("selection", () => this._reveal());
  }

  get columns() {
    const { method, point, profile } = this.state;
    const found = [
      ["index", "#", (node) => node.index, (node) => String(node.index)],
      ["label", "Node", (node) => node.kind.label, (node) => node.kind.label],
      ["layer", "Layer", (node) => node.index, (node) => method.layerOf(node.index)],
      ["shape", "Result", (node) => method.shapeAt(node.outputs[0] ?? node.changes[0] ?? 0, point), (node) => this._shape(node)],
      ["kernel", "Kernels", (node) => this._kernels(node), (node) => this._kernels(node)],
      ["bytes", "Bytes", (node) => method.record(node.index, point).bytes, (node) => this._amount(node, "bytes")],
      ["operations", "Operations", (node) => method.record(node.index, point).operations, (node) => this._amount(node, "operations")],
    ];
    if (method.profiles?.length) {
      const time = (node) => method.measure(node.index, "time", point, profile);
      found.push(["time", "Time", time, (node) => (time(node) ? timeText(time(node)) : "")]);
    }
    return found;
  }

  _shape(node) {
    const value = node.outputs[0] ?? node.changes[0];
    return value === undefined ? "" : this.state.method.shapeAt(value, this.state.point);
  }

  _kernels(node) {
    const { method, point } = this.state;
    return node.bad || method.kernelsOf(method.record(node.index, point).steps) || "none";
  }

  _amount(node, what) {
    const value = this.state.method.record(node.index, this.state.point)[what];
    return value ? (what === "bytes" ? bytesText(value) : countText(value)) : "";
  }

  _fill() {
    const columns = this.columns;
    const [, , key] = columns.find(([name]) => name === this.sort.by) ?? columns[0];
    const keys = new Map(this.state.method.nodes.map((node) => [node, key(node)]));
    const less = (one, other) => (one < other ? -1 : one > other ? 1 : 0);
    const sign = this.sort.down ? -1 : 1;
    this.order = [...this.state.method.nodes].sort((one, other) => sign * less(keys.get(one), keys.get(other)) || one.index - other.index);
    this.head.replaceChildren(...columns.map(([name, title]) => {
      const sorted = this.sort.by === name;
      const cell = element("div", { role: "columnheader", className: name });
      if (sorted) cell.ariaSort = this.sort.down ? "descending" : "ascending";
      cell.append(button(`${title}${sorted ? (this.sort.down ? " ↓" : " ↑") : ""}`, () => this._sortBy(name)));
      return cell;
    }));
    this.scroller.setAttribute("aria-rowcount", this.order.length + 1);
    this.scroller.classList.toggle("timed", Boolean(this.state.method.profiles?.length));
    this.body.style.height = `${this.order.length * ROW}px`;
    this._render(true);
  }

  _sortBy(name) {
    const many = ["bytes", "operations", "time"].includes(name);
    this.sort = { by: name, down: this.sort.by === name ? !this.sort.down : many };
    this._fill();
  }

  // Rows that were in view before are kept; all are made anew where what they say has changed.
  _render(anew = false) {
    if (!this.order || !this.scroller.clientHeight) return;
    const first = Math.max(0, Math.floor((this.scroller.scrollTop - ROW) / ROW) - 4);
    const last = Math.min(this.order.length, first + Math.ceil(this.scroller.clientHeight / ROW) + 9);
    if (anew) this.shown.forEach((row) => row.remove());
    if (anew) this.shown.clear();
    for (const [place, row] of this.shown) {
      if (place >= first && place < last) continue;
      row.remove();
      this.shown.delete(place);
    }
    const columns = this.columns;
    for (let place = first; place < last; place++) {
      if (!this.shown.has(place)) {
        const row = this._row(place, columns);
        this.shown.set(place, row);
        this.body.append(row);
      }
    }
    const selected = `row-${this.state.selected}`;
    for (const row of this.shown.values()) row.ariaSelected = String(row.id === selected);
  }

  _row(place, columns) {
    const node = this.order[place];
    const row = element("div", { className: "row", role: "row", id: `row-${node.index}` });
    row.addEventListener("click", () => this.state.select(node.index, "list"));
    row.setAttribute("aria-rowindex", place + 2);
    row.classList.toggle("bad", Boolean(node.bad || node.divergences));
    row.style.transform = `translateY(${place * ROW}px)`;
    for (const [name, , , text] of columns) {
      const shown = text(node);
      row.append(element("div", { role: "gridcell", className: name, title: shown }, shown));
    }
    return row;
  }

  _reveal() {
    const { selected, origin } = this.state;
    if (typeof selected === "number" && selected < this.state.method.count) {
      this.scroller.setAttribute("aria-activedescendant", `row-${selected}`);
      if (origin !== "list") this._scrollTo(selected);
    } else this.scroller.removeAttribute("aria-activedescendant");
    this._render();
  }

  _scrollTo(index) {
    const place = this.order.findIndex((node) => node.index === index);
    const top = place * ROW;
    const { scrollTop, clientHeight } = this.scroller;
    if (top < scrollTop) this.scroller.scrollTop = top;
    else if (top + 2 * ROW > scrollTop + clientHeight) this.scroller.scrollTop = top + 2 * ROW - clientHeight;
  }

  _key(event) {
    const page = Math.max(1, Math.floor(this.scroller.clientHeight / ROW) - 2);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.target !== this.scroller) return;
    if (event.key in steps) {
      const at = this.order.findIndex((node) => node.index === this.state.selected);
      const wanted = at + steps[event.key]; // from before the first where none is selected
      const next = this.order[Math.min(Math.max(wanted, 0), this.order.length - 1)];
      if (next) {
        this.state.select(next.index, "list");
        this._scrollTo(next.index);
      }
    } else if (event.key === "Enter") byId("details").focus();
    else if (event.key === "Escape") this.state.select(null, "list");
    else return;
    event.preventDefault();
  }
}
