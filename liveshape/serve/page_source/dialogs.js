// Settings of a conversation, the server's key, the list of shortcuts.

function openSettings() {
  const { elements } = byId("settings").querySelector("form");
  for (const name of Object.keys(SETTINGS)) {
    elements[name].value = shown.settings[name] ?? "";
    elements[name].closest("label").hidden = !TAKEN.includes(name);
  }
  byId("settings").showModal();
}

// Every valid field is taken as it is typed; an invalid one keeps the dialog open.
function takeSettings() {
  const { elements } = byId("settings").querySelector("form");
  for (const [name, type] of Object.entries(SETTINGS)) {
    const field = elements[name];
    if (!field.validity.valid) continue;
    if (field.value.trim()) shown.settings[name] = type === "number" ? Number(field.value) : field.value;
    else delete shown.settings[name];
  }
  store(NEW_SETTINGS, JSON.stringify(shown.settings));
  saveConversation(shown);
}

let asking = null;

// Asks for the key, once for all requests that wait for it; false if the person gives none.
function askKey(refused, signal) {
  asking ??= new Promise((resolve) => {
    const dialog = byId("ask-key");
    const field = dialog.querySelector("input");
    if (refused) byId("key-reason").textContent = "The server refused this key.";
    field.value = "";
    dialog.returnValue = "";
    dialog.showModal();
    const stop = () => dialog.close();
    signal?.addEventListener("abort", stop);
    dialog.addEventListener(
      "close",
      () => {
        asking = null;
        signal?.removeEventListener("abort", stop);
        const given = dialog.returnValue === "given";
        if (given) store(KEY, (key = field.value.trim()), "sessionStorage");
        resolve(given);
      },
      { once: true },
    );
  });
  return asking;
}

function startDialogs() {
  const settings = byId("settings");
  byId("open-settings").addEventListener("click", openSettings);
  settings.addEventListener("input", takeSettings);
  byId("clear-settings").addEventListener("click", () => {
    settings.querySelector("form").reset();
    takeSettings();
  });
  byId("cancel-key").addEventListener("click", () => byId("ask-key").close());
  byId("ask-key").querySelector("form").addEventListener("submit", (event) => {
    event.preventDefault();
    byId("ask-key").close("given");
  });
  byId("open-shortcuts").addEventListener("click", () => byId("shortcuts").showModal());
  for (const dialog of document.querySelectorAll("dialog")) {
    dialog.addEventListener("click", (event) => {
      if (event.target === dialog) dialog.close(); // outside of its form
    });
  }
}
