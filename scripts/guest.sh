#!/usr/bin/env bash
# Builds this program for another architecture, where it is PID 1 in guests of it, and puts
# it beside the program of this machine: plumb-aarch64, plumb-x86_64.
#
#   scripts/guest.sh arm64|x86-64
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
	say "guests of $1 have the program of this machine: make build"
	exit
fi
triple=$machine-unknown-linux-gnu
if [ "$machine" = x86_64 ]; then
	# Not in .cargo/config.toml: on x86-64 it is the linker of build scripts as well, and any cc will do.
	export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER=x86_64-linux-gnu-gcc
fi
# What runs in an emulated guest is mostly its kernel; optimised, the program would take minutes more
# to compile.
CARGO_PROFILE_RELEASE_OPT_LEVEL=1 cargo build "${cargo_flags[@]}" --target "$triple"
beside=$plumb-$machine
mkdir -p "$(dirname "$beside")"
# Not written over: guests may be starting from it.
cp "$target/$triple/release/plumb" "$beside.new"
mv "$beside.new" "$beside"
echo "built: $beside"
