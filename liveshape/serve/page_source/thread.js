// The messages of the conversation that is shown.

const SHOWN = "liveshape.shown";
let shown = newConversation();
const views = new Map(); // by id of the message: the element, and how to bring it up to date

function showConversation(conversation) {
  shown = conversation;
  store(SHOWN, conversation.id, "sessionStorage");
  renderThread();
  showModel();
  showRunning(conversation);
  showDraft(conversation);
  pin();
}

function renderThread() {
  const messages = branch(shown);
  views.clear();
  for (const message of messages) {
    views.set(message.id, message.role === "user" ? userView(message) : answerView(message));
  }
  fill(byId("thread"), [...views.values()].map((view) => view.element));
  if (!messages.length) byId("thread").append(emptyView());
  byId("title").textContent = shown.title;
  document.title = shown.title ? `${shown.title} - liveshape` : "liveshape";
}

function emptyView() {
  const { id, chat } = currentModel();
  const notes = [...(chat !== false ? [] : ["This model continues text: write how it begins."]), ...modelNotes()];
  const made = element("div", { className: "empty" }, element("p", { className: "model" }, id));
  made.append(...notes.map((note) => element("p", {}, note)));
  if (chat !== null) made.append(starters(chat));
  return made;
}

const CHATS = [
  ["Explain an idea", "Explain how a transformer predicts the next word, to somebody who knows no mathematics."],
  ["Write a program", "Write a Python function that finds the longest common substring of two texts, with an example."],
  ["Compare in a table", "Compare PNG, JPEG and WebP in a table: compression, transparency, what each is for."],
  ["Derive a formula", "Derive the formula for the sum of the first n squares, step by step."],
];
const BEGINNINGS = [
  ["A story", "Once upon a time, there was a little"],
  ["A recipe", "Pancakes for four people\n\nIngredients:\n"],
  ["A program", "def is_prime(number):\n"],
  ["A dialogue", "“Where have you been?” she asked. “I was"],
];

// What a conversation can begin with, on a page that is still empty.
function starters(chat) {
  const made = (chat ? CHATS : BEGINNINGS).map(([title, content]) => {
    const parts = [element("b", {}, title), element("span", { className: "soft" }, content)];
    return element("button", { type: "button", className: "starter", onclick: () => begin(content) }, ...parts);
  });
  return element("div", { className: "starters", role: "group", ariaLabel: "Beginnings" }, ...made);
}

function begin(content) {
  ask(shown, content, shown.leaf);
  focusMessage();
}

let updates = new Set();

// Chunks may come faster than frames: each frame shows what there is by then.
function scheduleUpdate(message) {
  if (!updates.size) {
    requestAnimationFrame(() => {
      for (const each of updates) views.get(each.id)?.update();
      updates = new Set();
      follow();
    });
  }
  updates.add(message);
}

function finishMessage(message) {
  views.get(message.id)?.update();
  follow();
}

function userView(message) {
  const text = element("div", { className: "said" }, message.content);
  const foot = element("footer", {});
  const view = { element: element("article", { className: "user", ariaLabel: "You" }, text, foot) };
  view.edit = () => editMessage(message, view);
  view.update = () => {
    foot.replaceChildren(
      ...versionButtons(message),
      iconButton("copy", "Copy", (event) => copyText(message.content, event.currentTarget)),
      iconButton("edit", "Edit", view.edit, { disabled: running.has(shown.id) }),
    );
  };
  view.update();
  return view;
}

function editMessage(message, view) {
  const area = element("textarea", { className: "said", rows: 1, ariaLabel: "Edit the message" });
  area.value = message.content;
  const cancel = () => {
    editor.replaceWith(view.element);
    focusMessage();
  };
  const send = () => {
    const content = area.value.trim();
    if (!content || running.has(shown.id)) return;
    ask(shown, content, message.parent);
    focusMessage();
  };
  area.addEventListener("input", () => fitHeight(area));
  area.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      event.stopPropagation();
      cancel();
    } else if (isSend(event)) {
      event.preventDefault();
      send();
    }
  });
  const hint = element("span", { className: "soft" }, "Asks again from here; what followed stays as another version.");
  const foot = element("footer", {}, hint, button("Cancel", cancel), button("Send", send, { className: "plain" }));
  const editor = element("article", { className: "user editing", ariaLabel: "You" }, area, foot);
  view.element.replaceWith(editor);
  fitHeight(area);
  area.focus();
  area.setSelectionRange(area.value.length, area.value.length);
}

