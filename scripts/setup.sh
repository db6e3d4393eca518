#!/usr/bin/env bash
# Sees to it that what the build, the lab and the tests need is there.
#
#   scripts/setup.sh [--try] GROUP...     groups: build, run, test, soak, dist, guest-test, arm64, x86-64,
#                                         other-qemu
#   scripts/setup.sh --list GROUP...      names of packages, installed or not
#
# Looks first: where nothing is missing it changes nothing, fetches nothing and
# needs no rights. What is missing it installs with apt-get, as root or through
# sudo; where it can't, it says what to install and fails. With --try, only what
# is missing of the group "build" is a failure.
#
# The group "other-qemu" is Debian 13's QEMU 10 beside this machine's, for tests
# that compare both: in a root of its own (400 MB), by debootstrap as root. It is in
# $PLUMB_QEMU_OTHER, or else ~/.cache/netplumb-other-qemu. In `newest` below that is
# another root, with the QEMU of Debian 13's backports. The group "guest-test" is
# what scripts/debian13.sh needs in the first to run tests that were built elsewhere.
set -euo pipefail
cd "$(dirname "$0")/.."

# What to look for (a command, or a file), and the Debian package that has it.
needs() {
	case $1 in
	build)
		# The last eight are for libelf and libbpf, which libbpf-sys builds.
		cat <<-LIST
			cc build-essential
			make build-essential
			/usr/include/stdio.h build-essential
			/usr/include/linux/bpf.h linux-libc-dev
			/etc/ssl/certs/ca-certificates.crt ca-certificates
			${CLANG:-clang} clang
			autoreconf autoconf
			aclocal automake
			autopoint autopoint
			msgfmt gettext
			bison bison
			flex flex
			gawk gawk
			pkg-config pkg-config
		LIST
		# For the HTML page. A name of its own, for one that is too old is none.
		have_node || echo node-of-18-or-later nodejs
		echo npm npm
		if ! have_rust && ! command -v rustup curl wget >/dev/null; then
			echo curl curl
		fi
		;;
	run)
		of_guests "$(uname -m)"
		;;
	arm64) of_guests aarch64 ;;
	other-qemu)
		have_other_qemu || echo debootstrap debootstrap
		;;
	x86-64) of_guests x86_64 ;;
	guest-test)
		cat <<-LIST
			cc gcc
			/usr/include/stdio.h libc6-dev
			ip iproute2
			sysctl procps
			python3 python3
			/etc/ssl/certs/ca-certificates.crt ca-certificates
		LIST
		;;
	dist)
		cat <<-LIST
			lintian lintian
			dpkg-deb dpkg
		LIST
		;;
	soak)
		# What builds a kernel, beside what builds plumb.
		cat <<-LIST
			bc bc
			/usr/include/libelf.h libelf-dev
		LIST
		;;
	test)
		cat <<-LIST
			clang-format clang-format
			${CHROMIUM:-chromium} chromium
			/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf fonts-dejavu-core
			callgrind_annotate valgrind
			nft nftables
			mkfs.ext4 e2fsprogs
			mkfs.xfs xfsprogs
			iptables-legacy iptables
			dpdk-testpmd dpdk-dev
			ping iputils-ping
			iperf3 iperf3
			nginx nginx-core
			wrk wrk
			perf linux-perf
			bwrap bubblewrap
			patch patch
			pahole dwarves
			spatch coccinelle
			iasl acpica-tools
			curl curl
			ip iproute2
			ethtool ethtool
			sysctl procps
			python3 python3
			/usr/lib/python3/dist-packages/prometheus_client python3-prometheus-client
			/usr/lib/python3/dist-packages/jsonschema python3-jsonschema
		LIST
		# `go tool pprof` reads what `plumb report --pprof` writes.
		if ! [ -x /usr/local/go/bin/go ]; then
			echo go golang-go
		fi
		;;
	esac
}

say() { printf 'setup: %s\n' "$*" >&2; }
die() {
	say "$@"
	exit 1
}

