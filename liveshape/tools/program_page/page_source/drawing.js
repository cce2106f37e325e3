// Draws the boxes and routes that are in view. What is too small to be read is left out, so that a frame costs little.

const LABEL = 13;
const SMALL = 11;
const MOST_LETTERS = 24; // of a shape in a box
const SMALLEST = 7; // pixels of a box below which it is a speck, and edges are left out
const CURVED = 0.3; // scale from which edges are curves
const READABLE = 5; // pixels of a letter below which it is not drawn

function rounded(context, x, y, width, height, radius) {
  context.beginPath();
  context.roundRect(x, y, width, height, radius);
}

// A text cut to a width; what was cut is remembered with the box.
function fitted(context, box, name, text, width) {
  const key = `${name}:${text}`;
  box.texts ??= {};
  if (box.texts[key] !== undefined) return box.texts[key];
  let cut = text;
  if (context.measureText(text).width > width) {
    let low = 0;
    let high = text.length;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (context.measureText(`${text.slice(0, middle)}…`).width <= width) low = middle;
      else high = middle - 1;
    }
    cut = `${text.slice(0, low)}…`;
  }
  return (box.texts[key] = cut);
}

class Drawing {
  constructor(state, boxes, palette, heat) {
    Object.assign(this, { state, boxes, palette, heat });
  }

  draw(context, view, width, height, hovered) {
    const { scale } = view;
    context.fillStyle = theme.paper;
    context.fillRect(0, 0, width, height);
    context.save();
    context.translate(view.x, view.y);
    context.scale(scale, scale);
    const seen = { left: -view.x / scale, top: -view.y / scale, right: (width - view.x) / scale, bottom: (height - view.y) / scale };
    const inView = (box) => box.x < seen.right && box.x + box.width > seen.left && box.y < seen.bottom && box.y + box.height > seen.top;
    const visible = this.boxes.boxes.filter(inView);
    for (const box of visible) if (box.inside) this._frame(context, box, scale, hovered);
    if (NODE_HEIGHT * scale < SMALLEST) {
      for (const box of visible) if (!box.inside) this._speck(context, box);
    } else {
      this._routes(context, seen, scale);
      for (const box of visible) if (!box.inside) this._box(context, box, scale, hovered);
    }
    context.restore();
    this.drawn = visible.length;
  }

  _routes(context, seen, scale) {
    const chosen = this.boxes.boxOf(this.state.selected);
    const strong = [];
    const guesses = [];
    context.lineWidth = Math.max(1.25, 0.75 / scale);
    context.strokeStyle = theme.edge;
    context.beginPath();
    for (const route of this.boxes.routes) {
      if (route.left > seen.right || route.right < seen.left || route.top > seen.bottom || route.bottom < seen.top) continue;
      if (route.guess) guesses.push(route);
      else if (chosen && route.ends.includes(chosen)) strong.push(route);
      else this._trace(context, route.path, scale, seen);
    }
    context.stroke();
    if (guesses.length) {
      context.strokeStyle = theme.bad;
      context.setLineDash([3, 5]);
      context.beginPath();
      for (const route of guesses) this._trace(context, route.path, scale, seen);
      context.stroke();
      context.setLineDash([]);
    }
    if (!strong.length) return;
    context.strokeStyle = theme.accent;
    context.lineWidth = Math.max(2, 1.5 / scale);
    context.beginPath();
    for (const route of strong) this._trace(context, route.path, scale, seen);
    context.stroke();
  }

  // A route goes down all the way, so that what is out of view is before or after what is seen of it.
  _trace(context, path, scale, seen) {
    let place = 1;
    if (path.length > 8) {
      let last = path.length - 1;
      while (place < last) {
        const middle = (place + last) >> 1;
        if (path[middle][1] < seen.top) place = middle + 1;
        else last = middle;
      }
    }
    context.moveTo(path[place - 1][0], path[place - 1][1]);
    for (; place < path.length; place++) {
      const [x, y] = path[place];
      const [left, top] = path[place - 1];
      if (top > seen.bottom) return;
      if (x === left || scale < CURVED) context.lineTo(x, y);
      else {
        const middle = (top + y) / 2;
        context.bezierCurveTo(left, middle, x, middle, x, y);
      }
    }
  }

  // A box that is too small for anything but its colour.
  _speck(context, box) {
    const node = box.leaf < this.state.method.count ? this.state.method.nodes[box.leaf] : null;
    if (this.heat.on) {
      context.globalAlpha = 0.15 + 0.85 * this.heat.share(box);
      context.fillStyle = theme.warm;
    } else context.fillStyle = node ? this.palette.strip(node) : theme.edge;
    context.fillRect(box.x, box.y, box.width, box.height);
    context.globalAlpha = 1;
  }

