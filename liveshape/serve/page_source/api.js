// The OpenAI API of the server that this page came from.

const KEY = "liveshape.key";
const USUAL_TOKENS = 256; // of a text that is continued, which may never end by itself
let key = stored(KEY, "sessionStorage");

class ApiError extends Error {
  constructor(message, details = {}) {
    super(message);
    this.details = details; // status, type, param, code, retryAfter
  }
}

// What the server said is wrong, in OpenAI's shape; anything else is shown as it came.
function apiError(error, status, retryAfter) {
  const message = typeof error?.message === "string" ? error.message : `The server answered with status ${status}.`;
  const text = (value) => (value === null || value === undefined ? undefined : String(value));
  const { type, param, code } = error ?? {};
  return new ApiError(message, { status, type: text(type), param: text(param), code, retryAfter });
}

async function refusal(response) {
  const seconds = Number(response.headers.get("Retry-After"));
  const body = await response.json().catch(() => null);
  return apiError(body?.error, response.status, seconds > 0 ? seconds : undefined);
}

// A request with the key of this tab; where the server wants another, the person is asked, and it is sent again.
async function request(path, options = {}) {
  for (;;) {
    const sent = key;
    const headers = { ...options.headers, ...(sent && { Authorization: `Bearer ${sent}` }) };
    let response;
    try {
      response = await fetch(path, { ...options, headers });
    } catch (error) {
      if (options.signal?.aborted) throw error;
      throw new ApiError("The server did not answer. It may have stopped, or the network is down.");
    }
    if (response.ok) return response;
    const error = await refusal(response);
    // Another request may have been given a key while this one was on its way.
    if (response.status !== 401 || (sent === key && !(await askKey(sent, options.signal)))) throw error;
  }
}

// What a new conversation says below the name of the model.
const modelNotes = () => ["Conversations are kept in this browser alone."];

// The fields of the settings that this API takes, and whether an answer goes on from its beginning.
const TAKEN = Object.keys(SETTINGS);
const GOES_ON = true;

// The models that write text, once they are loaded; until then `onWaiting` is given those that will be there.
async function listModels(onWaiting) {
  const list = async () => {
    const { data } = await (await request("v1/models")).json();
    const writing = data.filter(({ tasks }) => tasks?.includes("completion") ?? true);
    return writing.map(({ id, tasks }) => ({ id, chat: tasks?.includes("chat") ?? true }));
  };
  const found = await list();
  if (!(await isLoading())) return found;
  onWaiting(found.map(({ id }) => ({ id, chat: null })));
  await untilLoaded();
  return list();
}

async function isLoading(signal) {
  const response = await fetch("health", { signal }).catch(() => null);
  return response?.status === 503 && (await response.json().catch(() => null))?.status === "loading";
}

async function untilLoaded(signal) {
  do await abortable(new Promise((resolve) => setTimeout(resolve, 1000)), signal);
  while (await isLoading(signal));
}

// A request for text; one that comes while the server loads its model, as after a restart, waits for it.
async function post(path, body, signal) {
  const headers = { "Content-Type": "application/json" };
  const options = { method: "POST", headers, body: JSON.stringify(body), signal };
  for (;;) {
    try {
      return await request(path, options);
    } catch (error) {
      if (error.details?.code !== "loading") throw error;
      byId("waiting").hidden = false;
      await untilLoaded(signal).finally(() => (byId("waiting").hidden = true));
    }
  }
}

// The chunks of an answer, as they come; a model without a chat template continues text.
async function* streamAnswer({ messages, ...options }, chat, signal) {
  const asked = { ...options, stream: true, stream_options: { include_usage: true } };
  const response = chat
    ? await post("v1/chat/completions", { ...asked, messages }, signal)
    : await post("v1/completions", { max_tokens: USUAL_TOKENS, ...asked, prompt: continued(messages) }, signal);
  let finished = false;
  for await (const data of eventData(response.body)) {
    if (data === "[DONE]") return;
    let chunk;
    try {
      chunk = JSON.parse(data);
    } catch {
      throw new ApiError("The server sent a chunk that is not JSON.");
    }
    if (chunk.error) throw apiError(chunk.error, response.status);
    finished ||= Boolean(chunk.choices?.[0]?.finish_reason);
    yield chunk;
  }
  if (!finished) throw new ApiError("The connection ended before the answer did.");
}

// The data of server-sent events; comments, which keep a connection open, carry none.
async function* eventData(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let data = [];
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const lines = (rest + value).split(/\r\n|\n|\r(?!$)/);
      rest = lines.pop();
      for (const line of lines) {
        if (line.startsWith("data:")) data.push(line.slice(5).replace(/^ /, ""));
        if (line || !data.length) continue;
        yield data.join("\n");
        data = [];
      }
    }
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The connection broke before the answer ended.");
  } finally {
    reader.cancel().catch(() => {});
  }
}
