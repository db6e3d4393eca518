#!/usr/bin/env bash
# Phrases that STYLE.md lists, in documents: prints where they stand, and fails if there are any.
set -euo pipefail
cd "$(dirname "$0")/.."

phrases=$(sed -n '/^## Phrases/,$p' STYLE.md | sed -n '/^```text$/,/^```$/p' | grep -v '^```')
[ -n "$phrases" ]
! git grep --untracked -nwiF -f <(printf '%s\n' "$phrases") -- README.md docs ':!docs/adr'
