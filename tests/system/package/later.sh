#!/bin/bash
# later.sh - this build below the RDMA programs of later distributions: Debian 13's, and Ubuntu 24.04's
# follows: debian-policy(7), the programs' own manual pages
# SPDX-License-Identifier: MIT
# usage: later.sh   SUITES: whose programs are run (trixie; noble too by hand); LATER_ROOT: a root of the first suite, made before (.tar)
# COMPILERS=yes: also builds with the first suite's gcc and clang, and runs units there; an hour on a slow machine
# UBUNTU_KEYRING: the keys of Ubuntu's archive, if not those of Debian 13's package; UBUNTU_MIRROR: instead of the archive
source "$(dirname "$0")/../../support/lib.sh"
need mmdebstrap nsenter
[ "$(id -u)" = 0 ] && unshare -mn true 2>/dev/null || { skip "programs of later distributions" "needs root and namespaces"; exit 0; }
sanitized && { skip "programs of later distributions" "their root has no sanitizer's library"; exit 0; }
suites=${SUITES:-trixie}
ubuntu_keys=${UBUNTU_KEYRING:-}
rows=iproute2,procps,libisal2,libjson-c5,liburing2,libssl3t64,ibverbs-utils,rdmacm-utils,perftest,ucx-utils,libfabric-bin,python3-pyverbs
tools=gcc,g++,clang,libclang-rt-dev,meson,ninja-build,pkg-config,libibverbs-dev,librdmacm-dev,libisal-dev,libpcap-dev,liburing-dev,libjson-c-dev,libncurses-dev,libssl-dev,libibumad-dev
[ -z "${COMPILERS:-}" ] || rows=$rows,$tools

# --- a root, and a process that holds its mounts and its network ---
# Debian 13 has a package of Ubuntu's keys, which Debian's archive signs
fetch_ubuntu_keys() { # sets $ubuntu_keys
	ubuntu_keys=$work/ubuntu-archive-keyring.gpg
	timeout 300 mmdebstrap --quiet --variant=extract --include=ubuntu-keyring trixie - </dev/null 2>"$work/keys.log" |
		tar -xO ./usr/share/keyrings/ubuntu-archive-keyring.gpg >"$ubuntu_keys" 2>>"$work/keys.log"
	[ -s "$ubuntu_keys" ]
}
make_root() { # SUITE TAR
	local mirror=() keys=()
	if [ "$1" = noble ]; then
		[ -n "$ubuntu_keys" ] || fetch_ubuntu_keys
		[ -s "$ubuntu_keys" ] || { echo "Ubuntu's keys are not there" | cat "$work/keys.log" - >"$work/$1.log"; return 1; }
		keys=("--keyring=$ubuntu_keys")
		[ -z "${UBUNTU_MIRROR:-}" ] || mirror=("$UBUNTU_MIRROR")
	fi
	timeout 600 mmdebstrap --quiet --variant=minbase "${keys[@]}" --components="main$([ "$1" != noble ] || echo ,universe)" \
		--dpkgopt='path-exclude=/usr/share/{doc,man,locale}/*' --dpkgopt='path-include=/usr/share/doc/rdma-core/tests/*' \
		--dpkgopt='path-include=/usr/share/doc/python3-pyverbs/tests/*' --include="$rows" "$1" "$2" "${mirror[@]}" >"$work/$1.log" 2>&1 </dev/null
}
# The root sees the build tree and the runtime directory where they are, and nothing else of this machine
hold() { # SUITE: sets $holder, and $run for lib.sh's pair
	root=$work/$1
	local v
	mkdir -p "$root" && tar -C "$root" -xf "$2" --exclude='./dev/*' || return 1
	unshare -mn bash -uc '
		mount --make-rprivate / && mount --bind "$1" "$1" && mount -t proc proc "$1/proc" && mount --rbind /sys "$1/sys" && mount --rbind /dev "$1/dev" &&
			mount -t tmpfs -o mode=755 none "$1/run" && mount -t tmpfs -o mode=1777 none "$1/dev/shm" && mount -t tmpfs -o mode=1777 none "$1/tmp" &&
			mkdir -p "$1$2" "$1$3" && mount --bind "$2" "$1$2" && mount --bind "$3" "$1$3" && ip link set lo up &&
			ip link add v0 type veth peer name v1 && ip addr add 10.1.1.1/24 dev v0 && ip link set v0 up && ip link set v1 up && touch "$4" && exec sleep 1800' \
		bash "$root" "$BUILD" "$VERBENA_RUNTIME" "$work/$1.up" >"$work/$1.hold" 2>&1 </dev/null &
	holder=$!
	wait_for 20 test -e "$work/$1.up" || { cat "$work/$1.hold"; return 1; }
	within=(nsenter -t "$holder" -m -n chroot "$root" env "LC_ALL=C" "HOME=/root" "PATH=/usr/sbin:/usr/bin:/sbin:/bin")
	run=("${within[@]}" "VERBENA_RUNTIME=$VERBENA_RUNTIME")
	for v in VERBENA_BROKER; do [ -z "${!v:-}" ] || run+=("$v=${!v}"); done
	run+=("$VERBENA" run)
}
let_go() {
	kill "$holder"
	wait "$holder"
	rm -rf "$root"
}
listens() { # PORT, in the root's network
	nsenter -t "$holder" -n cat /proc/self/net/tcp /proc/self/net/tcp6 2>/dev/null | grep -qi "^ *[0-9]*: [0-9A-F]*:$(printf %04X "$1") [0-9A-F]*:0000 0A"
}

