// The worker of a page: Python and the GPU live here, so that the page itself never waits.

import { openUrl } from "./download.js";
import { modelFiles } from "./model_files.js";
import { loadPyodide } from "./pyodide/pyodide.mjs";
import { Runtime } from "./runtime.js";
import { BlobSource } from "./sources.js";

let runtime;
const aborts = new Map(); // by the numbers of calls

const calls = {
  async boot(options) {
    const alive = `liveshape worker ${crypto.randomUUID()}`;
    await new Promise((held) => {
      if (!navigator.locks) return held();
      navigator.locks.request(alive, () => {
        postMessage({ alive });
        held();
        return new Promise(() => {});
      });
    });
    const base = new URL("./", import.meta.url).href;
    runtime = await present(() => {
      const archive = fetch(`${base}liveshape.zip`).then((answer) => answer.arrayBuffer());
      const python = { indexURL: `${base}pyodide/` };
      const onGone = (error) => postMessage({ gone: asMessage(error) });
      const device = options;
      return Runtime.boot({ loadPyodide, options: python, archive, gpu: navigator.gpu, device, onGone, began: 0 });
    });
    return runtime.device;
  },

  // Sources are Files, bytes or URLs, by name.
  async folder(files, { onProgress, signal, ...options }) {
    const urls = Object.entries(files).filter(([, given]) => typeof given === "string");
    const onDownload = totals(onProgress, urls.length);
    const sources = { ...files };
    for (const [name, given] of Object.entries(files)) if (given instanceof Blob) sources[name] = new BlobSource(given);
    const stopping = new AbortController(); // the first file that fails ends the download of the others
    const ended = signal ? AbortSignal.any([signal, stopping.signal]) : stopping.signal;
    const opened = urls.map(async ([name, url], place) => {
      delete sources[name];
      try {
        sources[name] = await openUrl(url, { ...options, signal: ended, onProgress: onDownload(place) });
      } catch (error) {
        stopping.abort(error);
      }
    });
    await Promise.all(opened);
    if (!ended.aborted) return runtime.folder(sources);
    for (const source of Object.values(sources)) source.close?.();
    throw ended.reason;
  },

  // The files of a language model, whatever the page has given, which lies at `base`.
  async modelFolder(source, base, { onProgress, signal, ...options }) {
    const open = (url) => openUrl(url, { ...options, signal });
    const files = await modelFiles(source, base, open, { ...options.request, signal });
    return calls.folder(files, { onProgress, signal, ...options });
  },
};

// Bytes of several downloads as one sum.
function totals(onProgress, count) {
  const rows = Array.from({ length: count }, () => ({ done: 0, total: 0 }));
  const sum = (field) => rows.reduce((sum, row) => sum + row[field], 0);
  return (place) => (row) => {
    rows[place] = row;
    onProgress?.({ stage: "download", done: sum("done"), total: sum("total") });
  };
}

const ADVICE = "; serve all of the package's dist/ beside worker.js";

// Boots while it watches the files of the package: where one is missing, Pyodide may wait for ever, or not say which.
async function present(boot) {
  const { fetch } = globalThis;
  const missing = new Promise((_, reject) => {
    const lacks = (url, why) => reject(new Error(`${url}: ${why}${ADVICE}`));
    globalThis.fetch = async (given, options) => {
      const url = given.url ?? `${given}`;
      try {
        const answer = await fetch(given, options);
        if (!answer.ok) lacks(url, `${answer.status} ${answer.statusText}`.trim());
        return answer;
      } catch (error) {
        lacks(url, error.message);
        throw error;
      }
    };
  });
  try {
    return await Promise.race([boot(), missing]);
  } catch (error) {
    if (/import/.test(error.message)) error.message += ADVICE; // of a module that Pyodide loads
    throw error;
  } finally {
    globalThis.fetch = fetch;
  }
}

const asMessage = ({ name, message, stack }) => ({ name, message, stack });

onmessage = async ({ data: { id, name, given, progress, signal, abort } }) => {
  if (abort) return aborts.get(id)?.abort();
  try {
    if (progress || signal) {
      const stopping = new AbortController();
      if (signal) aborts.set(id, stopping);
      const onProgress = progress ? (progress) => postMessage({ id, progress }) : undefined;
      given = [...given.slice(0, -1), { ...given.at(-1), onProgress, signal: stopping.signal }];
    }
    const result = await (calls[name] ?? runtime[name].bind(runtime))(...given);
    if (aborts.get(id)?.signal.aborted) await runtime.discard(result);
    else postMessage({ id, result });
  } catch (error) {
    postMessage({ id, error: asMessage(error) });
  } finally {
    aborts.delete(id);
  }
};
