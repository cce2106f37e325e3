// Python of the tests beside the package, in its own runtime, as tests/web/test_random_graphs.py asks for it: in Node and
// in a page alike.

import { Runtime } from "../dist/runtime.js";

// `texts` are files of Python by their names; the function that comes back calls `name` of `module` with one text.
export async function openPython({ loadPyodide, options, archive, gpu, texts, module, name }) {
  let python;
  const loaded = async (given) => (python = await loadPyodide(given));
  await Runtime.boot({ loadPyodide: loaded, options, archive, gpu });
  for (const [path, text] of Object.entries(texts)) {
    python.FS.mkdirTree(`/given/${path}`.replace(/\/[^/]+$/, ""));
    python.FS.writeFile(`/given/${path}`, text);
  }
  await python.runPythonAsync(`import sys; sys.path.append("/given"); import ${module}`);
  const called = python.pyimport(module)[name];
  return (text) => called.callPromising(text);
}
