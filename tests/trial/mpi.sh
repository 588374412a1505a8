#!/bin/bash
# mpi.sh - Debian's Open MPI and MPICH, unmodified, over UCX over Verbena: rings, reductions, one-sided operations
# follows: MPI 3.1
# SPDX-License-Identifier: MIT
# UCX_TLS names nothing but verbs (and self, a rank with itself); MPICH's own shared memory is off (MPIR_CVAR_NOLOCAL), Open MPI
# takes its UCX parts only. UCX says which lanes it took
source "$(dirname "$0")/../lib.sh"
NAME=mpi
need mpirun.openmpi mpirun.mpich mpicc.openmpi mpicc.mpich
sanitized && { skip "mpi" "UCX takes the place of the sanitizer's signal handlers"; exit 0; }
HERE=$(cd "$(dirname "$0")" && pwd)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_pml=ucx OMPI_MCA_osc=ucx OMPI_MCA_btl=self OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
export MPIR_CVAR_NOLOCAL=1
export UCX_NET_DEVICES=roce_lo:1 UCX_UD_VERBS_ETH_DGID_CHECK=n UCX_LOG_LEVEL=info UCX_WARN_UNUSED_ENV_VARS=n

compile() { # MPI PROGRAM
	mpicc."$1" -std=gnu17 -O2 -w -o "$work/$2.$1" "$HERE/mpi/$2.c"
}

# ranks MPI N PROGRAM TLS: all agree, and no lane was of anything else
ranks() {
	local kind=${4%%,*}
	UCX_TLS=$4,self timeout -k 2 60 "${run[@]}" "mpirun.$1" -np "$2" "$work/$3.$1" >"$work/ranks.out" 2>&1 </dev/null || {
		echo "ended with $?"
		grep -v 'UCX  INFO' "$work/ranks.out" | head -30
		return 1
	}
	grep -q "^$3: $2 ranks agree" "$work/ranks.out" || { tail -20 "$work/ranks.out"; return 1; }
	grep -q "ep_cfg.*$kind/$UCX_NET_DEVICES" "$work/ranks.out" || { echo "no lane of $kind"; return 1; }
	! grep 'ep_cfg' "$work/ranks.out" | grep -E '(tcp|sysv|posix|cma|xpmem)/'
}

for m in openmpi mpich; do
	for p in ring reduce onesided; do
		check "$m: $p compiles" compile $m $p
		for n in 2 4 8; do
			check "$m: $p, $n ranks, rc_verbs" ranks $m $n $p rc_verbs,ud_verbs
		done
		for n in 2 4; do
			check "$m: $p, $n ranks, ud_verbs" ranks $m $n $p ud_verbs
		done
	done
done
finish
