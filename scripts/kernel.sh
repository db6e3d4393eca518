#!/usr/bin/env bash
# Fetches Debian's current kernel for the vm lab, unless there is one.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh

has_kernel || exec "$plumb" kernel add debian
