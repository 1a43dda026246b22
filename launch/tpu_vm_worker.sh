#!/usr/bin/env bash
# The part of tpu_vm.sh that runs on one worker, from the copied tree in ~/t2t_jax:
#   install                creates ~/t2t_jax-venv and installs the tree in it
#   run ARGUMENTS          starts t2t_jax.main in the background, output to ~/t2t_jax.log
#   status                 prints one line: not started, running, or how it ended
#   stop                   sends SIGTERM, so that it saves, and waits for its end
set -euo pipefail

tree=$HOME/t2t_jax
venv=$HOME/t2t_jax-venv
log=$HOME/t2t_jax.log
state=$HOME/t2t_jax.state # pid, status, stopped

say() {
    echo "worker $(hostname): $*" # tpu_vm.sh reads these lines
}

running() {
    # After a reboot the process id may belong to another program.
    [[ -s $state/pid ]] && grep -qs 't2t_jax.main' "/proc/$(< "$state/pid")/cmdline"
}

install() {
    local new_enough='import sys; sys.exit(sys.version_info < (3, 11))'
    if [[ ! -x $venv/bin/python ]]; then
        if python3 -c "$new_enough" && python3 -m venv "$venv.new"; then
            :
        else # the image's Python is older: uv downloads a newer one
            python3 -m pip install --quiet --user uv
            rm -rf "$venv.new"
            "$HOME/.local/bin/uv" venv --quiet --seed --python=3.12 "$venv.new"
        fi
        rm -rf "$venv"
        mv "$venv.new" "$venv"
    fi
    cd "$tree"
    "$venv/bin/python" -m pip install --quiet --editable '.[tpu,gcs]'
    say "installed"
}

run() {
    if running; then
        say "already running (pid $(< "$state/pid")); stop it first"
        return 3
    fi
    rm -rf "$state"
    mkdir -p "$state"
    cd "$tree"
    echo "== $(date) python -m t2t_jax.main $*" >> "$log"
    # A shell that outlives this ssh connection starts it and records its exit status.
    # shellcheck disable=SC2016
    nohup setsid bash -c '
        state=$1 python=$2
        shift 2
        "$python" -m t2t_jax.main "$@" &
        echo $! > "$state/pid"
        wait $! && status=0 || status=$?
        echo "$status" > "$state/status.new"
        mv "$state/status.new" "$state/status"
    ' t2t_jax "$state" "$venv/bin/python" "$@" >> "$log" 2>&1 < /dev/null &
    for ((i = 0; i < 50; i++)); do
        [[ -s $state/pid ]] && break
        sleep 0.1
    done
    say "started (pid $(< "$state/pid")), output in ~/t2t_jax.log"
}

status() {
    if running; then
        say "running (pid $(< "$state/pid"))"
        return
    elif [[ -s $state/pid && ! -s $state/status ]]; then
        sleep 1 # it may have ended just now, with its status not yet written
    fi
    if [[ ! -s $state/pid ]]; then
        say "not started"
    elif [[ -e $state/stopped ]]; then
        say "stopped by hand"
    elif [[ -s $state/status ]]; then
        say "ended with status $(< "$state/status")"
    else
        say "ended with status unknown"
    fi
}

stop() {
    if ! running; then
        status
        return
    fi
    if [[ ! -e $state/stopped ]]; then # a second SIGTERM would end it before it saves
        touch "$state/stopped"
        kill -TERM "$(< "$state/pid")"
    fi
    for ((i = 0; i < 6000; i++)); do
        if ! running; then
            say "stopped"
            return
        fi
        sleep 0.1
    done
    say "did not end within 10 minutes of SIGTERM (pid $(< "$state/pid"))"
    return 1
}

command=${1:-}
[[ $# == 0 ]] || shift
case $command in
    install | run | status | stop) "$command" "$@" ;;
    *)
        echo "got '$command'; wanted install, run, status or stop" >&2
        exit 2
        ;;
esac
