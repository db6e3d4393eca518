#!/usr/bin/env bash
# Builds what is released, in target/dist: for x86-64 and arm64 each a tarball and a package for Debian, and the checksums
# of all. Each has plumb with the agents of both architectures, man pages, completions, experiments, the documents as a
# book, the licences of all that it is linked with, and a bill of materials (CycloneDX).
#
#   scripts/dist.sh [FOLDER]
#
# The same commit gives the same files, bit for bit, in any folder: paths are mapped away, times are the commit's.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh

out=$(mkdir -p "${1-$target/dist}" && cd "${1-$target/dist}" && pwd)
work=$(mkdir -p "$target/dist-build" && cd "$target/dist-build" && pwd)
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
commit=$(git describe --always --dirty --exclude '*' --abbrev=12)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH PLUMB_COMMIT=$commit LC_ALL=C TZ=UTC
umask 022

# As .cargo/config.toml has it, which these replace.
maps="--remap-path-prefix=$PWD=/netplumb --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo"
flags="-C target-feature=+crt-static $maps"
export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS=$flags
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS=$flags
export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER=x86_64-linux-gnu-gcc
export CFLAGS="-ffile-prefix-map=$PWD=/netplumb -ffile-prefix-map=${CARGO_HOME:-$HOME/.cargo}=/cargo"
machines=(x86_64 aarch64)
for machine in "${machines[@]}"; do
	CARGO_TARGET_DIR=$work cargo build "${cargo_flags[@]}" --target "$machine-unknown-linux-gnu" \
		--package netplumb --package netplumb-agent
done
built() { echo "$work/$2-unknown-linux-gnu/release/$1"; }

rm -rf "$work/tree" "$work/bin"
for machine in "${machines[@]}"; do
	bin=$work/bin/$machine
	mkdir -p "$bin"
	cp "$(built plumb "$machine")" "$bin/plumb"
	for agent in "${machines[@]}"; do
		name=plumb-agent-$agent
		[ "$agent" != "$(uname -m)" ] || name=plumb-agent
		cp "$(built plumb-agent "$agent")" "$bin/$name"
	done
	OBJCOPY=$machine-linux-gnu-objcopy scripts/embed.sh "$bin/plumb"
done

scripts/book.sh >/dev/null
scripts/components.py "$work"
for machine in "${machines[@]}"; do
	tree=$work/tree/$machine
	share=$tree/usr/share
	# What prints the man pages is this machine's.
	make --silent install PLUMB="$work/bin/$(uname -m)/plumb" DESTDIR="$tree" PREFIX=/usr
	install -m 755 "$work/bin/$machine/plumb" "$tree/usr/bin/plumb"
	gzip -n9 "$share"/man/man1/*.1
	cp README.md CHANGELOG.md SECURITY.md "$work/THIRD-PARTY.txt" "$work"/*.cdx.json "$share/doc/netplumb"
	cp -r "$target/book/docs" "$share/doc/netplumb/html"
	find "$tree" -type f ! -perm -u+x -exec chmod 644 {} +
	name=netplumb-$version-$machine
	tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" --transform="s#^usr#$name#" \
		-C "$tree" -cf - usr | gzip -n9 >"$out/$name.tar.gz"
	scripts/deb.sh "$tree" "$machine" "$version" "$commit" "$out"
done
(cd "$out" && sha256sum -- *.tar.gz *.deb >SHA256SUMS)
say "built, of $commit: $out"
cat "$out/SHA256SUMS"
