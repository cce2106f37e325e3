// What the commands of TeX stand for.

// "name character" pairs, in a text.
function symbols(text) {
  const parts = text.trim().split(/\s+/);
  return new Map(Array.from({ length: parts.length / 2 }, (_, place) => [parts[2 * place], parts[2 * place + 1]]));
}

const TEX_LETTERS = symbols(`
  alpha α beta β gamma γ delta δ epsilon ϵ varepsilon ε zeta ζ eta η theta θ vartheta ϑ iota ι kappa κ lambda λ mu μ nu ν
  xi ξ omicron ο pi π varpi ϖ rho ρ varrho ϱ sigma σ varsigma ς tau τ upsilon υ phi ϕ varphi φ chi χ psi ψ omega ω
  hbar ℏ ell ℓ imath ı jmath ȷ partial ∂`);

const TEX_UPRIGHT = symbols(`
  Gamma Γ Delta Δ Theta Θ Lambda Λ Xi Ξ Pi Π Sigma Σ Upsilon Υ Phi Φ Psi Ψ Omega Ω
  infty ∞ nabla ∇ emptyset ∅ varnothing ∅ aleph ℵ Re ℜ Im ℑ wp ℘ top ⊤ bot ⊥ angle ∠ triangle △ square □ Box □ degree °
  dagger † ddagger ‡ ldots … dots … dotsc … dotso … cdots ⋯ dotsb ⋯ dotsm ⋯ vdots ⋮ ddots ⋱ prime ′ checkmark ✓ star ⋆
  blacksquare ■ clubsuit ♣ diamondsuit ♢ heartsuit ♡ spadesuit ♠ R ℝ N ℕ Z ℤ Q ℚ C ℂ # # % % $ $ _ _ & & pounds £ copyright ©`);

const TEX_OPERATORS = symbols(`
  le ≤ leq ≤ leqslant ⩽ ge ≥ geq ≥ geqslant ⩾ ne ≠ neq ≠ lt < gt > ll ≪ gg ≫ approx ≈ equiv ≡ sim ∼ simeq ≃ cong ≅
  propto ∝ asymp ≍ doteq ≐ prec ≺ succ ≻ preceq ⪯ succeq ⪰ triangleq ≜ coloneqq ≔ models ⊨ vdash ⊢ dashv ⊣ perp ⊥
  parallel ∥ mid ∣ nmid ∤ in ∈ notin ∉ ni ∋ subset ⊂ supset ⊃ subseteq ⊆ supseteq ⊇ subsetneq ⊊ nsubseteq ⊈ sqsubseteq ⊑
  cup ∪ cap ∩ setminus ∖ uplus ⊎ sqcup ⊔ sqcap ⊓ wedge ∧ land ∧ vee ∨ lor ∨ neg ¬ lnot ¬ forall ∀ exists ∃ nexists ∄
  therefore ∴ because ∵ pm ± mp ∓ times × div ÷ cdot ⋅ ast ∗ circ ∘ bullet ∙ oplus ⊕ ominus ⊖ otimes ⊗ odot ⊙ oslash ⊘
  to → rightarrow → gets ← leftarrow ← leftrightarrow ↔ Rightarrow ⇒ Leftarrow ⇐ Leftrightarrow ⇔ implies ⟹ impliedby ⟸
  iff ⟺ longrightarrow ⟶ longleftarrow ⟵ Longrightarrow ⟹ Longleftarrow ⟸ longleftrightarrow ⟷ Longleftrightarrow ⟺
  mapsto ↦ longmapsto ⟼ hookrightarrow ↪ hookleftarrow ↩ uparrow ↑ downarrow ↓ updownarrow ↕ Uparrow ⇑ Downarrow ⇓
  nearrow ↗ searrow ↘ rightharpoonup ⇀ leftharpoonup ↼ rightleftharpoons ⇌ rightsquigarrow ⇝ colon : lhd ⊲ rhd ⊳
  bowtie ⋈ ltimes ⋉ rtimes ⋊ gtrsim ≳ lesssim ≲`);

const TEX_FENCES = symbols(`
  ( ( ) ) [ [ ] ] { { } } lbrace { rbrace } lbrack [ rbrack ] langle ⟨ rangle ⟩ lfloor ⌊ rfloor ⌋ lceil ⌈ rceil ⌉
  | | vert | lvert | rvert | Vert ‖ lVert ‖ rVert ‖ / / backslash \\ lgroup ⟮ rgroup ⟯ < ⟨ > ⟩ uparrow ↑ downarrow ↓`);

