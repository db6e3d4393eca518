#!/usr/bin/env bash
# Fetches Debian's current kernel for the vm lab, unless there is one.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh

has_kernel && exit 0
"$plumb" kernel add debian && exit 0
# The list of packages may be missing, or older than the archive.
if [ "$(id -u)" = 0 ]; then
	update=(apt-get -q update)
elif [ -t 0 ] && command -v sudo >/dev/null; then
	update=(sudo apt-get -q update)
else
	say "if the package is not found: apt-get update as root, then plumb kernel add debian"
	exit 1
fi
say "once more, with the list of packages as it is now"
"${update[@]}" >&2
exec "$plumb" kernel add debian
