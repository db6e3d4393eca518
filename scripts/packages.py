#!/usr/bin/env python3
"""Check against apt the names of packages that Netplumb tells people to install.

    scripts/packages.py

Of scripts/setup.sh, of the README, and of what `plumb` prints: "apt-get install NAME" in the
sources, and the names that are put there. Names alone, since versions change by the day. Ends
with the names that this machine's lists of packages lack.
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
NAME = r"[a-z0-9][a-z0-9.+-]+"
# How sources name packages; each has to be found somewhere, or it is a pattern of nothing.
PATTERNS = [
    rf"apt-get install ((?:{NAME} ?)+)",
    rf"\bneed\(\"[^\"]+\", \"({NAME})\"\)",
    rf"\bTool::find\([^,]+, \"({NAME})\"\)",
    rf"Some\(\(\"mkfs[^\"]+\", \"({NAME})\"\)\)",
    r"fn qemu_package\(self\)([^}]+)",
]


def of_sources():
    """Package to the place that names it."""
    found = {}
    for pattern in PATTERNS:
        hits = 0
        for path in sorted(ROOT.glob("crates/*/src/**/*.rs")):
            if path.name == "tests.rs" or "tests" in path.parts or path.parts[-3] == "testkit":
                continue
            text = path.read_text().split("#[cfg(test)]\nmod tests")[0]
            for match in re.finditer(pattern, text):
                hits += 1
                names = re.findall(rf"\"({NAME})\"", match[1]) or match[1].split()
                for name in names:
                    found.setdefault(name, str(path.relative_to(ROOT)))
        if not hits:
            sys.exit(f"packages: nothing in crates/ is like {pattern}: has it moved?")
    return found


def of_setup():
    """Those of every group."""
    groups = ["build", "run", "test", "soak", "guest-test", "arm64", "x86-64", "other-qemu"]
    listed = subprocess.run(
        [ROOT / "scripts/setup.sh", "--list", *groups], stdout=subprocess.PIPE, text=True, check=True
    )
    return {name: "scripts/setup.sh" for name in listed.stdout.split()}


def of_readme():
    """Those in the rows of Debian."""
    rows = re.findall(r"^\| Debian.*$", (ROOT / "README.md").read_text(), re.MULTILINE)
    if not rows:
        sys.exit("packages: README.md has no row of Debian")
    return {name: "README.md" for row in rows for code in re.findall(r"`([^`]+)`", row) for name in code.split()}


def main():
    named = {**of_sources(), **of_setup(), **of_readme()}
    known = subprocess.run(
        ["apt-cache", "--no-all-versions", "show", *sorted(named)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=False,
    )
    known = set(re.findall(r"^Package: (\S+)$", known.stdout, re.MULTILINE))
    if not known:
        sys.exit("packages: apt knows none of them: apt-get update")
    missing = sorted(set(named) - known)
    for name in missing:
        print(f"no package {name}, which {named[name]} names")
    print(f"{len(named) - len(missing)} passed, {len(missing)} failed")
    sys.exit(bool(missing))


if __name__ == "__main__":
    main()