function answerView(message) {
  const reasoning = element("details", { className: "reasoning" });
  const reasoningTitle = element("summary");
  const reasoningText = element("div", { className: "prose" });
  const prose = element("div", { className: "prose" });
  const failure = element("div", { className: "failure", role: "alert" });
  const foot = element("footer");
  let touched = false;
  reasoning.append(reasoningTitle, reasoningText);
  reasoningTitle.addEventListener("click", () => (touched = true));
  const view = { element: element("article", { className: "answer", ariaLabel: "Answer" }) };
  view.element.append(reasoning, prose, failure, foot);
  view.update = () => {
    const streaming = message.state === "streaming";
    view.element.classList.toggle("streaming", streaming);
    view.element.ariaBusy = String(streaming);
    reasoning.hidden = !message.reasoning;
    if (message.reasoning) {
      const thinking = streaming && !message.content;
      if (!touched) reasoning.open = thinking;
      const seconds = !(message.reasoned >= 0.1) ? "" : ` for ${message.reasoned.toFixed(1)} s`;
      reasoningTitle.textContent = thinking ? "Reasoning" : `Reasoned${seconds}`;
      renderMarkdown(reasoningText, message.reasoning);
    }
    renderMarkdown(prose, message.content);
    showFailure(failure, message);
    foot.replaceChildren(...(streaming ? [meter(message)] : answerFoot(message)));
  };
  view.update();
  return view;
}

function showFailure(place, message) {
  place.hidden = message.state !== "failed";
  if (place.hidden || place.firstChild) return;
  const { message: text, status, type, param, retryAfter } = message.error;
  const wait = retryAfter && `asks to wait ${retryAfter} s`;
  const details = [status, type, param, wait].filter(Boolean).join(" · ");
  place.append(element("p", {}, text));
  if (details) place.append(element("p", { className: "soft" }, details));
  place.append(button("Retry", () => answerAgain(message), { className: "plain" }));
}

function answerFoot(message) {
  const disabled = running.has(shown.id);
  const copy = iconButton("copy", "Copy", () => copyText(message.content, copy));
  const again = iconButton("again", "Regenerate", () => answerAgain(message), { disabled });
  const actions = message.content ? [copy] : [];
  if (message.state !== "failed") actions.push(again); // which has its own button
  if (message.content && message.id === shown.leaf && goesOn(message)) {
    actions.push(iconButton("on", "Continue", () => goOn(message), { disabled }));
  }
  return [...versionButtons(message), ...actions, meter(message)];
}

// A failure without a word is no version to come back to.
function answerAgain(message) {
  if (message.state === "failed" && !message.content && !message.reasoning) {
    shown.messages = shown.messages.filter((each) => each !== message);
  }
  focusMessage();
  answer(shown, message.parent);
  renderThread();
  pin();
}

// A text always does, an answer where it was cut short.
function goesOn({ finish, state }) {
  const { chat } = currentModel();
  return chat === false || (chat && GOES_ON && (finish === "length" || state === "stopped"));
}

// The model goes on from all that stands above.
function goOn(message) {
  focusMessage();
  answer(shown, message.id);
  renderThread();
  pin();
}

function versionButtons(message) {
  const all = versions(shown, message);
  if (all.length < 2) return [];
  const index = all.indexOf(message);
  const go = (step) => () => {
    showVersion(shown, all[index + step]);
    saveConversation(shown);
    renderThread();
    views.get(all[index + step].id).element.querySelector("footer button:enabled")?.focus();
  };
  const busy = running.has(shown.id);
  return [
    iconButton("left", "Previous version", go(-1), { className: "icon version", disabled: busy || index === 0 }),
    element("span", { className: "count version" }, `${index + 1}/${all.length}`),
    iconButton("right", "Next version", go(1), { className: "icon version", disabled: busy || index === all.length - 1 }),
  ];
}

function meter(message) {
  const parts = [];
  const count = new Intl.NumberFormat("en");
  const tokens = message.tokens ?? message.about;
  const about = message.tokens === undefined ? "about " : "";
  if (tokens) parts.push(`${about}${count.format(tokens)} ${tokens === 1 ? "token" : "tokens"}`);
  if (message.rate) parts.push(`${message.rate.toFixed(message.rate < 100 ? 1 : 0)} tokens/s`);
  if (message.state !== "streaming") {
    if (message.first !== undefined) parts.push(`first after ${message.first.toFixed(2)} s`);
    if (message.prompt) parts.push(`prompt ${count.format(message.prompt)}`);
    if (message.finish === "length") parts.push("ended at the limit of tokens");
    if (message.state === "stopped") parts.push("stopped");
  }
  return element("span", { className: "meter" }, ...parts.map((part) => element("span", {}, part)));
}

// The view follows the end of an answer until the person scrolls up, and again from the end on.
let pinned = true;
let lastTop = 0;

function pin() {
  pinned = true;
  follow();
}

function follow() {
  const scroller = byId("scroller");
  if (pinned) scroller.scrollTop = scroller.scrollHeight;
  lastTop = scroller.scrollTop;
  byId("to-end").hidden = pinned || distanceToEnd() < 4;
}

function distanceToEnd() {
  const { scrollHeight, scrollTop, clientHeight } = byId("scroller");
  return scrollHeight - scrollTop - clientHeight;
}

function onScroll() {
  const { scrollTop } = byId("scroller");
  if (distanceToEnd() < 4) pinned = true;
  else if (scrollTop < lastTop - 1) pinned = false;
  lastTop = scrollTop;
  byId("to-end").hidden = pinned;
}
