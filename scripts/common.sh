# Sourced by the scripts beside it, which run at the root of the repository.
# shellcheck shell=bash

export PATH="${CARGO_HOME:-${HOME:=/root}/.cargo}/bin:$PATH"

# Of this machine, whatever .cargo/config.toml names.
export CARGO_BUILD_TARGET=${CARGO_BUILD_TARGET:-$(uname -m)-unknown-linux-gnu}
target=${CARGO_TARGET_DIR:-target}
plumb=$target/$CARGO_BUILD_TARGET/release/plumb

# Everything is compiled in the release profile, so that it is compiled once:
# the C libraries alone take minutes.
# shellcheck disable=SC2034 # For those who source this.
cargo_flags=(--release --locked)

# Compile every test, and the program along with them; what cargo built is listed in target/tests.json, what it took in
# target/cargo-timings.
# shellcheck disable=SC2034 # For those who source this.
built=$target/tests.json
build_tests() {
	mkdir -p "$target"
	RUSTC_WRAPPER=$PWD/scripts/rustc-tests.sh cargo test "${cargo_flags[@]}" --workspace --no-run --timings \
		--message-format=json-render-diagnostics >"$built"
}

say() { printf '%s\n' "$*" >&2; }

has_kernel() { "$plumb" kernel show debian >/dev/null 2>&1; }