# --- programs ---
with() { # NAME=VALUE… -- COMMAND…: these variables are the program's
	local old=("${run[@]}") set=() status
	while [ "$1" != -- ]; do set+=("$1"); shift; done
	shift
	run=("${old[@]:0:${#old[@]}-2}" "${set[@]}" "$VERBENA" run)
	"$@"
	status=$?
	run=("${old[@]}")
	return $status
}
in_root() { timeout -k 2 $((LIMIT * SLOW)) "${run[@]}" "$@" </dev/null; }
shows_adapter() { in_root ibv_devinfo -v -d roce_lo | tee /dev/stderr | grep -q 'PORT_ACTIVE (4)'; }
# the program's libraries are those of the suite, except for ours
loads_ours() { in_root ldd /usr/bin/ibv_rc_pingpong | tee /dev/stderr | grep -q "libibverbs.so.1 => $BUILD/"; }
# by_cm SERVER… -- CLIENT…: no TCP socket shows that the server is up. The client may ask again
by_cm() {
	local s c server=()
	while [ "$1" != -- ]; do server+=("$1"); shift; done
	shift
	free_port
	timeout -k 2 $((LIMIT * SLOW)) "${run[@]}" "${server[@]}" -p "$port" >"$work/server.out" 2>&1 </dev/null & s=$!
	for _ in 1 2 3; do
		sleep 1
		in_root "$@" -p "$port" >"$work/client.out" 2>&1
		c=$?
		[ $c != 0 ] || break
	done
	[ $c = 0 ] || { said_by_both; kill $s; }
	wait $s && [ $c = 0 ]
}
rping_both() { by_cm rping -s -C 20 -V -S 4096 -a 127.0.0.1 -- rping -c -C 20 -V -S 4096 -a 127.0.0.1; }
read_by_cm() { by_cm ib_read_bw -R -F -n 200 -- ib_read_bw -R -F -n 200 127.0.0.1; }
# -P 0: a ucx_perftest that is built with MPI would take an input that is no terminal for mpirun's
ucx_final() { # TLS TEST…: figures, and lanes of verbs alone
	local without_mpi=
	! "${within[@]}" ucx_perftest -h 2>/dev/null | grep -q '^ *-P <0|1>' || without_mpi="-P 0"
	with UCX_TLS="$1" UCX_NET_DEVICES=roce_lo:1 UCX_LOG_LEVEL=info -- pair ucx_perftest $without_mpi -t "${@:2}" && grep -q '^Final: ' "$work/client.out" &&
		! grep ep_cfg "$work/client.out" | grep -E '(tcp|sysv|posix|cma|xpmem)/' || { said_by_both; return 1; }
}
fi_both() { # PROVIDER ENDPOINT ARGS…
	local s c
	free_port
	timeout -k 2 $((LIMIT * SLOW)) "${run[@]}" fi_pingpong -c -p "$1" -e "$2" "${@:3}" -B "$port" >"$work/server.out" 2>&1 </dev/null & s=$!
	wait_for 20 listens "$port"
	in_root fi_pingpong -c -p "$1" -e "$2" "${@:3}" -P "$port" 127.0.0.1 >"$work/client.out" 2>&1
	c=$?
	[ $c = 0 ] || { said_by_both; kill $s; }
	wait $s && [ $c = 0 ]
}
# rdma-core's tests in the suite's version. Their modules are named, because the loader of rdma-core 50's tests is not
# for Python 3.12 (its load_tests passes a positional argument that is gone there)
own_tests() {
	local where
	where=$(ls -d "$root"/usr/share/doc/{rdma-core,python3-pyverbs}/tests 2>/dev/null | head -1)
	[ -n "$where" ] || { echo "the suite is not in this python3-pyverbs"; return 1; }
	"${within[@]}" sh -c "cp -r ${where#"$root"} /tmp/suite && find /tmp/suite -name '*.gz' -exec gunzip -f {} +" || return 1
	"${run[@]}" sh -c 'cd /tmp/suite && timeout -k 2 300 python3 run_tests.py --dev roce_lo --gid 1 -v $(ls test_*.py | sed "s/^/tests./; s/\.py$//")' >"$work/suite.out" 2>&1 </dev/null
	tail -60 "$work/suite.out"
	grep -q '^OK' "$work/suite.out" && [ "$(grep -c '\.\.\. ok$' "$work/suite.out")" -ge 100 ]
}
devices_by_pyverbs() { in_root python3 -c 'import pyverbs.device as d; assert any(x.name == b"roce_lo" for x in d.get_device_list())'; }

