// Numbers as a person reads them.

function bytesText(bytes) {
  if (bytes < 1024) return `${bytes} B`;
  let amount = bytes;
  for (const unit of ["KiB", "MiB", "GiB", "TiB"]) {
    amount /= 1024;
    if (amount < 1024) return `${amount.toFixed(1)} ${unit}`;
  }
  return `${(amount / 1024).toFixed(1)} PiB`;
}

function countText(count) {
  if (count < 10000) return count.toLocaleString("en");
  let amount = count;
  for (const unit of ["k", "M", "G", "T", "P"]) {
    amount /= 1000;
    if (amount < 1000) return `${amount.toPrecision(3)} ${unit}`;
  }
  return amount.toExponential(2);
}

function timeText(seconds) {
  return seconds >= 1e-3 ? `${(1e3 * seconds).toFixed(3)} ms` : `${(1e6 * seconds).toFixed(1)} µs`;
}

function shareText(part, whole) {
  return whole ? `${((100 * part) / whole).toFixed(1)}%` : "";
}

const counted = (number, noun, many = `${noun}s`) => `${number.toLocaleString("en")} ${number === 1 ? noun : many}`;

// A kernel without what it was specialized by.
const kernelName = (label) => label.split("<")[0];
const kernelVariant = (label) => (label.includes("<") ? label.slice(label.indexOf("<") + 1, -1) : "");
