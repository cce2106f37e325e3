// A layered drawing of a graph whose edges go forward in the order of its boxes: ranks from top to bottom, a chain of
// points for edges that pass ranks, few crossings by barycentres, and columns that lie as straight as they can.

const RANK_GAP = 34;
const COLUMN_GAP = 22;
const CHAIN_WIDTH = 10;
const SWEEPS = 6;

function ranksOf(count, edges) {
  const into = Array.from({ length: count }, () => []);
  const out = Array.from({ length: count }, () => []);
  for (const [from, to] of edges) {
    into[to].push(from);
    out[from].push(to);
  }
  const rank = new Array(count).fill(0);
  for (let box = 0; box < count; box++) for (const from of into[box]) rank[box] = Math.max(rank[box], rank[from] + 1);
  // A box that nothing feeds stands right above the first that reads it.
  for (let box = count - 1; box >= 0; box--) {
    if (!into[box].length && out[box].length) rank[box] = Math.min(...out[box].map((to) => rank[to])) - 1;
  }
  const least = rank.reduce((one, other) => Math.min(one, other), 0);
  return rank.map((each) => each - least);
}

// Places of least squares that keep the order and the distances: neighbours that overlap move as one.
function placed(wanted, widths) {
  const blocks = [];
  let offset = 0;
  wanted.forEach((want, place) => {
    if (place) offset += (widths[place - 1] + widths[place]) / 2 + COLUMN_GAP;
    let block = { sum: want - offset, count: 1, first: place };
    while (blocks.length && blocks[blocks.length - 1].sum / blocks[blocks.length - 1].count >= block.sum / block.count) {
      const before = blocks.pop();
      block = { sum: before.sum + block.sum, count: before.count + block.count, first: before.first };
    }
    blocks.push(block);
  });
  const found = new Array(wanted.length);
  blocks.forEach((block, number) => {
    const end = number + 1 < blocks.length ? blocks[number + 1].first : wanted.length;
    found.fill(block.sum / block.count, block.first, end);
  });
  offset = 0;
  return found.map((at, place) => {
    if (place) offset += (widths[place - 1] + widths[place]) / 2 + COLUMN_GAP;
    return at + offset;
  });
}

// boxes: {width, height, inPort, outPort}, ports as distances from the middle; edges: [from, to] with from < to.
// Gives x (of the middle) and y (of the top) of each box, a route for each edge, and the size of it all.
function layered(boxes, edges) {
  const rank = ranksOf(boxes.length, edges);
  const ranks = [];
  const points = boxes.map((box, number) => ({ number, rank: rank[number], width: box.width, up: [], down: [], x: 0 }));
  const chains = new Map(); // all edges of a box share one chain
  const via = edges.map(([from, to]) => {
    const passed = [];
    let before = points[from];
    for (let at = rank[from] + 1; at < rank[to]; at++) {
      const key = `${from} ${at}`;
      if (!chains.has(key)) {
        const point = { number: -1, rank: at, width: CHAIN_WIDTH, up: [before], down: [], x: 0 };
        before.down.push(point);
        chains.set(key, point);
      }
      before = chains.get(key);
      passed.push(before);
    }
    before.down.push(points[to]);
    points[to].up.push(before);
    return passed;
  });
  for (const point of [...points, ...chains.values()]) (ranks[point.rank] ??= []).push(point);
  for (let at = 0; at < ranks.length; at++) ranks[at] ??= [];

  const number = () => ranks.forEach((row) => row.forEach((point, place) => (point.place = place)));
  const centre = (near, fallback) => (near.length ? near.reduce((sum, each) => sum + each.place, 0) / near.length : fallback);
  number();
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const down = sweep % 2 === 0;
    for (const row of down ? ranks : [...ranks].reverse()) {
      for (const point of row) point.key = centre(down ? point.up : point.down, point.place);
      row.sort((one, other) => one.key - other.key || one.place - other.place);
      row.forEach((point, place) => (point.place = place));
    }
  }

  for (let sweep = 0; sweep < SWEEPS + 2; sweep++) {
    const down = sweep % 2 === 0;
    for (const row of down ? ranks : [...ranks].reverse()) {
      const wanted = row.map((point) => {
        const near = down ? point.up : point.down;
        if (!near.length) return sweep ? point.x : point.place * 100;
        // Middles, not ports: a row of equal frames whose ports are not in line would become a staircase.
        return near.reduce((sum, each) => sum + each.x, 0) / near.length;
      });
      placed(wanted, row.map((point) => point.width)).forEach((x, place) => (row[place].x = x));
    }
  }

  const tops = [];
  const heights = ranks.map((row) => Math.max(0, ...row.map((point) => (point.number < 0 ? 0 : boxes[point.number].height))));
  let top = 0;
  heights.forEach((height, at) => {
    tops[at] = top;
    top += height + RANK_GAP;
  });
  const all = ranks.flat();
  const left = all.reduce((least, point) => Math.min(least, point.x - point.width / 2), Infinity);
  const right = all.reduce((most, point) => Math.max(most, point.x + point.width / 2), -Infinity);
  const shift = -left;
  const yOf = (box) => tops[rank[box]] + (heights[rank[box]] - boxes[box].height) / 2;
  return {
    x: points.map((point) => point.x + shift),
    y: boxes.map((_, box) => yOf(box)),
    routes: edges.map(([from, to], edge) => [
      [points[from].x + (boxes[from].outPort ?? 0) + shift, yOf(from) + boxes[from].height],
      ...via[edge].flatMap((point) => [
        [point.x + shift, tops[point.rank]],
        [point.x + shift, tops[point.rank] + heights[point.rank]],
      ]),
      [points[to].x + (boxes[to].inPort ?? 0) + shift, yOf(to)],
    ]),
    width: all.length ? right - left : 0,
    height: Math.max(0, top - RANK_GAP),
  };
}
