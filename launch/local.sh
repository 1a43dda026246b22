#!/usr/bin/env bash
# Runs N processes of t2t_jax on this machine: bash launch/local.sh N ARGUMENTS.
# See local.py beside it.
set -euo pipefail
exec python "$(dirname "${BASH_SOURCE[0]}")/local.py" "$@"
