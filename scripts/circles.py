#!/usr/bin/env python3
"""Fail if source files of a crate import each other in a circle.

    scripts/circles.py

An import is a `use` of something in another file of the crate, outside of tests. A module and
the modules below it may know each other.
"""

import os
import re
import sys


def modules(src):
    """The files of a crate by the path of their module: ("diff", "blocks")."""
    found = {}
    for folder, _, names in os.walk(src):
        for name in names:
            path = os.path.join(folder, name)
            parts = os.path.relpath(path, src)[: -len(".rs")].split(os.sep)
            if name.endswith(".rs") and "tests" not in parts:
                found[tuple(p for p in parts if p not in ("lib", "main", "mod"))] = path
    return found


def expanded(tree):
    """The paths of a `use`: `a::{b, c::d}` is `a::b` and `a::c::d`."""
    head, brace, rest = tree.partition("{")
    if not brace:
        yield [part for part in tree.split(" as ")[0].split("::") if part]
        return
    depth, begin = 0, 0
    inside = rest[: rest.rindex("}")] + ","
    for at, letter in enumerate(inside):
        depth += (letter == "{") - (letter == "}")
        if letter == "," and depth == 0:
            if item := inside[begin:at].strip():
                for path in expanded(item):
                    yield [part for part in head.split("::") if part] + path
            begin = at + 1


def imports(module, text, known):
    """The modules of which a file uses something."""
    text = re.sub(r"//.*", "", text).split("#[cfg(test)]\nmod ")[0]
    for tree in re.findall(r"^\s*(?:pub(?:\([^)]*\))? )?use ([^;]+);", text, re.MULTILINE):
        for path in expanded(" ".join(tree.split())):
            at = list(module)
            if path[0] == "crate":
                at, path = [], path[1:]
            while path and path[0] in ("self", "super"):
                at = at[:-1] if path[0] == "super" else at
                path = path[1:]
            whole = tuple(at + path)
            while whole and whole not in known:
                whole = whole[:-1]
            shorter = min(len(whole), len(module))
            if whole and whole[:shorter] != module[:shorter]:
                yield whole


def circles(edges):
    """Modules that reach each other."""
    reached = {}
    for begin in edges:
        seen, left = set(), [begin]
        while left:
            for other in edges.get(left.pop(), ()):
                if other not in seen:
                    seen.add(other)
                    left.append(other)
        reached[begin] = seen
    return {
        tuple(sorted(b for b in reached[a] if a in reached.get(b, ())))
        for a in edges
        if a in reached[a]
    }


def main():
    failed = False
    for crate in sorted(os.listdir("crates")):
        known = modules(os.path.join("crates", crate, "src"))
        edges = {m: set(imports(m, open(path).read(), known)) for m, path in known.items()}
        for circle in circles(edges):
            print(f"{crate}: import each other: {', '.join('::'.join(m) for m in circle)}")
            failed = True
    sys.exit(failed)


if __name__ == "__main__":
    os.chdir(os.path.join(os.path.dirname(__file__), ".."))
    main()
