#!/usr/bin/env bash
# Runs t2t_jax on Cloud TPU VMs, one host or a slice of many, with nothing but gcloud.
set -euo pipefail

usage() {
    cat << 'TEXT'
usage: bash launch/tpu_vm.sh COMMAND --zone=ZONE [SETTINGS] [ARGUMENTS of t2t_jax.main]

create    create a TPU VM now           queue     request one, wait in the queue
install   copy this tree, pip install   run       start training on all workers
follow    show the output of worker 0   status    show TPU and training
stop      SIGTERM: save and end         delete    delete the TPU (it costs until then)
watch     until training is finished: after a preemption queue, install and run again
check     list here, before anything is rented, what the run finds and what is missing

--name=t2t-jax          --project=PROJECT      --zone=ZONE (required)
--type=v5litepod-16     --version=RUNTIME      (default: the usual one of the type)
--spot                  cheaper, may be preempted
--workdir=gs://B/F      required for run and watch; goes to t2t_jax.main
--env=NAME=VALUE        an environment variable of the workers; may be repeated
--every=60              seconds between two checks of watch
--restarts=10           limit for a training that fails; preemptions do not count
--dry_run               print the gcloud commands and execute nothing
TEXT
}

wrong() {
    echo "tpu_vm: $*" >&2
    usage >&2
    exit 2
}

say() {
    echo "tpu_vm: $*" >&2
}

name=t2t-jax zone='' project='' type=v5litepod-16 version='' workdir='' spot='' dry_run=''
every=60 restarts=10 arguments=() variables=()
command=${1:-}
[[ $# == 0 ]] || shift
case $command in
    create | queue | install | run | follow | status | watch | stop | delete | check) ;;
    -h | --help | help) usage && exit ;;
    *) wrong "got '$command' as the command; wanted one of those below" ;;
esac
for word in "$@"; do
    case $word in
        --name=?*) name=${word#*=} ;;
        --zone=?*) zone=${word#*=} ;;
        --project=?*) project=${word#*=} ;;
        --type=?*) type=${word#*=} ;;
        --version=?*) version=${word#*=} ;;
        --workdir=?*) workdir=${word#*=} ;;
        --env=[A-Za-z_]*=*) variables+=("${word#*=}") ;;
        --every=?*) every=${word#*=} ;;
        --restarts=?*) restarts=${word#*=} ;;
        --spot) spot=yes ;;
        --dry_run) dry_run=yes ;;
        --name | --zone | --project | --type | --version | --workdir | --every | --restarts | --env)
            wrong "got $word; wanted $word=VALUE in one word" ;;
        *) arguments+=("$word") ;;
    esac
