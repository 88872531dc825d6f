#!/usr/bin/env bash
# Runs a private Slurm on this machine to try what a cluster runs: munged, slurmctld and slurmd, with all
# their files in one temporary directory.
#   scripts/local_slurm.sh run COMMAND...     starts it, runs the command with it, stops it; exits with the command's code
#   eval "$(scripts/local_slurm.sh start)"    starts it; SLURM_CONF directs this shell's srun, sbatch and scontrol to it
#   scripts/local_slurm.sh stop               cancels jobs, stops the daemons, removes the directory
#   scripts/local_slurm.sh --check            lists what is missing; exits 1 if anything is
# It has $CPUS CPUs (default 8), even if the machine has fewer: `srun -n 8` runs on two cores. With
# NODES=3 it has three nodes, n1 to n3, of so many CPUs each. On Debian and Ubuntu:
#   apt-get install --no-install-recommends slurmctld slurmd slurm-client munge
# It does not distinguish users, and no cgroup confines a job. It works without root; jobs are then the
# user's own only.
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin

nodes=${NODES:-1}

say() { echo "local_slurm: $*" >&2; }

missing() {
  local command conf
  for command in munged slurmctld slurmd srun; do command -v "$command" > /dev/null || echo "$command"; done
  if command -v srun > /dev/null; then
    conf=$(mktemp)
    printf 'ClusterName=local\nSlurmctldHost=localhost\n' > "$conf"  # srun lists nothing without any
    SLURM_CONF=$conf srun --mpi=list 2>&1 | grep -q pmix || echo "the plugin of Slurm for PMIx"
    rm "$conf"
  fi
}

check() {
  local lacks
  lacks=$(missing | paste -sd, | sed 's/,/, /g')
  [ -z "$lacks" ] || { say "not here: $lacks"; return 1; }
}

listened() { (: < "/dev/tcp/127.0.0.1/$1") 2> /dev/null; }

# The first of two ports of 127.0.0.1 that nobody listens on, one after the other.
free_ports() {
  local port
  while port=$((20000 + RANDOM % 6000 * 2)); listened "$port" || listened $((port + 1)); do :; done
  echo "$port"
}

# One node of this machine's name, or several, whose daemons differ by their ports.
nodes_of() {
  local i
  if [ "$nodes" = 1 ]; then echo "NodeName=$1 NodeAddr=127.0.0.1 CPUs=${CPUS:-8}"; return; fi
  for ((i = 1; i <= nodes; ++i)); do
    echo "NodeName=n$i NodeHostname=$1 NodeAddr=127.0.0.1 Port=$(($2 + i)) CPUs=${CPUS:-8}"
  done
}

# The first job's number differs from one Slurm to the next: Open MPI names its shared memory after it, and two at once would meet there.
write_conf() {
  local host port each=
  host=$(hostname -s)
  port=$(free_ports)
  [ "$nodes" = 1 ] || each=%n  # slurmd puts its node's name there
  cat > "$SLURM_CONF" << EOF
ClusterName=local
FirstJobId=$((1 + RANDOM * 1000 + RANDOM % 1000))
SlurmctldHost=$host(127.0.0.1)
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
SlurmctldPort=$port
SlurmdPort=$((port + 1))
AuthType=auth/munge
AuthInfo=socket=$state/munge.socket,cred_expire=5
StateSaveLocation=$state/slurmctld
SlurmdSpoolDir=$state/slurmd${each:+-$each}
TmpFS=$state/tmp${each:+-$each}
SlurmctldPidFile=$state/slurmctld.pid
SlurmdPidFile=$state/slurmd${each:+-$each}.pid
SlurmctldLogFile=$state/slurmctld.log
SlurmdLogFile=$state/slurmd${each:+-$each}.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=1
KillWait=5
ReturnToService=2
SlurmdParameters=config_overrides
$(nodes_of "$host" "$port")
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE
EOF
}

# Leaves nothing behind where it fails or is ended before all stands.
start() {
  check
  unset "${!SLURM_@}" "${!SBATCH_@}"  # of another Slurm, whose job this may be
  state=$(mktemp -d "${TMPDIR:-/tmp}/trireme-slurm-XXXXXX")
  trap stop EXIT
  trap 'exit 143' TERM INT HUP
  export SLURM_CONF=$state/slurm.conf
  chmod 755 "$state"  # munged refuses a socket that others cannot reach
  mkdir "$state/slurmctld" "$state/slurmd" "$state/tmp"
  [ "$nodes" = 1 ] || (cd "$state" && seq -f tmp-n%g "$nodes" | xargs mkdir)
  (umask 077; head -c 128 /dev/urandom > "$state/munge.key")
  write_conf
  # The daemons hold on to nothing of the caller's: a pipe that reads this script's output must see its end.
  if ! daemons < /dev/null > "$state/start.log" 2>&1; then
    tail "$state"/*.log >&2
    say "did not start"
    exit 1
  fi
}

daemons() {
  munged --key-file="$state/munge.key" --socket="$state/munge.socket" --pid-file="$state/munged.pid" \
    --log-file="$state/munged.log" --seed-file="$state/munged.seed" && slurmctld && slurmds && ready
}

slurmds() {
  local i
  if [ "$nodes" = 1 ]; then slurmd; return; fi
  for ((i = 1; i <= nodes; ++i)); do slurmd -N "n$i"; done
}

ready() {
  for _ in {1..200}; do
    if [ "$(sinfo --noheader --Node --states=idle 2> /dev/null | wc -l)" = "$nodes" ]; then return 0; fi
    sleep 0.1
  done
  return 1
}

# Until nothing of it is left: jobs first, as long as there is somebody who can end them; munged last, whom the others ask.
stop() {
  if [ -e "$state/slurmctld.pid" ]; then
    scancel --full --user="$(id -un)" 2> /dev/null || true
    for _ in {1..100}; do
      [ -n "$(squeue --noheader 2> /dev/null)" ] || break
      sleep 0.1
    done
  fi
  end TERM slurmctld slurmd 'slurmd-n*'
  end KILL munged
  rm -rf "$state"
}

# end SIGNAL DAEMON...: and waits for their end, 10 s at most.
end() {
  local signal=$1 pids; shift
  # shellcheck disable=SC2048,SC2086  # patterns of files
  mapfile -t pids < <(cd "$state" && cat ${*/%/.pid} 2> /dev/null)
  kill -"$signal" "${pids[@]}" 2> /dev/null || true
  for _ in {1..100}; do
    kill -0 "${pids[@]}" 2> /dev/null || return 0
    sleep 0.1
  done
  kill -KILL "${pids[@]}" 2> /dev/null || true
}

case ${1:-} in
  --check) check ;;
  start)
    start
    trap - EXIT
    echo "export SLURM_CONF=$SLURM_CONF"
    ;;
  stop)
    state=$(dirname "${SLURM_CONF:-}")
    case $state in
      */trireme-slurm-??????) [ ! -e "$state" ] || stop ;;
      *) say "SLURM_CONF names no Slurm of this script's; what 'start' prints sets it"; exit 1 ;;
    esac
    ;;
  run)
    start
    "${@:2}" <&0 &
    trap 'kill $!; exit 143' TERM INT HUP
    wait $!
    ;;
  *) sed -n '2,13s/^# //p' "$0" >&2; exit 2 ;;
esac
