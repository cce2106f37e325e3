// What is selected, beside the picture: a node, a fold, an input or an output.

class Details {
  constructor(state) {
    this.state = state;
    this.place = byId("details");
    state.on("method sizes colour", () => this._fill());
    state.on("selection", () => {
      this._fill();
      this.place.scrollTop = 0;
    });
    this.place.addEventListener("keydown", (event) => {
      if (event.key === "Escape") state.select(null, "details");
    });
  }

  _fill() {
    const { selected, method } = this.state;
    let parts;
    if (selected === null) parts = overview(this.state);
    else if (typeof selected === "object") parts = this._fold(selected);
    else if (selected < method.count) parts = this._node(method.nodes[selected]);
    else parts = this._end(selected - method.count);
    if (selected !== null) parts.unshift(button("← overview", () => this.state.select(null), { className: "back" }));
    this.place.replaceChildren(...parts);
  }

  _link(index, text) {
    const node = this.state.method.nodes[index];
    return button(text ?? `${node.kind.label} (${index})`, () => this.state.select(index));
  }

  _end(place) {
    const { method, point } = this.state;
    const input = place < method.inputs.length;
    const value = input ? method.inputs[place] : method.outputs[place - method.inputs.length];
    const near = (input ? method.readers : method.writers)[value];
    announce(`${input ? "input" : "output"} ${method.values[value].name}`);
    return [
      element("h2", {}, `${input ? "Input" : "Output"} ${method.values[value].name}`),
      element("ul", { className: "values" }, this._value(value, input ? "" : "written by", point)),
      section(input ? "Read by" : "Written by", element("p", { className: "links" }, near.slice(0, 24).map((index) => this._link(index)))),
    ];
  }

  _fold(fold) {
    const { method, point } = this.state;
    const nodes = method.nodes.slice(fold.first, fold.last);
    const sum = (what) => nodes.reduce((all, node) => all + method.record(node.index, point)[what], 0);
    const seconds = nodes.reduce((all, node) => all + method.measure(node.index, "time", point, this.state.profile), 0);
    const operators = new Map();
    for (const node of nodes) operators.set(node.kind.label, (operators.get(node.kind.label) ?? 0) + 1);
    const rows = [...operators].sort((one, other) => other[1] - one[1]).map(([label, count]) =>
      element("tr", {}, element("td", {}, label), element("td", { className: "number" }, `×${count}`)));
    announce(`${fold.name}, ${counted(nodes.length, "node")}`);
    return [
      element("h2", {}, fold.name),
      fold.folds.length ? element("p", {}, fold.alike ? `${fold.folds.length} in a row with the same operators and shapes.` : `${fold.folds.length} in a row, not all alike.`) : "",
      pairs([
        ["nodes", `${nodes.length}, from ${fold.first} to ${fold.last - 1}`],
        ["bytes moved", method.memory ? bytesText(sum("bytes")) : ""],
        ["operations", method.memory ? countText(sum("operations")) : ""],
        ["time", seconds ? timeText(seconds) : ""],
      ]),
      section("Operators", element("table", {}, element("tbody", {}, rows))),
    ].filter(Boolean);
  }

  _node(node) {
    const { method, point, refused } = this.state;
    const record = method.record(node.index, point);
    const layer = method.layerOf(node.index);
    announce(`node ${node.index}, ${node.kind.label}${layer ? `, ${layer}` : ""}${node.bad ? `, ${node.bad}` : ""}`);
    const parts = [element("h2", {}, node.kind.label), element("p", { className: "code soft" }, node.kind.operator)];
    if (node.problem) parts.push(element("p", { className: "alarm" }, `Cannot run: ${node.problem}`));
    if (node.host) parts.push(element("p", { className: "alarm" }, `On the host: ${node.host}`));
    for (const each of node.divergences ?? []) parts.push(this._divergence(each));
    const profile = method.profiles?.[this.state.profile];
    const seconds = profile?.nodes[node.index];
    parts.push(pairs([
      ["node", `${node.index}${layer ? `, ${layer}` : ""}`],
      ["read", record.read ? bytesText(record.read) : ""],
      ["written", record.written ? bytesText(record.written) : ""],
      ["operations", record.operations ? countText(record.operations) : ""],
      ["per byte", record.bytes ? `${(record.operations / record.bytes).toPrecision(3)} operations` : ""],
      ["time", seconds === undefined ? "" : `${timeText(seconds / profile.turns)}${profile.turns > 1 ? " a token" : ""}, ${shareText(seconds, profile.seconds)} of ${profile.name}`],
    ]));
    if (method.memory) parts.push(this._kernels(node, record, refused));
    if (node.inputs.length) parts.push(section("Reads", element("ul", { className: "values" }, node.inputs.map((value, place) => this._value(value, node.kind.slots[place], point)))));
    if (node.outputs.length) parts.push(section("Gives", element("ul", { className: "values" }, node.outputs.map((value) => this._value(value, "", point)))));
    if (node.changes.length) parts.push(section("Changes in place", element("ul", { className: "values" }, node.changes.map((value) => this._value(value, "", point)))));
    if (node.scratch.length) parts.push(section("Temporary memory", element("ul", { className: "values" }, node.scratch.map((value) => this._value(value, "", point)))));
    if (node.kind.arguments.length) parts.push(section("Arguments", pairs(node.kind.arguments)));
    parts.push(this._origin(node), this._alike(node));
    return parts.filter(Boolean);
  }

