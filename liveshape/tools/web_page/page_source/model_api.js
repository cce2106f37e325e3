// The model in this page in the place of a server: the same calls as api.js, and chunks of the same form.

const LARGE = 50e6; // bytes that nobody should load without having asked for them

const modelNotes = () => [
  "The model runs in this page, and conversations are kept in this browser: nothing is sent anywhere.",
];

// The fields of the settings that the model in this page takes, and whether an answer goes on from its beginning.
const GOES_ON = false;
const TAKEN = ["system", "temperature", "max_tokens", "top_p", "top_k", "min_p", "seed", "repetition_penalty", "stop"];

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
  if (SITE.bytes < LARGE) languageModel().catch(() => {}); // the line says why
  else if (!loaded) {
    const load = () => languageModel().catch(() => {});
    const actions = [button("Load", load, { className: "plain" })];
    showEngine(`The model has ${bytesText(SITE.bytes)}, which are loaded with the first message`, { actions });
  }
  return [{ id: SITE.name, chat: SITE.chat }];
}

let turn = Promise.resolve(); // ends with the last answer: the model writes one at a time

async function* streamAnswer(body, chat, signal) {
  const model = await abortable(languageModel(), signal);
  const before = turn;
  let release;
  turn = new Promise((resolve) => (release = resolve));
  let responses = null;
  try {
    await abortable(before, signal);
    const { max_tokens: maxTokens = null, top_p: topP, top_k: topK, min_p: minP, repetition_penalty: penalty } = body;
    const { temperature, seed, stop } = body;
    const sampling = { temperature, topP, topK, minP, repetitionPenalty: penalty, seed, stop };
    const options = { maxTokens, ...sampling, raw: !model.chat, keepPrefix: true };
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
