"""The command gc."""

from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.app import Json, app, console, print_json, print_texts, settings

if TYPE_CHECKING:
    from flows.garbage import Garbage


@app.command()
def gc(
    delete: Annotated[bool, typer.Option("--delete", help="remove them; without it they are only listed")] = False,
    days: Annotated[float, typer.Option(min=0, help="what was written in so many days stays")] = 7,
    as_json: Json = False,
) -> None:
    """Stages that no recipe's last run needs any more, caches of kernels of older versions, and how much they hold.

    A stage stays if the last run of a recipe had it (or the run before, where the last did not end as it should), if
    it is an input of such a stage, or if a process makes it now. A run that begins in the same moment waits for a stage
    that is being removed, and makes it anew.
    """
    from flows import garbage

    home = settings().home
    found = garbage.find(home, days)
    removed = [one for one in found.garbage if garbage.remove(home, one)] if delete else []
    if as_json:
        print_json({"garbage": found.garbage, "young": found.young, "held": found.held, "removed": removed})
        return
    print_texts(_line(one) for one in (removed if delete else found.garbage))
    count, size = len(removed or found.garbage), sum(one.bytes for one in (removed or found.garbage))
    what = "removed" if delete else "can be removed (--delete does it)"
    console().print(f"{count} folders, {size / 1e6:,.1f} MB, {what}", highlight=False, soft_wrap=True)
    if found.young:
        size = sum(one.bytes for one in found.young)
        print_texts([f"{len(found.young)} more, {size / 1e6:,.1f} MB, are younger than {days:g} days (--days)"])
    if found.held:
        print_texts([f"made now, and left alone: {', '.join(found.held)}"])


def _line(one: "Garbage") -> str:
    return f"{one.bytes / 1e6:12,.1f} MB  {one.kind:10}  {one.label}"