  _outline(context, box, hovered) {
    if (box === this.boxes.boxOf(this.state.selected)) {
      context.strokeStyle = theme.accent;
      context.lineWidth = 2.5;
    } else {
      context.strokeStyle = box === hovered ? theme.soft : theme.line;
      context.lineWidth = 1;
    }
  }

  _frame(context, box, scale, hovered) {
    rounded(context, box.x, box.y, box.width, box.height, 12);
    context.fillStyle = theme.side;
    context.fill();
    this._outline(context, box, hovered);
    context.stroke();
    if (SMALL * scale < READABLE) return;
    context.fillStyle = theme.soft;
    context.font = `600 ${SMALL + 1}px ${theme.sans}`;
    context.textBaseline = "middle";
    context.fillText(fitted(context, box, "frame", `▾ ${foldTitle(box.fold)}`, box.width - 24), box.x + 12, box.y + 15);
  }

  _box(context, box, scale, hovered) {
    const { method } = this.state;
    const node = box.leaf < method.count ? method.nodes[box.leaf] : null;
    const end = box.leaf >= method.count;
    const bad = node?.bad || node?.divergences || (box.fold && holdsBad(method, box.fold));
    const radius = end ? NODE_HEIGHT / 2 : 8;
    if (box.fold) {
      // A stack of sheets.
      for (const step of [8, 4]) {
        rounded(context, box.x + step, box.y + step, box.width, box.height, radius);
        context.fillStyle = theme.tint;
        context.fill();
        context.strokeStyle = theme.line;
        context.lineWidth = 1;
        context.stroke();
      }
    }
    rounded(context, box.x, box.y, box.width, box.height, radius);
    context.fillStyle = bad ? theme["bad-tint"] : end ? theme.tint : theme.paper;
    context.fill();
    if (this.heat.on && !end) {
      context.globalAlpha = 0.85 * this.heat.share(box);
      context.fillStyle = theme.warm;
      context.fill();
      context.globalAlpha = 1;
    }
    this._outline(context, box, hovered);
    if (bad && context.lineWidth < 2) context.strokeStyle = theme.bad;
    if (node?.kind.none && !bad) context.setLineDash([4, 3]);
    context.stroke();
    context.setLineDash([]);
    if (node && scale > 0.15) {
      context.save();
      rounded(context, box.x, box.y, box.width, box.height, radius);
      context.clip();
      context.fillStyle = this.palette.strip(node);
      context.fillRect(box.x, box.y, 5, box.height);
      context.restore();
    }
    if (SMALL * scale < READABLE) return;
    const [title, subtitle] = this._texts(box, node);
    const room = box.width - 26;
    context.textBaseline = "middle";
    context.textAlign = end ? "center" : "left";
    const x = end ? box.x + box.width / 2 : box.x + 14;
    context.fillStyle = bad ? theme.bad : theme.ink;
    context.font = `600 ${LABEL}px ${theme.sans}`;
    context.fillText(fitted(context, box, "title", title, room), x, box.y + 15);
    context.fillStyle = theme.soft;
    context.font = `${SMALL}px ${theme.mono}`;
    context.fillText(fitted(context, box, "subtitle", subtitle, room), x, box.y + 31);
    context.textAlign = "left";
  }

  _texts(box, node) {
    const { method, colour } = this.state;
    if (box.fold) {
      const measured = this.heat.on ? `, ${measureText(colour, this.heat.of(box))}` : "";
      return [`▸ ${foldTitle(box.fold)}`, `${counted(box.fold.last - box.fold.first, "node")}${measured}`];
    }
    if (node) {
      if (this.heat.on && !node.bad) return [node.kind.label, measureText(colour, this.heat.of(box))];
      const value = node.outputs[0] ?? node.changes[0];
      return [node.kind.label, value === undefined ? (node.problem ? "cannot run" : "") : this._shape(value)];
    }
    const place = box.leaf - method.count;
    const input = place < method.inputs.length;
    const value = input ? method.inputs[place] : method.outputs[place - method.inputs.length];
    const name = method.values[value].name;
    const kind = input ? "input" : "output";
    return [name.startsWith(kind) ? name : `${kind}: ${name}`, this._shape(value)];
  }

  // As a function where that fits, else as it is now.
  _shape(value) {
    const text = this.state.method.shapeText(value);
    return text.length <= MOST_LETTERS ? text : this.state.method.shapeAt(value, this.state.point);
  }
}

const foldTitle = (fold) => (fold.folds.length && fold.alike ? `${fold.name}, alike` : fold.name);

function holdsBad(method, fold) {
  fold.bad ??= method.nodes.slice(fold.first, fold.last).some((node) => node.bad || node.divergences);
  return fold.bad;
}

function measureText(what, value) {
  if (what === "bytes") return bytesText(value);
  if (what === "time") return value ? timeText(value) : "no time";
  return `${countText(value)} op`;
}
