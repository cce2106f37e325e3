// A slider for each size that moves; it stops at the sizes that the engine was asked at.

class Sliders {
  constructor(state) {
    this.state = state;
    this.place = byId("sliders");
    state.on("method", () => this._build());
    state.on("sizes", () => this._show());
  }

  _build() {
    const { method, positions } = this.state;
    this.outputs = [];
    const rows = method.axes.map((axis, place) => {
      const output = element("output", {});
      this.outputs.push(output);
      const range = element("input", { type: "range", min: 0, max: axis.values.length - 1, step: 1, value: positions[place], id: `axis-${place}` });
      range.setAttribute("aria-describedby", `axis-label-${place}`);
      range.addEventListener("input", () => this.state.move(place, Number(range.value)));
      output.range = range;
      return element("div", { className: "slider" },
        element("label", { htmlFor: `axis-${place}` }, axis.symbol), range, output, element("small", { id: `axis-label-${place}` }, axis.label));
    });
    if (!rows.length) rows.push(element("p", { className: "soft" }, method.memory ? "Every size of this method is static." : "Sizes move once the whole method can be planned."));
    this.place.replaceChildren(...rows);
    this._show();
  }

  _show() {
    const { method, positions, refused } = this.state;
    method.axes.forEach((axis, place) => {
      const size = axis.values[positions[place]];
      this.outputs[place].textContent = size.toLocaleString("en");
      this.outputs[place].range.setAttribute("aria-valuetext", `${axis.symbol} = ${size}`);
    });
    const line = byId("refused");
    line.hidden = !refused;
    line.textContent = refused && `The program refuses these sizes: ${refused}`;
    line.title = line.textContent;
  }
}
