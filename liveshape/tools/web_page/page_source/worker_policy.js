// The only script that this page starts by its address is the worker of the runtime beside it.

const WORKER = new URL("liveshape/worker.js", document.baseURI).href;

globalThis.trustedTypes?.createPolicy("default", {
  createScriptURL: (address) => (address === WORKER ? address : null),
});
