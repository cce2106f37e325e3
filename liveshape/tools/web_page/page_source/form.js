// The form begins here: sizes, inputs, a run, and what came out.

let program = null;
const sizes = findSizes(SITE.inputs);
const cards = SITE.inputs.map((info, place) => new InputCard(info, place, sizes));

async function loadProgram() {
  try {
    const address = new URL("model/model.pte", document.baseURI).href;
    const options = { method: SITE.method, onProgress: showLoading };
    program = await withEngine(({ load }) => load(address, options));
    byId("run").disabled = false;
  } catch {
    // The line of the engine says why.
  }
}

async function runProgram() {
  if (!program || byId("run").disabled) return;
  byId("failure").hidden = true;
  byId("run").disabled = true;
  byId("time").textContent = "running";
  try {
    const inputs = cards.map((card) => card.value());
    const start = performance.now();
    const found = await program.run(...inputs);
    const seconds = (performance.now() - start) / 1000;
    const outputs = Array.isArray(found) ? found : [found];
    const shown = outputs.map((output, place) => outputCard(output, SITE.outputs[place]?.name ?? `output ${place}`));
    byId("outputs").replaceChildren(...shown);
    byId("time").textContent = seconds < 1 ? `${(1000 * seconds).toFixed(1)} ms` : `${seconds.toFixed(2)} s`;
    announce(`Done in ${byId("time").textContent}.`);
  } catch (error) {
    byId("failure").textContent = error.message;
    byId("failure").hidden = false;
    byId("time").textContent = "";
  }
  byId("run").disabled = false;
}

function startForm() {
  startTheme();
  byId("name").textContent = SITE.name;
  document.title = `${SITE.name} - liveshape`;
  byId("top").after(engineLine);
  byId("sizes").append(...sizes.map((size) => sizeField(size, () => cards.forEach((card) => card.refresh()))));
  byId("sizes-part").hidden = !sizes.length;
  byId("inputs").append(...cards.map((card) => card.element));
  byId("form").addEventListener("submit", (event) => {
    event.preventDefault();
    runProgram();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) runProgram();
  });
  // A file that misses its card must not replace the page.
  for (const type of ["dragover", "drop"]) addEventListener(type, (event) => event.preventDefault());
  loadProgram();
}

startForm();
