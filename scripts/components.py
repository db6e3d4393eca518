#!/usr/bin/env python3
"""Lists what plumb is linked with: licences in THIRD-PARTY.txt, a bill of materials in netplumb.cdx.json (CycloneDX 1.5).

    scripts/components.py FOLDER

Of crates, by `cargo metadata`, with the hashes of Cargo.lock; and of the page's packages, by web/package-lock.json.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tomllib

FOLDER = pathlib.Path(sys.argv[1])
TEXTS = re.compile(r"^(licen[cs]e|copying|unlicense|notice)([-._].*)?$", re.IGNORECASE)


def linked():
    """The packages that the program is linked with, without those that only build it or its tests."""
    packages, edges = {}, {}
    for triple in ("x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"):
        command = ["cargo", "metadata", "--format-version=1", "--locked", f"--filter-platform={triple}"]
        metadata = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        packages.update((package["id"], package) for package in metadata["packages"])
        for node in metadata["resolve"]["nodes"]:
            normal = [d["pkg"] for d in node["deps"] if any(kind["kind"] is None for kind in d["dep_kinds"])]
            edges.setdefault(node["id"], set()).update(normal)
    names = ("netplumb", "netplumb-agent")
    reached, todo = set(), [package["id"] for package in packages.values() if package["name"] in names]
    while todo:
        package = todo.pop()
        if package not in reached:
            reached.add(package)
            todo += edges[package]
    found = [packages[package] for package in reached if packages[package]["source"]]
    return sorted(found, key=lambda package: (package["name"], package["version"]))


def texts(folder):
    """The licence files of a package, and of the C libraries in folders of it."""
    folder = pathlib.Path(folder)
    for path in sorted([*folder.glob("*"), *folder.glob("*/*")]):
        if path.is_file() and TEXTS.match(path.name):
            yield str(path.relative_to(folder)), path.read_text(errors="replace").strip()


def carried(packages):
    """The page's packages: what it depends on but Vite, which builds it."""
    reached, todo = set(), [name for name in packages[""]["dependencies"] if name != "vite"]
    while todo:
        name = todo.pop()
        if name not in reached:
            reached.add(name)
            todo += packages[f"node_modules/{name}"].get("dependencies", {})
    return sorted(reached)


def main():
    lock = tomllib.loads(pathlib.Path("Cargo.lock").read_text())
    hashes = {(p["name"], p["version"]): p.get("checksum") for p in lock["package"]}
    out, components = [], []
    for package in linked():
        name, version = package["name"], package["version"]
        licence = package["license"] or "see its files"
        out.append(f"{'=' * 80}\n{name} {version}: {licence}\n{'=' * 80}\n")
        out += [f"--- {file}\n\n{text}\n" for file, text in texts(os.path.dirname(package["manifest_path"]))]
        components.append({
            "type": "library",
            "name": name,
            "version": version,
            "purl": f"pkg:cargo/{name}@{version}",
            "licenses": [{"expression": licence.replace("/", " OR ")}],
            "hashes": [{"alg": "SHA-256", "content": hashes[(name, version)]}],
        })
    page = json.loads(pathlib.Path("web/package-lock.json").read_text())
    for name in carried(page["packages"]):
        package = page["packages"][f"node_modules/{name}"]
        components.append({
            "type": "library",
            "name": name,
            "version": package["version"],
            "purl": f"pkg:npm/{name.replace('@', '%40')}@{package['version']}",
            "licenses": [{"license": {"id": package["license"]}}],
        })
    workspace = tomllib.loads(pathlib.Path("Cargo.toml").read_text())["workspace"]["package"]
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": "netplumb", "version": workspace["version"]}},
        "components": components,
    }
    (FOLDER / "THIRD-PARTY.txt").write_text("\n".join(out))
    (FOLDER / "netplumb.cdx.json").write_text(json.dumps(bill, indent=1) + "\n")
    print(f"components: {len(components)}")


main()
