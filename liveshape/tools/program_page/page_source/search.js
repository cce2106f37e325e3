// Search over operators, kernels, tensors and nodes of the file; every word must be somewhere in a node.

const MOST_FOUND = 60;

class Search {
  constructor(state) {
    this.state = state;
    this.input = byId("search");
    this.list = byId("found");
    this.found = [];
    this.at = -1;
    state.on("method", () => {
      this.texts = null;
      this._close();
    });
    this.input.addEventListener("input", () => this._look());
    this.input.addEventListener("focus", () => this._look());
    this.input.addEventListener("blur", () => setTimeout(() => this._close(), 150));
    this.input.addEventListener("keydown", (event) => this._key(event));
  }

  // What a node is found by, made when somebody searches first.
  _texts() {
    const { method } = this.state;
    this.texts ??= method.nodes.map((node) => {
      const kernels = new Set((method.behaviours[node.behaviour] ?? []).flatMap((record) => (record === null ? [] : method.records[record].steps.map(([kernel]) => kernel))));
      const values = [...node.inputs, ...node.outputs, ...node.changes].map((value) => method.values[value].name);
      return [node.label, node.kind.operator, `#${node.index}`, method.layerOf(node.index), ...node.from, ...values,
        ...[...kernels].map((kernel) => kernelName(method.kernels[kernel])), node.bad].join("\n").toLowerCase();
    });
    return this.texts;
  }

  _look() {
    const words = this.input.value.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) return this._close();
    const texts = this._texts();
    const { method } = this.state;
    const all = method.nodes.filter((node) => words.every((word) => texts[node.index].includes(word)));
    this.found = all.slice(0, MOST_FOUND);
    this.at = this.found.length ? 0 : -1;
    const rows = this.found.map((node, place) => element("li", { role: "option", id: `found-${place}`, className: node.bad ? "bad" : "",
      onpointerdown: (event) => { event.preventDefault(); this._take(place); } },
    element("b", {}, node.kind.label), element("span", {}, method.layerOf(node.index) || `node ${node.index}`), element("small", {}, this._why(node, words))));
    if (!rows.length) rows.push(element("li", { className: "soft" }, "Nothing found"));
    if (all.length > MOST_FOUND) rows.push(element("li", { className: "soft" }, `and ${all.length - MOST_FOUND} more`));
    this.list.replaceChildren(...rows);
    this.list.hidden = false;
    this.input.ariaExpanded = "true";
    this._mark();
  }

  // The line of a node that has the first word.
  _why(node, words) {
    return this._texts()[node.index].split("\n").find((line) => line.includes(words[0])) ?? "";
  }

  _mark() {
    [...this.list.children].forEach((row, place) => (row.ariaSelected = String(place === this.at)));
    this.list.children[this.at]?.scrollIntoView({ block: "nearest" });
    if (this.at >= 0) this.input.setAttribute("aria-activedescendant", `found-${this.at}`);
    else this.input.removeAttribute("aria-activedescendant");
  }

  _take(place) {
    const node = this.found[place];
    if (!node) return;
    this._close();
    this.state.select(node.index, "search");
    if (!byId("graph").hidden) byId("picture").focus();
  }

  _close() {
    this.list.hidden = true;
    this.input.ariaExpanded = "false";
    this.input.removeAttribute("aria-activedescendant");
  }

  _key(event) {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      if (this.list.hidden) this._look();
      const step = event.key === "ArrowDown" ? 1 : -1;
      if (this.found.length) this.at = (this.at + step + this.found.length) % this.found.length;
      this._mark();
    } else if (event.key === "Enter") this._take(this.at);
    else if (event.key === "Escape") {
      if (this.list.hidden) this.input.blur();
      this.input.value = "";
      this._close();
    } else return;
    event.preventDefault();
  }
}
