// The graph as a picture: pan, zoom, fold, and the arrow keys from box to box.

const LEAST = 0.03; // at which a box is a speck
const LARGEST = 2.5;
const ALL_OPEN = 40; // nodes up to which nothing is folded at first

class GraphView {
  constructor(state) {
    this.state = state;
    this.view = { x: 0, y: 0, scale: 1 };
    this.surface = new Surface(byId("picture"), (context, width, height) => this._draw(context, width, height));
    this.surface.onresize = () => {
      if (!this.fittedOnce) this.fit();
    };
    this.open = new Set();
    this.pointers = new Map();
    this._listen(byId("picture"));
    state.on("method", () => this._begin());
    state.on("sizes colour", () => this._recolour());
    state.on("selection", () => this._reveal());
  }

  _begin() {
    const { method } = this.state;
    this.palette = new Palette(method);
    this.open.clear();
    if (method.count <= ALL_OPEN) this._each((fold) => this.open.add(fold.id));
    this.fittedOnce = false;
    this._layout();
    this.fit();
  }

  _each(visit) {
    const walk = (fold) => {
      visit(fold);
      fold.folds.forEach(walk);
    };
    this.state.method.folds.forEach(walk);
  }

  _layout() {
    this.boxes = new Boxes(this.state.method, this.open);
    this._recolour();
  }

  _recolour() {
    this.drawing = new Drawing(this.state, this.boxes, this.palette, new Heat(this.state));
    drawLegend(this.state, this.palette, this.drawing.heat);
    this.surface.paint();
  }

  repaint() {
    this._recolour();
  }

  _draw(context, width, height) {
    this.drawing.draw(context, this.view, width, height, this.hovered);
  }

  // Folding

  toggle(fold) {
    const box = this.boxes.byFold.get(fold.id);
    const before = box && [box.x + box.width / 2, box.y];
    if (this.open.has(fold.id)) this.open.delete(fold.id);
    else this.open.add(fold.id);
    this._layout();
    const after = this.boxes.byFold.get(fold.id);
    if (before && after) {
      // What was clicked stays where it is.
      this.view.x += (before[0] - after.x - after.width / 2) * this.view.scale;
      this.view.y += (before[1] - after.y) * this.view.scale;
      this._keepFold(after);
    }
    announce(`${fold.name} ${this.open.has(fold.id) ? "unfolded" : "folded"}`);
    this.surface.paint();
  }

  // A frame that is wider than the view is shown from its middle, at a scale at which it fits or can be read.
  _keepFold(box) {
    const { width } = this.surface;
    const wanted = Math.min(this.view.scale, Math.max((width - 40) / box.width, 0.35));
    if (wanted < this.view.scale) this._zoomAt(wanted / this.view.scale, this.view.x + (box.x + box.width / 2) * this.view.scale, this.view.y + box.y * this.view.scale);
    const middle = this.view.x + (box.x + box.width / 2) * this.view.scale;
    if (middle < 40 || middle > width - 40 || box.inside) this.view.x += width / 2 - middle;
  }

  foldAll(open) {
    this.open.clear();
    if (open) this._each((fold) => this.open.add(fold.id));
    this._layout();
    this.fit();
  }

  // Moving

  fit() {
    const { width, height } = this.surface;
    if (!width) return;
    this.fittedOnce = true;
    const margin = 28;
    const scale = Math.min((width - 2 * margin) / Math.max(this.boxes.width, 1), (height - 2 * margin) / Math.max(this.boxes.height, 1));
    // A program that would be too small to be read starts at its top; on a phone it may be wider than the view.
    const readable = Math.max(Math.min(0.85, (width - 2 * margin) / this.boxes.width), 0.75);
    this.view.scale = Math.min(Math.max(scale, readable), 1.1);
    this.view.x = (width - this.boxes.width * this.view.scale) / 2;
    const spare = height - this.boxes.height * this.view.scale;
    this.view.y = spare > 2 * margin ? Math.min(spare / 2, 60) : margin;
    this.surface.paint();
  }

