#!/bin/bash
# host.sh - verbena doctor names each ill that is made here on purpose, and finds none on a healthy host
# follows: verbena-doctor(1)
# SPDX-License-Identifier: MIT
# usage: own-network host.sh REFUSE, with BUILD in the environment
source "$(dirname "${BASH_SOURCE[0]}")/../../support/lib.sh"
refuse=$1
need python3 rping
if [ "$(id -u)" != 0 ] || [ "$(ip -o link | wc -l)" -gt 3 ]; then # lo, own0, own1
	skip "doctor on a host" "not root in a network namespace of its own"
	exit 0
fi

# doctor STATUS COMMAND…: the report goes to $work/report; fails if the exit status is another one. 01: either
doctor() {
	local want=$1 status=0
	shift
	if [ "$(type -t "$1")" = function ]; then
		"$@" >"$work/report" 2>&1 </dev/null || status=$?
	else
		timeout $((90 * SLOW)) "$@" >"$work/report" 2>&1 </dev/null || status=$?
	fi
	cat "$work/report"
	[[ $want == *$status* ]] && return 0
	echo "exit status $status, not $want"
	return 1
}
finds() { # PATTERN: a line of the report
	grep -qE "$1" "$work/report" && return 0
	echo "missing: $1"
	return 1
}
mends() { # PATTERN WHAT: the line below the finding
	grep -E -A1 "$1" "$work/report" | grep -qE "mend: .*$2" && return 0
	echo "missing: mend: $2"
	return 1
}

healthy() {
	ip link set lo up
	doctor 01 "$VERBENA" doctor || return 1
	local path
	for path in same-host roce iwarp; do finds "^\[ok\]   $path: .*latency [0-9.]+ us" || return 1; done
	finds '^\[ok\]   port: UDP port 4791 is free' && finds '^\[ok\]   adapters: roce_lo on lo: 127.0.0.1' &&
		! grep -q '^\[fail\]' "$work/report"
}
as_json() {
	local status=0
	"$VERBENA" doctor --json >"$work/json" || status=$?
	python3 - "$work/json" $status <<-'END'
		import json, sys
		report = json.load(open(sys.argv[1]))
		marks = ["ok", "warn", "fail"]
		worst = max(marks.index(f["status"]) for f in report["findings"])
		assert marks[worst] == report["status"] and worst == int(sys.argv[2]), report
		assert all(f["text"] and f["check"] for f in report["findings"])
		assert all("mend" in f for f in report["findings"] if f["status"] == "fail")
	END
}
wrong_options() {
	doctor 3 "$VERBENA" doctor --jsn && doctor 3 "$VERBENA" doctor a b || return 1
	! "$VERBENA" doctor --json >/dev/full 2>"$work/report" && finds 'No space left'
}

holder=
hold_port() {
	rm -f "$work/held"
	exec python3 -c 'import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(("0.0.0.0", 4791)); open(sys.argv[1], "w").close(); time.sleep(100)' "$work/held"
}
port_taken() {
	broker_gone || return 1
	hold_port &
	holder=$!
	wait_for 20 test -e "$work/held" || return 1
	local status=0
	doctor 2 "$VERBENA" doctor && finds "^\[fail\] port: UDP port 4791 is held by python3 \(process $holder of user 0\)" &&
		mends '\[fail\] port' "kill $holder" && finds '^\[fail\] roce' && finds '^\[ok\]   same-host' || status=1
	return $status
}
port_of_another_user() {
	chmod 711 "$work"
	doctor 2 setpriv --reuid 65533 --regid 65533 --clear-groups env VERBENA_RUNTIME="$work/other" "$VERBENA" doctor &&
		finds '^\[warn\] port: UDP port 4791 is held by a process of user 0'
	local status=$?
	die "$holder"
	return $status
}

program=
start_program() {
	broker_gone || return 1
	timeout 300 "${run[@]}" rping -s -P >"$work/server.out" 2>&1 </dev/null &
	program=$!
	wait_for 20 grep -qi ':12B7 ' /proc/net/udp /proc/net/udp6
}
end_program() {
	kill "$program"
	wait "$program" 2>/dev/null
	broker_gone
}
port_ours() {
	start_program || return 1
	doctor 01 "$VERBENA" doctor && finds '^\[ok\]   port: UDP port 4791 is held by Verbena' && finds '^\[ok\]   broker: process [0-9]+ of user 0 answers; it serves 1 programs'
	local status=$?
	end_program && return $status
}
broker_stopped() {
	start_program || return 1
	local pid status=0
	pid=$(brokers | head -1)
	kill -STOP "$pid"
	doctor 2 "$VERBENA" doctor && finds "^\[fail\] broker: the broker \(process $pid\) is stopped" && mends '\[fail\] broker' "kill -CONT $pid" &&
		finds '^\[warn\] paths' || status=1
	kill -CONT "$pid"
	end_program && return $status
}

firewall() {
	broker_gone || return 1
	nft 'add table inet doctor; add chain inet doctor in { type filter hook input priority 0; }; add rule inet doctor in udp dport 4791 drop' || return 1
	doctor 2 "$VERBENA" doctor && finds '^\[fail\] firewall: a rule of this host drops RoCE packets: udp dport 4791 drop' &&
		finds '^\[fail\] firewall: a datagram from 127.0.0.1 .* did not arrive' && finds '^\[fail\] roce' && finds '^\[ok\]   iwarp'
	local status=$?
	nft delete table inet doctor
	return $status
}

