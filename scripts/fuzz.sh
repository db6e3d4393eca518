#!/usr/bin/env bash
# Fuzz parsers with coverage (libFuzzer), each target of crates/fuzz for so many seconds and one on each CPU. New inputs go to
# target/fuzz/corpus, crashing ones to target/fuzz/crashes; `--keep` puts the smallest corpus with the same coverage into the
# tree. Prints the executions of each target, and the edges that were covered of those that there are.
#
#   scripts/fuzz.sh [--keep] [SECONDS [TARGET...]]
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh

keep=false
[ "${1-}" != --keep ] || { keep=true && shift; }
seconds=${1:-60}
[ $# -eq 0 ] || shift
work=$(mkdir -p "$target/fuzz" && cd "$target/fuzz" && pwd)
triple=$(uname -m)-unknown-linux-gnu
# What cargo-fuzz passes, without a sanitizer, which needs a nightly compiler: panics, overflows, hangs and memory are found
# without one, and there is no unsafe code in parsers.
coverage="-Coverflow-checks=on -Cdebug-assertions=on -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing"
CARGO_TARGET_DIR=$work/build RUSTFLAGS=$coverage \
	cargo build --release --locked -p netplumb-fuzz --features libfuzzer --target "$triple"
fuzzer=$work/build/$triple/release/fuzzer
names=("$@")
[ $# -gt 0 ] || mapfile -t names < <(sed -n 's/^    target("\([a-z-]*\)".*/\1/p' crates/fuzz/src/lib.rs)

fuzz() {
	name=$1
	export PLUMB_FUZZ=$name
	corpus=$work/corpus/$name
	kept=$PWD/crates/fuzz/corpus/$name
	log=$work/$name.log
	mkdir -p "$corpus" "$kept" "$work/crashes"
	failed=
	"$fuzzer" -max_total_time="$seconds" -rss_limit_mb=2048 -timeout=10 -max_len=65536 \
		-artifact_prefix="$work/crashes/$name-" -print_final_stats=1 "$corpus" "$kept" >"$log" 2>&1 || failed='  CRASHED'
	runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
	edges=$(grep -oE 'cov: [0-9]+' "$log" | tail -1)
	all=$(sed -n 's/.*Loaded 1 PC tables (\([0-9]*\) PCs).*/\1/p' "$log")
	printf '%-12s %12s runs %8s edges of %s%s\n' "$name" "${runs:-0}" "${edges#cov: }" "${all:-0}" "$failed"
	if $keep; then
		smallest=$(mktemp -d -p "$work")
		"$fuzzer" -set_cover_merge=1 -max_len=65536 "$smallest" "$kept" "$corpus" >>"$log" 2>&1
		# A corpus in the tree is a memory of crashes and a start, not a store: 64 KiB, in the inputs that do most.
		find "$smallest" -type f -printf '%s %p\n' | sort -rn | awk '(sum += $1) < 65536 { print $2 }' | head -n 60 |
			xargs -r cp -t "$kept"
		rm -r "$smallest"
	fi
	[ -z "$failed" ]
}
export -f fuzz
export work seconds fuzzer keep
printf '%s\n' "${names[@]}" | xargs -P "$(nproc)" -I{} bash -c 'fuzz {}' ||
	{ say "fuzz: a target crashed; its input is in $work/crashes" && exit 1; }
