// One line that says what the engine in this page does: starting, loading with its bytes, compiling, on which device.

const engineLine = element("div", { id: "engine" });

function showEngine(text, { progress, actions = [], bad = false } = {}) {
  if (!progress) announce(text);
  const bar = progress && element("progress", { max: progress.total, value: progress.done, ariaLabel: "Loading" });
  engineLine.className = bad ? "bad" : "";
  engineLine.replaceChildren(...(bar ? [bar] : []), element("p", {}, text), ...actions);
}

function bytesText(bytes) {
  const units = ["bytes", "KB", "MB", "GB"];
  const place = Math.min(units.length - 1, Math.floor(Math.log10(Math.max(bytes, 1)) / 3));
  return `${(bytes / 1000 ** place).toFixed(place && bytes < 100 * 1000 ** place ? 1 : 0)} ${units[place]}`;
}

const STAGES = { download: "Downloading", upload: "Loading weights" };

// Bytes of a download and of an upload, and the number of kernels.
function showLoading({ stage = "upload", done, total }) {
  const progress = { done, total };
  if (stage === "compile" && done < total) showEngine(`Compiling kernels: ${done} of ${total}`, { progress });
  else if (done < total) showEngine(`${STAGES[stage]}: ${bytesText(done)} of ${bytesText(total)}`, { progress });
  else if (stage !== "download") showEngine("Compiling kernels");
}

let engineDevice = null;

function showDevice() {
  const { name, software } = engineDevice;
  showEngine(`In this page, on ${name}${software ? ": a software adapter, without a GPU, and slow" : ""}`);
}

// Runs `load` with the runtime and the device, once this browser is known to have what it takes.
async function withEngine(load) {
  const missing = await whatIsMissing();
  if (missing) {
    showEngine(missing, { bad: true });
    throw new Error(missing);
  }
  try {
    showEngine("Starting the engine");
    const liveshape = await import("./liveshape/index.js");
    engineDevice = await liveshape.device();
    const loaded = await load(liveshape);
    showDevice();
    return loaded;
  } catch (error) {
    showEngine(error.message, { bad: true });
    throw error;
  }
}