done
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
lost="--workdir=$workdir is on worker 0 alone and lost with the TPU; gs:// is not"
if [[ $command == check ]]; then
    [[ -z $workdir || $workdir == gs://* ]] || say "$lost"
    cd "$root" # as a worker: it has this tree and nothing else
    exec env "${variables[@]}" python -m t2t_jax check "${arguments[@]}" \
        ${workdir:+"--workdir=$workdir"}
fi
[[ -n $zone ]] || wrong "no --zone; wanted one that has $type, such as --zone=us-west4-a"
if [[ $command == run || $command == watch ]]; then
    [[ -n $workdir ]] || wrong "no --workdir; wanted --workdir=gs://BUCKET/FOLDER"
    if [[ $workdir != gs://* ]]; then
        [[ $command == run ]] || wrong "--workdir=$workdir is lost with the TPU; wanted gs://"
        say "$lost"
    fi
    arguments+=("--workdir=$workdir")
elif [[ ${#arguments[@]} -gt 0 ]]; then
    wrong "got ${arguments[0]}, which $command does not know"
fi
if [[ -z $version ]]; then
    case $type in
        v5litepod-*) version=v2-alpha-tpuv5-lite ;;
        v5p-*) version=v2-alpha-tpuv5 ;;
        v6e-*) version=v2-alpha-tpuv6e ;;
        v2-* | v3-* | v4-*) version=tpu-ubuntu2204-base ;;
        *) wrong "--type=$type is not known here; wanted its runtime too: --version=RUNTIME" ;;
    esac
fi

where=("--zone=$zone" ${project:+"--project=$project"})
worker=t2t_jax/launch/tpu_vm_worker.sh

# Runs one gcloud command; a dry run prints it instead, quoted for pasting.
tpus() {
    local words=(gcloud compute tpus "$@")
    if [[ -z $dry_run ]]; then
        "${words[@]}" 3>&-
        return
    fi
    local line='' word
    for word in "${words[@]}"; do
        [[ $word =~ ^[A-Za-z0-9_./:=,@%+-]+$ ]] || word=${word@Q}
        line+="$word "
    done
    echo "${line% }" >&3
}
exec 3>&1 # a dry run prints here, so that $(...) does not capture it

# Prints the state of the 'tpu-vm' or 'queued-resources' named $name; ABSENT if none.
state_of() {
    local field=state out
    [[ $1 == tpu-vm ]] || field=state.state
    if out=$(tpus "$1" describe "$name" "${where[@]}" "--format=value($field)" 2>&1); then
        echo "${out:-ABSENT}" | tail -n 1 # in a dry run there is no output
    elif [[ $out == *NOT_FOUND* || $out == *"not found"* ]]; then
        echo ABSENT
    else
        echo "$out" >&2
        return 1
    fi
}

# Runs a command on worker 0 or on all: on_workers all|0 COMMAND.
on_workers() {
    tpus tpu-vm ssh "$name" "${where[@]}" "--worker=$1" --quiet "--command=$2"
}

create() {
    local state
    state=$(state_of tpu-vm) || return
    if [[ $state != ABSENT ]]; then
        say "$name is there already ($state)"
        return
    fi
    tpus tpu-vm create "$name" "${where[@]}" "--accelerator-type=$type" \
        "--version=$version" ${spot:+--spot}
}

queue() {
    local state
    state=$(state_of queued-resources) || return
    if [[ $state != ABSENT ]]; then
        say "$name is in the queue already ($state)"
        return
    fi
    tpus queued-resources create "$name" "--node-id=$name" "${where[@]}" \
        "--accelerator-type=$type" "--runtime-version=$version" ${spot:+--spot}
}

# Packs this tree into $1: with uncommitted changes, without files that git ignores.
pack() {
    if git -C "$root" rev-parse --git-dir > /dev/null 2>&1; then
        (cd "$root" && git ls-files -z --cached --others --exclude-standard |
            while IFS= read -r -d '' file; do
                [[ ! -e $file ]] || printf '%s\0' "$file" # skip files deleted since
            done | tar --create --gzip --file="$1" --null --files-from=-)
    else
        tar --create --gzip --file="$1" --directory="$root" --exclude=./runs \
            --exclude=./.venv --exclude=./.git .
    fi
}

install() {
    local packed=t2t_jax.tar.gz status=0
    refuse_if_training || return
    if [[ -z $dry_run ]]; then
        packed=$(mktemp --suffix=.tar.gz)
        pack "$packed" || return
    fi
    tpus tpu-vm scp "$packed" "$name:t2t_jax.tar.gz" "${where[@]}" --worker=all --quiet &&
        on_workers all "rm -rf t2t_jax && mkdir t2t_jax && tar -xzf t2t_jax.tar.gz -C \
t2t_jax && bash $worker install" || status=$?
    [[ -n $dry_run ]] || rm -f "$packed"
    return "$status"
}

# Prints a line 'worker HOST: STATE' for every worker.
training() {
    on_workers all "if [ -e $worker ]; then bash $worker status; else echo worker \
\$(hostname): not installed; fi"
}

# Fails if training is running, or if `run` is to start what is not installed.
refuse_if_training() {
    local lines
    lines=$(training) || return
    if [[ $lines == *": running "* ]]; then
        say "$name is training; 'follow' shows it, 'stop' ends it:"$'\n'"$lines"
        return 3
    elif [[ $lines == *": not installed"* && $command == run ]]; then
        say "t2t_jax is not installed on $name; 'install' does it"
        return 3
    fi
}

run() {
    refuse_if_training || return
    local environment=''
    [[ ${#variables[@]} == 0 ]] || environment="env$(printf ' %q' "${variables[@]}") "
    on_workers all "${environment}bash $worker run$(printf ' %q' "${arguments[@]}")"
}

follow() {
    on_workers 0 "tail -n 100 -F t2t_jax.log"
}

status() {
    local queued node
    queued=$(state_of queued-resources) || return
    node=$(state_of tpu-vm) || return
    [[ -n $dry_run ]] || echo "queue: $queued, TPU VM: $node"
    [[ $node != READY && -z $dry_run ]] || training
}

stop() {
    on_workers all "bash $worker stop"
}

delete() {
    local queued node
    queued=$(state_of queued-resources) || return
    node=$(state_of tpu-vm) || return
    if [[ $queued != ABSENT || -n $dry_run ]]; then # --force deletes its node, too
        tpus queued-resources delete "$name" "${where[@]}" --force --quiet
    elif [[ $node != ABSENT ]]; then
        tpus tpu-vm delete "$name" "${where[@]}" --quiet
    else
        say "there is no $name in $zone"
    fi
}

# shellcheck source=launch/tpu_vm_watch.sh
[[ $command != watch ]] || source "$root/launch/tpu_vm_watch.sh"
"$command"
