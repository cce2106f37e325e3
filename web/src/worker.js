// The worker of a page: Python and the GPU live here, so that the page itself never waits.

import { loadPyodide } from "./pyodide/pyodide.mjs";
import { Runtime } from "./runtime.js";
import { BlobSource, UrlSource } from "./sources.js";

let runtime;

const calls = {
  async boot() {
    const base = new URL("./", import.meta.url).href;
    const archive = fetch(`${base}liveshape.zip`).then((answer) => answer.arrayBuffer());
    const options = { indexURL: `${base}pyodide/` };
    runtime = await Runtime.boot({ loadPyodide, options, archive, gpu: navigator.gpu, began: 0 });
    return runtime.device;
  },
  // Sources are Files, bytes or URLs by name.
  async folder(files) {
    const sources = {};
    for (const [name, given] of Object.entries(files)) {
      if (given instanceof Blob) sources[name] = new BlobSource(given);
      else if (typeof given !== "string") sources[name] = given;
      else sources[name] = (await UrlSource.open(given)) ?? (await fetched(given));
    }
    return runtime.folder(sources);
  },
};

async function fetched(url) {
  const answer = await fetch(url);
  if (!answer.ok) throw new Error(`${url}: ${answer.status} ${answer.statusText}`);
  return new BlobSource(await answer.blob());
}

onmessage = async ({ data: { id, name, given, progress } }) => {
  try {
    if (progress) {
      const onProgress = (progress) => postMessage({ id, progress });
      given = [given[0], { ...given[1], onProgress }];
    }
    const result = await (calls[name] ?? runtime[name].bind(runtime))(...given);
    postMessage({ id, result });
  } catch (error) {
    postMessage({ id, error: { name: error.name, message: error.message, stack: error.stack } });
  }
};
