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

// Numbers with anything between them that numpy or JSON would print; a single one fills the tensor.
function typedTensor(dtype, shape, text) {
  const parts = text.split(/[\s,;()[\]]+/).filter(Boolean);
  const numbers = parts.map((part) => {
    const number = WORDS[part.toLowerCase()] ?? Number(part);
    if (Number.isNaN(number) && part.toLowerCase() !== "nan") throw new Error(`“${part}” is not a number`);
    if (!isFloat(dtype) && !Number.isInteger(number)) throw new Error(`${dtype} needs whole numbers, not ${part}`);
    return number;
  });
  const count = countOf(shape);
  if (numbers.length !== count && numbers.length !== 1) {
    throw new Error(`${numbers.length} numbers were given; ${shapeText(shape)} needs ${count}, or one for all of them`);
  }
  return tensorOf(dtype, shape, (place) => numbers[numbers.length === 1 ? 0 : place]);
}
