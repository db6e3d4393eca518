#!/usr/bin/env bash
# From nothing to the cost of the IP layer: set up, build, fetch a kernel, measure. Says first how long it
# takes, and at each step which one it is.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh

step() { say "demo: step $1 of 4: $2 ($((SECONDS / 60)):$(printf %02d $((SECONDS % 60))) so far)"; }

# Compiling all takes some 13 minutes of one CPU, and hardly gains from more than eight.
cpus=$(nproc)
minutes=$(((13 + cpus - 1) / cpus))
[ "$minutes" -ge 3 ] || minutes=3
if [ -x "$plumb" ]; then
	say "demo: plumb was built before; about a minute, unless much of it has changed"
else
	say "demo: about $((minutes + 2)) minutes the first time, on $cpus CPUs, of which some $minutes compile plumb; a minute from then on"
fi

# cargo draws its progress on a terminal; elsewhere each tenth of it is a line.
build() {
	if [ -t 2 ]; then
		cargo build "${cargo_flags[@]}"
		return
	fi
	CARGO_TERM_PROGRESS_WHEN=always CARGO_TERM_PROGRESS_WIDTH=80 cargo build "${cargo_flags[@]}" 2>&1 |
		gawk -v RS='[\r\n]' '
			match($0, /[0-9]+\/[0-9]+/) && /Building/ {
				split(substr($0, RSTART, RLENGTH), of, "/")
				tenth = int(10 * of[1] / of[2])
				if (tenth > last) print "  compiled " of[1] " of " of[2]
				if (tenth > last) last = tenth
				fflush()
				next
			}
			/^ *Compiling / || /^[ \t]*$/ { next }
			{ print; fflush() }
		' >&2
}

step 1 "what the build and the lab need"
scripts/setup.sh build run
step 2 "build plumb"
build
scripts/embed.sh
step 3 "Debian's kernel for guests"
scripts/kernel.sh
step 4 "measure: guests boot, and send packets over virtio-net"
exec "$plumb" run experiments/ip-layer.toml
