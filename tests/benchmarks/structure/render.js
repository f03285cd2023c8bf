// Renders formulas and code: reads a JSON list of [renderer, source, display or language], writes a list of HTML.
const fs = require("fs");
const path = require("path");
const modules = process.argv[2];
const load = (name) => require(require.resolve(name, { paths: [path.dirname(modules), modules] }));

const once = {};
const lazily = (name, make) => (once[name] ??= make());

const katex = (output) => (latex, display) =>
  load("katex").renderToString(latex, { displayMode: display, output, throwOnError: true });

function mathjax3(jax) {
  return lazily(jax, () => {
    const { mathjax } = load("mathjax-full/js/mathjax.js");
    const { TeX } = load("mathjax-full/js/input/tex.js");
    const { AllPackages } = load("mathjax-full/js/input/tex/AllPackages.js");
    const { liteAdaptor } = load("mathjax-full/js/adaptors/liteAdaptor.js");
    const { RegisterHTMLHandler } = load("mathjax-full/js/handlers/html.js");
    const { AssistiveMmlHandler } = load("mathjax-full/js/a11y/assistive-mml.js");
    const { CHTML } = load("mathjax-full/js/output/chtml.js");
    const { SVG } = load("mathjax-full/js/output/svg.js");
    const adaptor = liteAdaptor();
    AssistiveMmlHandler(RegisterHTMLHandler(adaptor));
    const output = jax === "svg" ? new SVG({ fontCache: "local" }) : new CHTML({ fontURL: "https://cdn.example" });
    const page = mathjax.document("", { InputJax: new TeX({ packages: AllPackages }), OutputJax: output });
    return (latex, display) => adaptor.outerHTML(page.convert(latex, { display }));
  });
}

// What a browser has in its tree once MathJax 2 has run: the preview, the output, and the script with the source.
const mathjax2 = (jax) => async (latex, display, number) => {
  const mathjax = lazily("mathjax2", () => {
    const found = load("mathjax-node");
    found.config({ displayErrors: false });
    found.start();
    return found;
  });
  const wanted = jax === "mml" ? { mml: true } : jax === "svg" ? { svg: true } : { html: true };
  const result = await mathjax.typeset({ math: latex, format: display ? "TeX" : "inline-TeX", ...wanted });
  if (jax === "mml") return result.mml;
  const mode = display ? "; mode=display" : "";
  const id = `MathJax-Element-${number}`;
  const inner = `<span class="MathJax" id="${id}-Frame" tabindex="0" role="presentation">${result.html ?? result.svg}</span>`;
  const shown = display ? `<div class="MathJax_Display" style="text-align: center;">${inner}</div>` : inner;
  return `<span class="MathJax_Preview" style="color: inherit; display: none;"></span>${shown}` +
    `<script type="math/tex${mode}" id="${id}">${latex}</script>`;
};

const NAMES = { html: "xml", text: "plaintext", pycon: "python-repl", make: "makefile" };
const hljs = (code, language) => {
  const name = NAMES[language] ?? language;
  const { value } = load("highlight.js").highlight(code, { language: name });
  return `<pre><code class="hljs language-${name}">${value}</code></pre>`;
};

const PRISM = { html: "markup", text: "none", pycon: "python", make: "makefile" };
const prism = (numbered) => (code, language) => {
  const Prism = lazily("prism", () => {
    const found = load("prismjs");
    load("prismjs/components/index.js")(["python", "javascript", "c", "bash", "markup", "json", "yaml", "makefile"]);
    return found;
  });
  const name = PRISM[language] ?? language;
  const grammar = Prism.languages[name];
  const value = grammar ? Prism.highlight(code, grammar, name) : Prism.util.encode(code);
  // the tree that the plugin line-numbers leaves; the numbers themselves come from a style sheet
  const rows = numbered
    ? `<span aria-hidden="true" class="line-numbers-rows">${"<span></span>".repeat(code.split("\n").length)}</span>`
    : "";
  return `<pre class="${numbered ? "line-numbers " : ""}language-${name}" tabindex="0">` +
    `<code class="language-${name}">${value}${rows}</code></pre>`;
};

const RENDERERS = {
  "katex": katex("htmlAndMathml"),
  "katex html": katex("html"),
  "katex mathml": katex("mathml"),
  "mathjax3 chtml": (latex, display) => mathjax3("chtml")(latex, display),
  "mathjax3 svg": (latex, display) => mathjax3("svg")(latex, display),
  "mathjax2 html": mathjax2("html"),
  "mathjax2 svg": mathjax2("svg"),
  "mathjax2 mml": mathjax2("mml"),
  "highlight.js": hljs,
  "prism": prism(false),
  "prism lines": prism(true),
};

(async () => {
  const jobs = JSON.parse(fs.readFileSync(0, "utf-8"));
  const out = [];
  for (const [i, [renderer, source, option]] of jobs.entries()) out.push(await RENDERERS[renderer](source, option, i + 1));
  fs.writeSync(1, JSON.stringify(out));
  process.exit(0);
})().catch((error) => { console.error(error); process.exit(1); });
