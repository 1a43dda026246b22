#!/usr/bin/env bash
# N processes of t2t_jax on this machine: bash launch/local.sh N <arguments>.
# What it does with them is in local.py beside it.
set -euo pipefail
exec python "$(dirname "${BASH_SOURCE[0]}")/local.py" "$@"
