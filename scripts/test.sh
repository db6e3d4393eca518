#!/usr/bin/env bash
# Every test: lints, units, those that need root and those that boot a guest.
#
#   scripts/test.sh [--build]     --build: only compile what is built for this machine
#
# A test that can't run here writes "skipped: why" to the standard error and
# passes. Why it will be so is said before, and how many did is said at the end.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh

log=$target/test.log
failed=()

build_tests
[ "${1-}" != --build ] || exit 0

# Guests of arm64 need the agent built for them, and tests the program.
if [ "$(uname -m)" = aarch64 ]; then
	:
elif ! command -v aarch64-linux-gnu-gcc >/dev/null || ! command -v qemu-system-aarch64 >/dev/null; then
	say "no cross compiler or no QEMU for arm64: tests with its guests are skipped (scripts/setup.sh arm64)"
elif ! scripts/guest.sh arm64 --whole; then
	failed+=("the program for arm64")
fi

if [ "$(id -u)" != 0 ]; then
	say "not root: tests that make network namespaces or load BPF programs are skipped"
fi
if ! command -v "${PLUMB_QEMU:-qemu-system-$(uname -m)}" >/dev/null; then
	say "no QEMU: tests that boot a guest are skipped (scripts/setup.sh run)"
elif ! scripts/kernel.sh; then
	say "no kernel: tests that boot a guest are skipped (plumb kernel add debian)"
fi

# Lints take minutes of CPU time and wait for nothing, tests wait for guests and timeouts: together they take less.
scripts/tests.py "$built" --times "$target/test-times" --ran "$target/test-ran" --beside scripts/lint.sh 2>&1 |
	tee "$log" || failed+=("tests or lints")

# The HTML page: its figures in Node.js, its behaviour in a browser.
web_tests() {
	local unit=0
	web/build.sh "$target/web" --with-tests || return
	npm --prefix "$target/web" run --silent unit || unit=1
	if [ -n "$(cd "$target/web" && node scripts/chromium.mjs)" ]; then
		npm --prefix "$target/web" run --silent browser
	else
		echo "skipped: the HTML page in a browser: no chromium (apt-get install chromium)"
	fi && return "$unit"
}
web_tests 2>&1 | tee -a "$log" || failed+=("tests of the HTML page")

echo "the slowest tests:"
head -n 10 "$target/test-times"

# Not at the start of a line: the harness may have begun one.
skips() { grep -o 'skipped: .*' "$log" || true; }
skipped=$(skips | wc -l)
awk -v skipped="$skipped" '
	/^test result: / {
		binaries++
		for (i = 1; i < NF; i++) {
			if ($(i + 1) ~ /^passed/) passed += $i
			if ($(i + 1) ~ /^failed/) failed += $i
			if ($(i + 1) ~ /^ignored/) ignored += $i
		}
	}
	# A run of Node.js.
	/^# (pass|fail) [0-9]+$/ {
		if ($2 == "pass") { binaries++; passed += $3 } else failed += $3
	}
	END {
		printf "test result: %s. %d passed; %d failed; %d ignored; %d skipped; in %d binaries\n",
			failed || !passed ? "FAILED" : "ok", passed, failed, ignored, skipped, binaries
	}' "$log" | tee "$target/test-result"
# Which they were, so that nobody takes a skipped test for a passed one.
skips | sort | uniq -c

if [ ${#failed[@]} -gt 0 ]; then
	printf 'failed: %s\n' "${failed[@]}" >&2
	exit 1
fi
