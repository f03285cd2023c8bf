"""Secrets: keys that are recognized by their form, and those that are marked by a word, a URL or a frame around them.

Keys of known services follow the rules of gitleaks (config/gitleaks.toml), except the last eight, which have no rule
there. Keys without a known form are in `gristmill.tasks.pii.named_keys`. Also masked are

- JSON Web Tokens with a signature (RFC 7519: three parts in base64url, the first of which is an object with `alg`);
- the tokens of bots of Discord (the bot's number in base64, a time, a code) and Telegram (the bot's number, a colon, a
  code);
- private keys in PEM (RFC 7468) and of OpenPGP (RFC 9580), from BEGIN to END, with 40 characters of base64 or more,
  also with `\\n` written out in place of line breaks;
- tokens of an `Authorization` header or after `Bearer` (RFC 6750, 2.1) that have a letter and a digit;
- 40 characters after `secret_access_key`, as Amazon's are;
- whole addresses of web hooks of Slack and Discord, since anybody who knows them can write there;
- the password in an URL (RFC 3986, 3.2.1), of 8 characters or more with a letter and a digit.

Other passwords are described below. Not masked are public keys, certificates and requests for them, incomplete keys,
placeholders (`YOUR_TOKEN`, `<token>`, `$TOKEN`), and examples: keys that say so (`AKIAIOSFODNN7EXAMPLE`, `xxxx`) or
have few different characters.
"""

import json
import re
from base64 import b64decode, b64encode, urlsafe_b64decode

_FORMS = {
    b"AKIA": rb"AKIA[A-Z2-7]{16}",  # Amazon
    b"ASIA": rb"ASIA[A-Z2-7]{16}",
    b"AIza": rb"AIza[\w-]{35}",  # Google
    b"ghp": rb"ghp_[A-Za-z0-9]{36}",
    b"gho": rb"gho_[A-Za-z0-9]{36}",
    b"ghu": rb"ghu_[A-Za-z0-9]{36}",
    b"ghs": rb"ghs_[A-Za-z0-9]{36}",
    b"ghr": rb"ghr_[A-Za-z0-9]{36,76}",
    b"github_pat_": rb"github_pat_\w{82}",
    b"glpat-": rb"glpat-[\w-]{20}",
    b"sk_live_": rb"sk_live_[A-Za-z0-9]{10,99}",  # Stripe
    b"rk_live_": rb"rk_live_[A-Za-z0-9]{10,99}",
    b"xox": rb"xox[abeoprs]-(?:\d{10,13}-){1,3}[A-Za-z0-9-]{16,64}",  # Slack
    b"xapp-": rb"xapp-\d-[A-Z0-9]{8,14}-\d{10,14}-[a-f0-9]{64}",
    b"sk-ant-": rb"sk-ant-(?:api|admin)\d{2}-[\w-]{93}AA",
    b"sk-": rb"sk-(?:proj-|svcacct-|admin-)?[\w-]{20,74}T3BlbkFJ[\w-]{20,74}",  # OpenAI
    b"hf_": rb"hf_[A-Za-z]{34}",
    b"npm_": rb"npm_[A-Za-z0-9]{36}",
    b"pypi-": rb"pypi-AgEIcHlwaS5vcmc[\w-]{50,300}",
    b"SG.": rb"SG\.[\w-]{22}\.[\w-]{43}",  # SendGrid
    b"dop_v1_": rb"dop_v1_[a-f0-9]{64}",
    b"shpat_": rb"shpat_[a-fA-F0-9]{32}",
    b"LTAI": rb"LTAI[A-Za-z0-9]{20}",  # Alibaba
    b"glrt-": rb"glrt-[\w-]{20}",
    b"rubygems_": rb"rubygems_[a-f0-9]{48}",
    b"key-": rb"key-[a-f0-9]{32}",  # Mailgun
    b"xkeysib-": rb"xkeysib-[a-f0-9]{64}-[A-Za-z0-9]{16}",  # Brevo
    b"dapi": rb"dapi[a-f0-9]{32}(?:-\d)?",  # Databricks
    b"hvs.": rb"hvs\.[\w-]{90,120}",  # Vault
    b"glsa_": rb"glsa_[A-Za-z0-9]{32}_[a-f0-9]{8}",  # Grafana
    b"NRAK-": rb"NRAK-[A-Z0-9]{27}",  # New Relic
    b"PMAK-": rb"PMAK-[a-f0-9]{24}-[a-f0-9]{34}",  # Postman
    b"lin_api_": rb"lin_api_[A-Za-z0-9]{40}",
    b"ntn_": rb"ntn_\d{11}[A-Za-z0-9]{35}",  # Notion
    b"pat": rb"pat[A-Za-z0-9]{14}\.[a-f0-9]{64}",  # Airtable
    b"pul-": rb"pul-[a-f0-9]{40}",  # Pulumi
    b"sntryu_": rb"sntryu_[a-f0-9]{64}",  # Sentry
    b"dt0c01.": rb"dt0c01\.[A-Z0-9]{24}\.[A-Z0-9]{64}",  # Dynatrace
    b"AGE-SECRET-KEY-1": rb"AGE-SECRET-KEY-1[QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L]{58}",
    # without a rule there: as their vendors hand them out
    b"GOCSPX-": rb"GOCSPX-[\w-]{28}",  # Google
    b"whsec_": rb"whsec_[A-Za-z0-9]{32,64}",  # Stripe
    b"gsk_": rb"gsk_[A-Za-z0-9]{52}",  # Groq
    b"r8_": rb"r8_[A-Za-z0-9]{37}",  # Replicate
    b"dckr_pat_": rb"dckr_pat_[\w-]{27}",
    b"sbp_": rb"sbp_[a-f0-9]{40}",  # Supabase
    b"tskey-": rb"tskey-(?:auth|api|client)-[A-Za-z0-9]{10,20}-[A-Za-z0-9]{20,60}",  # Tailscale
    b"figd_": rb"figd_[\w-]{40}",
}
# The first digits of a number in base64 begin the tokens of Discord's bots; Telegram's have two letters
_NUMBERS = {b64encode(f"{number:03}".encode())[:3] for number in range(1000)}
_LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
BEGINNINGS = (*_FORMS, b"eyJ", *sorted(_NUMBERS), *(b"AA" + bytes([letter]) for letter in _LETTERS))
_KEY = re.compile(b"|".join(_FORMS.values()), re.ASCII)
_WEB_TOKEN = re.compile(rb"(eyJ[\w-]{8,})\.eyJ[\w-]+\.[\w-]{16,}", re.ASCII)
_DISCORD = re.compile(rb"([MNO][\w-]{23,27})\.[\w-]{6}\.[\w-]{27,40}", re.ASCII)
_TELEGRAM = re.compile(rb"AA[\w-]{33}", re.ASCII)
_TELEGRAM_NUMBER = re.compile(rb"(?<!\d)[1-9]\d{7,10}:\Z")
_EXAMPLE = re.compile(rb"EXAMPLE|(.)\1{5}|x{4}|abcdefgh|123456789", re.IGNORECASE)
_MIN_DISTINCT = 8


