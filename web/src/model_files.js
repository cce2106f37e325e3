// The files of a language model, whatever a page gives: the URL of a folder or of a GGUF file, a File, several Files, or
// files by name. A server lists no folder, so it is asked for the names that a model may have.

const TOKENIZER = "tokenizer.json";
const OPTIONAL = ["tokenizer_config.json", "generation_config.json", "special_tokens_map.json", "chat_template.jinja"];
const INDEX = "model.safetensors.index.json";
const PROGRAM = "model.pte";

// Sources by name: Files, bytes, or URLs. `open` gives a source of a URL, by which small files are read here.
export async function modelFiles(source, base, open) {
  if (source instanceof Blob) return { [source.name?.endsWith(".gguf") ? source.name : "model.gguf"]: source };
  if (Array.isArray(source)) return Object.fromEntries(source.map((file) => [file.name, file]));
  if (typeof source !== "string") return source;
  const url = new URL(source, base);
  return url.pathname.endsWith(".gguf") ? { "model.gguf": url.href } : listed(url, open);
}

async function listed(folder, open) {
  const place = (name) => new URL(name, folder.href.replace(/\/?$/, "/")).href;
  const first = await open(place(TOKENIZER));
  const texts = { [TOKENIZER]: taken(first) };
  const find = (name) => optional(place(name), open, first.offline);
  await Promise.all(["config.json", ...OPTIONAL].map(async (name) => (texts[name] = await find(name))));
  const config = texts["config.json"];
  let weights = [PROGRAM];
  if (config && !(await exists(place(PROGRAM), open, first.offline))) {
    texts[INDEX] = await find(INDEX);
    weights = texts[INDEX] ? shards(texts[INDEX]) : ["model.safetensors"];
  }
  const files = Object.fromEntries(Object.entries(texts).filter(([, bytes]) => bytes));
  for (const name of weights) files[name] = place(name);
  return files;
}

// The safetensors that an index names.
function shards(index) {
  return [...new Set(Object.values(JSON.parse(new TextDecoder().decode(index)).weight_map ?? {}))];
}

function taken(source) {
  try {
    return source.read(0, source.size);
  } finally {
    source.close?.();
  }
}

// Null where the server says that it has no such file; offline, where the cache has none.
async function optional(url, open, offline, take = taken) {
  try {
    return take(await open(url));
  } catch (error) {
    if (error.passing ? offline : error.status >= 400) return null;
    throw error;
  }
}

// A server is asked for one byte; what fails or is offline is opened, which tries again or finds it in the cache.
async function exists(url, open, offline) {
  const answer = offline ? null : await fetch(url, { headers: { Range: "bytes=0-0" } }).catch(() => null);
  await answer?.body?.cancel();
  if (answer && answer.status < 500) return answer.ok;
  return Boolean(await optional(url, open, offline, (source) => (source.close?.(), true)));
}
