// The words of code, coloured: each language is one expression, and what it finds has a kind, which is a class of the
// style. No alternative fails behind what it has read of a line, so that the time is linear in the code.

const MOST_CODE = 100_000; // characters; longer code stays plain

const words = (text) => new Set(text.split(" "));
const C_WORDS =
  "if else for while do switch case default break continue return goto struct union enum typedef sizeof static const " +
  "extern inline void int char float double long short unsigned signed bool auto true false class public private " +
  "protected virtual override final new delete this try catch throw namespace using template typename operator " +
  "constexpr noexcept nullptr NULL ";
const JAVA_WORDS =
  C_WORDS + "abstract extends implements import interface package super synchronized throws transient instanceof null " +
  "var val fun when is in object data sealed init let guard func protocol extension nil self some any async await " +
  "string decimal foreach get set readonly internal base record yield trait def match with late required byte boolean";
const KEYWORDS = {
  c: words(C_WORDS + "fn let var loop workgroup storage uniform read_write array vec2 vec3 vec4 u32 i32 f32 f16 ptr"),
  java: words(JAVA_WORDS),
  script: words(
    "async await break case catch class const continue debugger default delete do else export extends false finally " +
      "for from function get if import in instanceof let new null of return set static super switch this throw true " +
      "try typeof undefined var void while with yield interface type enum implements declare namespace readonly " +
      "string number boolean any unknown never as satisfies keyof public private protected abstract echo foreach fn",
  ),
  rust: words(
    "as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod move " +
      "mut pub ref return self Self static struct super trait true type unsafe use where while bool char str u8 u16 " +
      "u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64 comptime var defer try catch and or error",
  ),
  go: words(
    "break case chan const continue default defer else fallthrough for func go goto if import interface map package " +
      "range return select struct switch type var true false nil iota bool string int int8 int16 int32 int64 uint " +
      "uint8 uint16 uint32 uint64 byte rune float32 float64 error any make len cap append",
  ),
  python: words(
    "and as assert async await break case class continue def del elif else except False finally for from global if " +
      "import in is lambda match None nonlocal not or pass raise return True try while with yield self",
  ),
  ruby: words(
    "alias and begin break case class def defined do else elsif end ensure false for if in module next nil not or " +
      "redo rescue retry return self super then true undef unless until when while yield require puts function " +
      "local my our sub use repeat elseif let using struct mutable import export const baremodule macro quote try " +
      "catch finally global NULL TRUE FALSE library fn defmodule defp",
  ),
  shell: words(
    "if then else elif fi for while until do done case esac in function return local export unset set source alias " +
      "echo exit cd sudo trap shift eval exec read FROM RUN CMD COPY ADD ENV ARG WORKDIR EXPOSE ENTRYPOINT ifeq endif " +
      "include define param process foreach",
  ),
  sql: words(
    "select from where and or not insert into values update set delete create table drop alter add index view join " +
      "left right inner outer full cross on as group by order having limit offset union all distinct case when then " +
      "else end is null like in between exists primary key foreign references default constraint unique with " +
      "recursive over partition asc desc int integer text varchar char date timestamp boolean float numeric true " +
      "false begin commit rollback if returning",
  ),
  haskell: words(
    "case class data default deriving do else family forall foreign if import in infix infixl infixr instance let " +
      "module newtype of qualified then type where local function end elseif for while repeat until return nil true " +
      "false and or not break goto",
  ),
  plain: words("true false null yes no on off none nan inf"),
};

const QUOTED = String.raw`"[^"\\\n]*(?:\\[^][^"\\\n]*)*"?`;
const SINGLE = String.raw`'[^'\\\n]*(?:\\[^][^'\\\n]*)*'?`;
const TEMPLATE = "`[^`\\\\]*(?:\\\\[^][^`\\\\]*)*`?";
const BLOCK = String.raw`\/\*[^]*?(?:\*\/|$(?![^]))`;
const NUMBER = String.raw`0[xXbBoO][\da-fA-F_]+|\d[\d_]*(?:\.\d[\d_]*)?(?:[eE][+-]?\d+)?[\w%]*|\.\d+`;
const NAME = String.raw`[\p{L}_$][\p{L}\p{N}_$]*`;
const NAME_WITH_DASHES = String.raw`[\p{L}_][\p{L}\p{N}_.-]*`;

