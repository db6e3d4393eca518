#!/bin/sh
# Builds the page: one HTML file, without data.
#
#   web/build.sh FOLDER [--with-tests]
#
# Sources and packages are copied to FOLDER, and FOLDER/dist/index.html is what
# comes of them; nothing is written beside the sources. What is up to date is
# left alone. With --with-tests, the tests and what they need are there too.
set -eu
from=$(cd "$(dirname "$0")" && pwd)
[ $# -ge 1 ] || { echo "say into which folder" >&2; exit 2; }
mkdir -p "$1"
to=$(cd "$1" && pwd)
omit=--omit=dev
[ "${2-}" != --with-tests ] || omit=

say() { printf 'the HTML page: %s\n' "$*" >&2; }

major=$(node -p 'process.versions.node.split(".")[0]' 2>/dev/null || echo 0)
if [ "$major" -lt 18 ] || ! command -v npm >/dev/null; then
	say "it is built with Node.js 18 or later, and npm, and they are not here"
	say "install them (as root: apt-get install nodejs npm), or run: make setup"
	exit 1
fi

inputs() {
	cd "$from"
	find build.sh index.html package.json package-lock.json .npmrc vite.config.js src -type f |
		LC_ALL=C sort | xargs sha256sum
}
want=$(inputs)
if [ -z "$omit" ]; then
	rm -rf "$to/tests" "$to/scripts" "$to/testdata"
	(cd "$from" && cp -R tests scripts tsconfig.json "$to/")
	# The goldens of Rust: what it writes is what is read here.
	mkdir "$to/testdata"
	cp "$from"/../crates/report/testdata/page*.json "$to/testdata/"
fi
page=$to/dist/index.html
if [ -f "$page" ] && [ "$want" = "$(cat "$to/.built" 2>/dev/null)" ] &&
	{ [ -n "$omit" ] || [ -f "$to/.with-tests" ]; }; then
	exit 0
fi

rm -rf "$to/src" "$to/.built"
(cd "$from" && cp -R index.html package.json package-lock.json .npmrc vite.config.js src "$to/")
lock=$(cat "$to/package.json" "$to/package-lock.json" | sha256sum)
if [ "$lock" != "$(cat "$to/.installed" 2>/dev/null)" ] ||
	{ [ -z "$omit" ] && [ ! -f "$to/.with-tests" ]; }; then
	rm -f "$to/.installed" "$to/.with-tests"
	# shellcheck disable=SC2086 # Nothing, if it is empty.
	if ! (cd "$to" && npm ci $omit --ignore-scripts --no-audit --no-fund --loglevel=error >&2); then
		say "npm ci failed: its packages are fetched from registry.npmjs.org; is that within reach?"
		exit 1
	fi
	echo "$lock" >"$to/.installed"
	[ -n "$omit" ] || : >"$to/.with-tests"
fi
if ! (cd "$to" && npm run --silent build >&2); then
	say "it does not build; the reason is above"
	exit 1
fi
printf '%s\n' "$want" >"$to/.built"
