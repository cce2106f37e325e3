// The model in this page in the place of a server: the same calls as api.js, and chunks of the same form.

const LARGE = 50e6; // bytes that nobody should load without having asked for them

const modelNotes = () => [
  ...(SITE.chat ? [] : ["This model continues text: write how it begins."]),
  "The model runs in this page, and conversations are kept in this browser: nothing is sent anywhere.",
];

let loaded = null; // a promise

function languageModel() {
  loaded ??= withEngine(loadModel).catch((error) => {
    loaded = null;
    throw error;
  });
  return loaded;
}

async function loadModel({ loadLanguageModel }) {
  const files = await Promise.all(SITE.files.map(modelFile));
  return loadLanguageModel(Object.fromEntries(files), { ...SITE.options, onProgress: showLoading });
}

// Weights by their address, so that they are read by parts; texts by their bytes.
async function modelFile(name) {
  const address = new URL(`model/${name}`, document.baseURI).href;
  if (name.endsWith(".pte")) return [name, address];
  const answer = await fetch(address);
  if (!answer.ok) throw new Error(`${address}: ${answer.status} ${answer.statusText}`);
  return [name, new Uint8Array(await answer.arrayBuffer())];
}

// After an error of the device or the worker the next question loads the model anew.
async function forget() {
  loaded = null;
  const { stop } = await import("./liveshape/index.js");
  await stop();
}

async function listModels() {
  byId("main").insertBefore(engineLine, byId("notice"));
  if (!SITE.chat) byId("message").placeholder = "The beginning of a text";
  if (SITE.bytes < LARGE) languageModel().catch(() => {}); // the line says why
  else if (!loaded) {
    const load = () => languageModel().catch(() => {});
    const actions = [button("Load", load, { className: "plain" })];
    showEngine(`The model has ${bytesText(SITE.bytes)}, which are loaded with the first message`, { actions });
  }
  return [SITE.name];
}

let turn = Promise.resolve(); // ends with the last answer: the model writes one at a time

async function* streamChat(body, signal) {
  const model = await abortable(languageModel(), signal);
  const before = turn;
  let release;
  turn = new Promise((resolve) => (release = resolve));
  let responses = null;
  try {
    await abortable(before, signal);
    const { max_tokens: maxTokens = null, temperature, top_p: topP, seed } = body;
    const options = { maxTokens, temperature, topP, seed, raw: !model.chat, keepPrefix: true };
    showEngine("Reading the prompt");
    responses = model.stream(model.chat ? body.messages : continued(body.messages), options);
    for (;;) {
      const { value, done } = await abortable(responses.next(), signal);
      if (value?.tokens <= 1) showDevice();
      if (done) return;
      yield chunkOf(value);
    }
  } catch (error) {
    if (responses) showDevice();
    if (!signal?.aborted && !/^(InputError|ShapeError)$/.test(error.name)) forget().catch(() => {});
    throw error;
  } finally {
    // A stop is seen at once, and the engine ends with the token that it is at.
    const ended = responses?.return().catch(() => {});
    Promise.all([before, ended]).then(release);
  }
}

function chunkOf({ text, finishReason, promptTokens, tokens }) {
  const usage = finishReason && { prompt_tokens: promptTokens, completion_tokens: tokens };
  return { choices: [{ delta: { content: text }, finish_reason: finishReason }], usage };
}

// What was written so far as one text, since a model without a chat template knows no messages.
function continued(messages) {
  let text = "";
  for (const { role, content } of messages) {
    const apart = text && role === "user" && !/\s$/.test(text) && !/^\s/.test(content);
    text += apart ? ` ${content}` : content;
  }
  return text;
}

function abortable(promise, signal) {
  return new Promise((resolve, reject) => {
    const stop = () => reject(signal.reason);
    if (signal?.aborted) stop();
    signal?.addEventListener("abort", stop, { once: true });
    promise.then(resolve, reject).finally(() => signal?.removeEventListener("abort", stop));
  });
}