// With limits below and above, and without.
const TEX_SUMS = symbols("sum ∑ prod ∏ coprod ∐ bigcup ⋃ bigcap ⋂ bigvee ⋁ bigwedge ⋀ bigoplus ⨁ bigotimes ⨂ bigsqcup ⨆");
const TEX_INTEGRALS = symbols("int ∫ iint ∬ iiint ∭ oint ∮ oiint ∯ smallint ∫");

const TEX_FUNCTIONS = new Set(
  ("sin cos tan cot sec csc sinh cosh tanh coth arcsin arccos arctan log ln lg exp dim ker deg hom arg " +
    "sgn tr rank diag softmax").split(" "),
);
const TEX_LIMITS = new Map(
  "lim max min sup inf det gcd Pr argmax argmin limsup liminf".split(" ").map((name) => [name, name]),
).set("limsup", "lim sup").set("liminf", "lim inf");

const TEX_ACCENTS = symbols(`
  hat ^ widehat ^ check ˇ tilde ~ widetilde ~ bar ¯ overline ¯ vec → overrightarrow → overleftarrow ← dot ˙ ddot ¨
  acute ´ grave \` breve ˘ mathring ˚ overbrace ⏞ overbracket ⎴`);
const TEX_BELOW = symbols("underline _ underbrace ⏟ underbracket ⎵");

const TEX_SPACES = symbols(`
  , 0.167em : 0.222em > 0.222em ; 0.278em ! -0.167em thinspace 0.167em medspace 0.222em thickspace 0.278em quad 1em
  qquad 2em enspace 0.5em negthinspace -0.167em`).set(" ", "0.25em").set("\n", "0.25em");

const TEX_SIZES = symbols("big 1.2em Big 1.8em bigg 2.4em Bigg 3em");

// Fences and the alignment of the columns of an environment.
const TEX_ENVIRONMENTS = new Map([
  ["matrix", ["", "", ""]],
  ["smallmatrix", ["", "", ""]],
  ["pmatrix", ["(", ")", ""]],
  ["bmatrix", ["[", "]", ""]],
  ["Bmatrix", ["{", "}", ""]],
  ["vmatrix", ["|", "|", ""]],
  ["Vmatrix", ["‖", "‖", ""]],
  ["array", ["", "", ""]],
  ["cases", ["{", "", "l"]],
  ["rcases", ["", "}", "l"]],
  ...["align", "aligned", "alignat", "split", "eqnarray"].map((name) => [name, ["", "", "rl"]]),
  ...["gather", "gathered", "equation", "multline"].map((name) => [name, ["", "", ""]]),
]);

// Where the letters of an alphabet begin in Unicode (A, a, 0), and those that stand elsewhere.
const TEX_ALPHABETS = {
  bold: [0x1d400, 0x1d41a, 0x1d7ce, ""],
  double: [0x1d538, 0x1d552, 0x1d7d8, "CℂHℍNℕPℙQℚRℝZℤ"],
  script: [0x1d49c, 0x1d4b6, 0, "BℬEℰFℱHℋIℐLℒMℳRℛeℯgℊoℴ"],
  fraktur: [0x1d504, 0x1d51e, 0, "CℭHℌIℑRℜZℨ"],
  sans: [0x1d5a0, 0x1d5ba, 0x1d7e2, ""],
  typewriter: [0x1d670, 0x1d68a, 0x1d7f6, ""],
};
const TEX_VARIANTS = new Map(
  Object.entries({
    bold: "mathbf bm boldsymbol symbf pmb",
    double: "mathbb Bbb symbb",
    script: "mathcal mathscr cal",
    fraktur: "mathfrak",
    sans: "mathsf",
    typewriter: "mathtt",
    upright: "mathrm operatorname mathop rm",
    italic: "mathit mathnormal",
  }).flatMap(([variant, names]) => names.split(" ").map((name) => [name, variant])),
);

function inAlphabet(character, variant) {
  const [upper, lower, digits, elsewhere] = TEX_ALPHABETS[variant] ?? [0, 0, 0, ""];
  const place = elsewhere.indexOf(character);
  if (place >= 0) return elsewhere[place + 1];
  const shifted = (first, from) => String.fromCodePoint(first + character.codePointAt(0) - from.codePointAt(0));
  if (upper && /^[A-Z]$/.test(character)) return shifted(upper, "A");
  if (lower && /^[a-z]$/.test(character)) return shifted(lower, "a");
  if (digits && /^[0-9]$/.test(character)) return shifted(digits, "0");
  if (variant === "bold" && /^[α-ω]$/.test(character)) return shifted(0x1d6c2, "α");
  if (variant === "bold" && /^[Α-Ω]$/.test(character)) return shifted(0x1d6a8, "Α");
  return character;
}
