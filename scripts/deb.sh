#!/usr/bin/env bash
# Makes a package for Debian of an installed tree. dist.sh calls it.
#
#   scripts/deb.sh TREE MACHINE VERSION COMMIT FOLDER
set -euo pipefail
cd "$(dirname "$0")/.."
tree=$1 machine=$2 version=$3 commit=$4 folder=$5
case $machine in
x86_64) architecture=amd64 qemu=qemu-system-x86 other=qemu-system-arm ;;
aarch64) architecture=arm64 qemu=qemu-system-arm other=qemu-system-x86 ;;
esac
# Before the release that has this version's tag.
if ! git describe --exact-match --match "v$version" >/dev/null 2>&1; then
	version=$version~git$(TZ=UTC git log -1 --format=%cd --date=format-local:%Y%m%d.%H%M).$commit
fi
# Who made the commit made the package; the release's names who releases.
maintainer=$(git log -1 --format='%cn <%ce>')
date=$(date -u -R -d "@$SOURCE_DATE_EPOCH")

package=$tree.deb
rm -rf "$package"
cp -a "$tree" "$package"
doc=$package/usr/share/doc/netplumb
mkdir -p "$package/DEBIAN" "$package/usr/share/lintian/overrides"
gzip -n9 "$doc/CHANGELOG.md" && mv "$doc/CHANGELOG.md.gz" "$doc/changelog.gz"
cat >"$doc/changelog.Debian" <<-TEXT
	netplumb ($version) unstable; urgency=medium

	  * See /usr/share/doc/netplumb/changelog.gz.

	 -- $maintainer  $date
TEXT
gzip -n9 "$doc/changelog.Debian"
cat >"$doc/copyright" <<-TEXT
	Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
	Upstream-Name: Netplumb
	Comment: The licences of all that plumb is linked with are in THIRD-PARTY.txt.

	Files: *
	Copyright: 2026 The Netplumb authors
	License: MIT or Apache-2.0

	Files: plugins/qemu/* *.bpf.c
	Copyright: 2026 The Netplumb authors
	License: GPL-2.0-or-later
	 On Debian systems the text is in /usr/share/common-licenses/GPL-2.

	License: MIT or Apache-2.0
	 On Debian systems the text of Apache-2.0 is in /usr/share/common-licenses/Apache-2.0.
	 That of MIT:
	 .
$(sed 's/^$/./; s/^/	 /' LICENSES/MIT.txt)
TEXT
# The copyright file refers to Debian's own copies.
rm -r "$doc/LICENSES"
cat >"$package/usr/share/lintian/overrides/netplumb" <<-TEXT
	# It is static: it runs on any distribution, and its agent is PID 1 of guests that have no C library.
	netplumb: shared-library-lacks-prerequisites [usr/bin/plumb]
TEXT
size=$(du -sk --apparent-size "$package" | cut -f1)
cat >"$package/DEBIAN/control" <<-TEXT
	Package: netplumb
	Version: $version
	Architecture: $architecture
	Maintainer: $maintainer
	Installed-Size: $size
	Depends: $qemu (>= 1:7.2)
	Recommends: bubblewrap, iproute2
	Suggests: $other, nftables, iperf3, dpdk
	Section: net
	Priority: optional
	Description: where a packet's time goes in the Linux kernel
	 Netplumb counts every kernel instruction for each packet, by function, in a
	 virtual machine: the same numbers on every boot, with nothing inserted into
	 the kernel. It compares kernels, modules, settings and data paths, between two
	 hosts as well, and measures times on the running kernel.
TEXT
(cd "$package" && find usr -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
find "$package" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
dpkg-deb --root-owner-group -Zxz --threads-max=1 --build "$package" "$folder/netplumb_${version}_$architecture.deb" >/dev/null
