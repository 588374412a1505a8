#!/bin/bash
# mpi.sh - Debian's Open MPI, its OpenSHMEM, and MPICH, unmodified, over UCX over Verbena: rings, reductions, one-sided operations
# follows: MPI 3.1; OpenSHMEM 1.4; mpirun(1)
# SPDX-License-Identifier: MIT
# UCX_TLS allows only verbs (and self, for a rank with itself). MPICH's own shared memory is off (MPIR_CVAR_NOLOCAL),
# and Open MPI uses only its UCX parts. UCX prints the lanes that it uses
case ${1:-} in
cable) source "$(dirname "$0")/../net/lib.sh" ;;
*) source "$(dirname "$0")/../../support/lib.sh" ;;
esac
need mpirun.openmpi mpirun.mpich mpicc.openmpi mpicc.mpich
sanitized && { skip "mpi" "UCX takes the place of the sanitizer's signal handlers"; exit 0; }
PROGRAMS=$ROOT/tests/system/apps/mpi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_pml=ucx OMPI_MCA_osc=ucx OMPI_MCA_btl=self OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
export MPIR_CVAR_NOLOCAL=1 SHMEM_SYMMETRIC_SIZE=16M
export UCX_UD_VERBS_ETH_DGID_CHECK=n UCX_LOG_LEVEL=info UCX_WARN_UNUSED_ENV_VARS=n
export UCX_UD_VERBS_TIMEOUT=300s # on a busy machine, too
RC=rc_verbs,ud_verbs
LIMIT=200 # there are more ranks than cores, and all of them spin

compile_mpi() { # MPI PROGRAM
	mpicc."$1" -std=gnu17 -O2 -w -o "$work/$2.$1" "$PROGRAMS/$2.c" && chmod 755 "$work/$2.$1"
}

compile_shmem() { oshcc -std=gnu17 -O2 -w -o "$work/shmem.openmpi" "$PROGRAMS/shmem.c" && chmod 755 "$work/shmem.openmpi"; }
has_shmem() { command -v oshcc >/dev/null && command -v oshrun >/dev/null || { skip OpenSHMEM "it is not installed"; false; }; }

# HPC Challenge: eight parts, which check their results. Each of its transpositions (PTRANS) prints a line with the wall
# clock; the line with the processor's clock is missing if that clock saw no time
make_hpcc() {
	mkdir -p "$work/hpcc"
	printf '%s\n' Linpack small hpl.out 8 1 400 1 40 0 1 2 2 16.0 1 2 1 4 1 2 1 1 1 1 1 1 2 64 0 0 1 8 "" 0 "" 0 "" >"$work/hpcc/hpccinf.txt"
	cat >"$work/hpcc.openmpi" <<-EOF2
		#!/bin/sh
		cd "$work/hpcc" && hpcc || exit
		[ \$OMPI_COMM_WORLD_RANK = 0 ] || exit 0
		[ \$(grep -c '^WALL .* PASSED ' hpccoutf.txt) = 5 ] && [ \$(grep -c '^Found 0 errors in .* (passed)' hpccoutf.txt) = 4 ] &&
			[ \$(grep -c '^Node(s) with error 0' hpccoutf.txt) = 10 ] && grep -q ' 1 tests completed and passed residual checks' hpccoutf.txt &&
			grep -qx Success=1 hpccoutf.txt && ! grep 'FAILED\|[1-9] tests completed and failed' hpccoutf.txt && echo "hpcc: 4 ranks agree" && exit
		grep -i 'pass\|fail\|error\|end of\|success' hpccoutf.txt
		exit 1
	EOF2
	chmod 755 "$work/hpcc.openmpi"
}
challenge() {
	rm -f "$work/hpcc/hpccoutf.txt" # otherwise it would continue after a failure
	ranks openmpi 4 hpcc $RC
}
has_hpcc() { command -v hpcc >/dev/null || { skip "HPC Challenge" "it is not installed"; false; }; }

# ranks MPI N PROGRAM TLS: all agree, and no lane uses anything else
ranks() {
	local kind=${4%%,*} launch
	launch_"$1" "$2"
	UCX_TLS=$4,self timeout -k 2 $LIMIT "${launch[@]}" "$work/$3.$1" >"$work/ranks.out" 2>&1 </dev/null || {
		echo "ended with $?"
		grep -v 'UCX  INFO' "$work/ranks.out" | head -30
		return 1
	}
	grep -q "^$3: $2 ranks agree" "$work/ranks.out" || { tail -20 "$work/ranks.out"; return 1; }
	grep -q "ep_cfg.*$kind/$UCX_NET_DEVICES" "$work/ranks.out" || { echo "no lane of $kind"; return 1; }
	[ "$3" != shmem ] || grep -q "ep_cfg.* rma\(_am\)\?($kind/$UCX_NET_DEVICES" "$work/ranks.out" || { echo "its puts did not go by $kind"; return 1; }
	! grep 'ep_cfg' "$work/ranks.out" | grep -E '(tcp|sysv|posix|cma|xpmem)/'
}

