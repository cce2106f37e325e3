// What the picture shows: a box for every node that is not folded away, a frame around what is unfolded, and the routes
// of the edges between them. Frames are laid out from the inside, then as boxes of what is around them.

const NODE_WIDTH = 190;
const NODE_HEIGHT = 44;
const PORT_SIZE = 6;
const FRAME = { top: 30, side: 16, bottom: 14 };

class Boxes {
  constructor(method, open) {
    this.method = method;
    this.open = open;
    this.boxes = []; // {x, y, width, height, leaf or fold, frame}, frames before what they hold
    this.routes = [];
    this.owner = new Int32Array(method.leaves);
    const inputs = method.inputs.map((_, place) => method.count + place);
    const outputs = method.outputs.map((_, place) => method.count + method.inputs.length + place);
    const whole = this._container(0, method.count, method.folds, inputs, outputs, false);
    this.width = whole.width;
    this.height = whole.height;
    this._place(whole, 0, 0);
    this.byLeaf = new Map(this.boxes.filter((box) => box.leaf !== undefined).map((box) => [box.leaf, box]));
    this.byFold = new Map(this.boxes.filter((box) => box.fold).map((box) => [box.fold.id, box]));
    this._neighbours();
  }

  // The children of a stretch of nodes, laid out.
  _container(first, last, folds, before, after, inside) {
    const children = before.map((leaf) => ({ leaf }));
    let next = 0;
    for (let node = first; node < last; ) {
      const fold = folds[next];
      if (fold && fold.first === node) {
        children.push({ fold });
        node = fold.last;
        next += 1;
      } else {
        children.push({ leaf: node });
        node += 1;
      }
    }
    children.push(...after.map((leaf) => ({ leaf })));
    for (const child of children) {
      if (child.fold && this.open.has(child.fold.id)) {
        child.inside = this._container(child.fold.first, child.fold.last, child.fold.folds, [], [], true);
        child.width = child.inside.width + 2 * FRAME.side;
        child.height = child.inside.height + FRAME.top + FRAME.bottom;
        child.inPort = child.inside.inPort - child.inside.width / 2;
        child.outPort = child.inside.outPort - child.inside.width / 2;
      } else {
        child.width = NODE_WIDTH;
        child.height = NODE_HEIGHT;
      }
    }
    const offset = inside ? 1 : 0; // the port through which values come in is the first box, the other port the last
    this.owner.fill(-1);
    children.forEach((child, place) => {
      if (child.fold) this.owner.fill(place + offset, child.fold.first, child.fold.last);
      else this.owner[child.leaf] = place + offset;
    });
    const out = children.length + 1;
    const seen = new Set();
    const edges = [];
    for (const [from, to, guess] of this.method.edges) {
      let one = this.owner[from];
      let other = this.owner[to];
      if (one === other || (one < 0 && other < 0)) continue;
      if (one < 0) one = 0;
      if (other < 0) other = out;
      const key = one * (out + 1) + other;
      if (!seen.has(key)) edges.push([one, other, guess]);
      seen.add(key);
    }
    const port = { width: PORT_SIZE, height: 0 };
    const drawn = layered(inside ? [port, ...children, port] : children, edges);
    children.forEach((child, place) => {
      child.x = drawn.x[place + offset] - child.width / 2;
      child.y = drawn.y[place + offset];
    });
    return {
      children,
      edges,
      offset,
      out: inside ? out : -1,
      routes: drawn.routes,
      width: drawn.width,
      height: drawn.height,
      inPort: inside ? drawn.x[0] : drawn.width / 2,
      outPort: inside ? drawn.x[out] : drawn.width / 2,
    };
  }

  _place(container, x, y) {
    container.routes.forEach((route, number) => {
      const [from, to, guess] = container.edges[number];
      const path = route.map(([left, top]) => [left + x, top + y]);
      // Through a port a route goes on to the frame.
      if (container.out >= 0 && from === 0) path[0][1] = y - FRAME.top + 24;
      if (container.out >= 0 && to === container.out) path[path.length - 1][1] = y + container.height + FRAME.bottom;
      const xs = path.map((point) => point[0]);
      const ends = [container.children[from - container.offset], container.children[to - container.offset]];
      this.routes.push({ path, left: Math.min(...xs), right: Math.max(...xs), top: path[0][1], bottom: path[path.length - 1][1], ends, guess });
    });
    for (const child of container.children) {
      child.x += x;
      child.y += y;
      this.boxes.push(child);
      if (child.inside) this._place(child.inside, child.x + FRAME.side, child.y + FRAME.top);
    }
  }

  // The boxes before and after each, for the arrow keys.
  _neighbours() {
    for (const box of this.boxes) box.before = box.after = undefined;
    for (const { ends: [from, to] } of this.routes) {
      if (!from || !to) continue;
      (from.after ??= []).push(to);
      (to.before ??= []).push(from);
    }
  }

  boxOf(selected) {
    if (selected === null) return null;
    if (typeof selected === "object") return this.byFold.get(selected.id) ?? null;
    return this.byLeaf.get(selected) ?? null;
  }

  at(x, y) {
    for (let place = this.boxes.length - 1; place >= 0; place--) {
      const box = this.boxes[place];
      if (x < box.x || x > box.x + box.width || y < box.y || y > box.y + box.height) continue;
      if (box.inside && y > box.y + FRAME.top) continue; // a frame is its head
      return box;
    }
    return null;
  }
}
