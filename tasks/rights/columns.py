"""The columns of recorded rights, and their libraries. Separate: recipes are read without the parsers."""

from gristmill.tasks.documents.step import Signal

VERSION = 1  # is raised when pages get other values in these columns
SIGNALS = (
    Signal(
        "rights_signals",
        "string",
        "lines",
        "X-Robots-Tag and meta robots; TDMRep, W3C report of May 2024; draft-ietf-aipref-attach, August 2026",
        "statements of the page and its HTTP headers about machine use, a line `protocol source agent value` each",
    ),
    Signal("rights_license", "string", "SPDX", "own", "the license that the page states; null if it states none"),
    Signal("rights_license_scope", "string", "", "own", "what the license is for: `page`, or `part` of it"),
    Signal(
        "rights_license_source",
        "string",
        "",
        "own",
        "where the license is stated: header, link, meta, json-ld, rel, footer or text",
    ),
    Signal("rights_copyright", "string", "", "own", "the page's last line with a copyright sign and a year"),
)
# The distributions whose releases decide these columns.
LIBRARIES = ("http-sf", "license-expression", "resiliparse")
# The columns by which the step `rights` judges a page.
PAGE = ("rights_signals", "rights_license", "rights_license_scope")
# What gives a column, as a sentence about its absence names it.
ADVICE = dict.fromkeys(PAGE, "`rights: true` to the step `extract`")
