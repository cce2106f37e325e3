// Markdown as models write it, to DOM nodes. Text enters the document as text alone, links only as http(s),
// and pictures, whose address would be told where they are read, as links.
// Each step is linear in the text and nesting is bounded, so that no answer can stop the page.

const DEEPEST = 12;
const FENCE = /^ {0,3}(`{3,}(?=[^`]*$)|~{3,})(.*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+(.*))?$/;
const RULE = /^ {0,3}(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])(?:[ \t]+(.*)|)$/;
const MATHS = /^ {0,3}(\$\$|\\\[)/;
const DIVIDER = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;

// Brings the children of a place up to a text. Blocks that did not change keep their elements, so that a stream costs
// what its last block costs, and a selection in the others stays.
function renderMarkdown(place, text) {
  const found = blocks(text.split("\n"));
  const had = place.blocks ?? [];
  let same = 0;
  while (same < found.length && same < had.length && had[same].source === found[same].source) same++;
  for (const [index, block] of found.entries()) {
    if (index < same) continue;
    const old = place.children[index];
    if (block.kind === "code" && had[index]?.kind === "code" && had[index].language === block.language) {
      showCode(old.querySelector("code"), block.language, block.text); // in place: it may be scrolled sideways
      continue;
    }
    const made = renderBlock(block, 0);
    if (old) old.replaceWith(made);
    else place.append(made);
  }
  while (place.children.length > found.length) place.lastChild.remove();
  place.blocks = found;
}

function blocks(lines) {
  const found = [];
  let at = 0;
  const add = (kind, from, rest) => found.push({ kind, source: lines.slice(from, at).join("\n"), ...rest });
  while (at < lines.length) {
    const from = at;
    const line = lines[at];
    let match;
    if (!line.trim()) at++;
    else if ((match = FENCE.exec(line))) {
      const indent = line.search(/\S/);
      const end = new RegExp(`^ {0,3}\\${match[1][0]}{${match[1].length},}[ \\t]*$`);
      const body = [];
      for (at++; at < lines.length && !end.test(lines[at]); at++) body.push(withoutIndent(lines[at], indent));
      at = Math.min(at + 1, lines.length);
      add("code", from, { language: match[2].trim().split(/\s/)[0], text: body.join("\n") });
    } else if ((match = MATHS.exec(line))) {
      const [, opening] = match;
      const closing = opening === "$$" ? "$$" : "\\]";
      const closes = (text, start) => text.indexOf(closing, start) >= 0;
      let closed = closes(line, match[0].length);
      for (at++; !closed && at < lines.length && lines[at].trim(); at++) closed = closes(lines[at], 0);
      const text = lines.slice(from, at).join("\n").trim();
      const isWhole = closed && text.indexOf(closing, 2) === text.length - 2;
      // Until it is closed, what begins on a line of its own is shown as it is.
      const isBegun = !closed && line.trim() === opening;
      add(isWhole || isBegun ? "maths" : "paragraph", from, { text, tex: isWhole ? text.slice(2, -2) : null });
    } else if ((match = HEADING.exec(line))) {
      at++;
      add("heading", from, { level: match[1].length, text: match[2] ?? "" });
    } else if (RULE.test(line)) {
      at++;
      add("rule", from, {});
    } else if (QUOTE.test(line)) {
      const body = [];
      for (; at < lines.length && QUOTE.test(lines[at]); at++) body.push(lines[at].replace(QUOTE, ""));
      add("quote", from, { lines: body });
    } else if (ITEM.test(line)) {
      const list = readList(lines, at);
      at = list.end;
      add("list", from, list);
    } else if (line.includes("|") && at + 1 < lines.length && isTable(line, lines[at + 1])) {
      const rows = [];
      for (at += 2; at < lines.length && lines[at].includes("|") && lines[at].trim(); at++) rows.push(cells(lines[at]));
      add("table", from, { head: cells(line), sides: cells(lines[from + 1]).map(side), rows });
    } else {
      for (at++; at < lines.length && !interrupts(lines[at]); at++);
      add("paragraph", from, { text: lines.slice(from, at).map((each) => each.trim()).join("\n") });
    }
  }
  return found;
}

// What ends a paragraph without an empty line.
function interrupts(line) {
  const item = ITEM.exec(line);
  return (
    !line.trim() || FENCE.test(line) || MATHS.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line) ||
    Boolean(item && item[1].length < 4 && item[3] && /^(?:[-*+]|1[.)])$/.test(item[2]))
  );
}

