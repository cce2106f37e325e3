// A card for each output: its numbers, and a picture or a plot where the shape says so.

const FIRST = 24; // numbers that are shown
const LARGEST = 5;
const MOST_PLOTTED = 20_000;

function numberText(number) {
  if (!Number.isFinite(number) || Number.isInteger(number)) return String(number);
  const size = Math.abs(number);
  return size >= 1e-3 && size < 1e6 ? String(Number(number.toPrecision(6))) : number.toExponential(4);
}

// Over the numbers that are finite.
function statistics(data) {
  let [min, max, sum, count] = [Infinity, -Infinity, 0, 0];
  for (const each of data) {
    const value = Number(each);
    if (!Number.isFinite(value)) continue;
    if (value < min) min = value;
    if (value > max) max = value;
    sum += value;
    count++;
  }
  return { min, max, mean: sum / count, count, odd: data.length - count };
}

function facts(rows) {
  const row = ([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value));
  return element("dl", { className: "facts" }, ...rows.map(row));
}

function outputCard(output, name) {
  if (typeof output !== "object") {
    const head = element("div", { className: "card-head" }, element("h3", {}, name));
    return element("section", { className: "card", ariaLabel: name }, head, facts([["value", String(output)]]));
  }
  const { data, shape, dtype } = output;
  const save = button("Download .npy", () => saveNpy(output, name));
  const title = element("h3", {}, name, " ", element("span", { className: "soft" }, dtype));
  const size = element("span", { className: "shape" }, shapeText(shape));
  const head = element("div", { className: "card-head" }, title, size, save);
  const card = element("section", { className: "card", ariaLabel: name }, head);
  if (!data.length) {
    card.append(element("p", { className: "soft" }, "No numbers: one of its sizes is 0."));
    return card;
  }
  const found = statistics(data);
  const rows = [["min", numberText(found.min)], ["max", numberText(found.max)], ["mean", numberText(found.mean)]];
  if (found.odd) rows.push(["NaN or infinite", `${found.odd} of ${data.length}`]);
  card.append(facts(found.count ? rows : rows.slice(3)));
  if (pictureOf(shape) && found.count) card.append(element("div", { className: "shown" }, drawPicture(output, found)));
  const length = vectorLength(shape);
  if (length && length <= MOST_PLOTTED && found.count) card.append(...vectorParts(Array.from(data, Number), found));
  card.append(firstNumbers(data));
  return card;
}

function vectorParts(numbers, found) {
  const order = numbers.map((_, place) => place).sort((one, other) => numbers[other] - numbers[one]);
  const largest = order.slice(0, LARGEST).map((place) => [String(place), numberText(numbers[place])]);
  const title = element("h4", {}, `Largest ${largest.length}, by place`);
  return [element("div", { className: "shown" }, drawPlot(numbers, found)), title, facts(largest)];
}

function firstNumbers(data) {
  const shown = Array.from(data.slice(0, FIRST), Number);
  const rest = data.length - shown.length;
  const items = shown.map((each) => element("li", {}, numberText(each)));
  const title = rest ? `First ${shown.length} of ${data.length.toLocaleString("en")} numbers` : "Numbers";
  const list = element("ol", { className: "numbers", start: 0 }, ...items);
  return element("div", {}, element("h4", {}, title), list);
}

function saveNpy(output, name) {
  const address = URL.createObjectURL(npyBlob(output));
  element("a", { href: address, download: `${name.replace(/\W+/g, "-")}.npy` }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}
