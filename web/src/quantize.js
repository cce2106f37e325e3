// Group-wise quantization of floats, as liveshape/export/weights/quantize.py rounds them: in float32, in the same order.

const fround = Math.fround;
const LOW = -8;
const HIGH = 7;
const TINY = fround(1e-36); // groups with a smaller range count as constant: the reciprocal of their scale overflows
const EVEN = 1.5 * 2 ** 52; // beside it a double has no fraction left: adding it rounds, halves to even

const rint = (number) => number + EVEN - EVEN;
const clip = (number, low, high) => (number < low ? low : number > high ? high : number);

// Rows of weights, each a whole number of groups, as { codes, scales, minima }; NaN and infinity come out in these.
export function rounded(weights, { bits, group, minima }) {
  const count = weights.length / group;
  const made = {
    codes: new Int8Array(weights.length),
    scales: new Float32Array(count),
    minima: minima ? new Float32Array(count) : null,
  };
  const fit = bits === 8 ? eight : minima ? between : symmetric;
  for (let index = 0; index < count; index++) fit(weights, index * group, group, made, index);
  return made;
}

// The dot product of two functions of a place, in four partial sums, since a long float32 sum loses precision.
function product(count, one, other) {
  let total = 0;
  for (let quarter = 0; quarter < 4; quarter++) {
    let sum = 0;
    for (let i = (quarter * count) / 4; i < ((quarter + 1) * count) / 4; i++) sum = fround(sum + fround(one[i] * other[i]));
    total = quarter ? fround(total + sum) : sum;
  }
  return total;
}

let share = new Float32Array(0);
let found = new Float32Array(0);
let weighted = new Float32Array(0);

function room(count) {
  if (share.length < count) [share, found, weighted] = [0, 0, 0].map(() => new Float32Array(count));
}

// 4-bit asymmetric: min at -8, max at 7; scale and minimum are then refitted to the codes by least squares.
function between(weights, start, count, made, index) {
  room(count);
  let low = weights[start];
  let high = low;
  for (let i = 1; i < count; i++) {
    low = Math.min(low, weights[start + i]);
    high = Math.max(high, weights[start + i]);
  }
  const reach = fround(high - low);
  if (reach < TINY) {
    made.scales[index] = 1;
    made.minima[index] = low;
    return;
  }
  const by = fround(1 / fround(reach / (HIGH - LOW)));
  const unit = fround(1 / reach);
  let ones = 0;
  let totals = 0;
  for (let i = 0; i < count; i++) {
    const above = fround(weights[start + i] - low);
    found[i] = clip(rint(fround(fround(above * by) + LOW)), LOW, HIGH);
    share[i] = above * unit; // from 0 to 1, so that no product overflows float32
    ones += found[i];
    totals = fround(totals + share[i]);
    made.codes[start + i] = found[i];
  }
  const products = product(count, found, share);
  const spread = fround(fround(count * product(count, found, found)) - fround(ones * ones));
  const slope = fround(fround(fround(count * products) - fround(ones * totals)) / (spread > 0 ? spread : 1));
  made.scales[index] = slope * reach;
  made.minima[index] = low + fround(reach * fround(fround(totals - fround(slope * ones)) / count));
}

// 4-bit symmetric: absmax at -8; the scale is then refitted by least squares weighted by magnitude.
function symmetric(weights, start, count, made, index) {
  room(count);
  let low = weights[start];
  let high = low;
  for (let i = 1; i < count; i++) {
    low = Math.min(low, weights[start + i]);
    high = Math.max(high, weights[start + i]);
  }
  const largest = high > -low ? high : low;
  const constant = Math.abs(largest) < TINY;
  const divisor = constant ? 1 : largest;
  const by = fround(LOW / divisor);
  for (let i = 0; i < count; i++) {
    const weight = weights[start + i];
    found[i] = clip(rint(fround(weight * by)), LOW, HIGH);
    share[i] = weight / divisor; // by absmax, so that no square overflows float32
    weighted[i] = fround(Math.abs(share[i])) * found[i];
    made.codes[start + i] = found[i];
  }
  const squares = constant ? 1 : product(count, weighted, found);
  made.scales[index] = constant ? 1 : fround(product(count, weighted, share) / squares) * divisor;
}

// 8-bit symmetric: absmax at 127 or -127.
function eight(weights, start, count, made, index) {
  let largest = 0;
  for (let i = 0; i < count; i++) largest = Math.max(largest, Math.abs(weights[start + i]));
  const scale = largest < TINY ? 1 : fround(largest / 127);
  const by = fround(1 / scale);
  for (let i = 0; i < count; i++) made.codes[start + i] = clip(rint(fround(weights[start + i] * by)), -127, 127);
  made.scales[index] = scale;
}