function withoutIndent(line, most) {
  let start = 0;
  while (start < most && line[start] === " ") start++;
  return line.slice(start);
}

function readList(lines, at) {
  const ordered = (marker) => /\d/.test(marker);
  const [, , first] = ITEM.exec(lines[at]);
  const base = lines[at].search(/\S/);
  const items = [];
  let inside = 0;
  let loose = false;
  for (let empty = false; at < lines.length; at++) {
    const line = lines[at];
    const indent = line.search(/\S/);
    const match = ITEM.exec(line);
    if (indent < 0) {
      empty = true;
      continue;
    }
    if (match && indent < inside && indent >= base && ordered(match[2]) === ordered(first) && !RULE.test(line)) {
      inside = indent + match[2].length + 1;
      loose ||= empty && items.length > 0;
      items.push([match[3] ?? ""]);
    } else if (!items.length) {
      inside = base + match[2].length + 1;
      items.push([match[3] ?? ""]);
    } else if (indent >= inside || (!empty && !interrupts(line))) {
      if (empty) items.at(-1).push("");
      items.at(-1).push(withoutIndent(line, inside));
    } else break;
    empty = false;
  }
  while (at > 0 && !lines[at - 1].trim()) at--; // the empty lines behind a list are not the list's
  return { ordered: ordered(first), start: parseInt(first, 10), items, loose, end: at };
}

function isTable(head, divider) {
  return DIVIDER.test(divider) && divider.includes("-") && cells(head).length === cells(divider).length;
}

function cells(line) {
  const inner = line.trim().replace(/^\|/, "").replace(/\|$/, "");
  return inner.split(/(?<!\\)\|/).map((each) => each.trim().replaceAll("\\|", "|"));
}

function side(divider) {
  if (divider.endsWith(":")) return divider.startsWith(":") ? "center" : "right";
  return "left";
}

function renderBlock(block, depth) {
  const inner = (lines) => {
    if (depth === DEEPEST) return [lines.join("\n")];
    return blocks(lines).map((each) => renderBlock(each, depth + 1));
  };
  switch (block.kind) {
    case "code":
      return codeBlock(block);
    case "maths":
      return mathsBlock(block);
    case "heading":
      return element(`h${Math.min(block.level + 1, 6)}`, {}, inline(block.text)); // h1 is the conversation's title
    case "rule":
      return element("hr");
    case "quote":
      return element("blockquote", {}, inner(block.lines));
    case "list": {
      const list = element(block.ordered ? "ol" : "ul", { className: block.loose ? "loose" : "" });
      if (block.ordered && block.start !== 1) list.start = block.start;
      for (const lines of block.items) list.append(listItem(lines, inner));
      return list;
    }
    case "table":
      return table(block);
    default:
      return element("p", {}, inline(block.text));
  }
}

function listItem(lines, inner) {
  const task = /^\[([ xX])\] (.*)$/.exec(lines[0]);
  if (!task) return element("li", {}, inner(lines));
  const box = element("input", { type: "checkbox", checked: task[1] !== " ", disabled: true });
  return element("li", { className: "task" }, box, inner([task[2]].concat(lines.slice(1))));
}

function table({ head, sides, rows }) {
  const row = (tag, texts) => {
    const made = head.map((_, column) => {
      const cell = element(tag, {}, inline(texts[column] ?? ""));
      if (sides[column] !== "left") cell.className = sides[column];
      return cell;
    });
    return element("tr", {}, made);
  };
  const body = element("tbody", {}, rows.map((texts) => row("td", texts)));
  const made = element("table", {}, element("thead", {}, row("th", head)), body);
  return sideways("Table", made);
}

// Wider than the page it is scrolled, and its edge says so.
function sideways(label, ...children) {
  return element("div", { className: "sideways", tabIndex: 0, role: "region", ariaLabel: label }, children);
}

function mathsBlock({ text, tex }) {
  const shown = tex === null ? element("code", { className: "tex" }, text) : formula(text, tex, true);
  return sideways("Formula", shown);
}

function codeBlock({ language, text }) {
  const code = element("code");
  showCode(code, language, text);
  const copy = iconButton("copy", "Copy", () => copyText(code.textContent, copy));
  const wrap = iconButton("wrap", "Wrap lines", () => {
    wrap.ariaPressed = String(made.classList.toggle("wrapped"));
  });
  wrap.ariaPressed = "false";
  const head = element("figcaption", {}, element("span", {}, language), wrap, copy);
  const made = element("figure", { className: "code" }, head, element("pre", { tabIndex: 0 }, code));
  return made;
}
