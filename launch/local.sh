#!/usr/bin/env bash
# Runs N processes of t2t_jax on this machine: bash launch/local.sh N ARGUMENTS.
# See local.py beside it.
set -euo pipefail
if [[ ${1:-} == --check ]]; then # lists what the run finds, and starts nothing
    exec python -m t2t_jax check "${@:2}"
fi
exec python "$(dirname "${BASH_SOURCE[0]}")/local.py" "$@"