  fitWhole() {
    const { width, height } = this.surface;
    const wanted = Math.min((width - 40) / this.boxes.width, (height - 40) / this.boxes.height, 1.1);
    const scale = Math.max(wanted, LEAST); // of a very long program what can be seen
    this.view = { scale, x: (width - this.boxes.width * scale) / 2, y: Math.max((height - this.boxes.height * scale) / 2, 20) };
    this.surface.paint();
  }

  _zoomAt(factor, x, y) {
    const scale = Math.min(Math.max(this.view.scale * factor, LEAST), LARGEST);
    const change = scale / this.view.scale;
    this.view.x = x - (x - this.view.x) * change;
    this.view.y = y - (y - this.view.y) * change;
    this.view.scale = scale;
    this.surface.paint();
  }

  zoom(factor) {
    this._zoomAt(factor, this.surface.width / 2, this.surface.height / 2);
  }

  pan(x, y) {
    this.view.x += x;
    this.view.y += y;
    this.surface.paint();
  }

  // What is selected elsewhere is unfolded and brought into view.
  _reveal() {
    const { selected, method } = this.state;
    if (selected !== null && this.state.origin !== "picture") {
      const fold = typeof selected === "object" ? selected.parent : method.foldOf[selected] ?? null;
      let opened = false;
      for (let each = fold; each; each = each.parent) {
        opened ||= !this.open.has(each.id);
        this.open.add(each.id);
      }
      if (opened) this._layout();
      const box = this.boxes.boxOf(selected);
      if (box && this.surface.width) {
        if (this.view.scale < 0.5) this.view.scale = 0.8;
        this.view.x = this.surface.width / 2 - (box.x + box.width / 2) * this.view.scale;
        this.view.y = this.surface.height / 2.5 - (box.y + Math.min(box.height, 200) / 2) * this.view.scale;
      }
    }
    this.surface.paint();
  }

  _follow(box) {
    const { scale } = this.view;
    const [left, top] = [this.view.x + box.x * scale, this.view.y + box.y * scale];
    const [width, height] = [box.width * scale, Math.min(box.height, 60) * scale];
    if (left < 20) this.view.x += 20 - left;
    else if (left + width > this.surface.width - 20) this.view.x -= left + width - this.surface.width + 20;
    if (top < 20) this.view.y += 60 - top;
    else if (top + height > this.surface.height - 20) this.view.y -= top + height - this.surface.height + 60;
  }

  // Input

