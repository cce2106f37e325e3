// What an input can be filled with: random numbers, zeros, and numbers as they are typed.

// Numbers from 0 to 1 by a seed (mulberry32): the same seed gives the same numbers everywhere.
function randomFrom(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

// As of `liveshape run`: floats are normal, integers small and not negative, a single integer is 0.
function randomTensor(dtype, shape, seed) {
  const random = randomFrom(seed);
  if (isFloat(dtype)) {
    const normal = () => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
    return tensorOf(dtype, shape, normal);
  }
  const below = dtype === "bool" ? 2 : countOf(shape) === 1 ? 1 : 10;
  return tensorOf(dtype, shape, () => Math.floor(random() * below));
}

const WORDS = { true: 1, false: 0, nan: NaN, inf: Infinity, "-inf": -Infinity };

const DECIMAL = /^([+-]?)(\d*)\.?(\d*)(?:e([+-]?\d+))?$/i;

// A number as it is typed, for a float or for a type of whole numbers: then by its digits, as a BigInt.
function typedNumber(dtype, text) {
  const word = text.toLowerCase();
  const number = Object.hasOwn(WORDS, word) ? WORDS[word] : Number(text);
  if (Number.isNaN(number) && word !== "nan") throw new Error(`“${text}” is not a number`);
  if (!Number.isFinite(number) && /\d/.test(text)) throw new Error(`${text} is too large for ${dtype}`);
  if (isFloat(dtype)) return number;
  const decimal = text.match(DECIMAL);
  const whole = decimal ? wholeNumber(...decimal.slice(1)) : Number.isInteger(number) ? BigInt(number) : null;
  if (whole === null) throw new Error(`${dtype} needs whole numbers, not ${text}`);
  return whole;
}

// A decimal number without the rounding of floats; null if it has a fraction.
function wholeNumber(sign, before, behind, exponent = "0") {
  const digits = before + behind;
  const shift = Number(exponent) - behind.length;
  if (shift < 0 && /[1-9]/.test(digits.slice(shift))) return null;
  const size = BigInt(shift < 0 ? digits.slice(0, shift) : digits + "0".repeat(Math.min(shift, 400))); // at most 1e308
  return sign === "-" ? -size : size;
}

// Numbers with anything between them that numpy or JSON would print; a single one fills the tensor.
function typedTensor(dtype, shape, text) {
  const parts = text.split(/[\s,;()[\]]+/).filter(Boolean);
  const numbers = parts.map((part) => typedNumber(dtype, part));
  const count = countOf(shape);
  if (numbers.length !== count && numbers.length !== 1) {
    throw new Error(`${numbers.length} numbers were given; ${shapeText(shape)} needs ${count}, or one for all of them`);
  }
  return tensorOf(dtype, shape, (place) => numbers[numbers.length === 1 ? 0 : place]);
}

// A number that is passed on as JavaScript has it; a field gives no text where it is no number.
function typedScalar(dtype, text) {
  if (!text) throw new Error("a number is needed");
  const number = typedNumber(dtype, text);
  if (typeof number === "bigint" && !Number.isSafeInteger(Number(number))) {
    throw new Error(`${number} is more than a page can pass on: up to 2^53 - 1, on both sides of 0`);
  }
  return Number(number);
}