programs() { # SUITE
	local p
	check "$1: a program loads this build's libibverbs, and everything else is its own" loads_ours
	check "$1: ibv_devinfo -v" shows_adapter
	for p in rc uc ud srq xsrq; do
		check "$1: ibv_${p}_pingpong" pair ibv_${p}_pingpong -d roce_lo -g 1 -n 200 $([ $p != ud ] || echo -s 1024) $([ $p != rc ] || echo -c)
	done
	check "$1: ibv_rc_pingpong over UDP" with VERBENA_WIRE=always -- pair ibv_rc_pingpong -d roce_lo -g 1 -n 200 -c
	check "$1: ib_send_bw" pair ib_send_bw -F -d roce_lo -n 200
	check "$1: ib_write_lat" pair ib_write_lat -F -d roce_lo -n 200
	check "$1: ib_read_bw by rdma_cm" read_by_cm
	check "$1: ib_atomic_lat over UDP" with VERBENA_WIRE=always -- pair ib_atomic_lat -F -d roce_lo -n 200
	check "$1: rping" rping_both
	check "$1: rping over iWARP" with VERBENA_DEVICES=iwarp:lo -- rping_both
	check "$1: ucx_perftest, tags by rc_verbs" ucx_final rc_verbs,ud_verbs tag_lat -s 4096 -n 100 -w 10
	check "$1: ucx_perftest, RDMA writes by rc_verbs" ucx_final rc_verbs,ud_verbs ucp_put_bw -s 65536 -n 100 -w 10
	check "$1: ucx_perftest, tags by ud_verbs" ucx_final ud_verbs tag_bw -s 4096 -n 100 -w 10
	check "$1: fi_pingpong, connections" fi_both verbs msg -S 4096 -I 100
	check "$1: fi_pingpong, messages above connections" fi_both "verbs;ofi_rxm" rdm -S 65536 -I 50
	check "$1: pyverbs lists the adapter" devices_by_pyverbs
	check "$1: the tests of its rdma-core, by its pyverbs" own_tests
}

# --- compilers ---
# A copy of the sources, in the root. core, frame and cm need no program but their own
compilers() { # SUITE
	local cc
	mkdir "$root/src" && tar -C "$ROOT" --exclude='./build*' --exclude=./.git -c . | tar -C "$root/src" -x || return 1
	for cc in gcc clang; do
		check "$1: $("${within[@]}" $cc -dumpversion | sed "s/^/$cc /") builds without a warning" "${within[@]}" sh -c \
			"cd /src && CC=$cc meson setup build-$cc -Dwerror=true >/dev/null && nice -n 19 ninja -C build-$cc -j2 >/src/log 2>&1 || { grep -A8 -E 'warning|error' /src/log | head -60; exit 1; }"
		check "$1: $cc: units" "${within[@]}" sh -c "cd /src && meson test -C build-$cc --no-rebuild --print-errorlogs --suite core --suite frame --suite cm"
	done
}

first=${suites%% *}
for suite in $suites; do
	tar=$work/$suite.tar
	[ "$suite" != "$first" ] || [ -z "${LATER_ROOT:-}" ] || tar=$LATER_ROOT
	if ! [ -s "$tar" ] && ! make_root "$suite" "$tar"; then
		skip "$suite: its programs" "no root can be made: $(grep -v '^$' "$work/$suite.log" | tail -1 | sed 's%//[^/ ]*%//…%g')"
		continue
	fi
	check "$suite: a root with its programs, which sees this build" hold "$suite" "$tar"
	[ -e "$work/$suite.up" ] || continue
	programs "$suite"
	[ -z "${COMPILERS:-}" ] || [ "$suite" != "$first" ] || compilers "$suite"
	check "$suite: the broker goes when its programs have gone" broker_gone
	let_go
done
finish