def _decoded(part: bytes) -> bytes:
    """The bytes of base64url without padding; none if it is something else."""
    try:
        return urlsafe_b64decode(part + b"=" * (-len(part) % 4))
    except ValueError:
        return b""


def _has_algorithm(header: bytes) -> bool:
    try:
        fields = json.loads(_decoded(header))
    except (ValueError, RecursionError):  # lists in lists without end
        return False
    return isinstance(fields, dict) and "alg" in fields


def keys(value: bytes, before: bytes, after: bytes) -> list[tuple[int, int]]:
    """Where the candidate has a key, given the bytes before it: all of it, but for points and hyphens at its end.

    The start is negative where a bot's number is before the candidate.
    """
    if token := _WEB_TOKEN.fullmatch(value.rstrip(b".")):
        return [(0, len(token[0]))] if _has_algorithm(token[1]) else []
    if (bot := _TELEGRAM.fullmatch(value)) and (number := _TELEGRAM_NUMBER.search(before)):
        return [] if _EXAMPLE.search(bot[0]) else [(number.start() - len(before), len(value))]
    whole = value.rstrip(b".")
    value = whole.rstrip(b".-")
    if (bot := _DISCORD.fullmatch(value)) and _decoded(bot[1]).isdigit():
        return [(0, len(value))]
    value = whole if _KEY.fullmatch(whole) else value  # a key may end with a hyphen
    if not _KEY.fullmatch(value) or _EXAMPLE.search(value) or len(set(value)) < _MIN_DISTINCT:
        return []
    return [(0, len(value))]


