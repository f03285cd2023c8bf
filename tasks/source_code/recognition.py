"""What a file of code is, by its path and text and nothing else: its language, and whether it is generated, vendored,
minified, or data.

Names and extensions are after GitHub's Linguist (`languages.yml`), whose names of languages The Stack and its followers
use, too.
"""

import re

# By extension, without those that several languages share.
EXTENSIONS = {
    extension: language
    for language, extensions in {
        "Ada": "adb ads ada",
        "Assembly": "asm nasm",
        "AutoHotkey": "ahk",
        "Awk": "awk gawk",
        "Batchfile": "bat cmd",
        "BibTeX": "bib",
        "C": "c",
        "C#": "cs csx",
        "C++": "cpp cc cxx c++ hpp hh hxx h++ ipp tpp tcc ixx",
        "CMake": "cmake",
        "COBOL": "cob cbl",
        "CSS": "css",
        "CSV": "csv",
        "Clojure": "clj cljs cljc edn",
        "CoffeeScript": "coffee",
        "Common Lisp": "lisp asd",
        "Crystal": "cr",
        "Cuda": "cu cuh",
        "Cython": "pyx pxd pxi",
        "D": "d",
        "Dart": "dart",
        "Diff": "diff patch",
        "Dockerfile": "dockerfile",
        "EJS": "ejs jst",
        "Elixir": "ex exs",
        "Elm": "elm",
        "Emacs Lisp": "el",
        "Erlang": "erl hrl",
        "Fortran": "f f77 for f90 f95 f03 f08",
        "GLSL": "glsl frag vert",
        "Gettext Catalog": "po pot",
        "Go": "go",
        "Go Template": "gotmpl gohtml",
        "GraphQL": "graphql gql",
        "Graphviz (DOT)": "gv dot",
        "Groovy": "groovy gradle",
        "HCL": "tf hcl",
        "HTML": "html htm xhtml",
        "Haskell": "hs",
        "INI": "ini cfg",
        "JSON": "json jsonl geojson webmanifest",
        "Java": "java",
        "Java Properties": "properties",
        "JavaScript": "js mjs cjs jsx",
        "Jinja": "jinja j2 jinja2",
        "Julia": "jl",
        "Jupyter Notebook": "ipynb",
        "Kotlin": "kt kts",
        "LLVM": "ll",
        "Lark": "lark",
        "Less": "less",
        "Lex": "lex",
        "Lua": "lua",
        "Makefile": "mk mak",
        "Mako": "mako",
        "Markdown": "md markdown mdx",
        "MATLAB": "matlab",
        "Handlebars": "hbs handlebars",
        "M4": "m4",
        "Meson": "meson",
        "Nim": "nim",
        "Nix": "nix",
        "OCaml": "ml mli",
        "OpenCL": "opencl",
        "PHP": "php phtml",
        "Pascal": "pas dpr",
        "Perl": "pm pod ph al perl",
        "Org": "org",
        "PostScript": "ps eps",
        "PowerShell": "ps1 psm1 psd1",
        "Protocol Buffer": "proto",
        "Public Key": "pem crt",
        "Python": "py pyi pyw",
        "R": "r",
        "Racket": "rkt",
        "Roff": "roff man",
        "Ruby": "rb rake gemspec",
        "Rust": "rs",
        "SCSS": "scss",
        "SQL": "sql",
        "SmPL": "cocci",
        "SVG": "svg",
        "Sass": "sass",
        "Scala": "scala sbt",
        "Scheme": "scm ss",
        "Shell": "sh bash zsh ksh bats",
        "Smalltalk": "st",
        "SourcePawn": "sp",
        "Standard ML": "sml",
        "Starlark": "bzl star",
        "Stylus": "styl",
        "SWIG": "swg swig",
        "Svelte": "svelte",
        "Swift": "swift",
        "SystemVerilog": "sv svh",
        "TOML": "toml",
        "TSV": "tsv",
        "TableGen": "td",
        "TSX": "tsx",
        "Tcl": "tcl",
        "TeX": "tex sty cls",
        "Text": "txt",
        "Thrift": "thrift",
        "TypeScript": "ts mts cts",
        "VHDL": "vhd vhdl",
        "Vala": "vala",
        "Vim Script": "vim",
        "Visual Basic .NET": "vb",
        "Vue": "vue",
        "WebAssembly": "wat wast",
        "XML": "xml xsd xslt xsl rng ui glade csproj vbproj vcxproj props targets resx wsdl xaml rdf rss kml iml xib "
        "storyboard xlf xliff nuspec zcml plist",
        "YAML": "yml yaml",
        "Yacc": "y yy",
        "Zig": "zig",
        "reStructuredText": "rst",
    }.items()
    for extension in extensions.split()
}

