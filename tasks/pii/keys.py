"""Keys of programming interfaces whose form says that they are keys, and whose.

Forms as in the rules of gitleaks (config/gitleaks.toml), those without a form of their own (a hash behind the word
`secret`) left out. Not masked are examples: keys that say so (`AKIAIOSFODNN7EXAMPLE`, `xxxx`) or consist of few
different characters.
"""

import re

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
    b"sk-ant-": rb"sk-ant-(?:api|admin)\d{2}-[\w-]{93}AA",
    b"sk-": rb"sk-(?:proj-|svcacct-|admin-)?[\w-]{20,74}T3BlbkFJ[\w-]{20,74}",  # OpenAI
    b"hf_": rb"hf_[A-Za-z]{34}",
    b"npm_": rb"npm_[A-Za-z0-9]{36}",
    b"pypi-": rb"pypi-AgEIcHlwaS5vcmc[\w-]{50,300}",
    b"SG.": rb"SG\.[\w-]{22}\.[\w-]{43}",  # SendGrid
    b"dop_v1_": rb"dop_v1_[a-f0-9]{64}",
    b"shpat_": rb"shpat_[a-fA-F0-9]{32}",
}
BEGINNINGS = tuple(_FORMS)
_KEY = re.compile(b"|".join(_FORMS.values()), re.ASCII)
_EXAMPLE = re.compile(rb"EXAMPLE|(.)\1{5}|x{4}|abcdefgh|123456789", re.IGNORECASE)
_FEWEST_DIFFERENT = 8


def keys(value: bytes, before: bytes, after: bytes) -> list[tuple[int, int]]:
    """Where in the candidate a key stands: all of it, but for points and hyphens at its end; its beginning is one."""
    value = value.rstrip(b".-")
    if not _KEY.fullmatch(value) or _EXAMPLE.search(value) or len(set(value)) < _FEWEST_DIFFERENT:
        return []
    return [(0, len(value))]
