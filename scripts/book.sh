#!/usr/bin/env bash
# The documents as a searchable book, in target/book: docs/index.html there, beside what they link to outside of docs.
# Fails if a page has a link that leads nowhere.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh

book=$target/book
tools=$(mkdir -p "$target/tools" && cd "$target/tools" && pwd)
export PATH=$tools/bin:$PATH
command -v mdbook >/dev/null ||
	CARGO_PROFILE_DEV_DEBUG=0 cargo install mdbook --version 0.5.4 --locked --debug \
		--no-default-features --features search --root "$tools" --target-dir "$tools/build"
rm -rf "$book"
mkdir -p "$book"
mdbook build docs --dest-dir "$(cd "$book" && pwd)/docs"
git ls-files -- '*.md' ':!docs' experiments crates/kernel/rules crates/store/src/schema.sql plugins/qemu/exact.h |
	xargs cp --parents -t "$book"
# mdBook takes every link to a .md for one of its pages.
find "$book/docs" -name '*.html' -print0 |
	xargs -0 sed -i -E 's#href="((\.\./)+(LICENSES/README|SECURITY))\.html#href="\1.md#g'

python3 - "$book" <<'PYTHON'
import html.parser, os, sys, urllib.parse

class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.links, self.ids = [], set()

    def handle_starttag(self, tag, attributes):
        of = dict(attributes)
        self.ids.update(filter(None, (of.get("id"), of.get("name"))))
        self.links += filter(None, (of.get("href"), of.get("src")))

pages = {}
for folder, _, files in os.walk(os.path.join(sys.argv[1], "docs")):
    for name in files:
        if name.endswith(".html"):
            page = pages[os.path.join(folder, name)] = Page()
            page.feed(open(os.path.join(folder, name)).read())
broken = []
for path, page in pages.items():
    # The one page for print joins all others, whose relative links it keeps.
    if os.path.basename(path) in ("print.html", "toc.html", "404.html"):
        continue
    for link in page.links:
        url = urllib.parse.urlsplit(link)
        if url.scheme or url.netloc:
            continue
        file = os.path.normpath(os.path.join(os.path.dirname(path), urllib.parse.unquote(url.path))) if url.path else path
        if not os.path.exists(file):
            broken.append(f"{path}: {link}")
        elif url.fragment and file in pages and urllib.parse.unquote(url.fragment) not in pages[file].ids:
            broken.append(f"{path}: {link}: no such heading")
print("\n".join(broken))
print(f"book: {len(pages)} pages, {len(broken)} broken links")
sys.exit(bool(broken) or not pages)
PYTHON
echo "built: $book/docs/index.html"
