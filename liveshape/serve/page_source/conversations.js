// Conversations, kept in the browser, one entry of localStorage each. A conversation is a tree: editing a message or
// asking for another answer adds a branch beside the old one, and `leaf` is the end of the branch that is shown.

const PREFIX = "liveshape.conversation.";
const NEW_SETTINGS = "liveshape.settings";
const FORMAT = "liveshape conversations";
const SETTINGS = {
  system: "string",
  temperature: "number",
  max_tokens: "number",
  top_p: "number",
  top_k: "number",
  min_p: "number",
  seed: "number",
  repetition_penalty: "number",
  frequency_penalty: "number",
  presence_penalty: "number",
  stop: "string",
  logit_bias: "string",
};
const conversations = new Map();

const newId = () => Array.from(crypto.getRandomValues(new Uint32Array(4)), (each) => each.toString(36)).join("");

function newConversation() {
  const settings = readSettings(parsed(stored(NEW_SETTINGS)));
  return { id: newId(), title: "", model: "", updated: Date.now(), settings, leaf: null, messages: [] };
}

function addMessage(conversation, message) {
  const added = { id: newId(), content: "", state: "done", ...message };
  conversation.messages.push(added);
  conversation.leaf = added.id;
  conversation.updated = Date.now();
  if (!conversation.title) conversation.title = titleOf(message.content);
  return added;
}

function titleOf(text) {
  const line = text.trim().split("\n", 1)[0].trim();
  return line.length > 60 ? `${line.slice(0, 59).trimEnd()}…` : line;
}

// The messages of the branch that is shown, first to last, up to one of them.
function branch(conversation, last = conversation.leaf) {
  const known = new Map(conversation.messages.map((message) => [message.id, message]));
  const path = [];
  for (let message = known.get(last); message; message = known.get(message.parent)) path.push(message);
  return path.reverse();
}

function versions(conversation, message) {
  return conversation.messages.filter((other) => other.parent === message.parent && other.role === message.role);
}

// Shows another version of a message, with the newest of what came after it.
function showVersion(conversation, message) {
  let last = message;
  for (let next = message; next; next = conversation.messages.findLast((each) => each.parent === last.id)) last = next;
  conversation.leaf = last.id;
}

function saveConversation(conversation) {
  if (!conversation.messages.length) return;
  conversations.set(conversation.id, conversation);
  if (store(PREFIX + conversation.id, JSON.stringify(conversation))) return;
  notice("The browser has no room to keep this conversation. Export what you need, and delete some.");
}

function deleteConversation(conversation) {
  conversations.delete(conversation.id);
  store(PREFIX + conversation.id, null);
}

function loadConversations() {
  let names = [];
  try {
    names = Object.keys(localStorage);
  } catch {
    notice("This browser keeps nothing for this page: conversations end with the tab.");
  }
  for (const name of names) if (name.startsWith(PREFIX)) loadConversation(name);
}

function loadConversation(name) {
  const read = readConversation(parsed(stored(name)));
  if (read) conversations.set(read.id, read);
  else conversations.delete(name.slice(PREFIX.length));
}

function sortedConversations(words) {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  const matches = (conversation) => {
    const text = [conversation.title, ...conversation.messages.map((each) => each.content)].join("\n").toLowerCase();
    return wanted.every((word) => text.includes(word));
  };
  const found = [...conversations.values()].filter((each) => !wanted.length || matches(each));
  return found.sort((one, other) => other.updated - one.updated);
}

function exported() {
  return JSON.stringify({ format: FORMAT, version: 1, conversations: sortedConversations("") }, null, 1);
}

// Adds the conversations of an exported file and says how many; those that are here already stay as they are.
function importConversations(text) {
  const file = parsed(text);
  if (file?.format !== FORMAT || !Array.isArray(file.conversations)) return null;
  const read = file.conversations.map(readConversation);
  if (read.includes(null)) return null;
  const added = read.filter((each) => !conversations.has(each.id));
  added.forEach(saveConversation);
  return added.length;
}

// What was read is trusted no more than what a stranger sends: known fields of known types, parents before children.
function readConversation(raw) {
  if (typeof raw?.id !== "string" || !/^\w{1,64}$/.test(raw.id) || !Array.isArray(raw.messages)) return null;
  const messages = [];
  const ids = new Set();
  for (const each of raw.messages) {
    const message = readMessage(each);
    if (!message || ids.has(message.id) || (message.parent !== null && !ids.has(message.parent))) return null;
    ids.add(message.id);
    messages.push(message);
  }
  return {
    id: raw.id,
    title: text(raw.title).slice(0, 200) || titleOf(messages[0]?.content ?? ""),
    model: text(raw.model),
    updated: number(raw.updated) ?? 0,
    settings: readSettings(raw.settings),
    leaf: ids.has(raw.leaf) ? raw.leaf : (messages.at(-1)?.id ?? null),
    messages,
  };
}

function readMessage(raw) {
  if (typeof raw?.id !== "string" || !["user", "assistant"].includes(raw.role)) return null;
  const read = { id: raw.id, parent: text(raw.parent) || null, role: raw.role, content: text(raw.content) };
  read.state = ["done", "stopped", "failed"].includes(raw.state) ? raw.state : "stopped";
  if (raw.role === "user") return read;
  read.reasoning = text(raw.reasoning);
  read.finish = text(raw.finish);
  for (const name of ["reasoned", "first", "tokens", "about", "prompt", "rate"]) read[name] = number(raw[name]);
  if (read.state === "failed") {
    const { message, status, type, param, retryAfter } = raw.error ?? {};
    read.error = { message: text(message), status: number(status), type: text(type), param: text(param) };
    read.error.retryAfter = number(retryAfter);
  }
  return read;
}

function readSettings(raw) {
  const read = {};
  for (const [name, type] of Object.entries(SETTINGS)) if (typeof raw?.[name] === type) read[name] = raw[name];
  return read;
}

function text(value) {
  return typeof value === "string" ? value : "";
}

function number(value) {
  return typeof value === "number" && Number.isFinite(value) ? value : undefined;
}