if [ "${1:-}" = cable ]; then
	check "two hosts" hosts || exit 1
	export UCX_NET_DEVICES=$DEV:1 OMPI_MCA_oob_tcp_if_include=net0 OMPI_MCA_plm_rsh_agent=$work/rsh
	# instead of ssh: the other host is a namespace, with its own host name
	cat >"$work/rsh" <<-EOF2
		#!/bin/sh
		while case \$1 in -*) true ;; *) false ;; esac; do shift; done
		host=\$1
		shift
		case \$host in $V4_A) n=$A ;; *) n=$B ;; esac
		exec ip netns exec \$n unshare -u sh -c "hostname \$host; \$*"
	EOF2
	# each rank uses Verbena on its own host, although the launcher passes on the environment of the first host
	cat >"$work/rank" <<-EOF2
		#!/bin/sh
		case \$(hostname) in $V4_A) r=$work/a ;; *) r=$work/b ;; esac
		VERBENA_RUNTIME=\$r exec $VERBENA run "\$@"
	EOF2
	chmod 755 "$work/rsh" "$work/rank"
	first=("${on_a[@]}" unshare -u sh -c 'hostname "$0"; exec "$@"' $V4_A)
	launch_openmpi() { launch=("${first[@]}" mpirun.openmpi --host "$V4_A:$(($1 / 2)),$V4_B:$(($1 / 2))" --map-by node -np "$1" "$work/rank"); }
	launch_mpich() { launch=("${first[@]}" mpirun.mpich -launcher ssh -launcher-exec "$work/rsh" -hosts "$V4_A,$V4_B" -iface net0 -np "$1" "$work/rank"); }
	for m in openmpi mpich; do
		for p in ring reduce onesided; do
			check "$m: $p compiles" compile_mpi $m $p
			check "two hosts, $m: $p, 2 ranks, rc_verbs" crossing 100000 ranks $m 2 $p $RC
		done
		check "two hosts, $m: ring, 4 ranks, rc_verbs" crossing 100000 ranks $m 4 ring $RC
		check "two hosts, $m: reduce, 4 ranks, ud_verbs" crossing 100000 ranks $m 4 reduce ud_verbs
	done
	if has_shmem; then
		check "OpenSHMEM compiles" compile_shmem
		check "two hosts, OpenSHMEM, 2 ranks, rc_verbs" crossing 100000 ranks openmpi 2 shmem $RC
	fi
	finish
fi

export UCX_NET_DEVICES=roce_lo:1
launch_openmpi() { launch=("${run[@]}" mpirun.openmpi -np "$1"); }
launch_mpich() { launch=("${run[@]}" mpirun.mpich -np "$1"); }
for m in openmpi mpich; do
	for p in ring reduce onesided; do
		check "$m: $p compiles" compile_mpi $m $p
		for n in 2 4 8; do check "$m: $p, $n ranks, rc_verbs" ranks $m $n $p $RC; done
		check "$m: $p, 4 ranks, ud_verbs" ranks $m 4 $p ud_verbs
	done
done
if has_shmem; then
	check "OpenSHMEM compiles" compile_shmem
	for n in 2 4; do check "OpenSHMEM, $n ranks, rc_verbs" ranks openmpi $n shmem $RC; done
	check "OpenSHMEM, 4 ranks, ud_verbs" ranks openmpi 4 shmem ud_verbs
fi
if has_hpcc; then make_hpcc && check "openmpi: HPC Challenge, 4 ranks, rc_verbs" challenge; fi
# only Debian's python has the module
cat >"$work/each.py" <<-EOF2
	from mpi4py import MPI
	from array import array
	c = MPI.COMM_WORLD
	r, n = c.rank, c.size
	b = array("d", [0]) * 100000
	c.Allreduce(array("d", [r]) * 100000, b)
	assert set(b) == {n * (n - 1) / 2}
	assert c.allgather(str(r) * 10000) == [str(i) * 10000 for i in range(n)]
	w = MPI.Win.Allocate(8 * n, 8, comm=c)
	w.Fence()
	for i in range(n):
	    w.Put(array("d", [r + 1]), i, r)
	w.Fence()
	assert list(memoryview(w.tomemory()).cast("B").cast("d")) == [i + 1 for i in range(n)]
	w.Free()
	c.Barrier()
	r or print("mpi4py:", n, "ranks agree")
EOF2
each() { # RANKS
	UCX_TLS=$RC,self timeout -k 2 $LIMIT "${run[@]}" mpirun.openmpi -np "$1" /usr/bin/python3 "$work/each.py" >"$work/ranks.out" 2>&1 </dev/null &&
		grep -q "^mpi4py: $1 ranks agree" "$work/ranks.out" && return 0
	grep -v 'UCX  INFO' "$work/ranks.out" | tail -30
	return 1
}
if /usr/bin/python3 -c 'from mpi4py import rc; rc.initialize = False; from mpi4py import MPI' 2>/dev/null; then
	for n in 2 4; do check "openmpi: mpi4py, $n ranks, rc_verbs" each $n; done
else
	skip mpi4py "it is not installed"
fi
netpipe() {
	UCX_TLS=$RC,self timeout -k 2 $LIMIT "${run[@]}" mpirun.openmpi -np 2 NPopenmpi -n 20 -u 20000 -o "$work/np.out" >"$work/ranks.out" 2>&1 </dev/null &&
		grep -q '16384 bytes .* Mbps' "$work/ranks.out" && return 0
	grep -v 'UCX  INFO' "$work/ranks.out" | tail -30
	return 1
}
if command -v NPopenmpi >/dev/null; then check "openmpi: NetPIPE, rc_verbs" netpipe
else skip NetPIPE "it is not installed"; fi
"$0" cable || failed=1
finish
