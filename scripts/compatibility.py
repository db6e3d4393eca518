#!/usr/bin/env python3
"""Keep what tests ran on, and make the table of docs/compatibility.md from it.

    scripts/compatibility.py RAN...     add what `scripts/tests.py --ran` wrote
    scripts/compatibility.py --check    fail if the page is not what the table says

The table is docs/compatibility.tsv: a line for each system, QEMU, guest's kernel,
architecture, lab and instrument that a test passed with, and the day of the last time.
"""

import collections
import datetime
import os
import sys

TABLE = "docs/compatibility.tsv"
PAGE = "docs/compatibility.md"
BEGIN, END = "<!-- tests ran on: begin -->\n", "<!-- tests ran on: end -->\n"
# The version of the plugin interface of each QEMU, from its include/qemu/qemu-plugin.h.
PLUGIN_API = {"7.2": 1, "8.0": 1, "8.1": 1, "8.2": 1, "9.0": 2, "9.1": 3, "9.2": 4, "10.0": 4, "11.1": 7}
LABS = {"vm": "guests", "netns": "namespaces", "": "the machine"}


def read(path):
    """The lines of the table: their keys, and when each last passed."""
    if not os.path.exists(path):
        return {}
    rows = (line.rstrip("\n").split("\t") for line in open(path))
    return {tuple(row[:-1]): row[-1] for row in rows}


def numbers(text):
    """To sort versions by."""
    parts = "".join(c if c.isdigit() else " " for c in text).split()
    return [int(part) for part in parts], text


def table(rows):
    """The table as Markdown: a row for each system, QEMU, kernel and architecture."""
    groups = collections.defaultdict(lambda: (set(), set()))
    for (system, qemu, kernel, arch, lab, instrument), day in rows.items():
        what, days = groups[system, qemu, kernel, arch]
        what.add((LABS.get(lab, lab), instrument or "?"))
        days.add(day)
    out = "| system | QEMU (plugin interface) | kernel | architecture | what | last |\n"
    out += "|---|---|---|---|---|---|\n"
    order = sorted(groups.items(), key=lambda item: [numbers(part) for part in item[0]])
    for (system, qemu, kernel, arch), (what, days) in order:
        api = PLUGIN_API.get(".".join(qemu.split(".")[:2]))
        name = f"{qemu} ({api or 'unknown'})" if qemu else "-"
        labs = collections.defaultdict(list)
        for lab, instrument in sorted(what):
            labs[lab].append(f"`{instrument}`")
        said = "; ".join(f"{lab}: {', '.join(all)}" for lab, all in labs.items())
        out += f"| {system} | {name} | {kernel} | {arch} | {said} | {max(days)} |\n"
    return out


def main(args):
    rows = read(TABLE)
    for path in args:
        if path == "--check":
            continue
        day = datetime.date.fromtimestamp(os.path.getmtime(path)).isoformat()
        for line in open(path):
            rows[tuple(line.rstrip("\n").split("\t"))] = day
    page = open(PAGE).read()
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    made = f"{before}{BEGIN}\n{table(rows)}\n{END}{after}"
    if "--check" in args:
        if made != page:
            sys.exit(f"{PAGE} is not what {TABLE} says: scripts/compatibility.py")
        return
    with open(TABLE, "w") as file:
        file.writelines("\t".join([*key, day]) + "\n" for key, day in sorted(rows.items()))
    with open(PAGE, "w") as file:
        file.write(made)


if __name__ == "__main__":
    os.chdir(os.path.join(os.path.dirname(__file__), ".."))
    main(sys.argv[1:])
