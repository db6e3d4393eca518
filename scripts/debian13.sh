#!/usr/bin/env bash
# Tests in a root of Debian 13, with its QEMU, its kernel and its tools: counting,
# comparing, tracing, sampling, and two hosts.
#
#   scripts/debian13.sh [NAME...]     NAME: as for scripts/tests.py
#   scripts/debian13.sh --prepare     only install there what they need
#
# As root, after `make test` or `cargo test --no-run` has built the tests: they and
# plumb are static, so what this machine built runs there. The root is the one that
# `scripts/setup.sh other-qemu` makes; its kernels and saved states stay in it.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh

tests=(
	netplumb/paths::veth
	netplumb/paths::virtio_net
	netplumb/diff::two_boots
	netplumb/trace::calls_in_packets
	netplumb/trace::calls_in_a_program
	netplumb/profile::known_shares
	netplumb/hosts::the_same_every_time
	netplumb/hosts::instructions_of_both
)
[ $# -eq 0 ] || tests=("$@")

# What runs within the root, in mounts of its own.
if [ "${PLUMB_TEST_ROOT-}" = inside ]; then
	scripts/setup.sh run guest-test
	scripts/kernel.sh
	scripts/packages.py
	[ "${1-}" != --prepare ] || exit 0
	exec scripts/tests.py "$target/tests.json" --ran "$target/debian13-ran" "${tests[@]}"
fi

die() {
	say "debian13: $*"
	exit 1
}
[ "$(id -u)" = 0 ] || die "it needs root, for chroot and mounts"
[ -s "$target/tests.json" ] || die "no tests were built: make test"
scripts/setup.sh other-qemu
other=${PLUMB_QEMU_OTHER:-${XDG_CACHE_HOME:-$HOME/.cache}/netplumb-other-qemu}
root=$(realpath "$other")/trixie
[ -d "$root" ] || die "no root of Debian 13 in $other: name another directory with \$PLUMB_QEMU_OTHER"

# The names of test programs in tests.json are absolute: the tree is at its own path.
here=$PWD
target=$(realpath "$target")
log=$target/debian13.log
unshare --mount bash -euo pipefail -c '
	root=$0 here=$1 target=$2
	shift 2
	mount --make-rprivate /
	# A mount point of its own, as / is: commands look for the mount that a path is on.
	mount --bind "$root" "$root"
	for folder in proc sys dev; do mount --rbind "/$folder" "$root/$folder"; done
	mount -t tmpfs tmpfs "$root/tmp"
	cp /etc/resolv.conf "$root/etc/resolv.conf"
	for folder in "$here" "$target"; do
		mkdir -p "$root$folder"
		mount --rbind "$folder" "$root$folder"
	done
	exec env -i HOME=/root LANG=C.UTF-8 CI="${CI-}" PLUMB_TEST_ROOT=inside CARGO_TARGET_DIR="$target" \
		PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
		chroot "$root" "$here/scripts/debian13.sh" "$@"
' "$root" "$here" "$target" "${tests[@]}" 2>&1 | tee "$log"

# The root has all that they need.
if grep -q 'skipped: ' "$log"; then
	die "some tests were skipped"
fi
