"""A recipe's text with other values of some settings: comments, order and quotes of all else stay as they are."""

import json
from collections.abc import Mapping

import yaml

Value = str | int | float | bool | None | Mapping[str, int]


def edited(text: str, section: str, values: Mapping[str, Value]) -> str:
    """The YAML `text` with these values of a section that is a mapping, as `training`.

    A value that is there is replaced where it stands; a key that is not there is added behind the section's last one. A
    section that is missing is added at the end. Raises ValueError for a text that is no mapping, or whose section is
    none.
    """
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(root, yaml.MappingNode) or root.flow_style:
        raise ValueError("the recipe is no mapping of keys in lines of their own; write its `training` by hand")
    found = next((value for key, value in root.value if key.value == section), None)
    if found is None or (isinstance(found, yaml.ScalarNode) and not found.value):
        if found is not None:
            raise ValueError(f"`{section}` is empty; take the line out, and it is written anew")
        lines = "".join(f"  {key}: {_written(value)}\n" for key, value in values.items())
        return f"{text.rstrip()}\n\n{section}:\n{lines}"
    if not isinstance(found, yaml.MappingNode) or not found.value:
        raise ValueError(f"`{section}` is no mapping with keys; write it by hand")
    there = {key.value: value for key, value in found.value}
    changes = []
    for key, value in values.items():
        if key in there:
            node = there[key]
            if isinstance(node, yaml.CollectionNode) and not node.flow_style:
                raise ValueError(f"`{section}.{key}` has lines of its own; write it by hand")
            changes.append((node.start_mark.index, node.end_mark.index, _written(value)))
    new = {key: value for key, value in values.items() if key not in there}
    if new:
        last = found.value[-1][1].end_mark.index
        if found.flow_style:
            added = "".join(f", {key}: {_written(value)}" for key, value in new.items())
            changes.append((last, last, added))
        else:
            column = found.value[0][0].start_mark.column
            # behind the comment that the last value's line may end with
            end = text.find("\n", last) if "\n" not in text[last - 1 : last] else last - 1
            end = len(text) if end < 0 else end
            added = "".join(f"\n{' ' * column}{key}: {_written(value)}" for key, value in new.items())
            changes.append((end, end, added))
    for start, stop, put in sorted(changes, reverse=True):
        text = text[:start] + put + text[stop:]
    whole = yaml.safe_load(text)[section]
    if any(whole.get(key) != value for key, value in values.items()):
        raise ValueError(f"`{section}` cannot be changed in place; write it by hand")
    return text


def _written(value: Value) -> str:
    if value is None:
        return "null"
    return value if isinstance(value, str) and value.isidentifier() else json.dumps(value)
