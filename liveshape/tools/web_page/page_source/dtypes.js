// Element types: their typed arrays, and how .npy files name them.

const DTYPES = {
  bool: { array: Uint8Array, npy: "|b1" },
  int8: { array: Int8Array, npy: "|i1" },
  uint8: { array: Uint8Array, npy: "|u1" },
  int16: { array: Int16Array, npy: "<i2" },
  uint16: { array: Uint16Array, npy: "<u2" },
  int32: { array: Int32Array, npy: "<i4" },
  uint32: { array: Uint32Array, npy: "<u4" },
  int64: { array: BigInt64Array, npy: "<i8" },
  uint64: { array: BigUint64Array, npy: "<u8" },
  float16: { array: globalThis.Float16Array, npy: "<f2" },
  float32: { array: Float32Array, npy: "<f4" },
  float64: { array: Float64Array, npy: "<f8" },
};

const isFloat = (dtype) => dtype.startsWith("float");
const countOf = (shape) => shape.reduce((product, size) => product * size, 1);
const shapeText = (shape) => shape.join("x") || "scalar";

// The least and the largest number of a type of whole numbers.
function rangeOf(dtype) {
  if (dtype === "bool") return [0n, 1n];
  const bits = BigInt(8 * DTYPES[dtype].array.BYTES_PER_ELEMENT);
  return dtype.startsWith("u") ? [0n, 2n ** bits - 1n] : [-(2n ** (bits - 1n)), 2n ** (bits - 1n) - 1n];
}

// A tensor whose numbers, BigInts among them, are those of a function of their place. Floats are rounded; any other
// number that the type does not have is an error, and never stored as another.
function tensorOf(dtype, shape, numberAt) {
  const known = DTYPES[dtype]?.array;
  if (!known) throw new Error(`${dtype}: this page can fill ${Object.keys(DTYPES).join(", ")}`);
  const data = new known(countOf(shape));
  (isFloat(dtype) ? fillFloats : fillWhole)(data, dtype, numberAt);
  return { data, shape, dtype };
}

function fillFloats(data, dtype, numberAt) {
  for (let place = 0; place < data.length; place++) {
    const number = Number(numberAt(place));
    data[place] = number;
    const isLost = Number.isFinite(number) && !Number.isFinite(data[place]);
    if (isLost) throw new Error(`${number} is too large for ${dtype}`);
  }
}

function fillWhole(data, dtype, numberAt) {
  const isBig = data.BYTES_PER_ELEMENT === 8;
  const [least, most] = isBig ? rangeOf(dtype) : rangeOf(dtype).map(Number);
  const range = `the range of ${dtype}, ${least} to ${most}`;
  for (let place = 0; place < data.length; place++) {
    const number = numberAt(place);
    if (typeof number === "number" && !Number.isInteger(number)) {
      throw new Error(`${dtype} needs whole numbers, not ${number}`);
    }
    if (number < least || number > most) throw new Error(`${number} is not in ${range}`);
    data[place] = isBig ? BigInt(number) : Number(number);
  }
}

// The same numbers as another type, as a .npy file of float64 may hold them.
function cast(tensor, dtype) {
  if (tensor.dtype === dtype) return tensor;
  try {
    return tensorOf(dtype, tensor.shape, (place) => tensor.data[place]);
  } catch (error) {
    const advice = `round or clip it with numpy, and save it as ${dtype}`;
    throw new Error(`${error.message}; the file is ${tensor.dtype}: ${advice}`);
  }
}
