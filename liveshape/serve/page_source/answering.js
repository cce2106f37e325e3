// Answers that are being written, one at most per conversation; they go on while another conversation is shown.

const running = new Map(); // by id of the conversation: the message, and how to stop it

const OUTCOMES = { done: "The answer is complete.", stopped: "The answer was stopped.", failed: "The answer failed." };

function requestBody(conversation, question) {
  const { system, ...sampling } = conversation.settings;
  const said = branch(conversation, question).filter((each) => each.content);
  const messages = said.map(({ role, content }) => ({ role, content }));
  if (system) messages.unshift({ role: "system", content: system });
  return { model: conversation.model, messages, ...sampling };
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
    await chooseModel(conversation);
    for await (const chunk of streamChat(requestBody(conversation, question), controller.signal)) {
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
  const { content, reasoning_content: reasoning } = choice?.delta ?? {};
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
