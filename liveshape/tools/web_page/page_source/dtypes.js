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

// A tensor whose numbers are those of a function of their place; whole numbers where the type has no others.
function tensorOf(dtype, shape, numberAt) {
  const known = DTYPES[dtype]?.array;
  if (!known) throw new Error(`${dtype}: this page can fill ${Object.keys(DTYPES).join(", ")}`);
  const data = new known(countOf(shape));
  const isBig = typeof data[0] === "bigint";
  for (let place = 0; place < data.length; place++) {
    const number = numberAt(place);
    data[place] = isBig ? BigInt(Math.trunc(number)) : isFloat(dtype) ? number : Math.trunc(number);
  }
  return { data, shape, dtype };
}

// The same numbers as another type, as a .npy file of float64 may hold them.
function cast(tensor, dtype) {
  return tensor.dtype === dtype ? tensor : tensorOf(dtype, tensor.shape, (place) => Number(tensor.data[place]));
}
