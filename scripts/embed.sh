#!/usr/bin/env bash
# Puts the agents for guests that were built into the file of plumb, each in a section of its
# own, so that users get one file. Without it, plumb looks for them beside it.
#
#   scripts/embed.sh [PLUMB]
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/common.sh
. scripts/common.sh

plumb=${1-$plumb}
sections=()
for machine in x86_64 aarch64; do
	agent=$plumb-agent-$machine
	if [ "$machine" = "$(uname -m)" ]; then
		agent=$plumb-agent
	fi
	if [ -f "$agent" ]; then
		sections+=(--remove-section ".plumb.agent.$machine" --add-section ".plumb.agent.$machine=$agent")
	fi
done
# A file of its own: cargo has a link to the one that it made, and plumb may be running.
"${OBJCOPY:-objcopy}" "${sections[@]}" "$plumb" "$plumb.new"
mv "$plumb.new" "$plumb"
