#!/bin/sh
# Does a packet's path cost more instructions with one kernel than with another?
#
#   compare.sh BEFORE AFTER
#
# Each is a kernel, by anything that `plumb kernel add` takes: a linux-image-*.deb,
# a kernel build directory, or `debian`; or a recording (*.plumb) of
# an earlier run, which is not measured again.
#
# Leaves in $OUT (default: plumb-out) before.plumb, after.plumb, and diff.md, the
# comment to post. Exits with 0: no worse; 4: worse by more than $LIMIT (default:
# 0.5%); 3: this machine can't measure that; anything else: failed.
#
# Also from the environment: $PLUMB, the command; $EXPERIMENT, an experiment file
# in which @KERNEL@ stands for the kernel (default: experiment.toml beside this).
#
# Needs no root and no KVM.
set -eu

if [ $# -ne 2 ]; then
	sed -n '2,/^set/ { /^set/!s/^# \{0,1\}//p; }' "$0" >&2
	exit 2
fi
plumb=${PLUMB:-plumb}
out=${OUT:-plumb-out}
limit=${LIMIT:-0.5%}
experiment=${EXPERIMENT:-$(dirname "$0")/experiment.toml}
mkdir -p "$out"
rm -f -- "$out/diff.md"

# measure KERNEL-OR-RECORDING NAME
measure() {
	case $1 in
	*.plumb)
		[ "$1" -ef "$out/$2.plumb" ] || cp -- "$1" "$out/$2.plumb"
		;;
	*)
		# It says "... as HASH". In two steps: a pipe would lose the exit code.
		"$plumb" kernel add "$1" >"$out/added"
		hash=$(sed -n '1s/.* as \([0-9a-f]\{1,\}\).*/\1/p' "$out/added")
		# What an earlier run left must not be taken for this one's.
		rm -f -- "$out/$2.plumb"
		sed "s/@KERNEL@/$hash/g" "$experiment" >"$out/$2.toml"
		# All tables are in the log; the comment is only about what differs.
		"$plumb" run --quiet "$out/$2.toml" --output "$out/$2.plumb"
		rm -- "$out/added" "$out/$2.toml"
		;;
	esac
}

measure "$1" before
measure "$2" after

# Both the comment and the verdict: 4 is an answer, not an error.
worse=0
"$plumb" diff "$out/before.plumb" "$out/after.plumb" \
	--markdown --fail-if-worse "$limit" >"$out/diff.md" || worse=$?
cat "$out/diff.md"
exit "$worse"
