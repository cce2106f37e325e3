// The block formats of GGUF files, and the floats of safetensors, read as liveshape/export/sources/ggml_blocks.py reads
// them: integer codes with a scale, and sometimes a minimum, for each group.

const fround = Math.fround;

// Every float16 as a float32, by its bits.
let halves;
export function half(bits) {
  halves ??= Float32Array.from({ length: 1 << 16 }, (_, each) => {
    const sign = each >> 15 ? -1 : 1;
    const exponent = (each >> 10) & 31;
    const fraction = each & 1023;
    if (exponent === 31) return fraction ? NaN : sign * Infinity;
    return sign * (exponent ? (1 + fraction / 1024) * 2 ** (exponent - 15) : fraction * 2 ** -24);
  });
  return halves[bits];
}

const halfAt = (bytes, at) => half(bytes[at] | (bytes[at + 1] << 8));

// FP4 (E2M1) values times two, which makes them integers.
const MXFP4_CODES = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

// Readers write the codes of a block, and the scales and minima of its groups, each from its place on.

function q4_0(bytes, at, codes, code, scales, group) {
  scales[group] = halfAt(bytes, at);
  nibbles(bytes, at + 2, codes, code, 8);
}

function q4_1(bytes, at, codes, code, scales, group, minima) {
  scales[group] = halfAt(bytes, at);
  minima[group] = halfAt(bytes, at + 2);
  nibbles(bytes, at + 4, codes, code, 0);
}

function q5_0(bytes, at, codes, code, scales, group) {
  scales[group] = halfAt(bytes, at);
  nibbles(bytes, at + 6, codes, code, 0);
  fifths(bytes, at + 2, codes, code, 16);
}

function q5_1(bytes, at, codes, code, scales, group, minima) {
  scales[group] = halfAt(bytes, at);
  minima[group] = halfAt(bytes, at + 2);
  nibbles(bytes, at + 8, codes, code, 0);
  fifths(bytes, at + 4, codes, code, 0);
}

function q8_0(bytes, at, codes, code, scales, group) {
  scales[group] = halfAt(bytes, at);
  for (let i = 0; i < 32; i++) codes[code + i] = bytes[at + 2 + i];
}

function q8_k(bytes, at, codes, code, scales, group) {
  scales[group] = new DataView(bytes.buffer, bytes.byteOffset + at, 4).getFloat32(0, true);
  for (let i = 0; i < 256; i++) codes[code + i] = bytes[at + 4 + i];
}

function mxfp4(bytes, at, codes, code, scales, group) {
  scales[group] = 2 ** (bytes[at] - 128);
  for (let i = 0; i < 16; i++) {
    codes[code + i] = MXFP4_CODES[bytes[at + 1 + i] & 15];
    codes[code + 16 + i] = MXFP4_CODES[bytes[at + 1 + i] >> 4];
  }
}

// 32 codes of 4 bits: all low nibbles, then all high ones.
function nibbles(bytes, at, codes, code, less) {
  for (let i = 0; i < 16; i++) {
    codes[code + i] = (bytes[at + i] & 15) - less;
    codes[code + 16 + i] = (bytes[at + i] >> 4) - less;
  }
}

function fifths(bytes, at, codes, code, less) {
  for (let i = 0; i < 32; i++) codes[code + i] = (codes[code + i] | (((bytes[at + (i >> 3)] >> (i & 7)) & 1) << 4)) - less;
}

// Bit planes of the K-quants: of each run of bytes all lowest bits, then all next ones, shifted to their place.
function planes(bytes, at, count, bits, run, codes, code, shift) {
  const mask = (1 << bits) - 1;
  for (let start = 0; start < count; start += run) {
    for (let low = 0; low < 8; low += bits) {
      for (let i = 0; i < run; i++) codes[code++] |= ((bytes[at + start + i] >> low) & mask) << shift;
    }
  }
}

function q2_k(bytes, at, codes, code, scales, group, minima) {
  const d = halfAt(bytes, at + 80);
  const least = halfAt(bytes, at + 82);
  for (let i = 0; i < 16; i++) {
    scales[group + i] = d * (bytes[at + i] & 15);
    minima[group + i] = -least * (bytes[at + i] >> 4);
  }
  planes(bytes, at + 16, 64, 2, 32, codes, code, 0);
}

function q3_k(bytes, at, codes, code, scales, group) {
  const d = halfAt(bytes, at + 108);
  for (let i = 0; i < 16; i++) {
    const packed = bytes[at + 96 + (i & 7)];
    const upper = (bytes[at + 104 + (i & 3)] >> (2 * (i >> 2))) & 3;
    scales[group + i] = d * (((i < 8 ? packed & 15 : packed >> 4) | (upper << 4)) - 32);
  }
  planes(bytes, at + 32, 64, 2, 32, codes, code, 0);
  planes(bytes, at, 32, 1, 32, codes, code, 2);
  for (let i = 0; i < 256; i++) codes[code + i] -= 4; // a cleared bit of the mask subtracts 4
}

