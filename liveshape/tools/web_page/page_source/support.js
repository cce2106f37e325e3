// Whether this browser can run a model, and what to do where it cannot.

const BROWSERS = "a current Chrome, Edge, Firefox or Safari";

// What is missing and what helps, or null.
async function whatIsMissing() {
  if (!isSecureContext) {
    return "Browsers offer WebGPU to pages of https and of this machine alone: open it by https, or as localhost.";
  }
  if (!navigator.gpu) {
    return (
      `This browser has no WebGPU, which runs the model on your GPU. Use ${BROWSERS}; in Chrome on Linux it may have ` +
      "to be switched on: chrome://flags/#enable-unsafe-webgpu."
    );
  }
  const adapter = await navigator.gpu.requestAdapter().catch(() => null);
  if (adapter) return null;
  return (
    "This browser has WebGPU but found no GPU that it would use. Switch on graphics acceleration in its settings, " +
    "update the driver of the graphics card, or see chrome://gpu for the reason."
  );
}
