"""Texts with lines and sentences that rules take out or question, among good ones, so that counts meet the bounds."""

from collections.abc import Iterator
from itertools import product

from tests.golden.made.words import Text, paragraph, plain_words


def line_texts() -> Iterator[Text]:
    yield from _c4()
    yield from _shops()
    yield from _sentences()


def _c4() -> Iterator[Text]:
    """Lines that a rule of C4 takes, among sentences around 3 and 5, and lines of around 200 characters."""
    for count in range(1, 8):
        yield f"c4 sentences {count}", " ".join(paragraph(f"c4 {at}", 1) for at in range(count))
    odd = (
        "Two words.",
        "Now three words.",
        "Now four words here.",
        "So five words are here.",
        "no mark at the end of this",
        "You must enable JavaScript to see it.",
        "The privacy policy is here to read.",
        "We use cookies on this page.",
        "Terms of Use apply to all of it.",
        "This use of cookie is no phrase at all.",
        "Lorem ipsum dolor sit amet here.",
        "A curly { stands in this line.",
        "A curly } alone stands in it.",
        "It ends in an ellipsis ...",
        "It has a note[12] and [] and [edit] in it.",
        "It needs one [citation needed].",
        "[1] [2] [3] four.",
        "w" * 999 + " is a long word.",
        "w" * 1000 + " is a long word.",
        "w" * 1001 + " is a long word.",
        'It ends with a quote "so"',
        "It ends with an apostrophe'",
        "lorem ipsum",
        "javascript {",
        "",
    )
    for at, line in enumerate(odd):
        yield f"c4 line {at}", "\n".join([paragraph(f"odd {at}", 3), line, paragraph(f"odd {at} b", 3)])
        yield f"c4 line {at} last", "\n".join([paragraph(f"odd {at}", 5), "", line])
    for size, count in product((199, 200, 201), (2, 3, 4)):
        lines = [(paragraph(f"long {at}", 6)[: size - 1] + ".") for at in range(count)]
        yield f"c4 long lines {size} {count}", "\n".join([*lines, "Short line of words."])


def _shops() -> Iterator[Text]:
    """What RefinedWeb's line rules look for, at their bounds, in documents that lose around a twentieth."""
    lines = (
        "3 likes",
        "1.2K followers",
        "12 shares 4",
        "Likes 3",
        "3 LIKES",
        "1,234 comments",
        "4 items in cart",
        "items in cart 4 and nine words more than ten are here now",
        "Read more...",
        "and so on Read more...",
        "one two three four five six seven eight Read more...",
        "a b c d e f g h i Read more...",
        "read more…",
        "Sign-in to see it",
        "sign-in",
        "xsign-in here",
        "HALF of it LOW",
        "ABCD efgh",
        "ABCDE fgh",
        "ABC defgh",
        "ÀÉÎ õü",
        "12345678",
        "1234567a",
        "12 34 56",
        "٣٤٥",
        "one",
        "one two",
        "Ⅷ",
        "½ ½",
        "2024-01-01",
        "Home",
        "  Menu  ",
    )
    for at, line in enumerate(lines):
        yield f"shop {at}", "\n".join([paragraph(f"shop {at}", 4), line, paragraph(f"shop {at} b", 4)])
    for words in (38, 39, 40, 41, 57, 58, 59, 60, 61):
        body = plain_words(words, f"lost {words}")
        yield f"shop loses 3 of {words}", "\n".join([" ".join(body[:-3]) + " end.", "A1B2C3 DDDDD EEEEE"])
        yield f"shop loses 2 of {words}", "\n".join(["Menu", " ".join(body), "", "", "Home", "", "3 likes"])
    yield "shop loses all", "Menu\nHOME PAGE\n3 likes\n1234"


def _sentences() -> Iterator[Text]:
    """Sentences that MADLAD questions, around a fifth of five and of ten."""
    odd = (
        "Short one here.",
        "This Is A List Of Words In Title Case That Goes On And On Here.",
        "0123456789 {} 0123456 () abc.",
        "This Is A List Of Words In Title case that goes on and.",
        "This one speaks of an Episode here now.",
        "a b c d e f g h i j k.",
        "x" * 499 + ".",
        "x" * 500 + ".",
        "x" * 18 + ".",
        "x" * 19 + ".",
        "x" * 20 + ".",
        "The mp3 of it is here to have |",
        "It costs 12 кг.",
        "Vol.",
        "99 (99) [99] 99 of these marks are.",
        "A lorem ipsum dolor sit amet of words here.",
    )
    for at, line in enumerate(odd):
        for good in (3, 4, 5, 9):
            yield f"madlad {at} with {good}", " ".join([line, *(paragraph(f"madlad {n}", 1) for n in range(good))])
    for bad in (1, 2, 3):
        yield f"madlad {bad} of 10", "\n".join([*["No."] * bad, *(paragraph(f"ten {n}", 1) for n in range(10 - bad))])
