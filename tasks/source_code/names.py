"""What a file's name says of its language: names and extensions, after GitHub's Linguist (`languages.yml`), whose names
of languages The Stack and its followers use, too."""

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
    """In lower case, "" if there is none; `.C` is C++'s, as compilers have it."""
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
    """Of an extension that several languages share the one that a text's lines show, else None."""
    head = text[:_MAX_HEAD]
    return next((name for name, pattern in _PATTERNS.get(extension_of(path), ()) if pattern.search(head)), None)


def by_shebang(text: str) -> str | None:
    """The language of the interpreter that a text's first line names."""
    match = _SHEBANG.match(text[:200])
    if match is None:
        return None
    name = (match[1] or match[2]).lower()
    return INTERPRETERS.get(name) or INTERPRETERS.get(re.sub(r"[\d.]+$", "", name))
