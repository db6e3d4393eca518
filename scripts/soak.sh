#!/usr/bin/env bash
# The tests that repeat what they do, many times over: the same against the same, which
# may differ in one try of twenty, and kills at random moments. Takes most of an hour;
# PLUMB_TRIES and PLUMB_KILLS say how often.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh

built=$target/tests.json
mkdir -p "$target"
cargo test "${cargo_flags[@]}" --workspace --no-run \
	--message-format=json-render-diagnostics >"$built"
scripts/kernel.sh
PLUMB_TRIES=${PLUMB_TRIES:-20} PLUMB_KILLS=${PLUMB_KILLS:-200} \
	scripts/tests.py "$built" --soak 2>&1 | tee "$target/soak.log"
# Whoever asks for all of it has to get it.
! grep "skipped: " "$target/soak.log" >&2