// The 8 scales and 8 minima of 6 bits that Q4_K and Q5_K pack into 12 bytes.
function sixBits(bytes, at, scales, group, minima) {
  const d = halfAt(bytes, at);
  const least = halfAt(bytes, at + 2);
  for (let i = 0; i < 4; i++) {
    const [first, second, third] = [bytes[at + 4 + i], bytes[at + 8 + i], bytes[at + 12 + i]];
    scales[group + i] = d * (first & 63);
    minima[group + i] = -least * (second & 63);
    scales[group + 4 + i] = d * ((third & 15) | ((first >> 6) << 4));
    minima[group + 4 + i] = -least * ((third >> 4) | ((second >> 6) << 4));
  }
}

function q4_k(bytes, at, codes, code, scales, group, minima) {
  sixBits(bytes, at, scales, group, minima);
  planes(bytes, at + 16, 128, 4, 32, codes, code, 0);
}

function q5_k(bytes, at, codes, code, scales, group, minima) {
  sixBits(bytes, at, scales, group, minima);
  planes(bytes, at + 48, 128, 4, 32, codes, code, 0);
  planes(bytes, at + 16, 32, 1, 32, codes, code, 4);
}

function q6_k(bytes, at, codes, code, scales, group) {
  const d = halfAt(bytes, at + 208);
  for (let i = 0; i < 16; i++) scales[group + i] = d * ((bytes[at + 192 + i] << 24) >> 24);
  planes(bytes, at, 128, 4, 64, codes, code, 0);
  planes(bytes, at + 128, 64, 2, 32, codes, code, 4);
  for (let i = 0; i < 256; i++) codes[code + i] -= 32;
}

// Floats of a view, from a byte on; each is exact in float32 but those of F64.
const float = {
  F64: (view, at) => view.getFloat64(at, true),
  F32: (view, at) => view.getFloat32(at, true),
  F16: (view, at) => half(view.getUint16(at, true)),
};

// By the names of ggml and of safetensors: weights and bytes of a block, and of blocks with codes their groups and reader.
export const FORMATS = {
  F64: { weights: 1, bytes: 8, float: float.F64 },
  F32: { weights: 1, bytes: 4, float: float.F32 },
  F16: { weights: 1, bytes: 2, float: float.F16 },
  BF16: { weights: 1, bytes: 2 },
  Q4_0: { weights: 32, bytes: 18, bits: 4, groups: 1, read: q4_0 },
  Q4_1: { weights: 32, bytes: 20, bits: 4, groups: 1, read: q4_1, minima: true },
  Q5_0: { weights: 32, bytes: 22, bits: 8, groups: 1, read: q5_0 },
  Q5_1: { weights: 32, bytes: 24, bits: 8, groups: 1, read: q5_1, minima: true },
  Q8_0: { weights: 32, bytes: 34, bits: 8, groups: 1, read: q8_0 },
  Q2_K: { weights: 256, bytes: 84, bits: 4, groups: 16, read: q2_k, minima: true },
  Q3_K: { weights: 256, bytes: 110, bits: 4, groups: 16, read: q3_k },
  Q4_K: { weights: 256, bytes: 144, bits: 4, groups: 8, read: q4_k, minima: true },
  Q5_K: { weights: 256, bytes: 176, bits: 8, groups: 8, read: q5_k, minima: true },
  Q6_K: { weights: 256, bytes: 210, bits: 8, groups: 16, read: q6_k },
  Q8_K: { weights: 256, bytes: 292, bits: 8, groups: 1, read: q8_k },
  MXFP4: { weights: 32, bytes: 17, bits: 8, groups: 1, read: mxfp4 },
};

// Blocks as they are stored: { codes, scales, minima } of all of them, minima null where the format has none.
function decoded(format, bytes) {
  const count = bytes.length / format.bytes;
  const codes = new Int8Array(count * format.weights);
  const scales = new Float32Array(count * format.groups);
  const minima = format.minima ? new Float32Array(count * format.groups) : null;
  for (let block = 0; block < count; block++) {
    format.read(bytes, block * format.bytes, codes, block * format.weights, scales, block * format.groups, minima);
  }
  return { codes, scales, minima };
}

// Blocks losslessly as a file of liveshape has them; codes of 4 bits lie in -8..7.
export function grouped(format, bytes) {
  const made = decoded(format, bytes);
  if (format.bits === 4 && made.minima) {
    const { codes, scales, minima } = made;
    for (let i = 0; i < codes.length; i++) codes[i] -= 8;
    for (let i = 0; i < scales.length; i++) minima[i] = minima[i] + 8 * scales[i];
  }
  return made;
}

// Blocks dequantized, or floats as they are, as float32.
export function floats(format, bytes) {
  if (format === FORMATS.BF16) return new Float32Array(Uint32Array.from(u16(bytes), (each) => each << 16).buffer);
  if (format.float) {
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    const made = new Float32Array(bytes.length / format.bytes);
    for (let i = 0; i < made.length; i++) made[i] = format.float(view, i * format.bytes);
    return made;
  }
  const { codes, scales, minima } = decoded(format, bytes);
  const made = new Float32Array(codes.length);
  const group = codes.length / scales.length;
  for (let i = 0; i < made.length; i++) {
    const place = Math.floor(i / group);
    const number = fround(codes[i] * scales[place]);
    made[i] = minima ? number + minima[place] : number;
  }
  return made;
}

const u16 = (bytes) => new Uint16Array(bytes.slice().buffer);
