// The list of conversations, a drawer where the window is narrow.

const narrow = matchMedia("(max-width: 760px)");
let renaming = null;

function renderSidebar() {
  const words = byId("search").value;
  const found = sortedConversations(words);
  const focused = document.activeElement?.closest("#conversations li")?.dataset.id;
  const items = found.map(listEntry);
  fill(byId("conversations"), items);
  byId("nothing-found").hidden = found.length > 0;
  byId("nothing-found").textContent = words.trim() ? "No conversation has these words." : "No conversations yet.";
  byId("export").disabled = conversations.size === 0;
  const field = byId("conversations").querySelector("input");
  if (field) field.focus();
  else if (focused) items.find((each) => each.dataset.id === focused)?.querySelector("button").focus();
}

function listEntry(conversation) {
  const entry = element("li");
  entry.dataset.id = conversation.id;
  if (renaming === conversation.id) {
    entry.append(renameField(conversation));
    return entry;
  }
  const open = button(conversation.title || "Untitled", () => openConversation(conversation), { className: "open" });
  open.title = conversation.title;
  if (conversation === shown) open.setAttribute("aria-current", "true");
  if (running.has(conversation.id)) {
    open.append(element("span", { className: "writing", ariaLabel: "answering", role: "img" }));
  }
  const rename = () => {
    renaming = conversation.id;
    renderSidebar();
  };
  open.addEventListener("dblclick", rename);
  const title = conversation.title;
  entry.append(
    open,
    iconButton("edit", `Rename ${title}`, rename),
    iconButton("delete", `Delete ${title}`, () => removeConversation(conversation)),
  );
  return entry;
}

function renameField(conversation) {
  const field = element("input", { value: conversation.title, ariaLabel: "Title", maxLength: 200 });
  const end = (keep) => {
    if (renaming !== conversation.id) return;
    renaming = null;
    const title = field.value.trim();
    if (keep && title) {
      conversation.title = title;
      saveConversation(conversation);
      if (conversation === shown) byId("title").textContent = title;
    }
    renderSidebar();
    byId("conversations").querySelector(`[data-id="${conversation.id}"] button`)?.focus();
  };
  field.addEventListener("blur", () => end(true));
  field.addEventListener("keydown", (event) => {
    if (event.isComposing || !["Enter", "Escape"].includes(event.key)) return;
    event.preventDefault();
    event.stopPropagation();
    end(event.key === "Enter");
  });
  return field;
}

function openConversation(conversation) {
  closeDrawer();
  if (conversation !== shown) showConversation(conversation);
  focusMessage();
}

function removeConversation(conversation) {
  const next = byId("conversations").querySelector(`[data-id="${conversation.id}"]`)?.nextElementSibling;
  stopAnswer(conversation);
  deleteConversation(conversation);
  if (conversation === shown) showConversation(newConversation());
  renderSidebar();
  byId("conversations").querySelector(`[data-id="${next?.dataset.id}"] button`)?.focus();
  const undo = () => {
    saveConversation(conversation);
    showConversation(conversation);
    clearNotice();
  };
  notice(`Deleted “${conversation.title}”.`, [button("Undo", undo, { className: "plain" })], 10);
}

function openDrawer() {
  document.body.classList.add("drawer");
  showDrawer();
  byId("search").focus();
}

function closeDrawer() {
  if (!document.body.classList.contains("drawer")) return false;
  document.body.classList.remove("drawer");
  showDrawer();
  byId("open-sidebar").focus();
  return true;
}

// What lies behind the drawer, and the drawer when it is away, take no focus.
function showDrawer() {
  const open = document.body.classList.contains("drawer");
  if (!narrow.matches) document.body.classList.remove("drawer");
  byId("sidebar").inert = narrow.matches && !open;
  byId("main").inert = narrow.matches && open;
  byId("backdrop").hidden = !(narrow.matches && open);
  byId("open-sidebar").ariaExpanded = String(open);
}

function saveFile() {
  const address = URL.createObjectURL(new Blob([exported()], { type: "application/json" }));
  const day = new Date().toISOString().slice(0, 10);
  element("a", { href: address, download: `conversations-${day}.json` }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}

async function readFile(event) {
  const [file] = event.target.files;
  event.target.value = "";
  if (!file) return;
  const added = importConversations(await file.text());
  if (added === null) notice(`${file.name} is not a file that Export of this page wrote.`);
  else notice(`${added} ${added === 1 ? "conversation" : "conversations"} added.`, [], 10);
  renderSidebar();
}

function startNew() {
  closeDrawer();
  if (shown.messages.length) showConversation(newConversation());
  focusMessage();
}

function startSidebar() {
  byId("new").addEventListener("click", startNew);
  byId("search").addEventListener("input", renderSidebar);
  byId("export").addEventListener("click", saveFile);
  byId("import").addEventListener("click", () => byId("import-file").click());
  byId("import-file").addEventListener("change", readFile);
  byId("open-sidebar").addEventListener("click", openDrawer);
  byId("backdrop").addEventListener("click", closeDrawer);
  narrow.addEventListener("change", showDrawer);
  showDrawer();
}
