"""The step `url`: canonical form, host and registered domain of each document, and the lists and words that it hits."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, PlainSerializer, SerializationInfo, model_validator

from gristmill.storage.address import Address, from_folder, is_for_key
from gristmill.tasks.documents.step import Bound, DocumentStep, Member, Problem, Signal
from gristmill.tasks.url.canonical import PUBLIC_SUFFIXES, Canonical
from gristmill.tasks.url.list_files import KINDS, list_problems

_LISTED = "squidGuard's rules for UT1's domains, urls and expressions"
_REFINEDWEB = "RefinedWeb (Penedo et al. 2023), appendix G.1, as coded by DCLM or datatrove (url_filter.py)"


def _with_category(value: Any, info: SerializationInfo) -> Any:
    if not is_for_key(value, info):
        return value
    folder, _, name = value.rpartition("/")
    return f"{folder.rpartition('/')[2]}/{name}" if name in KINDS else name


Listed = Annotated[str, AfterValidator(from_folder), PlainSerializer(_with_category, return_type=str)]


class Url(DocumentStep):
    """Drop documents whose URL is on a list or holds certain words; needs the columns `id` and `url` only.

    A list is given by its address. Blocklists are folders in UT1's layout, single categories of it, its archives
    (`adult.tar.gz`), or files named `domains`, `urls`, `expressions`; of a file of another name each line is a host or,
    with a slash, a URL and all below it. Takedown lists have a host, a URL or a folder (`https://example.org/a/*`) a
    line, word lists a word or phrase. Lines that begin with `#` are comments.

    A document without a URL, or with one that has no canonical form, is on no list; its signals are empty, but the
    words are looked for in the URL as it stands.
    """

    work: ClassVar = "gristmill.tasks.url.step_work"
    package_data: ClassVar = (PUBLIC_SUFFIXES,)
    pins_files: ClassVar = True

    step: Literal["url"] = "url"
    canonical: Canonical = Field(Canonical(), description="how URLs are made comparable")
    private_suffixes: bool = Field(
        False, description="whether github.io and the like are public suffixes; Common Crawl's index says no"
    )
    blocklists: tuple[Listed, ...] = Field((), description="addresses of blocklists in UT1's layout")
    categories: tuple[str, ...] = Field(
        (),
        description="of the blocklists' folders and archives; none means all. RefinedWeb takes adult, phishing, "
        "dating, gambling, filehosting, ddos, agressif, chat, mixed_adult, arjel",
    )
    subdomains: bool = Field(
        True,
        description="whether a host of the blocklists stands for all hosts below it; false: for itself, with and "
        "without `www.`",
    )
    takedowns: tuple[Listed, ...] = Field((), description="addresses of takedown or robots lists")
    strict_substrings: tuple[Address, ...] = Field((), description="addresses of word lists: dropped where one stands")
    hard_words: tuple[Address, ...] = Field((), description="addresses of word lists: dropped for one as a word")
    soft_words: tuple[Address, ...] = Field((), description="addresses of word lists: dropped for several")
    definition: Literal["dclm", "datatrove"] = Field(
        "dclm",
        description="how the words are looked for. dclm: in the canonical URL behind `://`, decoded, in lower case; "
        "for strict_substrings without its - and ., so that an entry that has one is never found. datatrove, as for "
        "FineWeb: in the URL as it stands, cut at all but ASCII letters and digits, entries without them; for "
        "strict_substrings in lower case and without them",
    )
    max_soft_words: int = Field(1, ge=0, description="so many different soft words may stay; RefinedWeb: 1")
    checksums: tuple[tuple[Listed, str], ...] = Field(
        (), description="(address, xxh3-128) of each file of the lists, which must then have this content; see `pinned`"
    )

    signal_fields: ClassVar = (
        *("canonical", "private_suffixes", "blocklists", "categories", "subdomains", "takedowns"),
        *("strict_substrings", "hard_words", "soft_words", "definition", "checksums"),
    )
    signals: ClassVar = (
        Signal(
            "url_canonical",
            "string",
            "URL",
            "RFC 3986, section 6; WHATWG URL",
            description="The URL in canonical form, by the setting `canonical`; empty if there is none.",
        ),
        Signal(
            "host",
            "string",
            "host",
            "RFC 3986, section 3.2.2; UTS #46 for other alphabets",
            description="The host of `url_canonical`.",
        ),
        Signal(
            "registered_domain",
            "string",
            "domain",
            "public suffix list",
            description="The domain that was registered, of which the host is a part; empty for an IP address.",
        ),
        Signal(
            "url_takedown",
            "string",
            "list: entry",
            "takedown lists",
            description="The entry of `takedowns` that holds the URL; empty if none does.",
        ),
        Signal(
            "url_blocklist",
            "string",
            "list: entry",
            _LISTED,
            description="The entry of `blocklists`, in their `categories`, that holds the URL; empty if none does.",
        ),
        Signal(
            "url_strict_substring",
            "string",
            "entry",
            _REFINEDWEB,
            description="The entry of `strict_substrings` that stands anywhere in the URL; empty if none does.",
        ),
        Signal(
            "url_hard_word",
            "string",
            "entry",
            _REFINEDWEB,
            description="The entry of `hard_words` that is a word of the URL; empty if none is.",
        ),
        Signal(
            "url_soft_words",
            "int32",
            "different words",
            _REFINEDWEB,
            description="Different entries of `soft_words` that are words of the URL.",
        ),
    )

    @model_validator(mode="after")
    def _categories_of_lists(self) -> Self:
        if self.categories and not self.blocklists:
            raise ValueError(
                f"categories {', '.join(self.categories)} choose among the blocklists, but there are "
                "none; name them in blocklists"
            )
        return self

    def problems(self, deep: bool) -> Iterator[Problem]:
        for key in ("takedowns", "strict_substrings", "hard_words", "soft_words"):
            for at, address in enumerate(getattr(self, key)):
                yield from list_problems(address, (key, at), deep)
        for at, address in enumerate(self.blocklists):
            yield from list_problems(address, ("blocklists", at), deep, self.categories)

    def decisions(self) -> Sequence[Bound | Member]:
        return [
            Member("takedown", "url_takedown", ("",)),
            Member("blocklist", "url_blocklist", ("",)),
            Member("strict_substring", "url_strict_substring", ("",)),
            Member("hard_word", "url_hard_word", ("",)),
            Bound("soft_words", "url_soft_words", high=self.max_soft_words),
        ]
