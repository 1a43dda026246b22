#!/usr/bin/env bash
# A real Slurm on this machine alone, for tests; as root, without systemd or cgroups:
#   bash tests/launch/one_machine_slurm.sh start FOLDER [CPUS=2]
#   export SLURM_CONF=FOLDER/slurm.conf      then sbatch, srun, squeue work
#   bash tests/launch/one_machine_slurm.sh stop FOLDER
# Needs munged, slurmctld and slurmd (Debian: munge, slurmctld, slurmd, slurm-client).
set -euo pipefail

usage() {
    echo "got '$*'; wanted start FOLDER [CPUS], or stop FOLDER" >&2
    exit 2
}

free_port() {
    python3 -c 'import socket
s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

start() {
    local folder=$1 cpus=$2
    if [[ $(id -u) != 0 ]]; then
        echo "one_machine_slurm: must be root, is $(id -un)" >&2
        exit 2
    fi
    mkdir -p "$folder"/{munge,state,spool,log}
    folder=$(cd "$folder" && pwd)
    (umask 077 && head -c 1024 /dev/urandom > "$folder/munge/key")
    # The node is called localhost: tasks look the first node up to find each other.
    cat > "$folder/slurm.conf" << CONF
ClusterName=one
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort=$(free_port)
SlurmdPort=$(free_port)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge/socket,cred_expire=5
CredType=cred/munge
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/log/slurmctld
SlurmdLogFile=$folder/log/slurmd
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_interval=5
ReturnToService=2
KillWait=10
SlurmdParameters=config_overrides
NodeName=localhost NodeHostname=$(hostname -s) NodeAddr=127.0.0.1 CPUs=$cpus RealMemory=65536
PartitionName=all Nodes=localhost Default=YES MaxTime=INFINITE State=UP
CONF
    munged --force --key-file="$folder/munge/key" --socket="$folder/munge/socket" \
        --pid-file="$folder/munged.pid" --log-file="$folder/log/munged" \
        --seed-file="$folder/munge/seed"
    export SLURM_CONF=$folder/slurm.conf
    slurmctld -i
    slurmd -N localhost
    for ((i = 0; i < 60; i++)); do
        if [[ $(sinfo --noheader --format=%T 2> /dev/null || true) == idle ]]; then
            return
        fi
        sleep 0.5
    done
    echo "one_machine_slurm: the node is not idle after 30 s; see $folder/log" >&2
    tail -n 20 "$folder"/log/* >&2
    stop "$folder"
    exit 1
}

stop() {
    local folder=$1 name pid
    for name in slurmd slurmctld munged; do
        [[ -s $folder/$name.pid ]] || continue
        pid=$(< "$folder/$name.pid")
        kill "$pid" 2> /dev/null || continue
        for ((i = 0; i < 100; i++)); do
            kill -0 "$pid" 2> /dev/null || continue 2
            sleep 0.1
        done
        kill -9 "$pid" 2> /dev/null || true
    done
}

case "${1:-} $#" in
    "start 2" | "start 3") start "$2" "${3:-2}" ;;
    "stop 2") stop "$2" ;;
    *) usage "$@" ;;
esac
