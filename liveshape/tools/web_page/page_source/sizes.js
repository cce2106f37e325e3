// Live sizes: a slider for each that can move. Dimensions of one symbol move together.

const SYMBOL = /^(?:(\d+) \* )?(.+?)(?: ([+-]) (\d+))?$/;

// The sizes that can be chosen, and where each is used: a dimension is scale * size + offset.
function findSizes(inputs) {
  const sizes = new Map();
  inputs.forEach((info, input) => {
    info.dims.forEach((dim, axis) => {
      if (dim.status === "static" || dim.max <= dim.min) return;
      const [, scale = 1, symbol = "", sign, offset = 0] = dim.symbol?.match(SYMBOL) ?? [];
      const use = { input, axis, scale: Number(scale), offset: Number(`${sign ?? ""}${offset}`) };
      const name = symbol || `${info.name}, dimension ${axis}`;
      const most = (dim.max - use.offset) / use.scale;
      const step = symbol ? 1 : dim.multiple;
      // A size of nothing is legal, and shows nothing.
      const least = Math.max(1, Math.ceil((dim.min - use.offset) / use.scale));
      const size = sizes.get(name) ?? { name, min: 1, max: Infinity, step, uses: [], notes: [] };
      size.max = Math.min(size.max, Math.floor(most));
      size.min = Math.max(size.min, most - step * Math.floor((most - least) / step));
      size.uses.push(use);
      if (dim.status === "unknown") size.notes.push(unknownNote(info, axis));
      sizes.set(name, size);
    });
  });
  return [...sizes.values()].map((size) => ({ ...size, value: size.max }));
}

function unknownNote(info, axis) {
  const reason = info.baked?.[axis];
  if (reason) return `Most likely fixed at ${info.bounds[axis]}: ${reason}.`;
  return "The file does not say whether this size may change: below the largest, results may be wrong.";
}

function shapeOf(info, input, sizes) {
  const shape = info.bounds.slice();
  for (const { value, uses } of sizes) {
    for (const use of uses) if (use.input === input) shape[use.axis] = use.scale * value + use.offset;
  }
  return shape;
}

// Moves the sliders so that an input has this shape; false where no sizes give it.
function fitSizes(info, input, sizes, shape) {
  const wanted = new Map();
  for (const size of sizes) {
    for (const { input: other, axis, scale, offset } of size.uses) {
      if (other === input) wanted.set(size, (shape[axis] - offset) / scale);
    }
  }
  const isLegal = ([size, value]) => Number.isInteger(value) && value >= 0 && value <= size.max;
  if (![...wanted].every(isLegal)) return false;
  const moved = sizes.map((size) => ({ ...size, value: wanted.get(size) ?? size.value }));
  const given = shapeOf(info, input, moved);
  if (given.length !== shape.length || given.some((size, axis) => size !== shape[axis])) return false;
  for (const [size, value] of wanted) size.show(value);
  return true;
}

function sizeField(size, onChange) {
  const range = { min: size.min, max: size.max, step: size.step, value: size.value };
  const slider = element("input", { type: "range", ...range, ariaLabel: size.name });
  const ariaLabel = `${size.name}, as a number`;
  const field = element("input", { type: "number", ...range, ariaLabel, inputMode: "numeric" });
  size.show = (value) => {
    size.value = value;
    slider.value = field.value = value;
    onChange();
  };
  slider.addEventListener("input", () => size.show(Number(slider.value)));
  field.addEventListener("change", () => size.show(field.checkValidity() ? Number(field.value) : size.value));
  const label = element("span", { className: "size-name" }, size.name);
  const notes = size.notes.map((note) => element("p", { className: "soft" }, note));
  return element("div", { className: "size" }, label, slider, field, ...notes);
}
