#!/bin/bash
# containers.sh - restricted environments: no root, only lo, a read-only file system, no environment, no process_vm; two containers
# follows: unshare(1), verbena(7)
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/../../support/lib.sh"
need ib_send_lat unshare
export LIMIT

# the functions of lib.sh inside a shell that was started elsewhere
inside() { # LAUNCHER… -- COMMAND: the command in a bash below the launcher
	local launcher=()
	while [ "$1" != -- ]; do launcher+=("$1"); shift; done
	shift
	declare -p run SLOW HOST LIMIT work >"$work/state"
	declare -f >>"$work/state"
	timeout $((300 * SLOW)) "${launcher[@]}" "$BASH" -uc "source $work/state; $*"
}

if unshare -Urn true 2>/dev/null; then
	check "a user namespace with lo alone: sends" inside unshare -Urn -- "ip link set lo up; pair ib_send_lat -F -d roce_lo -n 200"
	check "a user namespace with lo alone: writes" inside unshare -Urn -- "ip link set lo up; pair ib_write_bw -F -d roce_lo -n 200"
	check "a user namespace with lo alone: the suite's example" inside unshare -Urn -- "ip link set lo up; pair ibv_rc_pingpong -g 1 -c"
	check "a user namespace, lo is down: the adapter is there, and down" inside unshare -Urn -- \
		"timeout 60 \"\${run[@]}\" ibv_devinfo -d roce_lo | grep -q 'PORT_DOWN (1)'"
	check "a user and process namespace of its own" inside unshare -Urnpf --mount-proc -- "ip link set lo up; pair ib_read_bw -F -d roce_lo -n 200"
else
	skip "a user namespace with lo alone" "user namespaces are forbidden here"
fi

if unshare -Urm true 2>/dev/null; then
	readonly_root='mount --make-rprivate /; mount --bind "$work" "$work"; mount -o remount,bind,ro /'
	check "a read-only root, only the runtime directory can be written" inside unshare -Urm -- \
		"{ $readonly_root; } && ! touch /usr/x 2>/dev/null && pair ib_send_bw -F -d roce_lo -n 200"
else
	skip "a read-only root" "mount namespaces are forbidden here"
fi

if sanitized; then
	skip "an empty environment" "a sanitized build needs its own"
else
	no_environment() {
		local old=("${run[@]}")
		run=(env -i VERBENA_RUNTIME="$VERBENA_RUNTIME" PATH="$PATH" "$VERBENA" run)
		pair ib_send_lat -F -d roce_lo -n 200
		local status=$?
		run=("${old[@]}")
		return $status
	}
	check "no HOME, no XDG_RUNTIME_DIR, no TMPDIR" no_environment
fi

without_runtime() { # an ordinary user with its runtime directory in /tmp, in a network namespace without other brokers
	run=(setpriv --reuid 47111 --regid 47111 --clear-groups env -u VERBENA_RUNTIME -u XDG_RUNTIME_DIR -u HOME "${run[@]}")
	ip link set lo up
	pair ib_send_lat -F -d roce_lo -n 200
	local status=$? mode
	mode=$(stat -c %a:%u /tmp/verbena-47111)
	[ "$mode" = 700:47111 ] || { echo "/tmp/verbena-47111 has mode and owner $mode"; status=1; }
	rm -rf /tmp/verbena-47111
	return $status
}
if sanitized || [ "$(id -u)" != 0 ] || ! setpriv --reuid 47111 --regid 47111 --clear-groups test -x "$VERBENA" || ! unshare -nm true 2>/dev/null; then
	skip "an ordinary user with a runtime directory in /tmp" "needs root, a build that others can read, and no sanitizer"
else
	check "an ordinary user with a runtime directory in /tmp" inside unshare -nm -- "mount -t tmpfs none /run; $(declare -f without_runtime); without_runtime"
fi