// What a family of languages has: expressions by kind, its words, and the kind of a name by what follows it.
const slashes = { comment: String.raw`\/\/[^\n]*|${BLOCK}`, string: `${QUOTED}|${SINGLE}`, next: { "(": "function" } };
const hashes = { comment: String.raw`#[^\n]*`, string: `${QUOTED}|${SINGLE}`, next: { "(": "function" } };
const FAMILIES = {
  c: { ...slashes, words: KEYWORDS.c, attribute: String.raw`^[ \t]*#[ \t]*\w+|@\w+` },
  java: { ...slashes, words: KEYWORDS.java, attribute: String.raw`@\w+` },
  script: { ...slashes, string: `${QUOTED}|${SINGLE}|${TEMPLATE}`, words: KEYWORDS.script, attribute: String.raw`@\w+` },
  rust: {
    ...slashes,
    string: String.raw`${QUOTED}|'(?:\\[^'\n]{1,10}|[^'\\\n])'`,
    words: KEYWORDS.rust,
    attribute: String.raw`#!?\[[^\]\n]*\]?|'\w+`,
    next: { "(": "function", "!": "function" },
  },
  go: { ...slashes, string: `${QUOTED}|${SINGLE}|${TEMPLATE}`, words: KEYWORDS.go },
  python: {
    ...hashes,
    string: String.raw`[rRbBfFuU]{0,2}(?:"""[^]*?(?:"""|$(?![^]))|'''[^]*?(?:'''|$(?![^]))|${QUOTED}|${SINGLE})`,
    words: KEYWORDS.python,
    attribute: String.raw`^[ \t]*@[\w.]+`,
  },
  ruby: { ...hashes, words: KEYWORDS.ruby, attribute: String.raw`[@:$]\w+` },
  shell: {
    ...hashes,
    comment: String.raw`(?<![^\s])#[^\n]*`,
    words: KEYWORDS.shell,
    attribute: String.raw`\$(?:\w+|\{[^}\n]*\}?)|(?<![^\s])--?[a-zA-Z][\w-]*`,
    name: NAME_WITH_DASHES,
  },
  sql: { ...slashes, comment: `--[^\\n]*|${BLOCK}`, string: `'[^'\\n]*'?|${QUOTED}`, words: KEYWORDS.sql, lower: true },
  haskell: { ...slashes, comment: String.raw`--[^\n]*`, words: KEYWORDS.haskell },
  json: { string: QUOTED, words: KEYWORDS.plain, comment: slashes.comment, next: { ":": "attribute" } },
  yaml: { ...hashes, words: KEYWORDS.plain, name: NAME_WITH_DASHES, next: { ":": "attribute" } },
  toml: {
    ...hashes,
    comment: String.raw`[#;][^\n]*`,
    words: KEYWORDS.plain,
    attribute: String.raw`^[ \t]*[\w.-]+(?=[ \t]*=)`,
    keyword: String.raw`^[ \t]*\[[^\n]*`,
  },
  css: {
    comment: BLOCK,
    string: `${QUOTED}|${SINGLE}`,
    number: String.raw`#[\da-fA-F]{3,8}|${NUMBER}`,
    keyword: String.raw`@[\w-]+`,
    name: NAME_WITH_DASHES,
    next: { ":": "attribute", "(": "function" },
  },
  html: {
    comment: String.raw`<!--[^]*?(?:-->|$(?![^]))`,
    keyword: String.raw`<[\/!?]?[a-zA-Z][\w:-]*|\/?>`,
    string: String.raw`(?<==)(?:"[^"\n]*"?|'[^'\n]*'?)`,
    number: String.raw`&#?\w{1,12};`,
    name: String.raw`[\p{L}_@:][\p{L}\p{N}_:.-]*`,
    next: { "=": "attribute" },
  },
  diff: { keyword: String.raw`^(?:@@|diff |index |---|\+\+\+)[^\n]*`, inserted: String.raw`^\+[^\n]*`, deleted: "^-[^\\n]*" },
  tex: { comment: String.raw`%[^\n]*`, keyword: String.raw`\\(?:[a-zA-Z@]+|[^])`, name: NAME },
};

