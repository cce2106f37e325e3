// The files of a language model, whatever a page gives: the URL of a folder or of a GGUF file, a File, several Files, or
// files by name. A server lists no folder, so it is asked for the names that a model may have.

const TOKENIZER = "tokenizer.json";
const OPTIONAL = ["tokenizer_config.json", "generation_config.json", "special_tokens_map.json", "chat_template.jinja"];
const INDEX = "model.safetensors.index.json";

// Sources by name, as the worker takes them: Files, bytes, or URLs.
export async function modelFiles(source, base) {
  if (source instanceof Blob) return { [source.name?.endsWith(".gguf") ? source.name : "model.gguf"]: source };
  if (typeof source !== "string" && !(source instanceof URL)) {
    const entries = Symbol.iterator in source ? [...source].map((file) => [file.name, file]) : Object.entries(source);
    return Object.fromEntries(entries.map(([name, given]) => [name, typeof given === "string" ? new URL(given, base).href : given]));
  }
  const url = new URL(source, base);
  return url.pathname.endsWith(".gguf") ? { "model.gguf": url.href } : listed(url);
}

async function listed(folder) {
  const base = new URL(folder.href.replace(/\/?$/, "/"));
  const names = [TOKENIZER, ...OPTIONAL, "config.json"];
  const found = await Promise.all(names.map((name) => text(new URL(name, base))));
  const files = Object.fromEntries(names.map((name, place) => [name, found[place].bytes]).filter(([, bytes]) => bytes));
  if (!files[TOKENIZER]) throw new Error(`${found[0].answer.url}: ${found[0].answer.status}; the model needs it`);
  const isProgram = !files["config.json"] || (await exists(new URL("model.pte", base)));
  for (const name of isProgram ? ["model.pte"] : await shards(base, files)) files[name] = new URL(name, base).href;
  return files;
}

async function exists(url) {
  const answer = await fetch(url, { headers: { Range: "bytes=0-0" } });
  await answer.body?.cancel();
  return answer.ok;
}

// The safetensors of a folder: those of its index, or the only one.
async function shards(base, files) {
  const { bytes } = await text(new URL(INDEX, base));
  if (!bytes) return ["model.safetensors"];
  files[INDEX] = bytes;
  return [...new Set(Object.values(JSON.parse(new TextDecoder().decode(bytes)).weight_map ?? {}))];
}

async function text(url) {
  const answer = await fetch(url);
  return { answer, bytes: answer.ok ? new Uint8Array(await answer.arrayBuffer()) : null };
}
