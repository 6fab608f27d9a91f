# slurm_node.sh - sourced: a Slurm of its own, one node on loopback, in a folder: munged, slurmctld and slurmd with their own keys, ports and
# configuration, without cgroups, accounting or systemd. slurm_stop ends all of it, jobs included.

slurm_pids=()

free_port() {                    # a port that nothing listens on
    local port
    while port=$((20000 + RANDOM % 20000)); (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do :; done
    echo $port
}

slurm_start() {                  # slurm_start FOLDER: sets SLURM_CONF; status 1: it did not start, FOLDER has the logs
    local to=$1 host i
    host=$(hostname -s)
    mkdir -p "$to/state" "$to/spool"
    mkdir -m 700 "$to/munge"
    head -c 1024 /dev/urandom >"$to/munge/key"
    chmod 400 "$to/munge/key"
    cat >"$to/slurm.conf" <<CONF
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
SlurmctldPort=$(free_port)
SlurmdPort=$(free_port)
AuthType=auth/munge
AuthInfo=socket=$to/munge/socket,cred_expire=5
StateSaveLocation=$to/state
SlurmdSpoolDir=$to/spool
SlurmctldPidFile=$to/slurmctld.pid
SlurmdPidFile=$to/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SwitchType=switch/none
MpiDefault=none
KillWait=5
ReturnToService=2
SlurmdParameters=config_overrides
NodeName=$host NodeAddr=127.0.0.1 CPUs=4
PartitionName=one Nodes=$host Default=YES State=UP
CONF
    export SLURM_CONF=$to/slurm.conf
    # Slurm 23.11 looks for cgroups even where nothing uses them; 22.05 does not know the word.
    [[ $(sinfo --version) == *" 22."* ]] || echo 'CgroupPlugin=disabled' >"$to/cgroup.conf"
    munged --foreground --force --key-file="$to/munge/key" --socket="$to/munge/socket" --pid-file="$to/munge/pid" \
           --log-file="$to/munge/log" --seed-file="$to/munge/seed" >"$to/munged.log" 2>&1 &
    slurm_pids+=($!)
    for ((i = 0; i < 100; i++)); do [ ! -S "$to/munge/socket" ] || break; sleep 0.1; done
    slurmctld -D -c >"$to/slurmctld.log" 2>&1 &
    slurm_pids+=($!)
    slurmd -D -c >"$to/slurmd.log" 2>&1 &
    slurm_pids+=($!)
    for ((i = 0; i < 300; i++)); do
        [ "$(sinfo -h -o %t 2>/dev/null)" != idle ] || return 0
        sleep 0.2
    done
    return 1
}

slurm_stop() {
    local i
    [ ${#slurm_pids[@]} -gt 0 ] || return 0
    scancel --user="$(id -un)" 2>/dev/null
    for ((i = 0; i < 100; i++)); do [ -n "$(squeue -h 2>/dev/null)" ] || break; sleep 0.2; done
    kill "${slurm_pids[@]}" 2>/dev/null
    for ((i = 0; i < 50; i++)); do kill -0 "${slurm_pids[@]}" 2>/dev/null || break; sleep 0.2; done
    kill -9 "${slurm_pids[@]}" 2>/dev/null
    wait "${slurm_pids[@]}" 2>/dev/null
    slurm_pids=()
}
