#!/usr/bin/env bash
# Builds this program for arm64, which is PID 1 in guests of that architecture,
# and puts it beside the program of this machine as plumb-aarch64.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/common.sh
. scripts/common.sh

arm64=aarch64-unknown-linux-gnu
scripts/setup.sh build arm64
cargo build "${cargo_flags[@]}" --target "$arm64"
beside=$(dirname "$plumb")/plumb-aarch64
mkdir -p "$(dirname "$beside")"
# Not written over: guests may be starting from it.
cp "$target/$arm64/release/plumb" "$beside.new"
mv "$beside.new" "$beside"
echo "built: $beside"
