#!/usr/bin/env bash
# Trains by Open MPI's mpirun, from the repository's root; without a config the quickstart, whose data `make train` makes.
#   scripts/launch_mpirun.sh [CONFIG [--set section.key=value]...]                     two ranks on this machine
#   HOSTFILE=hosts scripts/launch_mpirun.sh [CONFIG [--set section.key=value]...]      on several nodes
# The hostfile has a line for each node, which says how many ranks it takes:
#   node1 slots=4
#   node2 slots=4
# ssh must get there without a password, and find repository, data and runs/ at the same path: a file system that all nodes share.
# After a failure the same command continues, also with other nodes. `kill -USR1` of mpirun stops all, with a save and exit code 75.
set -euo pipefail

[ $# -gt 0 ] || set -- configs/quickstart.yaml --set train.name=mpirun

launch=(mpirun)
if [ -n "${HOSTFILE:-}" ]; then launch+=(--hostfile "$HOSTFILE"); else launch+=(-n 2 --oversubscribe); fi
# A good number of ranks on a node is that of its groups of cores with memory of their own (`lscpu`: NUMA nodes). Unbound, a rank
# sees all cores of its node and takes its share of them. To bind each to 16 cores instead:
#   launch+=(--map-by slot:PE=16 --bind-to core)      with --set kernels.threads=16
launch+=(--bind-to none)
# mpirun takes its own variables (OMPI_MCA_...) to the other nodes; others have to be named.
for name in PATH LD_LIBRARY_PATH; do
  [ -z "${!name:-}" ] || launch+=(-x "$name")
done
exec "${launch[@]}" "${TRIREME:-build/trireme}" train "$@"