# Extensions that several languages share: the first is the usual one, and what content may say instead.
SHARED = {
    "h": ("C", "C++", "Objective-C"),
    "inc": ("C++", "PHP", "Assembly", "Pascal"),
    "l": ("Lex", "Roff", "Common Lisp"),
    "m": ("Objective-C", "MATLAB"),
    "mm": ("Objective-C++",),
    "pl": ("Perl", "Prolog"),
    "pro": ("Prolog", "INI"),
    "s": ("Assembly",),
    "t": ("Perl", "Python", "Text"),
    "tmpl": ("HTML", "Text"),
    "v": ("Verilog", "Coq"),
}

FILENAMES = {
    ".gitattributes": "Git Attributes",
    ".gitignore": "Ignore List",
    ".npmignore": "Ignore List",
    "build": "Starlark",
    "build.bazel": "Starlark",
    "cargo.lock": "TOML",
    "cmakelists.txt": "CMake",
    "configure.ac": "M4Sugar",
    "dockerfile": "Dockerfile",
    "gemfile": "Ruby",
    "gnumakefile": "Makefile",
    "go.mod": "Go Module",
    "go.sum": "Go Checksums",
    "jenkinsfile": "Groovy",
    "makefile": "Makefile",
    "makefile.am": "Makefile",
    "makefile.in": "Makefile",
    "meson.build": "Meson",
    "metadata": "Text",
    "pipfile": "TOML",
    "pkg-info": "Text",
    "poetry.lock": "TOML",
    "rakefile": "Ruby",
    "sconstruct": "Python",
    "vagrantfile": "Ruby",
}
# What a text's lines say of an extension that several languages share, after Linguist's `heuristics.yml`: the first
# that is found. Of C's headers those are C++'s that no C compiler reads.
_PATTERNS = {
    extension: tuple((language, re.compile(pattern, re.MULTILINE)) for language, pattern in patterns)
    for extension, patterns in {
        "h": (
            ("Objective-C", r"^[ \t]*(?:@(?:interface|class|protocol|property|end|implementation)\b|#import[ \t])"),
            (
                "C++",
                r"^[ \t]*(?:#[ \t]*include[ \t]*<(?:cstdint|string|vector|map|list|array|memory|utility|iostream|"
                r"algorithm|type_traits)>|template[ \t]*<|class[ \t]+\w+[ \t]*(?::[^;\n]*)?(?:\{|$)|"
                r"namespace\b[^;\n]*\{|(?:private|public|protected):[ \t]*$|using[ \t]+\w+[ \t]*=)",
            ),
        ),
        "m": (
            ("Objective-C", r"^[ \t]*(?:@(?:interface|class|protocol|property|end|implementation)\b|#import[ \t])"),
            ("MATLAB", r"^[ \t]*(?:%|##|function\b|end(?:if|for|while|function)\b)"),
        ),
        "inc": (("PHP", r"^<\?php"),),
        "pl": (
            ("Perl", r"^[ \t]*(?:use[ \t]+(?:strict|warnings|v?5)|package[ \t]+\w|my[ \t]*[$@%(])"),
            ("Prolog", r"^[a-z]\w*(?:\([^)\n]*\))?[ \t]*:-"),
        ),
        "v": (("Coq", r"^(?:Require|Theorem|Lemma|Proof|Definition|Section|Inductive)\b"),),
    }.items()
}
# Names of documents that have no extension, or have one of a number.
_TEXTS = re.compile(
    r"(?i)(readme|license|licence|copying|copyright|notice|authors?|contributors?|changes?|changelog|news|install|todo|"
    r"history|thanks|version|maintainers|patents|record|wheel|installer|requested)([.-].*)?"
)
_MANUAL = re.compile(r".+\.[1-9][a-z]{0,3}")

INTERPRETERS = {
    "ash": "Shell",
    "awk": "Awk",
    "bash": "Shell",
    "dash": "Shell",
    "gawk": "Awk",
    "ksh": "Shell",
    "lua": "Lua",
    "make": "Makefile",
    "node": "JavaScript",
    "osascript": "AppleScript",
    "perl": "Perl",
    "php": "PHP",
    "pwsh": "PowerShell",
    "python": "Python",
    "rscript": "R",
    "ruby": "Ruby",
    "sh": "Shell",
    "tclsh": "Tcl",
    "wish": "Tcl",
    "zsh": "Shell",
}
_MAX_HEAD = 50_000  # characters in which patterns are looked for
_SHEBANG = re.compile(r"#!\s*(?:\S*/)?env(?:\s+-\S+|\s+\w+=\S+)*\s+([\w.+-]+)|#!\s*\S*?([\w.+-]+)(?:\s|$)")


