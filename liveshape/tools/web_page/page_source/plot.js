// A vector as a plot: bars for a few numbers, a line for many.

const PLOT = { width: 640, height: 180, left: 4, right: 4, top: 8, bottom: 8 };
const MOST_BARS = 64;

function svg(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// The size of the only dimension above 1, or 0.
function vectorLength(shape) {
  const long = shape.filter((size) => size !== 1);
  return long.length === 1 && long[0] > 1 ? long[0] : 0;
}

function drawPlot(numbers, { min, max }) {
  const { width, height, left, right, top, bottom } = PLOT;
  const [low, high] = [Math.min(0, min), Math.max(0, max)];
  const across = (place) => left + ((width - left - right) * place) / numbers.length;
  const down = (value) => top + ((height - top - bottom) * (high - value)) / (high - low || 1);
  const shown = (value) => down(Number.isFinite(value) ? value : 0);
  const zero = svg("line", { class: "axis", x1: 0, x2: width, y1: down(0), y2: down(0) });
  const label = `Plot of ${numbers.length} numbers from ${numberText(min)} to ${numberText(max)}`;
  const viewBox = `0 0 ${width} ${height}`;
  const drawn = svg("svg", { class: "plot", viewBox, role: "img", "aria-label": label }, zero);
  if (numbers.length <= MOST_BARS) {
    const thick = Math.max(1, across(1) - across(0) - 2);
    numbers.forEach((value, place) => {
      const [one, other] = [down(0), shown(value)];
      const tall = Math.max(1, Math.abs(one - other));
      const bar = { class: "bar", x: across(place) + 1, y: Math.min(one, other), width: thick, height: tall };
      drawn.append(svg("rect", bar, svg("title", {}, `${place}: ${numberText(value)}`)));
    });
  } else {
    const points = numbers.map((value, place) => `${across(place + 0.5).toFixed(1)},${shown(value).toFixed(1)}`);
    drawn.append(svg("polyline", { class: "line", points: points.join(" ") }));
  }
  return drawn;
}