_FRAME = re.compile(
    rb"-----BEGIN ((?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?)-----(?P<body>.*)-----END \1-----", re.DOTALL
)
_NO_BASE64 = re.compile(rb"\\[nr]|[^A-Za-z0-9+/]")
_MIN_KEY_LENGTH = 40
_HEADER = re.compile(rb"authorization[\"']?\s*[:=,]\s*[\"'`]?(?:\w+\s+)?$|\bbearer\s+\Z", re.IGNORECASE)
PLACEHOLDER = re.compile(
    rb"example|your|change|placeholder|insert|dummy|sample|token|secret|passw|xxx|\.\.\.|(.)\1{5}|12345678|abcdefg",
    re.IGNORECASE,
)
_SECRET_NAME = re.compile(rb"secret[_-]?access[_-]?key\Z", re.IGNORECASE)
_SECRET = re.compile(rb"[\"']?\s{0,2}[:=]?\s{0,2}[\"']?([A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])")
_SCHEME = re.compile(rb"https://(?:\w+\.)?(?:discord(?:app)?\.com/api/)?\Z")
_HOOK = re.compile(
    rb"hooks\.slack\.com/(?:services|workflows|triggers)/[TE]\w{7,12}/[\w/-]{20,80}|webhooks/\d{17,20}/[\w-]{60,80}"
)
_PASSWORD = re.compile(rb"[\w.%+~-]*:(?P<password>[\w.~!*,;=&'()%+-]{8,64})", re.ASCII)


def _mixed(value: bytes) -> bool:
    return re.search(rb"\d", value) is not None and re.search(rb"[A-Za-z]", value) is not None


def blocks(value: bytes, before: bytes, after: bytes) -> list[tuple[int, int]]:
    """Whether the candidate is a private key: all of it, or nothing."""
    frame = _FRAME.fullmatch(value)
    if not frame or len(_NO_BASE64.sub(b"", frame["body"])) < _MIN_KEY_LENGTH or b"..." in frame["body"]:
        return []
    return [(0, len(value))]


def tokens(value: bytes, before: bytes, after: bytes) -> list[tuple[int, int]]:
    """Where the candidate has a token, given the bytes before it: all of it but for points at its end."""
    value = value.rstrip(b".")
    if not _HEADER.search(before) or not _mixed(value) or PLACEHOLDER.search(value):
        return []
    return [(0, len(value))] if len(set(value)) >= _MIN_DISTINCT else []


def access_keys(value: bytes, before: bytes, after: bytes) -> list[tuple[int, int]]:
    """Where the candidate has a secret, given the word that ends before it."""
    match = _SECRET_NAME.search(before) and _SECRET.match(value + after)
    if not match or PLACEHOLDER.search(match[1]) or len(set(match[1])) < _MIN_DISTINCT:
        return []
    return [match.span(1)]


def hooks(value: bytes, before: bytes, after: bytes) -> list[tuple[int, int]]:
    """Where the address of the hook is whose word begins the candidate; it starts before the candidate."""
    scheme, match = _SCHEME.search(before), _HOOK.match(value)
    if not scheme or not match or PLACEHOLDER.search(match[0]):
        return []
    return [(scheme.start() - len(before), match.end())]


def passwords(value: bytes, before: bytes, after: bytes) -> list[tuple[int, int]]:
    """Where the password is in the candidate, which is a user and a password."""
    match = _PASSWORD.fullmatch(value)
    if not match or not _mixed(match["password"]) or PLACEHOLDER.search(match["password"]):
        return []
    return [match.span("password")]


# Passwords, which have no known form. They are recognized by a word, an option of a program or a header before them.
#
# Masked values come
#
# - after a word that ends in `password`, `passwd`, `passphrase`, `passwort`, `kennwort`, `passe` or `pwd`, and a
#   colon, an equals sign, `is`, or the end of a tag or a key of JSON, YAML or XML (`DB_PASSWORD=`, `"password": "`,
#   `passwd is`, `Pwd=` of a connection string); or after an option (`--password `);
# - after the user of `curl -u user:` and `curl --user user:` (curl's manual);
# - after `Basic` in a header (RFC 7617): base64 of a user, a colon and a password.
#
# A password has a digit and a letter, or a mark among its letters, 6 characters in quotes and 8 without, of which 5
# differ. Not masked are words, placeholders for a password (`<password>`, `${DB_PASSWORD}`,
# `your_password1`, `changeme1`), calls and attributes of a program (`self.password1`, `getpass()`), addresses, dates,
# sizes and names of algorithms (`sha256`). So a password that has only letters is not masked.


