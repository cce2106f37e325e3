// Cells of a notebook in a plain Pyodide, as tests/web/test_notebook.py asks for them: in Node and in a page alike.

// `wheel` are the bytes of the package's wheel, `numpy` texts of the numpy of a page by their names: a notebook has numpy
// itself, which is on no registry of npm. Without `suspending` it is as in a browser that has no JSPI.
export async function runCells({ loadPyodide, options, wheel, numpy, cells, suspending = true }) {
  if (!suspending) {
    delete WebAssembly.Suspending;
    delete WebAssembly.promising;
  }
  let said = "";
  const keep = (line) => void (said += `${line}\n`);
  const python = await loadPyodide({ ...options, stdout: keep, stderr: keep });
  python.FS.mkdirTree("/stand-in/numpy");
  for (const [name, text] of Object.entries(numpy)) python.FS.writeFile(`/stand-in/numpy/${name}`, text);
  python.runPython(`import sys; sys.path.insert(0, "/stand-in")`);
  python.registerJsModule("micropip", {
    async install(name) {
      if (name !== "liveshape") throw new Error(`the test has no wheel of ${name}`);
      python.unpackArchive(wheel, "wheel");
    },
  });
  const found = [];
  for (const cell of cells) {
    said = "";
    try {
      await python.runPythonAsync(cell);
    } catch (error) {
      found.push({ failed: error.message });
      break;
    }
    found.push({ said });
  }
  return found;
}
