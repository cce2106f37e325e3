// The .npy files of numpy, read and written.

const NPY_MAGIC = "\x93NUMPY";

function readNpy(buffer, name) {
  const bytes = new Uint8Array(buffer);
  const view = new DataView(buffer);
  const refuse = (reason) => {
    throw new Error(`${name}: ${reason}`);
  };
  const magic = String.fromCharCode(...bytes.subarray(0, 6));
  if (bytes.length < 12 || magic !== NPY_MAGIC) refuse("not a .npy file of numpy");
  const long = bytes[6] > 1; // versions 2 and 3 have a longer header
  const start = long ? 12 : 10;
  const end = start + (long ? view.getUint32(8, true) : view.getUint16(8, true));
  const header = new TextDecoder().decode(bytes.subarray(start, end));
  const kind = header.match(/'descr':\s*'([^']*)'/)?.[1];
  const sizes = header.match(/'shape':\s*\(([^)]*)\)/)?.[1];
  const dtype = Object.keys(DTYPES).find((each) => DTYPES[each].npy === kind);
  if (!dtype || sizes === undefined) refuse(`its type ${kind} is none of ${Object.keys(DTYPES).join(", ")}`);
  const shape = sizes.split(",").map((each) => each.trim()).filter(Boolean).map(Number);
  if (/'fortran_order':\s*True/.test(header) && shape.filter((size) => size > 1).length > 1) {
    refuse("it is stored by columns: save np.ascontiguousarray(x)");
  }
  const { array } = DTYPES[dtype];
  const needed = countOf(shape) * array.BYTES_PER_ELEMENT;
  if (bytes.length - end < needed) refuse(`it ends after ${bytes.length} bytes, ${end + needed} are needed`);
  return { data: new array(buffer.slice(end, end + needed)), shape, dtype };
}

function npyBlob({ data, shape, dtype }) {
  const tuple = shape.length === 1 ? `(${shape[0]},)` : `(${shape.join(", ")})`;
  const text = `{'descr': '${DTYPES[dtype].npy}', 'fortran_order': False, 'shape': ${tuple}, }`;
  const padding = 64 - ((10 + text.length + 1) % 64); // numpy begins the numbers at a multiple of 64
  const header = `${text}${" ".repeat(padding)}\n`;
  const head = new Uint8Array(10 + header.length);
  head.set([0x93, ...[..."NUMPY"].map((each) => each.charCodeAt(0)), 1, 0, header.length & 255, header.length >> 8]);
  head.set(new TextEncoder().encode(header), 10);
  return new Blob([head, data], { type: "application/octet-stream" });
}