_WORD = re.compile(rb"(?:pass(?:word|wd|phrase|wort)|kennwort|(?<![a-z])passe|(?<![a-z])pwd)\Z", re.IGNORECASE)
_OPTION = re.compile(rb"--?[\w-]*\Z", re.ASCII)
_GIVEN = re.compile(
    rb"(?P<sign>[\"'`]?\]?[ \t]{0,4}(?::=|=>|[:=])[ \t]{0,4}|[ ](?:is|was|ist|est)[ ]?:?[ ]?|[\"']?>|[\"'] value="
    rb"|[\"'][ \t]{0,4},[ \t]{0,4}(?=[\"']))"
    rb"(?:(?P<quote>[\"'`])(?P<quoted>[^\"'`\n]{6,64})(?P=quote)|(?P<bare>[^\s\"'`<>,;|]{8,65}))"
)
_AFTER_OPTION = re.compile(
    rb"[ ](?:(?P<quote>[\"'])(?P<quoted>[^\"'\n]{6,64})(?P=quote)|(?P<bare>[^\s\"'`<>,;|-][^\s\"'`<>,;|]{7,64}))"
)
_END = b".,;:)]}"
_MARK = re.compile(rb"[A-Za-z][!#$%^&*@][A-Za-z\d]|\d[A-Za-z]|[A-Za-z]\d|[A-Za-z].*\d|\d.*[A-Za-z]", re.DOTALL)
_NO_PASSWORD = re.compile(
    rb"[$%{<&*(\[\\|@]|(?:https?|ftp|file)://|/|\.{1,2}/|"  # a variable, an address, a path
    rb"(?:sha|md|aes|utf|base|pbkdf|bcrypt|scrypt|argon|des|rc|win|oauth|http|varchar|char|string|text|int|x)-?_?\d|"
    rb"\d{1,4}[-./]\d{1,2}[-./]\d|\d+(?:st|nd|rd|th|px|em|ms|kb|mb|gb|bits?|bytes?|chars?|characters?|days?|min|hours?)?"
    rb"(?:-\w+)*\Z|[a-z_]\w*(?:\.[a-z_]\w*)+\Z",
    re.IGNORECASE | re.ASCII,
)
_CALL = re.compile(rb"[\w\])][(\[{]|->|::|[)\]]\Z|\.\w+\(")
_NAME = re.compile(rb"(?:[a-z]+[_-])*[a-z]{3,}_?\d{1,2}\Z", re.IGNORECASE)  # `field1`, `new_value2`
_WORD_OF_PROSE, _PROSE = re.compile(rb"[a-z]+\d+\Z", re.IGNORECASE), re.compile(rb",? [a-z]+")  # `user1024 was told`
_MIN_DIFFERENT_CHARACTERS = 5
_LOGIN = re.compile(
    rb"[^\n|;]{0,240}?(?<=\s)(?:-u|--user|-U|--proxy-user)(?:\s{1,3}|=)?[\"']?(?P<user>[^\s:\"'$<]{1,64}):"
    rb"(?P<password>[^\s\"'$<>{}]{6,64})"
)


def _is_password(value: bytes, quoted: bool) -> bool:
    if not _MARK.search(value) or PLACEHOLDER.search(value) or len(set(value)) < _MIN_DIFFERENT_CHARACTERS:
        return False
    if _NO_PASSWORD.match(value) or (b" " in value and not re.search(rb"\d", value)):
        return False
    return quoted or not (_CALL.search(value) or _NAME.match(value))


def named_passwords(value: bytes, before: bytes, after: bytes) -> list[tuple[int, int]]:
    """Where the candidate has a password, given the word that ends before it."""
    word = _WORD.search(before)
    if not word:
        return []
    match = _GIVEN.match(value)
    if not match and (option := _OPTION.search(before)) and option[0].startswith(b"-"):
        match = _AFTER_OPTION.match(value)
    if not match:
        return []
    group = "quoted" if match["quoted"] else "bare"
    password = match[group]
    if group == "bare":
        if match.end() == len(value) and len(password) > 64:
            return []
        password = password.rstrip(_END)
    if (group == "bare" and len(password) < 8) or not _is_password(password, group == "quoted"):
        return []
    start = match.start(group)
    if group == "bare" and _WORD_OF_PROSE.match(password) and _PROSE.match(value, start + len(password)):
        return []
    return [(start, start + len(password))]


def of_curl(value: bytes, before: bytes, after: bytes) -> list[tuple[int, int]]:
    """Where the candidate, which follows the word `curl`, has the password of its user."""
    match = _LOGIN.match(value.replace(b"\\\n", b"  "))
    if not match or not _MARK.search(match["password"]) or PLACEHOLDER.search(match["password"]):
        return []
    return [match.span("password")] if len(set(match["password"])) >= _MIN_DIFFERENT_CHARACTERS else []


def basic(value: bytes, before: bytes, after: bytes) -> list[tuple[int, int]]:
    """Whether the candidate, which follows the word `Basic`, is a user and a password: all of it but for points at its
    end."""
    value = value.rstrip(b".")
    try:
        user, colon, password = b64decode(value, validate=True).decode().partition(":")
    except ValueError:
        return []
    if not colon or len(password) < 4 or not f"{user}{password}".isprintable() or PLACEHOLDER.search(password.encode()):
        return []
    return [] if (user, password) == ("Aladdin", "open sesame") else [(0, len(value))]  # RFC 7617's
