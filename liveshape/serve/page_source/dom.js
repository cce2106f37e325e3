// Elements are made here and never from HTML text: the page's policy refuses innerHTML.

const byId = (id) => document.getElementById(id);

// A child may be a list of them: there may be more than a call takes arguments.
function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in made) made[name] = value;
    else made.setAttribute(name, value);
  }
  for (const child of children.flat()) made.append(child);
  return made;
}

// The children of a place, in the stead of those that it had.
function fill(place, children) {
  place.replaceChildren();
  for (const child of children) place.append(child);
}

function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
  use.setAttribute("href", `#icon-${name}`);
  svg.setAttribute("aria-hidden", "true");
  svg.append(use);
  return svg;
}

function button(label, onclick, properties = {}) {
  return element("button", { type: "button", className: "quiet", onclick, ...properties }, label);
}

function iconButton(name, label, onclick, properties = {}) {
  return button(icon(name), onclick, { className: "icon", ariaLabel: label, title: label, ...properties });
}

let noticeTimer = 0;

// One line above the messages, with what can be done about it; it stays unless it is given a time.
function notice(text, actions = [], seconds = 0) {
  clearTimeout(noticeTimer);
  const dismiss = iconButton("close", "Dismiss", clearNotice);
  byId("notice").replaceChildren(element("p", {}, text), ...actions, dismiss);
  if (seconds) noticeTimer = setTimeout(clearNotice, 1000 * seconds);
}

function clearNotice() {
  byId("notice").replaceChildren();
}

function announce(text) {
  byId("announcer").textContent = text;
}

async function copyText(text, pressed) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Without https, and away from localhost, a browser offers no clipboard but the selection.
    const area = element("textarea", { value: text, className: "unseen" });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
    pressed.focus();
  }
  const label = pressed.ariaLabel;
  if (label === "Copied") return;
  pressed.ariaLabel = pressed.title = "Copied";
  pressed.replaceChildren(icon("done"));
  setTimeout(() => {
    pressed.ariaLabel = pressed.title = label;
    pressed.replaceChildren(icon("copy"));
  }, 1500);
}