  _listen(canvas) {
    const place = (event) => {
      const bounds = canvas.getBoundingClientRect();
      return [event.clientX - bounds.left, event.clientY - bounds.top];
    };
    const boxAt = (x, y) => this.boxes.at((x - this.view.x) / this.view.scale, (y - this.view.y) / this.view.scale);
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      const [x, y] = place(event);
      if (event.ctrlKey || event.metaKey) this._zoomAt(Math.exp(-event.deltaY / 120), x, y);
      else this.pan(-event.deltaX, -event.deltaY);
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.pointers.set(event.pointerId, place(event));
      if (this.pointers.size === 1) this.moved = 0;
    });
    canvas.addEventListener("pointermove", (event) => {
      const [x, y] = place(event);
      const before = this.pointers.get(event.pointerId);
      if (!before) {
        const hovered = boxAt(x, y);
        if (hovered !== this.hovered) {
          this.hovered = hovered;
          canvas.style.cursor = hovered ? "pointer" : "grab";
          this.surface.paint();
        }
        return;
      }
      const others = [...this.pointers].filter(([id]) => id !== event.pointerId);
      this.pointers.set(event.pointerId, [x, y]);
      this.moved += Math.abs(x - before[0]) + Math.abs(y - before[1]);
      if (others.length === 1) {
        // Two fingers: the one that stays is the centre.
        const [, [ox, oy]] = others[0];
        const ratio = Math.hypot(x - ox, y - oy) / Math.max(Math.hypot(before[0] - ox, before[1] - oy), 1);
        this._zoomAt(ratio, ox, oy);
      } else if (this.moved > 3) {
        this.pan(x - before[0], y - before[1]);
      }
    });
    const lift = (event) => {
      const single = this.pointers.size === 1;
      this.pointers.delete(event.pointerId);
      if (!single || event.type === "pointercancel" || this.moved > 3) return;
      const [x, y] = place(event);
      const box = boxAt(x, y);
      if (box?.fold) this.toggle(box.fold);
      this.state.select(box ? box.fold ?? box.leaf : null, "picture");
    };
    canvas.addEventListener("pointerup", lift);
    canvas.addEventListener("pointercancel", lift);
    canvas.addEventListener("dblclick", (event) => {
      const [x, y] = place(event);
      if (!boxAt(x, y)) this._zoomAt(1.6, x, y);
    });
    canvas.addEventListener("keydown", (event) => this._key(event));
  }

  _key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { selected } = this.state;
    const box = this.boxes.boxOf(selected);
    const arrows = { ArrowDown: [0, 1], ArrowUp: [0, -1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] };
    if (event.key in arrows) {
      const next = box ? this._next(box, ...arrows[event.key]) : this.boxes.boxes[0];
      if (next) {
        this._follow(next);
        this.state.select(next.fold ?? next.leaf, "picture");
      }
    } else if (event.key === "Enter" || event.key === " ") {
      if (box?.fold) this.toggle(box.fold);
      else if (box) byId("details").focus();
    } else if (event.key === "+" || event.key === "=") this.zoom(1.25);
    else if (event.key === "-") this.zoom(0.8);
    else if (event.key === "0") this.fitWhole();
    else if (event.key === "Escape") {
      const fold = typeof selected === "number" ? this.state.method.foldOf[selected] : selected?.parent;
      if (fold && this.open.has(fold.id)) {
        this.toggle(fold);
        this.state.select(fold, "picture");
      } else this.state.select(null, "picture");
    } else return;
    event.preventDefault();
  }

  // Along an edge where there is one, else the nearest box in that direction.
  _next(box, right, down) {
    const middle = (each) => [each.x + each.width / 2, each.y + Math.min(each.height, NODE_HEIGHT) / 2];
    const [x, y] = middle(box);
    const linked = (down > 0 ? box.after : down < 0 ? box.before : null) ?? [];
    if (linked.length) {
      const distance = (each) => Math.abs(middle(each)[0] - x) + Math.abs(each.y - box.y);
      return linked.reduce((one, other) => (distance(other) < distance(one) ? other : one));
    }
    let best = null;
    let least = Infinity;
    for (const each of this.boxes.boxes) {
      if (each === box) continue;
      const [dx, dy] = [middle(each)[0] - x, middle(each)[1] - y];
      const ahead = dx * right + dy * down;
      if (ahead <= 1) continue;
      const cost = ahead + 3 * Math.abs(right ? dy : dx);
      if (cost < least) [best, least] = [each, cost];
    }
    return best;
  }
}

// What colours mean.
function drawLegend(state, palette, heat) {
  const legend = byId("legend");
  const rows = [];
  if (heat.on) {
    rows.push(element("span", { className: "ramp" }), element("span", {}, `up to ${measureText(state.colour, heat.most)} a node`));
  } else {
    const entries = [...palette.hues].slice(0, 8);
    for (const [label, hue] of entries) {
      const dot = element("i", {});
      dot.style.background = theme.dark ? `hsl(${hue} 45% 62%)` : `hsl(${hue} 48% 46%)`;
      rows.push(element("span", {}, dot, label));
    }
    if (palette.hues.size > entries.length) rows.push(element("span", {}, `and ${palette.hues.size - entries.length} more`));
  }
  legend.replaceChildren(...rows);
}
