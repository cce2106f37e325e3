// The page: reads its document, makes the views and what is above them.

const KEYS = [
  ["/", "search"],
  ["g, l, m", "graph, list, memory"],
  ["arrows", "to the next node"],
  ["Enter", "open or close a fold; read the details"],
  ["Escape", "close the fold around it; nothing selected"],
  ["+ and −", "zoom (with the wheel: Ctrl)"],
  ["0", "the whole graph"],
  ["t", "dark or light"],
];
const VIEWS = ["graph", "list", "memory"];

function showView(name) {
  for (const each of VIEWS) {
    byId(each).hidden = each !== name;
    const tab = byId(`tab-${each}`);
    tab.ariaSelected = String(each === name);
    tab.tabIndex = each === name ? 0 : -1;
  }
  byId("graph-tools").hidden = byId("colour").parentElement.hidden = name !== "graph";
}

function setTabs() {
  for (const [place, name] of VIEWS.entries()) {
    const tab = byId(`tab-${name}`);
    tab.addEventListener("click", () => showView(name));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const next = VIEWS[(place + step + VIEWS.length) % VIEWS.length];
      showView(next);
      byId(`tab-${next}`).focus();
    });
  }
  showView("graph");
}

function setTheme(repaint) {
  const root = document.documentElement;
  const apply = () => {
    readTheme();
    byId("theme").textContent = theme.dark ? "☀" : "☾";
    byId("theme").title = byId("theme").ariaLabel = theme.dark ? "Light" : "Dark";
    repaint();
  };
  byId("theme").addEventListener("click", () => {
    root.dataset.theme = theme.dark ? "light" : "dark";
    apply();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", apply);
  apply();
}

function setMethods(state) {
  const choice = byId("method");
  choice.hidden = state.methods.length < 2;
  choice.replaceChildren(...state.methods.map((each, place) => element("option", { value: place }, each.name)));
  choice.addEventListener("change", () => state.choose(Number(choice.value)));
}

function setColours(state) {
  const choice = byId("colour");
  state.on("method", () => {
    const profiles = state.method.profiles ?? [];
    const options = [["operator", "operator"], ["bytes", "bytes moved"], ["operations", "operations"]];
    profiles.forEach((each, place) => options.push([`time ${place}`, `time: ${each.name}`]));
    if (!profiles.length && state.colour === "time") state.paint("operator");
    choice.replaceChildren(...options.map(([value, text]) => element("option", { value }, text)));
    choice.value = state.colour === "time" ? `time ${state.profile}` : state.colour;
  });
  choice.addEventListener("change", () => {
    const [what, place] = choice.value.split(" ");
    if (place !== undefined) state.profile = Number(place);
    state.paint(what);
  });
}

function setKeys() {
  const dialog = byId("keys");
  dialog.append(element("h2", {}, "Keyboard"), pairs(KEYS.map(([key, what]) => [key, what])), element("form", { method: "dialog" }, element("button", { className: "plain" }, "Close")));
  byId("help").addEventListener("click", () => dialog.showModal());
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || dialog.open) return;
    if (event.target.matches("input:not([type=range]), select, textarea")) return;
    const view = { g: "graph", l: "list", m: "memory" }[event.key];
    if (event.key === "/") byId("search").focus();
    else if (event.key === "?") dialog.showModal();
    else if (event.key === "t") byId("theme").click();
    else if (view) {
      showView(view);
      byId(view).querySelector("[tabindex='0']")?.focus({ preventScroll: true });
    } else return;
    event.preventDefault();
  });
}

async function start() {
  const program = await unpacked(byId("data").textContent);
  byId("data").remove();
  byId("title").textContent = program.program;
  byId("title").title = `${bytesText(program.bytes ?? 0)}${program.device ? `, planned for ${program.device}` : ", planned for the limits of every WebGPU device"}`;
  if (!program.methods.length) {
    byId("details").append(element("p", {}, "This program has no methods that compute anything."));
    return;
  }
  readTheme();
  const state = new State(program);
  setTabs();
  setMethods(state);
  setColours(state);
  const graph = new GraphView(state);
  const memory = new MemoryView(state);
  new TableView(state);
  new Sliders(state);
  new Search(state);
  new Details(state);
  setTheme(() => {
    graph.repaint();
    memory.repaint();
  });
  setKeys();
  byId("fold-all").addEventListener("click", () => graph.foldAll(false));
  byId("unfold-all").addEventListener("click", () => graph.foldAll(true));
  byId("fit").addEventListener("click", () => graph.fitWhole());
  byId("zoom-in").addEventListener("click", () => graph.zoom(1.25));
  byId("zoom-out").addEventListener("click", () => graph.zoom(0.8));
  document.documentElement.dataset.ready = "true";
  window.liveshape = { state, graph }; // for the console, and for tests
}

start();
