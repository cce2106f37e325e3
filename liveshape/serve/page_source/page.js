// The page begins here: models, shortcuts, other tabs.

let models = [];
let loadingModels = null;

function loadModels() {
  loadingModels ??= listModels().finally(() => (loadingModels = null));
  return loadingModels.then((found) => {
    models = found;
    showModel();
  });
}

// Also while the server still loads its model: it says when to ask again.
async function startModels(again = false) {
  try {
    await loadModels();
    if (again) clearNotice();
  } catch (error) {
    const { status, retryAfter = 2 } = error.details ?? {};
    notice(error.message, [button("Retry", () => startModels(true), { className: "plain" })]);
    if (status === 503) setTimeout(startModels, 1000 * retryAfter, true);
  }
}

async function chooseModel(conversation) {
  if (!models.length) await loadModels();
  if (!models.includes(conversation.model)) conversation.model = models[0] ?? "";
}

function currentModel() {
  return models.includes(shown.model) ? shown.model : (models[0] ?? "");
}

function showModel() {
  const select = byId("model");
  const current = currentModel();
  select.replaceChildren(...models.map((name) => element("option", { value: name }, name)));
  select.value = current;
  select.hidden = models.length < 2;
  byId("model-name").hidden = !select.hidden;
  byId("model-name").textContent = byId("model-name").title = current;
  for (const place of document.querySelectorAll(".empty .model")) place.textContent = current;
}

function onKey(event) {
  const typing = event.target.closest("input, textarea, select");
  const open = document.querySelector("dialog[open]");
  const control = event.ctrlKey || event.metaKey;
  const key = event.key.toLowerCase();
  let action = null;
  if (open || event.isComposing) return;
  if (key === "escape") action = () => closeDrawer() || stopAnswer(shown);
  else if (control && event.shiftKey && key === "o") action = startNew;
  else if (control && key === "k") action = narrow.matches ? openDrawer : () => byId("search").select();
  else if (control && key === ".") action = openSettings;
  else if (!typing && !control && key === "/") action = () => byId("message").focus();
  else if (!typing && !control && key === "?") action = () => byId("shortcuts").showModal();
  if (!action) return;
  event.preventDefault();
  action();
}

// Another tab changed a conversation; an answer that this one is writing is newer.
function onStorage(event) {
  if (event.key === THEME) showTheme();
  const id = event.key?.startsWith(PREFIX) ? event.key.slice(PREFIX.length) : null;
  if (!id || running.has(id)) return;
  loadConversation(event.key);
  if (id === shown.id) {
    shown = conversations.get(id) ?? newConversation();
    renderThread();
    follow();
  }
  renderSidebar();
}

function start() {
  startTheme();
  byId("model").addEventListener("change", (event) => {
    shown.model = event.target.value;
    saveConversation(shown);
    showModel();
  });
  document.addEventListener("keydown", onKey);
  addEventListener("storage", onStorage);
  // What has been written of an answer outlives a reload, as if the person had stopped it.
  addEventListener("pagehide", () => {
    for (const conversation of [...running.keys()].map((id) => conversations.get(id))) {
      stopAnswer(conversation);
      saveConversation(conversation);
    }
  });
  startSidebar();
  startComposer();
  startDialogs();
  loadConversations();
  showConversation(conversations.get(stored(SHOWN, "sessionStorage")) ?? newConversation());
  focusMessage();
  startModels();
}

start();
