#!/bin/bash
# qos.sh - limits and fair shares with hosts over TCP and RDMA; namespaces and limits that change under load; what waits
# when a host, a namespace or the target ends
# see: storage/target/qos.c
# SPDX-License-Identifier: MIT
# usage: qos.sh TARGET DISK
HERE=$(cd "$(dirname "$0")" && pwd)
source "$HERE/../../support/lib.sh"
source "$HERE/medium.sh"
need python3
target_program=$1 disk=$2
NQN=nqn.2026-01.test:qos SLOW_HOST=nqn.2026-01.test:slow
pids=()
stop_all() {
	[ ${#pids[@]} = 0 ] || die "${pids[@]}"
	pids=()
}
trap 'stop_all; rm -rf "$work"' EXIT
now_ms() { echo $((${EPOCHREALTIME/./} / 1000)); }

medium_json 16M && first=$medium && medium_json 16M && second=$medium
cat >"$work/conf.json" <<-END
	{"listen": [{"transport": "tcp", "address": "127.0.0.1", "port": 0}, {"transport": "rdma", "address": "127.0.0.1", "port": 0}],
	 "connections": 2048, "connections_per_host": 2048,
	 "host_limits": {"$SLOW_HOST": {"wbps": "1M", "burst": 50}},
	 "subsystems": [{"nqn": "$NQN", "allow_any_host": true, "namespaces": [
	    {"nsid": 1, $first, "limits": {"riops": 500, "burst": 50}},
	    {"nsid": 2, $second}]}]}
END
begin_target() {
	: >"$work/urls"
	"${run[@]}" "$target_program" --config "$work/conf.json" --control "$VERBENA_RUNTIME/target-1.sock" >"$work/urls" 2>"$work/target.err" </dev/null &
	target=$!
	wait_for 20 target_up
	tcp=$(sed -n 's,^\(nvme+tcp://[^/]*\)/.*,\1,p' "$work/urls") rdma=$(sed -n 's,^\(nvme+rdma://[^/]*\)/.*,\1,p' "$work/urls")
	[ -n "$tcp" ] && [ -n "$rdma" ] || { cat "$work/target.err"; return 1; }
}
target_up() { [ "$(wc -l <"$work/urls")" -ge 2 ] || gone $target; }
ctl() { "$target_program" "$@" --control "$VERBENA_RUNTIME/target-1.sock"; }
# value EXPRESSION: of the status: ns(N), host(NQN), ways()
value() {
	ctl status >"$work/status" && python3 - "$work/status" "$1" <<-'END'
		import json, sys
		s = json.load(open(sys.argv[1]))
		disks = s["subsystems"][1]
		none = dict.fromkeys(["reads", "writes", "read_bytes", "written_bytes", "waited", "waiting"], 0)
		ns = lambda n: next((x for x in disks["namespaces"] if x["nsid"] == n), none)
		host = lambda n: next((x for x in s["hosts"] if x["nqn"] == n), none)
		ways = lambda: sorted((c["transport"], c["device"], c["way"]) for c in disks["controllers"])
		print(eval(sys.argv[2]))
	END
}
is() { [ "$(value "$1")" = True ]; }
load() { # NAME HOST URL ARGS…: a load in the background; sets $pid
	"${run[@]}" "$disk" --host-nqn="nqn.2026-01.test:$2" --reconnect=1 --seconds=300 "${@:4}" bench "$3" >"$work/$1.out" 2>&1 </dev/null &
	pid=$!
	pids+=($pid)
}

check "a target with limits" begin_target

two_hosts_share() {
	local since=$(now_ms) deep small all
	load deep deep "$tcp/$NQN?nsid=1" --queues=4 --queue-depth=64 --depth=256
	load small small "$rdma/$NQN?nsid=1" --depth=1
	wait_for 30 is 'ns(1)["reads"] >= 700 and host("nqn.2026-01.test:small")["reads"] >= 10' || { cat "$work"/{deep,small}.out "$work/status"; return 1; }
	read -r all deep small < <(value 'f"""{ns(1)["reads"]} {host("nqn.2026-01.test:deep")["reads"]} {host("nqn.2026-01.test:small")["reads"]}"""')
	local ms=$(($(now_ms) - since))
	echo "$all reads in $ms ms, $deep of the host with 256 outstanding, $small of that with one"
	# the rate, a burst of 50 ms, and one
	[ "$all" -le $((ms / 2 + 25 + 1)) ] && [ $((small * 40)) -ge "$all" ]
}
check "a namespace's limit holds for all hosts, and one of depth 1 has its turns" two_hosts_share
ways_are_said() {
	value 'ways()'
	is '[w[0] for w in ways()] == ["rdma", "tcp"] and ways()[0][1:] == ("roce_lo", "RoCE by Verbena") and ways()[1][1:] == ("", "TCP")'
}
check "status says by which way each host is connected" ways_are_said
metrics_are_said() {
	ctl metrics >"$work/metrics" && cat "$work/metrics" && [ "$(tail -1 "$work/metrics")" = "# EOF" ] &&
		grep -q "^verbena_target_namespace_limit{subsystem=\"$NQN\",nsid=\"1\",limit=\"riops\"} 500$" "$work/metrics" &&
		grep -q '^verbena_target_host_operations_total{host="nqn.2026-01.test:small",direction="read"} [1-9]' "$work/metrics" &&
		grep -q '^verbena_target_association_way{.*transport="rdma",device="roce_lo",way="RoCE by Verbena",why="the host has chosen RDMA"} 1$' "$work/metrics" &&
		[ -z "$(grep -v '^#' "$work/metrics" | sed 's/ [^ ]*$//' | sort | uniq -d)" ]
}
check "the metrics have the limits, the hosts and their ways, each sample once" metrics_are_said
page() { # PATH
	python3 - "$exported" "$1" <<-'END'
		import socket, sys
		s = socket.socket(socket.AF_UNIX)
		s.settimeout(20)
		s.connect(sys.argv[1])
		s.sendall(b"GET %s HTTP/1.0\r\nAccept: application/openmetrics-text\r\n\r\n" % sys.argv[2].encode())
		print(b"".join(iter(lambda: s.recv(65536), b"")).decode(), end="")
	END
}
missing() { page "$1" >"$work/page" && head -1 "$work/page" | grep 404; } # PATH
exporter_serves_it() {
	exported=$work/exporter
	"$VERBENA" exporter --listen "unix:$exported" >"$work/exporter.out" 2>&1 </dev/null &
	pids+=($!)
	wait_for 20 test -S "$exported" && page /target/1 >"$work/page" && head -1 "$work/page" | grep 200 &&
		grep -q "^verbena_target_namespace_limit{subsystem=\"$NQN\",nsid=\"1\",limit=\"riops\"} 500$" "$work/page" && [ "$(tail -1 "$work/page")" = "# EOF" ] &&
		missing /target/2 && missing /target/../target-1
}
check "verbena exporter serves them" exporter_serves_it
limit_changes() {
	ctl limit namespace $NQN 1 riops=max && wait_for 20 is 'ns(1)["reads"] >= 5000 and ns(1)["waiting"] == 0'
}
check "a limit is removed under load" limit_changes
stop_all

host_is_limited() {
	local since=$(now_ms) bytes
	load other other "$rdma/$NQN?nsid=2" --depth=4
	load slow slow "$rdma/$NQN?nsid=2" --write=100 --size=65536 --depth=16
	wait_for 30 is "host('$SLOW_HOST')['written_bytes'] >= 1 << 20 and ns(2)['reads'] > 2000" || { cat "$work"/{other,slow}.out "$work/status"; return 1; }
	bytes=$(value "host('$SLOW_HOST')['written_bytes']")
	local ms=$(($(now_ms) - since))
	echo "$bytes bytes in $ms ms"
	[ "$bytes" -le $((1048576 * (ms + 50) / 1000 + 65536)) ] && is "host('$SLOW_HOST')['waited'] > 0 and host('nqn.2026-01.test:other')['waited'] == 0"
}
check "a host's limit does not hold up others" host_is_limited

changes_under_load() {
	ctl add $NQN nsid=3 backend=memory size=4M iops=1 burst=1 && ! ctl add $NQN nsid=3 backend=memory size=4M && is 'ns(3)["limits"] == {"iops": 1, "burst": 1}' || return 1
	load waits waits "$tcp/$NQN?nsid=3" --depth=32
	wait_for 20 is 'ns(3)["waiting"] > 20' && ctl remove $NQN 3 && ! ctl remove $NQN 3 || return 1
	wait_for 20 gone $pid && cat "$work/waits.out" && ! wait $pid || return 1 # what waited is executed, the next one fails
	is 'not any(x["nsid"] == 3 for x in disks["namespaces"])' && is 'ns(2)["reads"] > 2000' && ! gone "${pids[0]}"
}
check "namespaces come and go under load, also with requests that wait" changes_under_load
wrong() { # PATTERN ARGS…: one line
	local pattern=$1
	ctl "${@:2}" >"$work/wrong" && return 1
	cat "$work/wrong"
	[ "$(wc -l <"$work/wrong")" = 1 ] && grep -q "^error: .*$pattern" "$work/wrong"
}
wrong_limits() {
	wrong 'nothing through' limit namespace $NQN 2 riops=0 && wrong 'less than 128K' limit hosts wbps=1000 && wrong 'no such limit' limit host $SLOW_HOST speed=1 &&
		wrong 'no namespace 9' limit namespace $NQN 9 iops=1 && wrong 'limit namespace' limit && wrong 'only a host' add $NQN nsid=7 backend=memory size=1M weight=2 &&
		wrong 'No such file' add $NQN nsid=7 backend=file path=/nonexistent && wrong 'no subsystem' add nqn.2026-01.test:none nsid=7 backend=memory size=1M &&
		is 'len(disks["namespaces"]) == 2'
}
check "each wrong limit or namespace is refused with a line" wrong_limits
stop_all
many() { # with CEPH_MANY=yes also with 254 images; the system's Python has Ceph's modules
	local on=(python3) pool=()
	! on_rbd || [ "${CEPH_MANY:-no}" != yes ] || { on=(/usr/bin/python3); pool=("${MEDIUM#rbd:}"); }
	"${on[@]}" -B "$HERE/many.py" "$VERBENA_RUNTIME/target-1.sock" "${tcp##*:}" $NQN "${pool[@]}"
}
check "256 hosts use 256 namespaces, which come and go meanwhile; status and metrics have each of them" many

host_vanishes() {
	ctl limit namespace $NQN 1 iops=1 burst=1 || return 1
	load one one "$tcp/$NQN?nsid=1" --depth=32
	local by_tcp=$pid before after
	load two two "$rdma/$NQN?nsid=1" --depth=32
	wait_for 20 is 'ns(1)["waiting"] > 40' || return 1
	die $pid
	wait_for 20 is '0 < ns(1)["waiting"] <= 32' || return 1
	before=$(ticks)
	sleep 1
	after=$(ticks)
	echo "the target used $((after - before)) hundredths of a second while requests waited"
	[ $((after - before)) -le 10 ] && ! gone "$by_tcp"
}
ticks() { sed 's/.*) //' "/proc/$target/stat" | awk '{ print $12 + $13 }'; }
check "a host ends while its requests wait, and those of others cost no processor time" host_vanishes
target_ends() {
	local status=0
	kill -TERM $target
	wait_for 20 gone $target || return 1
	wait $target || status=$?
	cat "$work/target.err"
	[ $status = 0 ] && ! grep Sanitizer "$work/target.err"
}
check "the target ends while requests wait" target_ends
stop_all
exit $((failed > 0))
