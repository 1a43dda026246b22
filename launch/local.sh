#!/usr/bin/env bash
# Runs N processes of t2t_jax on this machine: bash launch/local.sh N ARGUMENTS.
# See local.py beside it.
set -euo pipefail
if [[ " $* " == *" --check "* ]]; then # lists what the run finds, and starts nothing
    words=()
    for word in "$@"; do
        [[ $word == --check || $word =~ ^[0-9]+$ ]] || words+=("$word")
    done
    exec python -m t2t_jax check "${words[@]}"
fi
exec python "$(dirname "${BASH_SOURCE[0]}")/local.py" "$@"
