#!/usr/bin/env bash
# As $RUSTC_WRAPPER, compiles programs of tests without optimisation, which takes a quarter of the time, and with
# checks of overflow. What they link is optimised as ever: cargo's profiles don't tell the two apart.
for word; do
	[ "$word" != --test ] || exec "$@" -C opt-level=0
done
exec "$@"
