// The message box: a draft per conversation, sending and stopping.

const drafts = new Map();

function isSend(event) {
  // Enter that ends the composition of a character is not meant for us.
  return event.key === "Enter" && !event.shiftKey && !event.isComposing;
}

function fitHeight(area) {
  area.style.height = "auto";
  area.style.height = `${area.scrollHeight + area.offsetHeight - area.clientHeight}px`;
}

// Where fingers type, focus would raise the keyboard over what was asked for.
function focusMessage() {
  if (matchMedia("(pointer: fine)").matches) byId("message").focus();
}

function showDraft(conversation) {
  byId("message").value = drafts.get(conversation.id) ?? "";
  fitHeight(byId("message"));
}

function sendMessage() {
  const area = byId("message");
  const content = area.value.trim();
  if (!content || running.has(shown.id)) return;
  area.value = "";
  drafts.delete(shown.id);
  fitHeight(area);
  ask(shown, content, shown.leaf);
}

function ask(conversation, content, parent) {
  const question = addMessage(conversation, { role: "user", parent, content });
  answer(conversation, question.id);
  renderThread();
  pin();
}

// Buttons and the list say whether an answer is on its way; messages can be changed when it is not.
function showRunning(conversation) {
  if (conversation === shown) {
    const busy = running.has(shown.id);
    const hadFocus = [byId("send"), byId("stop")].includes(document.activeElement);
    byId("send").hidden = busy;
    byId("stop").hidden = !busy;
    if (hadFocus) focusMessage();
    for (const view of views.values()) view.update();
  }
  renderSidebar();
}

function startComposer() {
  const area = byId("message");
  area.addEventListener("input", () => {
    drafts.set(shown.id, area.value);
    fitHeight(area);
  });
  area.addEventListener("keydown", (event) => {
    if (isSend(event)) {
      event.preventDefault();
      sendMessage();
    } else if (event.key === "ArrowUp" && !area.value && !running.has(shown.id)) {
      const last = branch(shown).findLast((each) => each.role === "user");
      if (!last) return;
      event.preventDefault();
      views.get(last.id).edit();
    }
  });
  byId("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    sendMessage();
  });
  byId("stop").addEventListener("click", () => stopAnswer(shown));
  byId("to-end").addEventListener("click", pin);
  byId("scroller").addEventListener("scroll", onScroll, { passive: true });
}
