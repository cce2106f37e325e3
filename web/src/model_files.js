// The files of a language model, whatever a page gives: the URL of a folder or of a GGUF file, a File, several Files, or
// files by name. A server lists no folder, so it is asked for the names that a model may have.

const TOKENIZER = "tokenizer.json";
const OPTIONAL = [
  "tokenizer_config.json",
  "generation_config.json",
  "special_tokens_map.json",
  "chat_template.jinja",
  "chat_template.json",
];
const INDEX = "model.safetensors.index.json";
const PROGRAM = "model.pte";

// Sources by name: Files, bytes, or URLs. `open` gives a source of a URL, by which small files are read here; `request`
// has what goes with every request: credentials, headers, a signal.
export async function modelFiles(source, base, open, request = {}) {
  if (source instanceof Blob) return { [source.name?.endsWith(".gguf") ? source.name : "model.gguf"]: source };
  if (Array.isArray(source)) return byName(source);
  if (typeof source !== "string") return source;
  const url = new URL(source, base);
  return url.pathname.endsWith(".gguf") ? { "model.gguf": url.href } : listed(url, open, request);
}

// The Files of a folder that was chosen as a whole, without those of the folders in it: a checkpoint there has files of
// the same names. Only a page knows where a File was, its worker does not.
export function topFiles(files) {
  const depth = (file) => file.webkitRelativePath?.split("/").length ?? 0;
  const least = Math.min(...files.map(depth));
  return files.filter((file) => depth(file) === least);
}

function byName(files) {
  const found = new Map(files.map((file) => [file.name, file]));
  if (found.size === files.length) return Object.fromEntries(found);
  const twice = files.find((file) => found.get(file.name) !== file);
  throw new TypeError(`two files are called ${twice.name}: give the files of one folder`);
}

async function listed(folder, open, request) {
  const place = (name) => new URL(name, folder.href.replace(/\/?$/, "/")).href;
  const first = await open(place(TOKENIZER));
  const texts = { [TOKENIZER]: taken(first) };
  const find = (name) => optional(place(name), open, first.offline);
  await Promise.all(["config.json", ...OPTIONAL].map(async (name) => (texts[name] = await find(name))));
  const config = texts["config.json"];
  let weights = [PROGRAM];
  if (config && !(await exists(place(PROGRAM), open, first.offline, request))) {
    texts[INDEX] = await find(INDEX);
    weights = texts[INDEX] ? shards(texts[INDEX]) : ["model.safetensors"];
  }
  const files = Object.fromEntries(Object.entries(texts).filter(([, bytes]) => bytes));
  for (const name of weights) files[name] = place(name);
  return files;
}

// The safetensors that an index names: files beside it, whoever wrote it, and nothing that leads elsewhere.
function shards(index) {
  const names = [...new Set(Object.values(JSON.parse(new TextDecoder().decode(index)).weight_map ?? {}))];
  const wrong = names.find((name) => typeof name !== "string" || !/^[^/\\:?#%\0]+\.safetensors$/.test(name));
  if (wrong === undefined) return names;
  throw new Error(`${INDEX} names ${JSON.stringify(wrong)}: a .safetensors file of the same folder is needed`);
}

function taken(source) {
  try {
    return source.read(0, source.size);
  } finally {
    source.close?.();
  }
}

// Null where the server says that it has no such file, or has a page for all that it has not; offline, where the cache
// has none.
async function optional(url, open, offline, take = taken) {
  try {
    const found = take(await open(url));
    return found instanceof Uint8Array && isPage(found) ? null : found;
  } catch (error) {
    if (error.passing ? offline : error.status >= 400) return null;
    throw error;
  }
}

const isPage = (bytes) => /^\s*<(!doctype html|html)\b/i.test(new TextDecoder().decode(bytes.subarray(0, 64)));

// A server is asked for one byte; what fails or is offline is opened, which tries again or finds it in the cache.
async function exists(url, open, offline, { credentials, headers, signal }) {
  const options = { credentials, signal, cache: "no-store", headers: { ...headers, Range: "bytes=0-0" } };
  const answer = offline ? null : await fetch(url, options).catch(() => null);
  await answer?.body?.cancel();
  if (answer && answer.status < 500) return answer.ok && !answer.headers.get("Content-Type")?.startsWith("text/html");
  return Boolean(await optional(url, open, offline, (source) => (source.close?.(), true)));
}
