// Formulas of TeX as models write them, to MathML. What is not known here is an error, and the formula is then shown as
// it was written: a formula is drawn right or not at all.

const MOST_TEX = 20_000; // characters
const DEEPEST_TEX = 20;

class TexError extends Error {}

// The element of a formula; `source` is all of it, with what encloses it.
function formula(source, tex, display) {
  try {
    if (tex.length > MOST_TEX) throw new TexError("too long");
    const drawn = new TexReader(tex).whole();
    const annotation = mathElement("annotation", { encoding: "application/x-tex" }, tex);
    const made = mathElement("math", {}, mathElement("semantics", {}, drawn, annotation));
    if (display) made.setAttribute("display", "block");
    return made;
  } catch (error) {
    if (!(error instanceof TexError)) throw error;
    return element("code", { className: "tex" }, source);
  }
}

function mathElement(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/1998/Math/MathML", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

const mo = (text, attributes = {}) => mathElement("mo", attributes, text);
const mrow = (nodes) => (nodes.length === 1 ? nodes[0] : mathElement("mrow", {}, ...nodes));
const space = (width) => mathElement("mspace", { width });
const fence = (text) => mo(text, { fence: "true", stretchy: "true", symmetric: "true" });

class TexReader {
  constructor(text) {
    this.text = text;
    this.at = 0;
    this.depth = 0;
    this.variant = "";
  }

  whole() {
    const rows = this.rows();
    if (this.at < this.text.length) throw new TexError(`${this.peek()} closes nothing`);
    return rows.length === 1 && rows[0].length === 1 ? mrow(rows[0][0]) : mathTable(rows, rows[0].length > 1 ? "rl" : "");
  }

  // The next token, which stays: a command with its backslash, or a character; "" at the end.
  peek() {
    this.take(/[ \t\n]+/y);
    const token = /\\(?:[a-zA-Z]+|[^])|[^]/uy;
    token.lastIndex = this.at;
    return token.exec(this.text)?.[0] ?? "";
  }

  next() {
    const token = this.peek();
    this.at += token.length;
    return token;
  }

  take(pattern) {
    pattern.lastIndex = this.at;
    const match = pattern.exec(this.text);
    if (match) this.at += match[0].length;
    return match;
  }

  eat(token) {
    const found = this.peek() === token;
    if (found) this.at += token.length;
    return found;
  }

  // Reads with `read` one level deeper.
  within(read) {
    if (++this.depth > DEEPEST_TEX) throw new TexError("nested too deep");
    const found = read();
    this.depth--;
    return found;
  }

  // Cells of rows, up to what ends them.
  rows() {
    const rows = [[]];
    for (;;) {
      rows.at(-1).push(this.row());
      if (this.eat("&")) continue;
      if (!this.eat("\\\\") && !this.eat("\\cr")) break;
      this.take(/\*?[ \t]*\[[ \t\d.a-z-]{0,20}\]/y);
      rows.push([]);
    }
    if (rows.length > 1 && rows.at(-1).length === 1 && !rows.at(-1)[0].length) rows.pop();
    return rows;
  }

  row(closing = "}") {
    const nodes = [];
    for (;;) {
      const token = this.peek();
      if (["", "}", closing, "&", "\\\\", "\\cr", "\\right", "\\middle", "\\end"].includes(token)) return nodes;
      const base = ["^", "_", "'"].includes(token) ? mathElement("mrow", {}) : this.atom(this.next());
      if (base) nodes.push(this.scripts(base));
    }
  }

  group() {
    const nodes = this.within(() => this.row());
    if (!this.eat("}")) throw new TexError("a group is not closed");
    return mrow(nodes);
  }

  // What a command or a script applies to: a group, a command, one character.
  argument() {
    const token = this.next();
    if (["", "}", "&", "^", "_", "\\\\", "\\end", "\\right"].includes(token)) throw new TexError("something is missing");
    return this.within(() => this.atom(token, true)) ?? mathElement("mrow", {});
  }

  // The text of a group, as it is.
  raw() {
    this.peek();
    const match = this.take(/\{([^{}]{0,2000})\}/y);
    if (!match) throw new TexError("a text is missing");
    return match[1];
  }

  scripts(base) {
    let below = null;
    let above = null;
    let limits = base.limits;
    for (;;) {
      const token = this.peek();
      if (token === "\\limits" || token === "\\nolimits") {
        limits = token === "\\limits";
      } else if (token === "'") {
        const primes = this.take(/'+/y)[0].length;
        if (above) throw new TexError("two superscripts");
        above = mo("′".repeat(primes), { lspace: "0", rspace: "0" });
        if (this.eat("^")) above = mathElement("mrow", {}, above, this.argument());
        continue;
      } else if (token === "_" || token === "^") {
        this.next();
        if (token === "_" ? below : above) throw new TexError("two scripts in one place");
        if (token === "_") below = this.argument();
        else above = this.argument();
        continue;
      } else break;
      this.next();
    }
    if (below && above) return mathElement(limits ? "munderover" : "msubsup", {}, base, below, above);
    if (below) return mathElement(limits ? "munder" : "msub", {}, base, below);
    if (above) return mathElement(limits ? "mover" : "msup", {}, base, above);
    return base;
  }

  atom(token, single = false) {
    if (token.startsWith("\\") && token.length > 1) return this.command(token.slice(1));
    if (token === "{") return this.group();
    if (/\d/.test(token)) {
      const rest = single ? "" : this.take(/(?:\d|(?:\.|\{,\}|,(?=\d{3}(?!\d)))(?=\d))*/y)[0].replaceAll("{,}", ",");
      const digits = Array.from(token + rest, (each) => inAlphabet(each, this.variant)).join("");
      return mathElement("mn", {}, digits);
    }
    if (/\p{L}/u.test(token)) return this.letter(token);
    if (token === "~") return space("0.25em");
    if (token === "-") return mo("−");
    if (token === "*") return mo("∗");
    if ("()[]".includes(token)) return mo(token, { stretchy: "false" });
    if (token === "|") return mo("|", { stretchy: "false", lspace: "0", rspace: "0" });
    if (token === "/") return mo("/", { lspace: "0", rspace: "0" });
    if (token === ".") return mo(".", { lspace: "0", rspace: "0" });
    if (/[#$\\]/.test(token)) throw new TexError(`${token} is no part of a formula`);
    return mo(token);
  }

  letter(character) {
    const upright = this.variant === "upright" || !/[a-zA-Zα-ωϑϕϖϱϵıȷ∂]/.test(character);
    const shown = inAlphabet(character, this.variant);
    return mathElement("mi", upright || shown !== character ? { mathvariant: "normal" } : {}, shown);
  }

  command(name) {
    if (TEX_LETTERS.has(name)) return this.letter(TEX_LETTERS.get(name));
    if (TEX_UPRIGHT.has(name)) return this.letter(TEX_UPRIGHT.get(name));
    if (name === "not") return mo(this.argument().textContent + "\u0338");
    if (TEX_OPERATORS.has(name)) return mo(TEX_OPERATORS.get(name), { stretchy: "false" });
    if (name === "|") return mo("‖", { stretchy: "false" });
    if (TEX_FENCES.has(name)) return mo(TEX_FENCES.get(name), { stretchy: "false" });
    if (TEX_SPACES.has(name)) return space(TEX_SPACES.get(name));
    if (TEX_SUMS.has(name)) return Object.assign(mo(TEX_SUMS.get(name), { movablelimits: "true" }), { limits: true });
    if (TEX_INTEGRALS.has(name)) return mo(TEX_INTEGRALS.get(name));
    if (TEX_FUNCTIONS.has(name)) return this.named(name);
    if (TEX_LIMITS.has(name)) return this.named(TEX_LIMITS.get(name), true);
    if (TEX_ACCENTS.has(name)) return this.accent("mover", "accent", TEX_ACCENTS.get(name), /^(?:wide|over)/.test(name));
    if (TEX_BELOW.has(name)) return this.accent("munder", "accentunder", TEX_BELOW.get(name), true);
    if (TEX_VARIANTS.has(name)) return this.styled(name);
    const sized = /^(big|Big|bigg|Bigg)([lrm]?)$/.exec(name);
    if (sized) return this.sizedFence(TEX_SIZES.get(sized[1]));
    return this.construct(name);
  }

  construct(name) {
    switch (name) {
      case "frac":
      case "dfrac":
      case "tfrac":
      case "cfrac": {
        const parts = [this.argument(), this.argument()];
        const fraction = mathElement("mfrac", {}, ...parts);
        const isDisplay = { d: "true", c: "true", t: "false" }[name[0]];
        return isDisplay ? mathElement("mstyle", { displaystyle: isDisplay }, fraction) : fraction;
      }
      case "binom":
      case "dbinom":
      case "tbinom": {
        const parts = [this.argument(), this.argument()];
        return mathElement("mrow", {}, fence("("), mathElement("mfrac", { linethickness: "0" }, ...parts), fence(")"));
      }
      case "sqrt": {
        const degree = this.eat("[") ? this.within(() => this.row("]")) : null;
        if (degree && !this.eat("]")) throw new TexError("the degree of a root is not closed");
        return degree ? mathElement("mroot", {}, this.argument(), mrow(degree)) : mathElement("msqrt", {}, this.argument());
      }
      case "left":
        return this.fenced();
      case "begin":
        return this.environment();
      case "text":
      case "textrm":
      case "textnormal":
      case "mbox":
      case "textbf":
      case "textit":
        return this.words();
      case "overset":
      case "stackrel":
      case "underset": {
        const small = this.argument();
        return mathElement(name === "underset" ? "munder" : "mover", {}, this.argument(), small);
      }
      case "xrightarrow":
      case "xleftarrow": {
        const label = mathElement("mpadded", { width: "+1em", lspace: "0.5em" }, this.argument());
        return mathElement("mover", {}, mo(name === "xrightarrow" ? "→" : "←", { stretchy: "true" }), label);
      }
      case "pmod":
        return mathElement("mrow", {}, space("0.5em"), mo("("), mo("mod", { lspace: "0", rspace: "0.3em" }), this.argument(), mo(")"));
      case "bmod":
      case "mod":
        return mo("mod", { lspace: "0.3em", rspace: "0.3em" });
      case "boxed":
        return mathElement("mrow", { class: "boxed" }, this.argument());
      case "substack": {
        if (!this.eat("{")) throw new TexError("a group is missing");
        const rows = this.within(() => this.rows());
        if (!this.eat("}")) throw new TexError("a group is not closed");
        return mathTable(rows, "");
      }
      case "tag":
        return mathElement("mrow", {}, space("2em"), mathElement("mtext", {}, `(${this.raw()})`));
      case "color":
      case "label":
      case "hspace":
        this.raw();
        return null;
      case "textcolor":
        this.raw();
        return this.argument();
      case "displaystyle":
      case "textstyle":
      case "scriptstyle":
      case "hline":
      case "nonumber":
      case "notag":
        return null;
      default:
        throw new TexError(`\\${name} is not known`);
    }
  }

  // A function in upright letters; a space follows it, unless something in parentheses does.
  named(name, limits = false) {
    const rspace = ["(", "[", "\\left", "\\{"].includes(this.peek()) ? "0" : "0.167em";
    return Object.assign(mo(name, { lspace: "0.167em", rspace, movablelimits: String(limits) }), { limits });
  }

  accent(tag, attribute, mark, stretchy) {
    const over = mo(mark, { stretchy: String(stretchy) });
    return Object.assign(mathElement(tag, { [attribute]: "true" }, this.argument(), over), { limits: "⏞⏟⎴⎵".includes(mark) });
  }

  // Another alphabet; a word is upright and one name.
  styled(name) {
    const star = name === "operatorname" && Boolean(this.take(/\*/y));
    this.peek();
    const word = TEX_VARIANTS.get(name) === "upright" && this.take(/\{([a-zA-Z \-]{2,200})\}/y);
    if (word && name === "operatorname") return this.named(word[1], star);
    if (word) return mathElement("mi", {}, word[1].replaceAll(" ", ""));
    const outer = this.variant;
    this.variant = TEX_VARIANTS.get(name);
    const found = this.argument();
    this.variant = outer;
    return found;
  }

  delimiter() {
    const token = this.next();
    if (token === ".") return "";
    const name = token.replace(/^\\(?=.)/, "");
    if (token === "\\|") return "‖";
    if (!TEX_FENCES.has(name)) throw new TexError(`${token} is no fence`);
    return TEX_FENCES.get(name);
  }

  sizedFence(size) {
    return mo(this.delimiter(), { minsize: size, maxsize: size, stretchy: "true" });
  }

  fenced() {
    const nodes = [fence(this.delimiter())];
    this.within(() => {
      for (;;) {
        nodes.push(...this.row());
        if (this.eat("\\middle")) nodes.push(fence(this.delimiter()));
        else break;
      }
    });
    if (!this.eat("\\right")) throw new TexError("\\left without \\right");
    nodes.push(fence(this.delimiter()));
    return mathElement("mrow", {}, ...nodes);
  }

  environment() {
    const name = this.raw();
    const [left, right, sides] = TEX_ENVIRONMENTS.get(name.replace(/\*$/, "")) ?? [];
    if (sides === undefined) throw new TexError(`${name} is not known`);
    const columns = /^(?:array|alignat)/.test(name) ? this.raw().replaceAll(/[^lcr]/g, "") : sides;
    const made = mathTable(this.within(() => this.rows()), name.startsWith("alignat") ? "rl" : columns);
    if (this.next() !== "\\end" || this.raw() !== name) throw new TexError(`${name} is not closed`);
    const isBare = !left && !right;
    if (isBare) return made;
    return mathElement("mrow", {}, ...(left ? [fence(left)] : []), made, ...(right ? [fence(right)] : []));
  }

  // Text, with formulas between dollars.
  words() {
    const parts = this.raw().split("$");
    if (parts.length % 2 === 0) throw new TexError("a dollar is missing");
    const made = parts.map((part, place) => {
      if (place % 2) return new TexReader(part).whole();
      return mathElement("mtext", {}, part.replaceAll(/\\([#$%&_{}])/g, "$1").replaceAll(/\s+/g, "\u00a0"));
    });
    return mrow(made);
  }
}

const CELL_SIDES = { l: "left", r: "right", c: "" };

// Rows of cells; `columns` is l, c or r for each, again from the first where there are more.
function mathTable(rows, columns) {
  const cell = (nodes, column) => {
    const side = CELL_SIDES[columns[column % columns.length] ?? "c"];
    return mathElement("mtd", side ? { class: side } : {}, ...nodes);
  };
  const isWide = columns.startsWith("rl");
  const made = rows.map((cells) => mathElement("mtr", {}, ...cells.map(cell)));
  return mathElement("mtable", isWide ? { class: "aligned", displaystyle: "true" } : {}, ...made);
}
