"""A planted crawl from the command line."""

import argparse
import dataclasses
import sys
import time
from collections import Counter

from tests.planted import VARIANTS, Plan, plant
from tests.planted.plan import KINDS

_EPILOG = """\
An amount is a number of pages (40) or, with a point, a share of all pages (0.04).

Read the truth with   Truth(Path(FOLDER)).table(["page", "text"], kind="near")   of tests.planted,
or with anything that reads Parquet:   FOLDER/truth/*.parquet, a row for each record.

  python -m tests.planted /tmp/crawl --pages 10000 --near 0.2 --snapshots 2024-10 2024-11
  python -m tests.planted /tmp/crawl --clean --pages 100000 --files 20 --processes 2
  python -m tests.planted /tmp/crawl --clean --pages 200 --files 1 --broken 50 --only broken=bit_flip,clipped

Variants:
"""


def main() -> int:
    simple = [f for f in dataclasses.fields(Plan) if f.name not in ("languages", "benchmark", "variants")]
    variants = "".join(f"  {kind}: {', '.join(names)}\n" for kind, names in VARIANTS.items() if kind != "charset")
    parser = argparse.ArgumentParser(
        prog="python -m tests.planted",
        description="Write archives of a made-up crawl and the truth about every record in them.",
        epilog=_EPILOG + variants + "  charset: an encoding, then how it is declared, as in koi8-r/meta\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", help="where to; must not hold a planted crawl")
    parser.add_argument("--processes", type=int, default=1, help="that write; the bytes do not depend on it")
    parser.add_argument("--clean", action="store_true", help="ordinary pages only, and what other options add")
    parser.add_argument("--languages", metavar="en=0.7,de=0.3", help="codes and shares")
    parser.add_argument(
        "--only", action="append", default=[], metavar="KIND=VARIANT,...", help="of a kind only these variants"
    )
    for f in simple:
        many = {"nargs": "+"} if isinstance(f.default, tuple) else {}
        kind = _amount if f.name in KINDS else type(f.default[0] if many else f.default)
        shown = " ".join(map(str, f.default)) if many else f.default
        text = f"{f.metadata['help']} (default {shown})".replace("%", "%%")
        parser.add_argument(f"--{f.name.replace('_', '-')}", type=kind, help=text, **many)
    given = vars(parser.parse_args())
    settings = {f.name: given[f.name] for f in simple if given[f.name] is not None}
    settings = {name: tuple(v) if isinstance(v, list) else v for name, v in settings.items()}
    try:
        if given["languages"]:
            pairs = [pair.partition("=") for pair in given["languages"].split(",")]
            settings["languages"] = tuple((code, float(share or 1)) for code, _, share in pairs)
        chosen = [one.partition("=") for one in given["only"]]
        settings["variants"] = {kind: tuple(names.split(",")) for kind, _, names in chosen}
        plan = Plan.clean(**settings) if given["clean"] else Plan(**settings)
        start = time.perf_counter()
        truth = plant(given["folder"], plan, given["processes"])
    except (ValueError, FileExistsError) as error:
        print(f"python -m tests.planted: {error}", file=sys.stderr)
        return 2
    seconds = time.perf_counter() - start
    kinds = Counter[str]()
    for (kind, _), count in truth.counts().items():
        kinds[kind] += count
    for kind, count in kinds.most_common():
        print(f"{count:>9,} {kind}")
    print(f"{plan.pages:,} pages in {plan.files} archives below {given['folder']}, {plan.pages / seconds:,.0f} pages/s")
    return 0


def _amount(text: str) -> int | float:
    return float(text) if "." in text else int(text)


if __name__ == "__main__":
    sys.exit(main())