# The packages of these groups that are missing, one a line.
missing() {
	local group probe package
	for group; do
		while read -r probe package; do
			case $probe in
			/*) [ -e "$probe" ] ;;
			# An ordinary user's $PATH may leave out the sbin folders.
			*) PATH="$PATH:/usr/sbin:/sbin" command -v "$probe" >/dev/null ;;
			esac || echo "$package"
		done <<<"$(needs "$group")"
	done | sort -u
}

# Run as root, or fail.
as_root() {
	if [ "$(id -u)" = 0 ]; then
		"$@"
	elif [ -t 0 ]; then
		sudo -- "$@"
	else
		sudo -n -- "$@" 2>/dev/null
	fi
}

install_packages() {
	command -v apt-get >/dev/null || return 1
	[ "$(id -u)" = 0 ] || command -v sudo >/dev/null || return 1
	say "installing $*"
	as_root apt-get -q -o DPkg::Lock::Timeout=300 update >&2 || return 1
	as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y \
		-o DPkg::Lock::Timeout=300 install --no-install-recommends "$@" >&2
}

ensure_packages() {
	local packages
	packages=$(missing "$@" | xargs)
	[ -n "$packages" ] || return 0
	# shellcheck disable=SC2086 # Names, without blanks in them.
	install_packages $packages || true
	packages=$(missing "$@" | xargs)
	[ -n "$packages" ] || return 0
	say "missing: $packages"
	say "install them as root: apt-get install $packages"
	return 1
}

# QEMU for guests of an architecture (as uname has it). Where that is not this machine's, also what
# builds the program and modules for it and, last, what runs the compiler that its kernels were
# built with.
of_guests() {
	local gnu=$1-linux-gnu debian=amd64 qemu=qemu-system-x86
	[ "$1" = x86_64 ] || debian=arm64 qemu=qemu-system-arm
	echo "qemu-system-$1 $qemu"
	[ "$1" != "$(uname -m)" ] || return 0
	cat <<-LIST
		$gnu-gcc gcc-${gnu//_/-}
		/usr/$gnu/lib/libc.a libc6-dev-$debian-cross
		/usr/$gnu/include/linux/bpf.h linux-libc-dev-$debian-cross
		qemu-$1 qemu-user
	LIST
}

# Whether there is a Node.js that builds the HTML page: Debian 12's does.
have_node() {
	local major
	major=$(node -p 'process.versions.node.split(".")[0]' 2>/dev/null) || return 1
	[ "$major" -ge 18 ]
}

channel() {
	sed -n 's/^channel *= *"\(.*\)"/\1/p' rust-toolchain.toml
}

# Whether the toolchain of rust-toolchain.toml is there, or one that will do.
have_rust() {
	local tool version
	if command -v rustup >/dev/null; then
		for tool in cargo rustfmt cargo-clippy; do
			RUSTUP_AUTO_INSTALL=0 rustup which --toolchain "$(channel)" "$tool" \
				>/dev/null 2>&1 || return 1
		done
		return 0
	fi
	# A Rust that does not come from rustup takes no orders about its version.
	command -v cargo >/dev/null && command -v rustc >/dev/null || return 1
	version=$(rustc --version | awk '{ print $2 }')
	[ "$(printf '%s\n' "$(channel)" "$version" | sort -V | head -n 1)" = "$(channel)" ]
}

# Whether Rust has the standard library of a target.
have_rust_for() {
	local folder
	folder=$(rustc --print target-libdir --target "$1" 2>/dev/null) || return 1
	compgen -G "$folder/libstd-*" >/dev/null
}

ensure_rust_for() {
	have_rust_for "$1" && return 0
	command -v rustup >/dev/null ||
		die "Rust has no standard library for $1: install it as you did Rust"
	say "adding $1 to the Rust toolchain"
	rustup target add --toolchain "$(channel)" "$1" >&2 ||
		die "run it where there is a network: rustup target add $1"
}

# rustup's own installer, of a version and content known here.
RUSTUP_VERSION=1.28.2
declare -A RUSTUP_SHA256=(
	[x86_64]=20a06e644b0d9bd2fbdbfd52d42540bdde820ea7df86e92e533c073da0cdd43c
	[aarch64]=e3853c5a252fca15252d07cb23a1bdd9377a8c6f3efa01531109281ae47f841c
)

install_rustup() {
	local from folder
	from=${RUSTUP_UPDATE_ROOT:-https://static.rust-lang.org/rustup}
	from=$from/archive/$RUSTUP_VERSION/$(uname -m)-unknown-linux-gnu/rustup-init
	folder=$(mktemp -d)
	# shellcheck disable=SC2064 # The folder of now.
	trap "rm -rf '$folder'" EXIT
	say "installing rustup $RUSTUP_VERSION from $from into ${CARGO_HOME:-$HOME/.cargo}"
	if command -v curl >/dev/null; then
		curl -fsSL --retry 3 -o "$folder/rustup-init" "$from"
	else
		wget -q -O "$folder/rustup-init" "$from"
	fi || return 1
	echo "${RUSTUP_SHA256[$(uname -m)]}  $folder/rustup-init" | sha256sum --check --quiet >&2 || return 1
	chmod +x "$folder/rustup-init"
	RUSTUP_INIT_SKIP_PATH_CHECK=yes "$folder/rustup-init" -y -q --no-modify-path \
		--profile minimal --default-toolchain none >&2 || return 1
	say "to use cargo in a shell of your own: . ${CARGO_HOME:-$HOME/.cargo}/env"
}

ensure_rust() {
	have_rust && return 0
	command -v rustup >/dev/null || install_rustup || {
		say "there is no Rust $(channel), and rustup could not be installed"
		die "install it by https://rustup.rs, then: rustup toolchain install $(channel)"
	}
	say "installing the Rust toolchain $(channel)"
	rustup toolchain install "$(channel)" --no-self-update --profile minimal \
		--component rustfmt --component clippy >&2 ||
		die "run it where there is a network: rustup toolchain install $(channel)"
}

OTHER_QEMU=${PLUMB_QEMU_OTHER:-${XDG_CACHE_HOME:-${HOME:=/root}/.cache}/netplumb-other-qemu}

have_qemus() {
	[ -x "$1/qemu-system-x86_64" ] && [ -x "$1/qemu-system-aarch64" ]
}

have_other_qemu() {
	have_qemus "$OTHER_QEMU" && have_qemus "$OTHER_QEMU/newest"
}

# Scripts that run the QEMUs of a root by the root's own loader and libraries.
write_qemus() {
	local folder=$1 root=$1/trixie machine libraries loader
	libraries=usr/lib/$(uname -m)-linux-gnu
	loader=$(cd "$root" && echo "$libraries"/ld-linux-*.so.*)
	for machine in x86_64 aarch64; do
		cat >"$folder/qemu-system-$machine" <<-SCRIPT
			#!/bin/sh
			export QEMU_MODULE_DIR='$root/$libraries/qemu'
			exec '$root/$loader' --library-path '$root/$libraries' \\
				--argv0 qemu-system-$machine '$root/usr/bin/qemu-system-$machine' \\
				-L '$root/usr/share/seabios' -L '$root/usr/share/qemu' -L '$root/usr/lib/ipxe/qemu' "\$@"
		SCRIPT
		chmod +x "$folder/qemu-system-$machine"
	done
}

ensure_other_qemu() {
	local root=$OTHER_QEMU/trixie newest=$OTHER_QEMU/newest
	if ! have_qemus "$OTHER_QEMU"; then
		say "making a root of Debian 13 with QEMU in $OTHER_QEMU"
		mkdir -p "$OTHER_QEMU"
		rm -rf "$root"
		as_root debootstrap --variant=minbase \
			--include=qemu-system-x86,qemu-system-arm,qemu-system-common \
			trixie "$root" ${DEBIAN_MIRROR:+"$DEBIAN_MIRROR"} >&2 ||
			die "run it as root where Debian's archive can be reached (\$DEBIAN_MIRROR)"
		as_root find "$root/var/cache/apt/archives" -name '*.deb' -delete
		write_qemus "$OTHER_QEMU"
	fi
	have_qemus "$newest" && return 0
	say "making another with the QEMU of its backports in $newest"
	rm -rf "$newest"
	mkdir -p "$newest"
	as_root cp -a "$root" "$newest/trixie"
	as_root sh -ec '
		sed "s/trixie main/trixie-backports main/" "$0/etc/apt/sources.list" >"$0/etc/apt/sources.list.d/backports.list"
		cp /etc/resolv.conf "$0/etc/resolv.conf"
		export DEBIAN_FRONTEND=noninteractive
		chroot "$0" apt-get -qq update
		chroot "$0" apt-get -qq -y --no-install-recommends -t trixie-backports install qemu-system-x86 qemu-system-arm
		chroot "$0" apt-get clean
	' "$newest/trixie" >&2 || die "run it as root where Debian's archive can be reached"
	write_qemus "$newest"
}

groups="build, run, test, soak, dist, guest-test, arm64, x86-64, other-qemu"
optional=false list=false
if [ "${1-}" = --list ]; then
	list=true
	shift
fi
if [ "${1-}" = --try ]; then
	optional=true
	shift
fi
[ $# -gt 0 ] || die "say which group: $groups"
for group; do
	case ", $groups," in
	*", $group,"*) ;;
	*) die "no group \`$group\`: $groups" ;;
	esac
done
if $list; then
	for group; do needs "$group"; done | awk '{ print $2 }' | sort -u
	exit
fi
case $(uname -sm) in
"Linux x86_64" | "Linux aarch64") ;;
*) die "Netplumb is built and run on Linux, of x86-64 and arm64" ;;
esac
export PATH="${CARGO_HOME:-${HOME:=/root}/.cargo}/bin:$PATH"

# All at once: one run of apt-get, and one list of what is missing.
if ! ensure_packages "$@"; then
	$optional || exit 1
	for group; do
		if [ "$group" = build ] && [ -n "$(missing build)" ]; then
			exit 1
		fi
	done
fi
for group; do
	case $group in
	build) ensure_rust ;;
	other-qemu)
		# In a shell of its own, which it may end.
		(ensure_other_qemu) || $optional || exit 1
		;;
	arm64 | x86-64)
		machine=aarch64
		[ "$group" = arm64 ] || machine=x86_64
		ensure_rust
		# In a shell of its own, which it may end.
		(ensure_rust_for "$machine-unknown-linux-gnu") || $optional || exit 1
		;;
	esac
done