const NAMES = {
  c: "c cpp c++ cc h hpp cuda cu wgsl glsl hlsl metal opencl objc arduino",
  java: "java kotlin kt swift scala dart cs csharp c# groovy",
  script: "js javascript mjs jsx ts typescript tsx php json5",
  rust: "rust rs zig",
  go: "go golang v",
  python: "python py python3 ipython pycon pyi starlark gdscript mojo",
  ruby: "ruby rb perl pl r julia jl elixir ex crystal",
  shell: "sh bash shell zsh fish console shell-session dockerfile docker make makefile powershell ps1 cmake",
  sql: "sql mysql postgresql sqlite",
  haskell: "haskell hs lua elm ada",
  json: "json jsonc jsonl",
  yaml: "yaml yml",
  toml: "toml ini cfg conf properties env",
  css: "css scss less sass",
  html: "html xml svg vue svelte xhtml jinja",
  diff: "diff patch",
  tex: "tex latex bibtex",
};
const FAMILY = new Map(Object.entries(NAMES).flatMap(([family, names]) => names.split(" ").map((name) => [name, family])));

const KINDS = ["comment", "string", "attribute", "keyword", "inserted", "deleted", "number", "name"];

// The expression of a family, which is made when its first code is shown.
function expression(family) {
  const parts = { number: NUMBER, name: NAME, ...family };
  const source = KINDS.filter((kind) => parts[kind]).map((kind) => `(?<${kind}>${parts[kind]})`);
  family.pattern ??= new RegExp(source.join("|"), "gmu");
  return family.pattern;
}

function kindOf(family, kind, text, following) {
  if (kind === "string" && family.next?.[":"] && following === ":") return "attribute"; // a key of JSON
  if (kind !== "name") return kind;
  if (family.words?.has(family.lower ? text.toLowerCase() : text)) return "keyword";
  const next = family.next && Object.hasOwn(family.next, following) ? family.next[following] : null;
  return next ?? (family.words && /^\p{Lu}.*\p{Ll}/u.test(text.slice(0, 40)) ? "type" : null);
}

// Pairs of a kind, or null, and a text; all texts together are the code.
function highlighted(language, code) {
  const family = FAMILIES[FAMILY.get(language.toLowerCase())];
  if (!family || code.length > MOST_CODE) return [[null, code]];
  const pieces = [];
  let plain = 0;
  for (const match of code.matchAll(expression(family))) {
    const [text] = match;
    const end = match.index + text.length;
    const found = KINDS.find((each) => match.groups[each] !== undefined);
    const kind = kindOf(family, found, text, code[end]);
    if (!kind || !text) continue;
    if (plain < match.index) pieces.push([null, code.slice(plain, match.index)]);
    pieces.push([kind, text]);
    plain = end;
  }
  if (plain < code.length || !pieces.length) pieces.push([null, code.slice(plain)]);
  return pieces;
}

// Brings an element up to code; what is coloured as before stays, so that a stream costs what it adds.
function showCode(place, language, code) {
  const pieces = highlighted(language, code);
  const had = place.pieces ?? [];
  let same = 0;
  const isSame = ([kind, text], [oldKind, oldText]) => kind === oldKind && text === oldText;
  while (same < pieces.length && same < had.length && isSame(pieces[same], had[same])) same++;
  while (place.childNodes.length > same) place.lastChild.remove();
  const made = pieces.slice(same).map(([kind, text]) => (kind ? element("span", { className: kind }, text) : text));
  for (const each of made) place.append(each);
  place.pieces = pieces;
}
