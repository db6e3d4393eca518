#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Draw the crates of the workspace in ARCHITECTURE.md, from Cargo's metadata.

    scripts/crates.py           write the graph
    scripts/crates.py --check   fail if the graph in the file is another one

An arrow is a normal dependency; dependencies of builds and of tests are left out, and so
are arrows that others imply.
"""

import json
import os
import subprocess
import sys

PAGE = "ARCHITECTURE.md"
BEGIN, END = "<!-- crates: begin -->\n", "<!-- crates: end -->\n"
METADATA = ["cargo", "metadata", "--format-version", "1", "--locked", "--no-deps"]


def dependencies():
    """The normal dependencies of each member on others; members go by their directories."""
    packages = json.loads(subprocess.check_output(METADATA))["packages"]
    members = {p["name"]: os.path.basename(os.path.dirname(p["manifest_path"])) for p in packages}
    # Of kind `null`; others are "dev" and "build".
    return {
        members[package["name"]]: {
            members[d["name"]]
            for d in package["dependencies"]
            if d["kind"] is None and d["name"] in members
        }
        for package in packages
    }


def reachable(graph, start):
    """All that a member depends on, directly or not. Cargo refuses cycles."""
    return graph[start].union(*(reachable(graph, each) for each in graph[start]))


def reduced(graph):
    """The graph without edges that others imply: its transitive reduction."""
    return {
        member: direct.difference(*(reachable(graph, each) for each in direct))
        for member, direct in graph.items()
    }


def drawing(graph):
    """The graph as a block of Mermaid."""
    lines = "".join(
        f"    {member} --> {' & '.join(sorted(direct))}\n"
        for member, direct in sorted(graph.items())
        if direct
    )
    return f"```mermaid\ngraph TD\n{lines}```\n"


def main(args):
    if args not in ([], ["--check"]):
        sys.exit(__doc__)
    with open(PAGE) as file:
        page = file.read()
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    made = f"{before}{BEGIN}{drawing(reduced(dependencies()))}{END}{after}"
    if args:
        if made != page:
            sys.exit(f"{PAGE} does not show the crates as they are: run scripts/crates.py")
        return
    with open(PAGE, "w") as file:
        file.write(made)


if __name__ == "__main__":
    os.chdir(os.path.join(os.path.dirname(__file__), ".."))
    main(sys.argv[1:])
