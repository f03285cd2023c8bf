"""Seeded programs, whose lines have what breaks: indentation, blank lines, numbers alone, markup, aligned columns."""

import random

_NAMES = (
    "alpha beta count delta entry field group height index joint kernel label margin node offset parent queue".split()
)
LANGUAGES = ("python", "javascript", "c", "bash", "html", "json", "yaml", "text", "pycon", "make")


def program(draw: random.Random, language: str, comment: str) -> tuple[str, ...]:
    """Lines without trailing spaces; the first and the last are not blank. `make` has tabs."""
    a, b, c, d = draw.sample(_NAMES, 4)
    m, n = draw.randint(1, 9), draw.randint(10, 999)
    return tuple(_TEMPLATES[language].format(a=a, b=b, c=c, d=d, m=m, n=n, said=comment).strip("\n").split("\n"))


_TEMPLATES = {
    "python": '''
def {a}({b}, *, {c}={n}):
    """Return {a} of {b}."""
    if {b} < {m} and {c} > {n}:
        return [{b} * 2 ** i for i in range({m})]

    # {said}
    {d} = {{"{a}": {m}, "{b} | {c}": "<b>&amp;</b>"}}
    for key,   value in {d}.items():
        print(f"{{key}}: {{value}}")


    return {d}[{c}]
''',
    "javascript": """
function {a}({b}, {c}) {{
  const {d} = `${{ {b} }} * {n}`;
  if ({b} < {c} && {c} > {m}) {{
    return {{ {a}: {m}, {b}: [{n}, {m}] }};
  }}

  // {said}
  return {d}.map((x) => x ** 2);
}}
""",
    "c": """
#include <stdio.h>

#define {a}       {n}
#define {b}_LONG  {m}

int main(void)
{{
    int *{c} = &{d}[{m}];    /* {said} */
    for (int i = 0; i < {n}; i++)
        if (!({c}[i] & 1))
            printf("%d\\n", {c}[i]);
    return 0;
}}
""",
    "bash": """
# {said}
for {a} in *.txt; do
    cat "${a}" | grep -v '^{b}' > {c}.out
    [ "$?" -eq 0 ] || exit {m}
done

export {d}="{n}"
""",
    "html": """
<ul class="{a}">
  <li><a href="/{b}?x={m}&amp;y={n}">{c}</a></li>

  <!-- {said} -->
  <li>{d}</li>
</ul>
""",
    "json": """
{{
  "{a}": [
    {m},
    {n}
  ],
  "{b}": {{"{c}": null, "{d}": true}}
}}
""",
    "yaml": """
{a}:
  - {b}: {m}
    {c}: "{n}"

  - {d}: |
      # {said}
      * {a}
""",
    "text": """
{a}      {b}    {c}
-----    ---    ---
{n}      {m}    {d}

1
2
{n}
    1. {a}
  | {b} | {c} |
""",
    "pycon": """
>>> {a} = [{m}, {n}]
>>> for {b} in {a}:
...     print({b})
...
{m}
{n}
>>> {a}[0] < {n}
True
""",
    "make": """
{a}: {b}.c {c}.h
	$(CC) -o $@ $<

.PHONY: {d}
{d}:
	rm -f *.o {a}
	@echo "{n}"
""",
}
