// Colours of the theme for canvases, and how a box is coloured: by its operator, or by how much of something it has.

const MEASURES = { bytes: "bytes moved", operations: "operations", time: "time" };
const HUES = [212, 150, 28, 280, 340, 190, 95, 250, 45, 310, 170, 0];

let theme = {};

function readTheme() {
  const style = getComputedStyle(document.documentElement);
  const dark = style.colorScheme === "dark" || (style.colorScheme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
  const names = ["paper", "side", "tint", "line", "ink", "soft", "accent", "bad", "bad-tint", "edge", "warm"];
  const probe = element("span", { hidden: true });
  document.body.append(probe);
  theme = { dark, sans: style.getPropertyValue("--sans"), mono: style.getPropertyValue("--mono") };
  for (const name of names) {
    probe.style.color = `var(--${name})`; // light-dark() is resolved only where it is used
    theme[name] = getComputedStyle(probe).color;
  }
  probe.remove();
}

// Operators in the order of their first node each have a hue; what runs no kernel is grey.
class Palette {
  constructor(method) {
    this.method = method;
    this.hues = new Map();
    for (const node of method.nodes) {
      if (!node.kind.none && !this.hues.has(node.kind.label)) this.hues.set(node.kind.label, HUES[this.hues.size % HUES.length]);
    }
  }

  strip(node) {
    if (node.bad || node.divergences) return theme.bad;
    const hue = this.hues.get(node.kind.label);
    if (hue === undefined) return theme.line;
    return theme.dark ? `hsl(${hue} 45% 62%)` : `hsl(${hue} 48% 46%)`;
  }
}

// How much each box has of what is measured, as a share of the largest box of its kind.
class Heat {
  constructor(state) {
    const { method, colour } = state;
    this.on = colour in MEASURES;
    this.values = method.nodes.map((node) => (this.on ? method.measure(node.index, colour, state.point, state.profile) : 0));
    this.sums = [0];
    for (const value of this.values) this.sums.push(this.sums[this.sums.length - 1] + value);
    this.total = this.sums[this.sums.length - 1];
    this.most = this.values.reduce((most, value) => Math.max(most, value), 0);
  }

  of(box) {
    if (box.fold) return this.sums[box.fold.last] - this.sums[box.fold.first];
    return this.values[box.leaf] ?? 0;
  }

  // From 0 to 1; folds are told by their mean, so that a stack of layers is not always the hottest.
  share(box) {
    if (!this.most) return 0;
    const value = box.fold ? this.of(box) / (box.fold.last - box.fold.first) : this.of(box);
    return Math.sqrt(Math.min(value / this.most, 1));
  }
}