  _kernels(node, record, refused) {
    const { method } = this.state;
    if (refused) return section("Kernels", element("p", { className: "soft" }, "The program refuses these sizes."));
    const rows = record.steps.map(([kernel, ...grid]) => element("li", {},
      element("b", { className: "code" }, kernelName(method.kernels[kernel])),
      element("span", { className: "now" }, `${grid.filter((each, place) => each > 1 || !place).join(" × ")} workgroups`),
      element("details", {}, element("summary", {}, "specialized by"), element("p", { className: "code" }, kernelVariant(method.kernels[kernel]) || "nothing"))));
    if (!rows.length) rows.push(element("li", { className: "soft" }, node.kind.none || node.bad || "none at these sizes"));
    return section("Kernels", element("ul", { className: "values kernels" }, rows), ...this._routes(node));
  }

  // Where along an axis the node takes other kernels.
  _routes(node) {
    const { method, positions } = this.state;
    return method.axes.map((axis, place) => {
      const found = method.routes(node.index, place, positions);
      if (found.length < 2) return null;
      const now = axis.values[positions[place]];
      return element("table", { className: "routes" }, element("caption", {}, `by ${axis.symbol}`), element("tbody", {}, found.map(([kernels, first, last]) =>
        element("tr", { className: now >= first && now <= last ? "here" : "" },
          element("td", { className: "number" }, first === last ? String(first) : `${first}–${last}`),
          element("td", { className: "code" }, kernels)))));
    });
  }

  _value(value, role, point) {
    const { method } = this.state;
    const held = method.values[value];
    const from = method.writers[value].at(-1);
    const row = element("li", {});
    row.append(element("b", {}, held.name));
    if (role) row.append(" ", element("span", { className: "role" }, role));
    if (held.kind !== "activation") row.append(" ", element("span", { className: `kind ${held.kind}` }, held.kind));
    row.append(element("br"), element("span", { className: "code" }, `${held.dtype ?? "number"} ${method.shapeText(value)}`));
    if (method.moves(value)) row.append(element("span", { className: "now" }, method.shapeAt(value, point)));
    if (held.kind !== "scalar") row.append(element("span", { className: "bytes" }, bytesText(method.bytesAt(value, point))));
    const lifetime = this._lifetime(value);
    if (lifetime) row.append(element("br"), element("small", { className: "soft" }, lifetime));
    if (from !== undefined && from !== this.state.selected) row.append(" ", this._link(from, "← where it is written"));
    return row;
  }

  _lifetime(value) {
    const { method } = this.state;
    method.lives ??= new Map((method.memory?.storages ?? []).flatMap(([block, , first, last, kept, values]) => values.map((each) => [each, { block, first, last, kept, shared: values.length }])));
    const life = method.lives.get(value);
    if (!life || life.kept) return "";
    const from = life.first < 0 ? "the inputs" : `node ${life.first}`;
    const to = life.last >= method.count ? "the end" : `node ${life.last}`;
    return `block ${life.block}, needed from ${from} to ${to}`;
  }

  _divergence(each) {
    const shapes = Object.entries(each.shapes ?? {}).map(([name, shape]) => `${name} [${shape.join(", ")}]`).join(", ");
    const numbers = each.difference ? Object.entries(each.difference).filter(([, value]) => ["number", "string"].includes(typeof value)).map(([name, value]) => `${name} ${value}`).join(", ") : "";
    return element("div", { className: "alarm" }, element("b", {}, `Differs from its reference (${each.kind})`),
      element("p", {}, `${each.value}: ${each.reason}`), numbers ? element("p", { className: "code" }, numbers) : "", shapes ? element("p", { className: "code" }, `reads ${shapes}`) : "");
  }

  _origin(node) {
    const labels = node.label.split(" + ");
    const sources = node.from.length ? node.from : labels;
    const title = sources.length > 1 ? `Fused from ${sources.length} nodes of the file` : "From the file";
    return section(title, element("ol", { className: "code sources" }, sources.map((source) => element("li", {}, source))));
  }

  _alike(node) {
    const { method } = this.state;
    const all = method.byClass.get(node.class);
    if (all.length < 2) return null;
    const at = all.indexOf(node.index);
    const links = [at > 0 ? this._link(all[at - 1], "↑ the one before") : "", at + 1 < all.length ? this._link(all[at + 1], "↓ the next") : ""].filter(Boolean);
    return section(`One of ${all.length} of its class`, element("p", { className: "links" }, links));
  }
}
