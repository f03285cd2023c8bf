"""Keys without a form of their own: a name says what they are (`COHERE_API_KEY=`, `"refresh_token": "`), and their
characters look drawn at random.

The idea is from gitleaks' rule `generic-api-key` (config/gitleaks.toml): a name, a sign, a value of enough entropy.
Names and signs are ours. In place of the entropy of single characters, which words in camel case reach too, it is
counted how often neighbors are of different classes (lower case, upper case, digit): in 62% of the places of random
letters and digits, in 47% of random hexadecimal digits, and seldom in words and names with numbers.

Masked values come

- after a name that ends in `token`, `secret`, `credentials` or `creds`, or in `key` after a word such as `api`,
  `access`, `auth`, `client`, `private` or `account`, or in `_KEY` in capitals;
- and after a colon, an equals sign, an arrow, `is`, the end of a tag, a comma after the quoted name
  (`define('API_KEY', '...')`), or a space if the name is an option (`--token ...`).

Not masked are keys that are public by their name (`public_key`, `site_key`, `pk_live_...`), marks of position
(`next_page_token`), tokens against forged requests (`csrf_token`), addresses of contracts (`0x` and 40 digits), and
placeholders for a key.
"""

import re

from gristmill.tasks.pii.credentials import PLACEHOLDER

_KINDS = (
    rb"api|app|application|access|auth|authentication|authorization|secret|private|client|consumer|customer|master|"
    rb"signing|signature|encryption|decryption|cipher|account|storage|shared|subscription|service|admin|root|licen[cs]e|"
    rb"session|write|read|instrumentation|ingest|ingestion|project|server|deploy|webhook|bot|user|developer|dev|"
    rb"integration|jwt|hmac|aes|rsa|tls|search|function|primary|secondary|connection|partner|merchant|workspace|team"
)
_NAME = re.compile(
    rb"(?<![\w.-])(?<!::)[\w.-]*(?:(?:%b)[ _-]?key|(?-i:[A-Z0-9]_KEY)|token|secret|credentials?|creds)\Z" % _KINDS,
    re.IGNORECASE,
)
_PUBLIC = re.compile(
    rb"public|publish|anon(?:ymous)?_?-?key|site_?-?key|host_?-?key|csrf|xsrf|forgery|verification_?token|page_?-?token|pagina|cursor|"
    rb"continu|next_?-?token|sync_?-?token|resume|(?:cls|sep|pad|mask|unk|bos|eos)_?token|foreign_?-?key|cache_?-?key|"
    rb"sort_?-?key|partition_?-?key|hash_?-?key|range_?-?key|registry_key|cancel\w*token|"
    rb"(?:^|[_.-])(?:PRIMARY|FOREIGN|CACHE|SORT|INDEX|LOOKUP|UNIQUE|IDEMPOTENCY|DEDUP|OBJECT|S3)_?-?KEY\Z",
    re.IGNORECASE,
)
_SIGN = (
    rb"(?:\\?[\"'`]?\]?[ \t]{0,4}(?::=|=>|[:=])[ \t]{0,4}(?:(?:bearer|token|basic|apikey|key)[ ])?b?"
    rb"|[ ](?:is|was)[ ]?:?[ ]|[\"']?>[ \t]{0,4}|[\"'`][ \t]{0,4},[ \t]{0,4}(?=[\"'`])|[\"'][ ]value=)"
)
_VALUE = rb"(?:(?P<quote>\\?[\"'`])(?P<quoted>[\w.~+/=:-]{16,240})(?P=quote)|(?P<bare>[\w.~+/=:-]{16,241}))"
_GIVEN = re.compile(_SIGN + _VALUE, re.ASCII | re.IGNORECASE)
_AFTER_OPTION = re.compile(rb"[ ]" + _VALUE, re.ASCII)
_OPTION = re.compile(rb"(?<![\w-])--?[\w-]*\Z", re.ASCII)
_NO_KEY = re.compile(
    rb"pk_(?:live|test)_|0x[0-9A-Fa-f]{40}\Z|(?:https?|ftp|file|s3|gs|arn|urn|ssh-\w+|sha\d+|md5|projects/|/\w)\b|"
    rb"\d{4}-\d\d-\d\dT|data:|v\d+\.\d+",
    re.IGNORECASE,
)
_ENV = re.compile(rb"[a-z_]\w{0,30}(?:\.[a-z_]\w{0,30})+\Z", re.IGNORECASE)  # an attribute: `settings.api_key2`
_UUID = re.compile(rb"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}\Z")
_OF_ACCESS = re.compile(rb"api|auth|access|refresh|bearer|secret|client|private", re.IGNORECASE)
_RUN = re.compile(rb"[A-Za-z0-9]{4,}")
_AFTER_VALUE = re.compile(rb"[\w(\[{$%]")  # a call, a template, or a value that goes on
_MIN_CHANGES = 0.22  # of neighbors' classes, per place
_MIN_RANDOM, _MIN_DIGITS, _MIN_DISTINCT = 14, 2, 8
_MIN_LONG, _MAX_VOWELS = 24, 0.26  # of a value with fewer digits
_CLASSES = bytes(
    1 if 48 <= c < 58 else 2 if 65 <= c < 91 else 3 if 97 <= c < 123 else 0 for c in range(256)
)  # digit, upper case, lower case


def looks_random(value: bytes) -> bool:
    """Whether the characters of a value change between digits, capitals and small letters as random ones do."""
    runs = [run.translate(_CLASSES) for run in _RUN.findall(value)]
    places = sum(len(run) - 1 for run in runs)
    if places < _MIN_RANDOM or len(set(value)) < _MIN_DISTINCT:
        return False
    classes = b"".join(runs)
    digits = classes.count(1)
    if digits == len(classes):
        return False
    if digits < _MIN_DIGITS:  # words in camel case change as often, but a third of their letters are vowels
        vowels = sum(byte in b"aeiouAEIOU" for byte in value)
        if len(classes) < _MIN_LONG - 4 * digits or vowels >= _MAX_VOWELS * len(classes):
            return False
    changes = sum(a != b for run in runs for a, b in zip(run, run[1:], strict=False))
    return changes >= _MIN_CHANGES * places


def named(value: bytes, before: bytes, after: bytes) -> list[tuple[int, int]]:
    """Where the candidate has a key, given the word that ends before it."""
    name = _NAME.search(before)
    if not name or _PUBLIC.search(name[0]):
        return []
    match = _GIVEN.match(value)
    if not match and _OPTION.search(before):
        match = _AFTER_OPTION.match(value)
    if not match:
        return []
    group = "quoted" if match["quoted"] else "bare"
    key, start = match[group], match.start(group)
    if group == "bare":
        if len(key) > 240 or _AFTER_VALUE.match(value, match.end()):
            return []
        key = key.rstrip(b".:")
    if _UUID.match(key) and not _OF_ACCESS.search(name[0]):  # most tokens of this form number a step or an object
        return []
    if PLACEHOLDER.search(key) or _NO_KEY.match(key) or _ENV.match(key) or not looks_random(key):
        return []
    return [(start, start + len(key))]
