#!/usr/bin/env bash
# The tests that repeat what they do, many times over: the same against the same, which
# may differ in one try of twenty, and kills at random moments. Takes most of an hour;
# PLUMB_TRIES and PLUMB_KILLS say how often.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh

build_tests
scripts/kernel.sh
# Draws folded stacks. As a dependency of tests it would have most crates compiled once more
# for them, with other features.
tools=$(mkdir -p "$target/tools" && cd "$target/tools" && pwd)
export PATH=$tools/bin:$PATH
command -v inferno-flamegraph >/dev/null ||
	CARGO_PROFILE_DEV_DEBUG=0 cargo install inferno --version 0.12.8 --locked --debug \
		--root "$tools" --target-dir "$tools/build"
export PLUMB_TRIES=${PLUMB_TRIES:-20} PLUMB_KILLS=${PLUMB_KILLS:-200}
scripts/tests.py "$built" --soak 2>&1 | tee "$target/soak.log"
# Runs of every kind, each killed many times.
[ "$(id -u)" != 0 ] || scripts/kills.py "$plumb" $((PLUMB_KILLS * 5))
# Whoever asks for all of it has to get it.
! grep "skipped: " "$target/soak.log" >&2