# --- two containers: namespaces of their own for network, processes and mounts, joined by a cable ---
# container NUMBER HOLDER RUNTIME COMMAND…: runs in the network of the process HOLDER; RUNTIME is its /run/verbena
container() {
	local number=$1 holder=$2 runtime=$3
	shift 3
	timeout -k 2 $((60 * SLOW)) nsenter -t "$holder" -n unshare -mpf --mount-proc "$BASH" -c '
		mount --make-rprivate / && mount -t tmpfs -o mode=755 none /run && mkdir /run/verbena && mount --bind "$1" /run/verbena && shift &&
			export VERBENA_RUNTIME=/run/verbena VERBENA_LOG=debug && exec "$@"' bash "$runtime" "${run[@]}" "$@" >"$work/container$number" 2>&1 </dev/null
}
has_other_network() { [ "$(readlink /proc/$1/ns/net)" != "$(readlink /proc/$$/ns/net)" ]; }
# containers RUNTIME RUNTIME PROGRAM ARGS…: both ends succeed. With SERVER ARGS… -- CLIENT ARGS… the ends differ, and the
# client knows the server's address
containers() {
	local runtimes=("$1" "$2") a b s status=0 server=() client
	shift 2
	client=("$@" 10.77.0.1)
	while [ $# != 0 ] && [ "$1" != -- ]; do server+=("$1"); shift; done
	[ $# = 0 ] || client=("${@:2}")
	unshare -n sleep 200 & a=$!
	unshare -n sleep 200 & b=$!
	mkdir -p -m 755 "${runtimes[@]}"
	wait_for 10 has_other_network $a && wait_for 10 has_other_network $b || return 1
	nsenter -t $a -n ip link add c0 type veth peer name c0 netns $b
	for s in $a $b; do
		nsenter -t $s -n sh -c "ip link set lo up; ip addr add 10.77.0.$((s == a ? 1 : 2))/24 dev c0; ip link set c0 up"
	done
	container 0 $a "${runtimes[0]}" "${server[@]}" & s=$!
	wait_for 20 nsenter -t $a -n sh -c 'grep -q ":4965 [0-9A-F]*:0000 0A" /proc/net/tcp /proc/net/tcp6'
	container 1 $b "${runtimes[1]}" "${client[@]}" || status=1
	wait $s || status=1
	kill $a $b
	wait $a $b
	cat "$work/container0" "$work/container1"
	return $status
}
packets() { # how many RoCE packets both have sent
	sed -n 's/.*RoCE: packets sent: //p' "$work"/container[01] | awk '{ n += $1 } END { print n + 0 }'
}
PINGPONG="ibv_rc_pingpong -p 18789 -d roce_c0 -g 1 -n 300 -s 16384 -c" # port 0x4965
shared_directory() { containers "$work/shared" "$work/shared" $PINGPONG && [ "$(packets)" = 0 ] && grep -q 'requester: .* bytes: ' "$work/container1"; }
own_directories() { containers "$work/own0" "$work/own1" $PINGPONG && [ "$(packets)" -gt 600 ]; }
# Each container has queue pair 1 and UDP port 4791 of its own network
shared_connection() {
	containers "$work/shared" "$work/shared" rping -v -p 18789 -C 20 -s -a 10.77.0.1 -- rping -v -p 18789 -C 20 -c -a 10.77.0.1 && [ "$(packets)" = 0 ]
}
shared_wire() { VERBENA_WIRE=always containers "$work/shared" "$work/shared" $PINGPONG && [ "$(packets)" -gt 600 ]; }
# A second network uses the directory while the broker and the programs of a first one are there
two_networks() {
	local holder first second status=0
	export VERBENA_WIRE=always
	mkdir -p -m 755 "$work/both"
	unshare -n sleep 100 & holder=$!
	wait_for 10 has_other_network $holder
	nsenter -t $holder -n ip link set lo up
	VERBENA_RUNTIME=$work/both nsenter -t $holder -n timeout 100 "${run[@]}" ibv_rc_pingpong -p 18790 -d roce_lo -g 1 -n 300 -e -c >"$work/first" 2>&1 & first=$!
	wait_for 20 nsenter -t $holder -n sh -c 'grep -q ":4966 [0-9A-F]*:0000 0A" /proc/net/tcp /proc/net/tcp6'
	for second in 1 2; do
		VERBENA_RUNTIME=$work/both inside unshare -n -- "ip link set lo up; export VERBENA_RUNTIME=$work/both; pair ibv_rc_pingpong -d roce_lo -g 1 -n 300 -e -c" || status=1
	done
	VERBENA_RUNTIME=$work/both nsenter -t $holder -n timeout 100 "${run[@]}" ibv_rc_pingpong -p 18790 -d roce_lo -g 1 -n 300 -e -c 127.0.0.1 || status=1
	wait $first || { cat "$work/first"; status=1; }
	kill $holder
	wait $holder
	unset VERBENA_WIRE
	return $status
}
if [ "$(id -u)" = 0 ] && ! sanitized && unshare -mnpf --mount-proc true 2>/dev/null && unshare -n sh -c 'ip link add x type veth peer name y' 2>/dev/null; then
	check "two containers with one runtime directory: shared memory, and not a packet" shared_directory
	check "two containers with a runtime directory each: RoCE" own_directories
	if command -v rping >/dev/null; then
		check "two containers with one runtime directory, joined by rdma_cm: shared memory" shared_connection
	else
		skip "two containers, joined by rdma_cm" "rping is not installed"
	fi
	check "the same over RoCE" shared_wire
	check "in two networks at a time, with one runtime directory: RoCE within each" two_networks
else
	skip "two containers" "needs root, namespaces, veth, and no sanitizer"
fi

no_vm=$BUILD/bench/no_process_vm
if [ -x "$no_vm" ]; then
	forbidden() { local old=("${run[@]}") status; run=("$no_vm" "${run[@]}"); pair "$@"; status=$?; run=("${old[@]}"); return $status; }
	for p in ib_send_bw ib_write_bw ib_read_bw; do
		check "process_vm_* forbidden by seccomp: $p" forbidden $p -F -d roce_lo -s 65536 -n 200
		check "process_vm_* forbidden by seccomp: $p, 8 MiB" forbidden $p -F -d roce_lo -s 8388608 -n 10
	done
	check "process_vm_* forbidden by seccomp: ibv_rc_pingpong -c" forbidden ibv_rc_pingpong -d roce_lo -g 1 -s 1048576 -n 50 -c
fi
finish