def filename_of(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def extension_of(path: str) -> str:
    """The extension in lower case, "" if there is none; `.C` is C++'s, as for compilers."""
    name = filename_of(path)
    if name.endswith(".C"):
        return "cpp"
    return name.rpartition(".")[2].lower() if "." in name.lstrip(".") else ""


def by_name(path: str) -> tuple[str, bool] | None:
    """The language of a file by its name, and whether its name settles it; None where it says nothing."""
    name = filename_of(path).lower()
    if language := FILENAMES.get(name):
        return language, True
    extension = extension_of(path)
    if language := EXTENSIONS.get(extension):
        return language, True
    if shared := SHARED.get(extension):
        return shared[0], False
    if name.startswith("dockerfile."):
        return "Dockerfile", True
    if _TEXTS.fullmatch(name):
        return "Text", False
    if _MANUAL.fullmatch(name):
        return "Roff", False
    return None


def by_pattern(path: str, text: str) -> str | None:
    """The language that a text's lines show, of the languages that share an extension; None if they show none."""
    head = text[:_MAX_HEAD]
    return next((name for name, pattern in _PATTERNS.get(extension_of(path), ()) if pattern.search(head)), None)


def by_shebang(text: str) -> str | None:
    """The language of the interpreter that a text's first line names."""
    match = _SHEBANG.match(text[:200])
    if match is None:
        return None
    name = (match[1] or match[2]).lower()
    return INTERPRETERS.get(name) or INTERPRETERS.get(re.sub(r"[\d.]+$", "", name))


# Folders of others' code, after Linguist's `vendor.yml`.
_VENDORED = re.compile(
    r"(?i)(?:^|/)(?:node_modules|bower_components|vendor|vendors|_vendor|_vendored_packages|third[_-]?party|3rd[_-]?party|"
    r"externals?|extern|Godeps|deps|site-packages|dist-packages|Pods|Carthage|\.yarn|\.venv|virtualenv|"
    r"_static/(?:jquery|underscore|doctools|searchtools|language_data|sphinx_highlight)[^/]*)(?:/|$)|"
    r"(?:^|/)(?:jquery|bootstrap|underscore|backbone|angular|react|vue|d3|modernizr|require|prototype|mootools|ember|"
    r"sphinx-toolbox|ltmain|aclocal|config\.guess|config\.sub|install-sh|depcomp|missing|compile|py-compile|libtool)"
    r"(?:[-.]?v?\d[\w.-]*)?(?:\.min|\.slim|\.bundle|\.esm)?(?:\.(?:js|css|sh|m4|d\.ts))?$|"
    r"(?:^|/)(?:ez_setup|versioneer|get-pip|bootstrap-buildout)\.py$"
)
# Files that tools write, after Linguist's `generated.rb`.
_GENERATED_NAMES = re.compile(
    r"(?i)(?:^|/)(?:package-lock\.json|npm-shrinkwrap\.json|yarn\.lock|pnpm-lock\.yaml|bun\.lock|poetry\.lock|pdm\.lock|"
    r"uv\.lock|pipfile\.lock|composer\.lock|gemfile\.lock|cargo\.lock|go\.sum|gopkg\.lock|glide\.lock|flake\.lock|"
    r"mix\.lock|pubspec\.lock|podfile\.lock|packages\.lock\.json|deno\.lock|conda-lock\.yml|"
    r"sources\.txt|pkg-info|record|wheel|parsetab\.py|lextab\.py|_pytest/_version\.py|aclocal\.m4)$|"
    r"\.egg-info/|\.dist-info/|(?:^|/)__generated__/|"
    r"_pb2(?:_grpc)?\.pyi?$|\.pb\.(?:go|cc|h|cpp|swift)$|_pb\.(?:js|d\.ts|rb)$|\.pb\.gw\.go$|"
    r"\.g(?:en|enerated)?\.(?:dart|cs|go|ts|kt)$|"
    r"\.tab\.[ch]$|(?:^|/)lex\.[\w.]*yy\.c$|\.(?:js|css|mjs)\.map$|\.designer\.(?:cs|vb)$|\.snap$|"
    r"(?:^|/)(?:zz_generated|bindata|wire_gen)[\w.]*\.go$|_string\.go$"
)
# What tools write of themselves at the head of a file; the Go project's line is in `go help generate`.
_GENERATED_MARKS = re.compile(
    r"(?i)(?:^|\n)// Code generated .* DO NOT EDIT\.|@generated\b|\bauto-?generated\b|\bautomatically[ -]generated\b|"
    r"\bgenerated[ -]automatically\b|"
    r"\bthis (?:file|code|module) (?:is|was|has been) (?:\w+[ -])?(?:auto-?)?generated\b|"
    r"\bgenerated by (?:the )?(?:\w+[- ])?(?:protocol buffer compiler|protoc\b|cython|swig|bison|flex|antlr|"
    r"autoconf|automake|libtool|cmake|qmake|javacc|jflex|ragel|lemon|gperf|re2c|thrift|grpc|roxygen|cbindgen|bindgen|coffeescript|"
    r"pandoc|doxygen|javadoc|sphinx|docutils|help2man|pod::man|asciidoc|docbook|stringer|mockgen|gdb|"
    r"swagger codegen|openapi[ -]generator)|\bgenerated by: https?://\S*(?:swagger|openapi)|\bgenerated with glade\b|"
    r"\bA Bison parser, made by\b|\bA lexical scanner generated by flex\b|\bDO NOT (?:EDIT|MODIFY)\b.{0,40}generated|"
    r"\bgenerated\b.{0,80}\bdo not (?:edit|modify)\b|\bmachine[ -]generated\b|\bGenerated from .{1,80} by\b|"
    r"<meta name=\"generator\"|^// Generated from |^# Generated by "
)
_HEAD_LINES, _HEAD = 15, 3_000


def is_vendored(path: str) -> bool:
    """Whether a path is one where projects keep the code of others."""
    return _VENDORED.search(path) is not None


def is_generated(path: str, text: str) -> bool:
    """Whether a tool has written the file: by its name, or by what its first 15 lines say. A script that says how it
    generates is taken for what it says of itself only in a comment's or a line's beginning words."""
    if _GENERATED_NAMES.search(path) or is_minified(path, text):
        return True
    head = "\n".join(text[:_HEAD].split("\n", _HEAD_LINES)[:_HEAD_LINES])
    return _GENERATED_MARKS.search(head) is not None


_MINIFIED_NAMES = re.compile(r"(?i)[.-]min\.(?:js|css|mjs|html)$|\.bundle\.js$")
_MAY_BE_MINIFIED = frozenset({"js", "css", "mjs", "cjs"})
# Linguist's bound for scripts and styles
_MEAN_MINIFIED = 110


def is_minified(path: str, text: str) -> bool:
    """Whether the lines of a script or style were joined by a tool: by its name, or as its lines have more than 110
    characters on average, as Linguist has it, and hardly any white space."""
    if _MINIFIED_NAMES.search(path):
        return True
    if extension_of(path) not in _MAY_BE_MINIFIED or not text:
        return False
    lines = text.count("\n") + 1
    return len(text) / lines > _MEAN_MINIFIED and sum(map(str.isspace, text[:100_000])) < 0.12 * len(text[:100_000])


_DATA = frozenset(
    "csv tsv json jsonl geojson ndjson xml svg po pot lock log dat data txt yaml yml ics vcf srt ttl nt owl sql dot gv "
    "pdb mol fasta fa obj stl ply gml plist map snap bib wkt ipynb".split()
)
_DIGITS_OF_DATA = 0.35
_LITERAL = re.compile(r"0[xX][0-9a-fA-F]+|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")


def is_data(path: str, text: str) -> bool:
    """Whether a file holds data: the extension is one of a format for data and the text is long or mostly numbers, or
    numbers are more than a third of all characters except white space, as in a table in C."""
    if filename_of(path).lower() in ("package.json", "tsconfig.json", "composer.json", "requirements.txt"):
        return False
    sample = text[:200_000]
    solid = len(sample) - sum(map(str.isspace, sample))
    if not solid:
        return False
    if sum(map(str.isdigit, sample)) > _DIGITS_OF_DATA / 2 * solid:
        numbers = sum(len(match[0]) for match in _LITERAL.finditer(sample))
        if numbers > _DIGITS_OF_DATA * solid:
            return True
    return extension_of(path) in _DATA and extension_of(path) != "txt" and text.count("\n") >= _LINES_OF_DATA


# The Stack v2 keeps JSON, YAML and similar files up to this many lines.
_LINES_OF_DATA = 512

# The Stack v2 (arXiv 2402.19173, section 2.1): base64, hexadecimal numbers one after the other, escapes of Unicode.
# A run is looked for from its beginning only, which finds the same runs.
_ENCODED = tuple(
    map(
        re.compile,
        (
            r"(?<![a-zA-Z0-9+/\n=])[a-zA-Z0-9+/\n=]{64,}",
            r"(?:\b(?:0x|\\x)?[0-9a-fA-F]{2}(?:,|\b\s*)){8,}",
            r"(?:\\u[0-9a-fA-F]{4}){8,}",
        ),
    )
)


def encoded_lengths(text: str) -> tuple[int, int]:
    """The characters of the longest run of encoded data, and of all of them together, as each pattern finds them."""
    lengths = [match.end() - match.start() for pattern in _ENCODED for match in pattern.finditer(text)]
    return max(lengths, default=0), sum(lengths)
