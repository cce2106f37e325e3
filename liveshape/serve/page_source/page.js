// The page begins here: models, shortcuts, other tabs.

let models = []; // each with its id, and whether it has a chat template: null while that is not known
let loadingModels = null;

function loadModels() {
  loadingModels ??= listModels(showWaiting).finally(() => {
    loadingModels = null;
    byId("waiting").hidden = true;
  });
  return loadingModels.then(showModels);
}

function showModels(found) {
  models = found;
  showModel();
}

// While the server loads its model: the names of what it will answer for may be known by then.
function showWaiting(found) {
  byId("waiting").hidden = false;
  showModels(found);
}

// Where what stands before the server says when to ask again, it is asked again.
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
  if (!models.length || loadingModels) await loadModels();
  if (!models.some((each) => each.id === conversation.model)) conversation.model = models[0]?.id ?? "";
}

// That of the conversation that is shown; until the models are known, one without a name.
function currentModel() {
  return models.find((each) => each.id === shown.model) ?? models[0] ?? { id: "", chat: null };
}

function showModel() {
  const select = byId("model");
  const { id, chat } = currentModel();
  select.replaceChildren(...models.map((each) => element("option", { value: each.id }, each.id)));
  select.value = id;
  select.hidden = models.length < 2;
  byId("model-name").hidden = !select.hidden;
  byId("model-name").textContent = byId("model-name").title = id;
  byId("message").placeholder = chat === false ? "The beginning of a text" : "Message";
  document.querySelector(".empty")?.replaceWith(emptyView());
  for (const view of views.values()) view.update();
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
