// The page's end of the worker: calls by number, progress, abort, and an error for every call once the worker is gone.

export class WorkerRunner {
  #worker;
  #waiting = new Map();
  #next = 1;
  #failed = null;

  // `onGone` is called once, when no call can succeed any more.
  constructor(url, onGone) {
    this.onGone = onGone;
    this.#worker = new Worker(url, { type: "module" });
    this.#worker.onmessage = ({ data }) => this.#told(data);
    this.#worker.onerror = (event) => {
      event.preventDefault();
      const reason = event.message || `${url} or a file that it imports is missing; serve all of the package's dist/`;
      this.fail(new Error(`the worker of liveshape has failed: ${reason}`));
    };
  }

  #told(data) {
    if (data.alive) return this.#watch(data.alive);
    if (data.gone) return this.fail(asError(data.gone));
    const waiting = this.#waiting.get(data.id);
    if (!waiting) return this.#discard(data.result); // it was aborted
    if (data.progress) return waiting.onProgress?.(data.progress);
    this.#waiting.delete(data.id);
    if (data.error) waiting.reject(asError(data.error));
    else waiting.resolve(data.result);
  }

  // Frees what a call made that was aborted when its result was on the way already.
  #discard(result) {
    if (result !== undefined && result !== null) this.call("discard", result).catch(() => {});
  }

  // The worker holds a lock as long as it lives: who gets it knows that it died, which no event tells.
  #watch(name) {
    navigator.locks?.request(name, () => {
      this.fail(new Error("the worker of liveshape was ended, perhaps for want of memory; load the model again"));
    });
  }

  get gone() {
    return this.#failed !== null;
  }

  fail(error) {
    if (this.#failed) return;
    this.#failed = error;
    this.#worker.terminate();
    for (const { reject } of this.#waiting.values()) reject(error);
    this.#waiting.clear();
    this.onGone?.(this);
  }

  call(name, ...given) {
    return this.tell(name, given);
  }

  // `given` of a call with progress or a signal ends with an object of options.
  tell(name, given, { onProgress, signal } = {}) {
    if (this.#failed) return Promise.reject(this.#failed);
    if (signal?.aborted) return Promise.reject(signal.reason);
    const id = this.#next++;
    return new Promise((resolve, reject) => {
      const abort = () => {
        this.#waiting.delete(id);
        this.#worker.postMessage({ id, abort: true }); // it frees what it has
        reject(signal.reason);
      };
      const settled = (settle) => (value) => {
        signal?.removeEventListener("abort", abort);
        settle(value);
      };
      this.#waiting.set(id, { resolve: settled(resolve), reject: settled(reject), onProgress });
      signal?.addEventListener("abort", abort, { once: true });
      const watched = { progress: Boolean(onProgress), signal: Boolean(signal) };
      this.#worker.postMessage({ id, name, given, ...watched });
    });
  }
}

const asError = (given) => Object.assign(new Error(given.message), given);
