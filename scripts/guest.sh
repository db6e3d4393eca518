#!/usr/bin/env bash
# Builds the agent, PID 1 of guests, for another architecture, and puts it beside plumb
# (plumb-agent-aarch64, plumb-agent-x86_64), where it is looked for. With --whole also plumb for machines
# of that architecture: plumb-aarch64, plumb-x86_64.
#
#   scripts/guest.sh arm64|x86-64 [--whole]
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/common.sh
. scripts/common.sh

case ${1-} in
arm64) machine=aarch64 ;;
x86-64) machine=x86_64 ;;
*) say "say for which architecture: arm64, x86-64" && exit 2 ;;
esac
scripts/setup.sh build "$1"
if [ "$machine" = "$(uname -m)" ]; then
	say "guests of $1 are those of this machine: make build"
	exit
fi
triple=$machine-unknown-linux-gnu
if [ "$machine" = x86_64 ]; then
	# Not in .cargo/config.toml: on x86-64 it is the linker of build scripts as well, and any cc will do.
	export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER=x86_64-linux-gnu-gcc
fi
# What runs in an emulated guest is mostly its kernel, and plumb for that machine runs in tests: optimised, they would
# take minutes more to compile.
export CARGO_PROFILE_RELEASE_OPT_LEVEL=1
packages=(--package netplumb-agent)
programs=(plumb-agent)
if [ "${2-}" = --whole ]; then
	packages+=(--package netplumb)
	programs+=(plumb)
	for crate in netplumb netplumb-engine netplumb-import netplumb-report netplumb-store; do
		packages+=(--config "profile.release.package.$crate.opt-level=0")
	done
fi
cargo build "${cargo_flags[@]}" --target "$triple" "${packages[@]}"
mkdir -p "$(dirname "$plumb")"
for program in "${programs[@]}"; do
	beside=$(dirname "$plumb")/$program-$machine
	# Not written over: guests may be starting from it.
	cp "$target/$triple/release/$program" "$beside.new"
	mv "$beside.new" "$beside"
	echo "built: $beside"
done
