"""Settings of the canonical form of a URL (`gristmill.tasks.url.canonical_work`)."""

from pydantic import Field

from gristmill.tasks.documents.step import Settings

# Parameters by which advertisers and mailers follow a visitor; a trailing `*` stands for any rest. From the
# documentation of each: Google (utm_*, gclid, gclsrc, gbraid, wbraid, dclid, gad_*, _ga, _gl, srsltid), Matomo
# (pk_*, mtm_*), Microsoft, Meta, X, TikTok, LinkedIn, Pinterest, Yandex (yclid, ysclid, _openstat), HubSpot
# (_hs*), Mailchimp (mc_*), Marketo (mkt_tok), Vero; and from the strip list of Firefox (oly_*, __s).
TRACKING = (
    *("utm_*", "gclid", "gclsrc", "gbraid", "wbraid", "dclid", "gad_source", "gad_campaignid", "_ga", "_gl", "srsltid"),
    *("pk_*", "mtm_*", "msclkid", "fbclid", "igshid", "igsh", "twclid", "ttclid", "li_fat_id", "epik"),
    *("yclid", "ysclid", "_openstat", "_hsenc", "_hsmi", "mc_cid", "mc_eid", "mkt_tok", "vero_id", "vero_conv"),
    *("oly_anon_id", "oly_enc_id", "__s"),
)

# The list of public suffixes that an installed package carries: where domains begin.
PUBLIC_SUFFIXES = "publicsuffixlist:public_suffix_list.dat"


class Canonical(Settings):
    """What the canonical form leaves out beyond what the standards call equivalent."""

    tracking: tuple[str, ...] = Field(
        TRACKING, description="query parameters to drop; a trailing * stands for any rest of the name"
    )
    fold_scheme: bool = Field(False, description="write http as https")
    fold_www: bool = Field(False, description="drop a leading `www.` if a registered domain is left")
