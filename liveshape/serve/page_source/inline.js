// The text of one block as nodes: code, formulas, links, emphasis. Runs of * _ ~ wait for what closes them, brackets for
// their address.

function inline(text) {
  return new InlineReader(text).read();
}

class InlineReader {
  constructor(text) {
    this.text = text;
    this.at = 0;
    this.items = []; // nodes, strings, and runs that may become emphasis
    this.plain = "";
    this.brackets = []; // where in the items those that are open stand
    this.unclosed = new Set(); // lengths of runs of backticks, and what opens formulas, that nothing closes
  }

  read() {
    while (this.at < this.text.length) {
      if (!this.special(this.text[this.at])) this.plain += this.take(/[^\\\n`$<hH!\[\]*_~]+|[^]/y)[0];
    }
    this.flush();
    return emphasize(this.items);
  }

  special(character) {
    switch (character) {
      case "\\":
        return this.bracketFormula() || this.escape();
      case "$":
        return this.displayFormula("$$", "$$") || this.dollarFormula();
      case "\n":
        this.at++;
        return this.push(element("br"));
      case "`":
        return this.code();
      case "<":
      case "h":
      case "H":
        return this.address();
      case "!":
      case "[":
        return this.openBracket();
      case "]":
        return this.closeBracket();
      default:
        return this.run();
    }
  }

  take(pattern) {
    pattern.lastIndex = this.at;
    const match = pattern.exec(this.text);
    if (match) this.at += match[0].length;
    return match;
  }

  flush() {
    if (this.plain) this.items.push(this.plain);
    this.plain = "";
  }

  push(item) {
    this.flush();
    this.items.push(item);
    return true;
  }

  escape() {
    const match = this.take(/\\([!-/:-@[-`{-~])/y);
    if (match) this.plain += match[1];
    return match;
  }

  // \( \) within a line, \[ \] on a line of its own.
  bracketFormula() {
    if (this.text[this.at + 1] === "(") return this.enclosed("\\(", "\\)", false);
    return this.displayFormula("\\[", "\\]");
  }

  displayFormula(opening, closing) {
    return this.text.startsWith(opening, this.at) && this.enclosed(opening, closing, true);
  }

  enclosed(opening, closing, display) {
    if (this.unclosed.has(opening)) return false;
    const start = this.at + opening.length;
    const end = this.text.indexOf(closing, start);
    if (end < 0) this.unclosed.add(opening); // looked for once, however often it comes
    if (end < 0 || !this.text.slice(start, end).trim()) return false;
    return this.formula(start, end, end + closing.length, display);
  }

  // Dollars around what neither begins nor ends with a space, and no price: $5 and $6, US$5, $HOME/$USER.
  dollarFormula() {
    const start = this.at + 1;
    const isOpening = /[^\s$]/.test(this.text[start] ?? " ") && !/[\p{L}\p{N}]/u.test(this.text[this.at - 1] ?? " ");
    if (!isOpening) return false;
    let end = this.text.indexOf("$", start);
    while (end > 0 && this.text[end - 1] === "\\") end = this.text.indexOf("$", end + 1);
    const isClosing = end > 0 && /\S/.test(this.text[end - 1]) && !/[\p{L}\p{N}$]/u.test(this.text[end + 1] ?? " ");
    return isClosing && this.formula(start, end, end + 1, false);
  }

  formula(start, end, after, display) {
    const source = this.text.slice(this.at, after);
    this.at = after;
    return this.push(formula(source, this.text.slice(start, end), display));
  }

  code() {
    const [ticks] = this.take(/`+/y);
    const end = this.unclosed.has(ticks.length) ? -1 : this.closingTicks(ticks.length);
    if (end < 0) {
      this.unclosed.add(ticks.length); // looked for once, however often it comes
      this.plain += ticks;
      return true;
    }
    const code = this.text.slice(this.at, end).replaceAll("\n", " ");
    const padded = code.startsWith(" ") && code.endsWith(" ") && code.trim();
    this.at = end + ticks.length;
    return this.push(element("code", {}, padded ? code.slice(1, -1) : code));
  }

  closingTicks(length) {
    const runs = /`+/g;
    runs.lastIndex = this.at;
    for (let match; (match = runs.exec(this.text)); ) if (match[0].length === length) return match.index;
    return -1;
  }

  address() {
    const within = this.take(/<(https?:\/\/[^\s<>]+)>/iy);
    if (within) return this.push(link(within[1], [within[1]]));
    const start = this.at;
    const bare = this.take(/https?:\/\/[^\s<>"`*\[\]]+/iy);
    if (!bare) return false;
    const address = withoutSentenceEnd(bare[0]);
    this.at = start + address.length;
    return this.push(link(address, [address]));
  }

  openBracket() {
    const match = this.take(/!?\[/y);
    if (!match) return false;
    this.push(match[0]);
    this.brackets.push(this.items.length - 1);
    return true;
  }

  closeBracket() {
    const target = /\]\( {0,3}<?([^\s<>()]*(?:\([^\s<>()]*\)[^\s<>()]*)*)>?(?: {1,3}(?:"[^"\n]*"|'[^'\n]*'))? {0,3}\)/y;
    const opened = this.brackets.pop();
    const match = opened === undefined ? null : this.take(target);
    if (!match) {
      this.at++;
      this.plain += "]";
      return true;
    }
    this.flush();
    const [, ...label] = this.items.splice(opened);
    this.brackets.length = 0; // links do not nest
    return this.push(link(match[1], label.length ? emphasize(label) : [match[1]]));
  }

  run() {
    const match = this.take(/\*+|_+|~~(?!~)/y);
    if (!match) return false;
    const before = this.text[match.index - 1] ?? " ";
    const after = this.text[this.at] ?? " ";
    const mark = /[\p{P}\p{S}]/u;
    const opens = /\S/.test(after) && (!mark.test(after) || /\s/.test(before) || mark.test(before));
    const closes = /\S/.test(before) && (!mark.test(before) || /\s/.test(after) || mark.test(after));
    const within = match[0][0] === "_" && opens && closes; // snake_case
    return this.push({
      character: match[0][0],
      length: match[0].length,
      opens: opens && (!within || mark.test(before)),
      closes: closes && (!within || mark.test(after)),
    });
  }
}

// The end of a sentence, and what was opened before an address, are not part of it.
function withoutSentenceEnd(address) {
  let depth = 0;
  let end = 0;
  for (; end < address.length && depth >= 0; end++) depth += { "(": 1, ")": -1 }[address[end]] ?? 0;
  if (depth < 0) end--;
  while (end > 8 && ".,;:!?'_~".includes(address[end - 1])) end--;
  return address.slice(0, end);
}

function link(address, label) {
  if (!/^https?:\/\//i.test(address) || !URL.canParse(address)) return element("span", {}, label);
  return element("a", { href: address, target: "_blank", rel: "noopener noreferrer" }, label);
}

// Runs become elements around what stands between them; those that nothing closes stay text.
function emphasize(items) {
  const out = [];
  const openers = [];
  for (const item of items) {
    if (typeof item === "string" || item instanceof Node) {
      out.push(item);
      continue;
    }
    let left = item.length;
    while (left && item.closes) {
      const index = openers.findLastIndex((each) => each.character === item.character);
      if (index < 0) break;
      const opener = openers[index];
      const used = Math.min(2, left, opener.length);
      const tag = item.character === "~" ? "del" : used === 2 ? "strong" : "em";
      const inner = out.splice(opener.at + 1);
      opener.length -= used;
      left -= used;
      if (opener.length) out[opener.at] = item.character.repeat(opener.length);
      else out.pop();
      out.push(element(tag, {}, inner));
      openers.length = opener.length ? index + 1 : index;
    }
    if (!left) continue;
    const { character, opens } = item;
    if (opens && openers.length < DEEPEST) openers.push({ character, length: left, at: out.length });
    out.push(item.character.repeat(left));
  }
  return out;
}
