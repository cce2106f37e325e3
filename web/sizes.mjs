// What a page downloads besides its model, with brotli as servers have it at best: a line of JSON, bytes by file. It
// takes a minute or two of every core.

import fs from "node:fs";
import path from "node:path";
import { promisify } from "node:util";
import zlib from "node:zlib";

const dist = path.join(import.meta.dirname, "dist");
const { BROTLI_PARAM_QUALITY, BROTLI_PARAM_LGWIN } = zlib.constants;
const options = { params: { [BROTLI_PARAM_QUALITY]: 11, [BROTLI_PARAM_LGWIN]: 24 } };
const compress = promisify(zlib.brotliCompress);

const names = fs.readdirSync(dist, { recursive: true }).filter((name) => {
  return fs.statSync(path.join(dist, name)).isFile() && name !== "node.js" && !name.endsWith(".d.ts");
});
const rows = names.map(async (name) => [name, (await compress(fs.readFileSync(path.join(dist, name)), options)).length]);
console.log(JSON.stringify(Object.fromEntries((await Promise.all(rows)).sort((a, b) => b[1] - a[1]))));
