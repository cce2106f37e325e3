// Answers that are being written, one at most per conversation; they go on while another conversation is shown.

const running = new Map(); // by id of the conversation: the message, and how to stop it

const OUTCOMES = { done: "The answer is complete.", stopped: "The answer was stopped.", failed: "The answer failed." };

function requestBody(conversation, question) {
  const { system, stop, logit_bias: bias, ...sampling } = conversation.settings;
  const said = branch(conversation, question).filter((each) => each.content);
  const messages = [];
  for (const { role, content } of said) {
    const before = messages.at(-1);
    if (role === "assistant" && before?.role === role) before.content += content; // an answer that went on
    else messages.push({ role, content });
  }
  if (system) messages.unshift({ role: "system", content: system });
  const stops = (stop ?? "").split("\n").filter(Boolean);
  if (stops.length) sampling.stop = stops;
  const biases = (bias ?? "").split(",").filter((each) => each.includes(":"));
  if (biases.length) sampling.logit_bias = Object.fromEntries(biases.map((each) => each.split(":")).map(asBias));
  return { model: conversation.model, messages, ...sampling };
}

const asBias = ([token, bias]) => [token.trim(), Number(bias)];

// What was written so far as one text, for a model that has no chat template and knows no messages.
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

async function answer(conversation, question) {
  stopAnswer(conversation);
  const message = addMessage(conversation, { role: "assistant", parent: question, reasoning: "", state: "streaming" });
  const controller = new AbortController();
  const clock = new AnswerClock(message);
  running.set(conversation.id, { message, controller });
  saveConversation(conversation);
  showRunning(conversation);
  announce("The answer begins.");
  try {
    await abortable(chooseModel(conversation), controller.signal);
    const { chat = true } = models.find((each) => each.id === conversation.model) ?? {};
    for await (const chunk of streamAnswer(requestBody(conversation, question), chat, controller.signal)) {
      takeChunk(message, chunk, clock);
      if (shown === conversation) scheduleUpdate(message);
    }
    message.state = "done";
  } catch (error) {
    message.state = controller.signal.aborted ? "stopped" : "failed";
    if (message.state === "failed") message.error = { message: error.message, ...error.details };
  }
  clock.end();
  if (running.get(conversation.id)?.message === message) running.delete(conversation.id);
  if (conversations.has(conversation.id)) saveConversation(conversation);
  announce(OUTCOMES[message.state]);
  if (shown === conversation) finishMessage(message);
  showRunning(conversation);
}

function takeChunk(message, chunk, clock) {
  const [choice] = chunk.choices ?? [];
  const { content = choice?.text, reasoning_content: reasoning } = choice?.delta ?? {};
  if (reasoning) message.reasoning += reasoning;
  if (content) message.content += content;
  if (content || reasoning) clock.tick(Boolean(content));
  if (choice?.finish_reason) message.finish = choice.finish_reason;
  if (chunk.usage) clock.count(chunk.usage);
}

function stopAnswer(conversation) {
  running.get(conversation.id)?.controller.abort();
}

// Times of an answer. Until the server has counted the tokens, chunks stand for them.
class AnswerClock {
  constructor(message) {
    this.message = message;
    this.start = this.last = performance.now();
    this.chunks = 0;
  }

  tick(isContent) {
    const { message } = this;
    this.last = performance.now();
    this.chunks++;
    message.first ??= (this.last - this.start) / 1000;
    if (isContent && message.reasoning) message.reasoned ??= (this.last - this.start) / 1000 - message.first;
    this.measure(this.chunks);
  }

  count(usage) {
    this.message.prompt = usage.prompt_tokens;
    this.message.tokens = usage.completion_tokens;
    this.measure(usage.completion_tokens);
  }

  // The first token came with the prompt: the rate is that of those after it.
  measure(tokens) {
    const seconds = (this.last - this.start) / 1000 - (this.message.first ?? 0);
    this.message.about = this.chunks;
    if (tokens > 1 && seconds > 0) this.message.rate = (tokens - 1) / seconds;
  }

  end() {
    const { message } = this;
    if (message.reasoning && !message.content) message.reasoned ??= (this.last - this.start) / 1000 - message.first;
  }
}
