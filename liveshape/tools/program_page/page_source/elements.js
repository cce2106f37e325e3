// Elements are made here and never from HTML text: the page's policy refuses innerHTML.

const byId = (id) => document.getElementById(id);

function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in made) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}

function button(label, onclick, properties = {}) {
  return element("button", { type: "button", className: "link", onclick, ...properties }, label);
}

// A table of two columns: what, and what it is.
function pairs(rows) {
  const list = element("dl", { className: "pairs" });
  for (const [name, value] of rows) {
    if (value !== null && value !== undefined && value !== "") list.append(element("dt", {}, name), element("dd", {}, value));
  }
  return list;
}

function section(title, ...children) {
  return element("section", {}, element("h3", {}, title), ...children);
}

function announce(text) {
  byId("announcer").textContent = text;
}

// A canvas with as many pixels as the screen has, drawn again once a frame at most.
class Surface {
  constructor(canvas, draw) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.draw = draw;
    this.due = 0;
    this.width = this.height = 0;
    this.frames = 0;
    new ResizeObserver(() => this.resize()).observe(canvas);
  }

  resize() {
    const ratio = window.devicePixelRatio || 1;
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (!width || !height) return;
    this.width = width;
    this.height = height;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.onresize?.();
    this.paint();
  }

  paint() {
    this.due ||= requestAnimationFrame(() => {
      this.due = 0;
      this.frames += 1;
      if (this.width) this.draw(this.context, this.width, this.height);
    });
  }
}
