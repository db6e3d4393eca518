#!/usr/bin/env bash
# Form and lints. Goes through all of them, then fails if one did.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh

failed=()
check() {
	local name=$1
	shift
	say "== $name"
	"$@" || failed+=("$name")
}

check "cargo fmt" cargo fmt --all --check
if command -v clang-format >/dev/null; then
	# Listed by git, so that what a build leaves about is not asked about.
	mapfile -t sources < <(git ls-files --cached --others --exclude-standard -- '*.c' '*.h')
	check "clang-format" clang-format --dry-run -Werror "${sources[@]}"
else
	say "skipped: clang-format is not installed (apt-get install clang-format)"
fi
check "cargo clippy" cargo clippy "${cargo_flags[@]}" --workspace --all-targets -- -D warnings
# Links to what is not there, and what is no Markdown.
check "cargo doc" env RUSTDOCFLAGS=-Dwarnings \
	cargo doc "${cargo_flags[@]}" --workspace --no-deps --document-private-items

# The page's own checks are with its packages, in a copy of it.
lock_hosts() {
	! grep '"resolved":' web/package-lock.json | grep -v '"https://registry\.npmjs\.org/'
}
check "web/package-lock.json: packages of registry.npmjs.org only" lock_hosts
web_check() {
	web/build.sh "$target/web" --with-tests && npm --prefix "$target/web" run --silent check
}
check "tsc" web_check
check "docs/compatibility.md" scripts/compatibility.py --check
check "ARCHITECTURE.md: crates" scripts/crates.py --check
check "circles of imports" scripts/circles.py
check "phrases (STYLE.md)" scripts/phrases.sh
# Of what tests alone depend on, a feature can change the arithmetic of what the program is linked with, too.
resolved() {
	cargo tree --locked --prefix none --format '{p} {f}' "$@" | sed 's/ (\*)$//' | sort -u
}
same_features() {
	! comm -23 <(resolved -p netplumb -p netplumb-agent -e normal) <(resolved --workspace -e normal,dev) | grep .
}
check "features of dependencies: the same in builds and tests" same_features

# The tool that checks licences takes minutes to compile.
if [ -n "${CI-}" ] || [ -x "$target/tools/bin/cargo-deny" ]; then
	check "licences" make --no-print-directory deny
else
	say "licences are not checked: make deny"
fi

if [ ${#failed[@]} -gt 0 ]; then
	printf 'lint: failed: %s\n' "${failed[@]}" >&2
	exit 1
fi
