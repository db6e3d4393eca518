#!/usr/bin/env bash
# Installs the package of target/dist in bare roots of Debian 12 and 13, and tries it there: the first command, an upgrade
# to itself, and that purging it leaves nothing. As root, for debootstrap and chroot.
#
#   scripts/dist-test.sh [SUITE...]
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh

suites=("$@")
[ $# -gt 0 ] || suites=(bookworm trixie)
architecture=$(dpkg --print-architecture)
deb=$(ls "$target"/dist/netplumb_*_"$architecture".deb)
lintian --fail-on error,warning "$deb"
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
for suite in "${suites[@]}"; do
	root=$(mktemp -d -p "${TMPDIR:-/var/tmp}" netplumb-dist.XXXXXX)
	# apt downloads as a user of its own.
	chmod 755 "$root"
	trap 'rm -rf --one-file-system "$root"' EXIT
	debootstrap --variant=minbase "$suite" "$root" "$mirror" >"$target/dist-$suite.log"
	cp "$deb" "$root/netplumb.deb"
	cp /etc/resolv.conf "$root/etc/resolv.conf"
	cat >"$root/try" <<-'TRY'
		set -eu
		export DEBIAN_FRONTEND=noninteractive
		apt-get update -qq
		find / -xdev -type f | sort >/tmp/before
		begun=$(date +%s)
		apt-get install -y -qq --no-install-recommends ./netplumb.deb >/dev/null
		installed=$(date +%s)
		plumb --version
		plumb doctor >/dev/null || [ $? -eq 3 ]
		plumb kernel add debian
		plumb path -o /root/x.plumb | grep 'instructions per packet'
		echo "installed in $((installed - begun)) s, and a packet's cost after $(($(date +%s) - installed)) s more"
		plumb report /root/x.plumb --html /root/x.html
		test "$(plumb path --help | wc -l)" -gt 50
		test -s /usr/share/man/man1/plumb.1.gz
		apt-get install -y -qq --reinstall ./netplumb.deb >/dev/null
		apt-get purge -y -qq netplumb >/dev/null
		find / -xdev -type f | grep -i plumb | grep -v -e '^/root/' -e '^/netplumb.deb$' -e '^/var/log/' \
			-e '^/var/cache/apt/' >/tmp/left || true
		cat /tmp/left
		test ! -s /tmp/left
	TRY
	say "dist-test: $suite"
	unshare --mount bash -euo pipefail -c '
		mount --make-rprivate /
		mount --bind "$0" "$0"
		for folder in proc sys dev; do mount --rbind "/$folder" "$0/$folder"; done
		exec env -i HOME=/root LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot "$0" sh /try
	' "$root"
	rm -rf --one-file-system "$root"
	trap - EXIT
done
say "dist-test: passed"