few_files() {
	doctor 1 bash -c 'ulimit -n 60; exec "$0" doctor' "$VERBENA" && finds '^\[warn\] files: a process may have only 60' && mends '\[warn\] files' 'ulimit -n'
}
little_address_space() {
	doctor 2 bash -c 'ulimit -v 250000; exec "$0" doctor' "$VERBENA" && finds '^\[fail\] memory: a shared segment' && mends '\[fail\] memory' 'ulimit -v'
}
small_files() {
	doctor 2 bash -c 'ulimit -f 1000; exec "$0" doctor' "$VERBENA" && finds '^\[fail\] memory: .*file size limit'
}
no_memfd() {
	doctor 2 "$refuse" memfd_create "$VERBENA" doctor &&
		finds '^\[fail\] calls: memfd_create is refused \(Operation not permitted\) by a seccomp filter' && finds '^\[fail\] same-host'
}
no_copies() {
	doctor 1 "$refuse" process_vm_readv "$VERBENA" doctor && finds '^\[warn\] calls: process_vm_readv is refused' &&
		finds '^\[warn\] ptrace: a process may not copy the memory' && finds '^\[ok\]   same-host'
}
no_io_uring() {
	doctor 01 "$refuse" io_uring_setup "$VERBENA" doctor && finds '^\[ok\]   calls: io_uring_setup is refused'
}
no_netlink() {
	doctor 2 "$refuse" netlink "$VERBENA" doctor && finds '^\[fail\] calls: socket\(AF_NETLINK\) is refused \(Address family not supported' &&
		mends '\[fail\] calls: socket' RestrictAddressFamilies
}
no_ipv6() {
	doctor 01 "$refuse" inet6 "$VERBENA" doctor && finds '^\[ok\]   calls: socket\(AF_INET6\) is refused' && finds '^\[ok\]   roce: '
}
wrong_devices() {
	doctor 2 env VERBENA_DEVICES=iwrp:lo "$VERBENA" doctor && finds '^\[fail\] adapters: VERBENA_DEVICES: "iwrp:lo"'
}
read_only_runtime() {
	mkdir "$work/read-only"
	doctor 2 unshare -m sh -c 'mount -t tmpfs -o ro none "$1" && VERBENA_RUNTIME=$1/run exec "$0" doctor' "$VERBENA" "$work/read-only" &&
		finds '^\[fail\] runtime: .*/read-only/run: Read-only file system' && mends '\[fail\] runtime' VERBENA_RUNTIME && finds '^\[fail\] broker: none runs, and none can be started'
}
wrong_runtime() {
	doctor 2 env VERBENA_RUNTIME=/dev/null "$VERBENA" doctor && finds '^\[fail\] runtime: /dev/null' &&
		doctor 2 env VERBENA_RUNTIME=/nowhere/x "$VERBENA" doctor && finds '^\[fail\] runtime: /nowhere/x: the directory above it does not exist'
}
lo_down() {
	ip link set lo down
	doctor 2 "$VERBENA" doctor && finds '^\[warn\] adapters: roce_lo on lo: the interface is down' && mends 'roce_lo on lo' 'ip link set lo up'
	local status=$?
	ip link set lo up
	return $status
}
leftovers() {
	broker_gone || return 1 # its keeper has the port
	mkdir -m 700 "$work/old"
	python3 -c 'import socket, sys; socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).bind(sys.argv[1])' "$work/old/broker-1.sock" || return 1
	doctor 1 env VERBENA_RUNTIME="$work/old" "$VERBENA" doctor && finds '^\[warn\] runtime: .* has 1 sockets'
}
in_chroot() { # COMMAND…: in a root directory without /proc
	mkdir -p "$work/root"
	timeout $((90 * SLOW)) unshare -m sh -c 'mount --make-rprivate / && mount --bind / "$1" && mount --bind "$2" "$1$2" && mount --bind "$3" "$1$3" || exit 9
		root=$1; shift 3; exec chroot "$root" "$@"' sh "$work/root" "$ROOT" "${work%/*}" "$@"
}
without_proc() {
	in_chroot "$VERBENA" run --no-shim true || { echo "the launcher does not find its libraries"; return 1; }
	doctor 2 in_chroot "$VERBENA" doctor &&
		finds '^\[fail\] proc: /proc is not mounted' && mends '\[fail\] proc' 'mount -t proc'
}

check "a healthy host has no failure, and messages travel by each path" healthy
check "the findings are printed as JSON too" as_json
check "wrong options and output that cannot be written give their own exit status" wrong_options
check "a program that holds UDP port 4791 is named" port_taken
check "another user's process that holds the port is reported by its user" port_of_another_user
check "a port that Verbena holds itself is no failure" port_ours
check "a stopped broker is named, and no message is tried" broker_stopped
command -v nft >/dev/null && check "a rule of nftables that drops RoCE is shown" firewall
check "a small limit of descriptors is a warning" few_files
sanitized || check "a small address space is a failure" little_address_space
sanitized || check "a small limit of file sizes is a failure" small_files
check "a refused memfd_create is a failure" no_memfd
check "a refused process_vm_readv is a warning" no_copies
check "a refused io_uring is no warning" no_io_uring
check "a service without AF_NETLINK is told what it lacks" no_netlink
check "one without AF_INET6 works" no_ipv6
check "a wrong word of VERBENA_DEVICES is named" wrong_devices
check "a runtime directory that cannot be used is named" wrong_runtime
check "so is one in a read-only file system" read_only_runtime
check "an interface that is down is a warning" lo_down
check "a socket of a dead broker is a warning" leftovers
sanitized || check "a missing /proc is named" without_proc
finish
