#!/bin/bash
# stat.sh - verbena stat and exporter show what stock programs have and send
# follows: verbena-stat(1), verbena-exporter(1)
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/../../support/lib.sh"
need ib_send_lat rping rdma python3 curl

member() { # PYTHON-EXPRESSION of d: the parsed JSON on stdin; must be true
	python3 -c 'import json, sys
d = json.load(sys.stdin)
ok = eval(sys.argv[1])
if not ok: print(json.dumps(d)[:3000])
sys.exit(not ok)' "$1"
}
stat_has() { # EXPRESSION ARGS…
	local expression=$1
	shift
	"$VERBENA" stat "$@" --json >"$work/json" || return 1
	member "$expression" <"$work/json"
}
status_is() { # STATUS COMMAND ARGS…
	local want=$1 got=0
	shift
	"$@" >"$work/out" 2>&1 </dev/null || got=$?
	[ $got = "$want" ] || { echo "status $got of $*"; cat "$work/out"; return 1; }
}

check "without programs there is no process to show" stat_has 'd == {"processes": []}' processes
check "an adapter that nobody uses has counted nothing" stat_has 'any(r["device"] == "roce_lo" and r.get("programs", 0) == 0 for r in d["devices"])' devices

start_server ib_send_lat -d roce_lo -F -D 250 -s 512 && start_client ib_send_lat -d roce_lo -F -D 250 -s 512
both_send() { stat_has 'len(d["qps"]) == 2 and all(r["counters"]["port_xmit_packets"] > 100 for r in d["qps"])' qps; }
check "the queue pairs of two programs are shown while they send" wait_for 30 both_send
check "each names the other as its peer, on the same host" stat_has \
	'len(d["qps"]) == 2 and {(r["qpn"], r["peer_qpn"]) for r in d["qps"]} == {(r["peer_qpn"], r["qpn"]) for r in d["qps"]} and all(r["path"] == "same-host" and r["state"] == "RTS" and r["type"] == "RC" for r in d["qps"])' qps
check "a message of 512 bytes counts as one packet and 128 units of data" stat_has \
	'len(d["qps"]) == 2 and all(0 <= c["xmit_bytes"] - 512 * c["port_xmit_packets"] <= 512 * 64 and c["port_xmit_data"] == c["xmit_bytes"] // 4 for c in [r["counters"] for r in d["qps"]])' qps
check "the adapter has what both programs have sent" stat_has \
	'any(r["device"] == "roce_lo" and r.get("programs") == 2 and r["qps"] == 2 and r["counters"]["port_rcv_packets"] > 200 for r in d["devices"])' devices
check "rates are above zero while programs send" stat_has 'len(d["qps"]) == 2 and all(r["rates"]["xmit_bytes"] > 0 for r in d["qps"])' qps --rates 0.3
check "regions have a key, a length and rights" stat_has 'len(d["mrs"]) == 2 and all(r["key"] and r["length"] and "local_write" in r["access"] for r in d["mrs"])' mrs
check "completion queues have a size" stat_has 'len(d["cqs"]) == 4 and all(r["capacity"] >= 1 and r["armed"] == "no" for r in d["cqs"])' cqs
sysfs=/sys/class/infiniband/roce_lo/ports/1
live_file() { # NAME: it has a number above zero, for cat and for stdio
	local a b
	a=$("$VERBENA" run cat "$sysfs/$1") && b=$("$VERBENA" run awk '{ print }' "$sysfs/$1") || return 1
	echo "$a $b"
	[ "$a" -gt 0 ] && [ "$b" -gt 0 ]
}
for f in counters/port_xmit_data counters/port_rcv_packets hw_counters/sent_pkts; do
	check "the file $f has what running programs have counted" live_file $f
done
rdma_has() { # EXPRESSION ARGS…
	"$VERBENA" run rdma -j "${@:2}" >"$work/json" || return 1
	member "$1" <"$work/json"
}
check "rdma resource shows what programs have" rdma_has '[(r["qp"], r["cq"], r["ctx"]) for r in d if r["ifname"] == "roce_lo"] == [(2, 4, 2)]' resource show
check "rdma resource shows it as text" sh -c '"$0" run rdma res show | grep -q "roce_lo:.* qp 2 "' "$VERBENA"
check "rdma resource show qp lists the queue pairs of both programs" rdma_has '(
sorted((r["lqpn"], r["rqpn"]) for r in d) == sorted((r["rqpn"], r["lqpn"]) for r in d) and len(d) == 2 and
all(r["ifname"] == "roce_lo" and r["port"] == 1 and r["type"] == "RC" and r["state"] == "RTS" and r["comm"] == "ib_send_lat" and r["path-mig-state"] == "MIGRATED" for r in d))' resource show qp
qp_numbers() { "$VERBENA" stat qps --json | python3 -c 'import json, sys; print(*sorted((r["qpn"], r["pid"]) for r in json.load(sys.stdin)["qps"]))'; }
same_numbers() { [ "$("$VERBENA" run rdma -j resource show qp | python3 -c 'import json, sys; print(*sorted((r["lqpn"], r["pid"]) for r in json.load(sys.stdin)))')" = "$(qp_numbers)" ]; }
check "with the numbers and processes of verbena stat" same_numbers
qp_of() { "$VERBENA" run rdma -j resource show qp | python3 -c 'import json, sys; print(json.load(sys.stdin)[0]["lqpn"])'; }
check "one queue pair of a link by its number" rdma_has "[r['lqpn'] for r in d] == [$(qp_of)]" resource show qp link roce_lo/1 lqpn "$(qp_of)"
check "none by another number" rdma_has "d == []" resource show qp link roce_lo lqpn 3
check "as text" sh -c '"$0" run rdma resource show qp | grep -q "^link roce_lo/1 lqpn [0-9]* .*type RC state RTS .*comm ib_send_lat"' "$VERBENA"
check "rdma resource show cq lists four with their users" rdma_has 'len(d) == 4 and all(r["cqe"] >= 1 and r["comm"] == "ib_send_lat" and r["pid"] for r in d) and sum(r["users"] for r in d) == 4' resource show cq
check "rdma resource show mr has length and domain, and root's keys" rdma_has 'len(d) == 2 and all(r["mrlen"] and r["pdn"] and r["rkey"] == r["lkey"] for r in d)' resource show mr
check "rdma resource show pd has the users" rdma_has 'len(d) == 2 and all(r["users"] >= 2 and r["pdn"] for r in d)' resource show pd
check "rdma resource show cm_id is empty without rdma_cm" rdma_has 'd == []' resource show cm_id
check "rdma statistic shows the counters of an adapter" rdma_has '[r["port_xmit_packets"] > 100 and r["out_of_buffer"] == 0 for r in d if r["ifname"] == "roce_lo"] == [True]' statistic show
check "rdma statistic shows them for one link" sh -c '"$0" run rdma statistic show link roce_lo/1 | grep -q "port_rcv_packets [1-9]"' "$VERBENA"
check "a counter without a source reads as zero" sh -c '[ "$("$0" run cat '"$sysfs"'/counters/symbol_error)" = 0 ]' "$VERBENA"
pid=$(program_of "$server")
check "--pid shows one program" stat_has "[r['pid'] for r in d['qps']] == [$pid]" qps --pid "$pid"
VERBENA_DEVICES=iwarp:lo check "--device leaves others out" stat_has 'd["qps"] == []' qps --device iwarp_lo
for what in devices qps cqs mrs connections processes; do
	check "the table of $what is printed" status_is 0 "$VERBENA" stat $what
done
check "a table has no colours in a file" sh -c '! "$0" stat qps | grep -q "$(printf "\033")"' "$VERBENA"
check "OpenMetrics text ends as it must" sh -c '[ "$("$0" stat --openmetrics | tail -1)" = "# EOF" ]' "$VERBENA"
metrics_are_valid() {
	"$VERBENA" stat --openmetrics | python3 -c '
import re, sys
types, helped, family = {}, set(), None
lines = sys.stdin.read().split("\n")
assert lines[-1] == "" and lines[-2] == "# EOF", lines[-2:]
for l in lines[:-2]:
    m = re.fullmatch(r"# (TYPE|HELP|UNIT) ([a-z_:][a-z0-9_:]*) (.+)", l, re.I)
    if m:
        if m[1] == "TYPE":
            assert m[2] not in types, l
            types[m[2]] = m[3]; family = m[2]
        assert m[2] == family, l
        if m[1] == "HELP": helped.add(m[2])
        if m[1] == "UNIT": assert m[2].endswith("_" + m[3]), l
        continue
    m = re.fullmatch(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(\{([a-z]+=\"(\\.|[^\"\\])*\",?)*\})? [0-9.e+-]+", l)
    assert m, l
    assert m[1] == family + ("_total" if types[family] == "counter" else ""), l
assert helped == set(types) and "verbena_rnr_nak_retry_err" in types, types
'
}
check "OpenMetrics text has a type and a help for each family" metrics_are_valid

# --- the exporter ---
timeout 200 "$VERBENA" exporter --listen "unix:$work/metrics" 2>"$work/exporter" &
exporter=$!
wait_for 20 test -S "$work/metrics"
http() { curl -s --max-time 30 --unix-socket "$work/metrics" "$@"; }
check "the exporter serves the counters" sh -c '[ "$(curl -s --max-time 30 --unix-socket "$0" http://x/metrics | tail -1)" = "# EOF" ]' "$work/metrics"
code_is() { # CODE CURL-ARGS…
	local want=$1
	shift
	[ "$(http -o "$work/page" -w '%{http_code}' "$@")" = "$want" ]
}
check "a page that does not exist is 404" code_is 404 http://x/other
check "a POST is 405" code_is 405 -X POST http://x/metrics
check "a head that is too long is 431" code_is 431 -H "X: $(printf '%09000d' 0)" http://x/metrics
check "garbage is 400" sh -c '[ "$(printf "\001garbage\r\n\r\n" | nc -q 1 -U "$0" | head -1 | cut -d" " -f2)" = 400 ]' "$work/metrics"
check "a client that says nothing disturbs no other" sh -c 'sleep 1 | timeout 3 nc -U "$0" >/dev/null & curl -s --max-time 30 --unix-socket "$0" http://x/metrics >/dev/null' "$work/metrics"
# the exporter has room for 32 connections, and gives a silent one 5 s
cat >"$work/silent.py" <<-'PY'
	import socket, subprocess, sys
	def connection():
	    s = socket.socket(socket.AF_UNIX)
	    s.connect(sys.argv[1])
	    return s
	held = [connection() for _ in range(40)]
	page = subprocess.run(["curl", "-s", "--max-time", "3", "--unix-socket", sys.argv[1], "http://x/metrics"], capture_output=True)
	sys.exit(0 if page.stdout.endswith(b"# EOF\n") else 1)
PY
check "many clients that say nothing keep nobody out" python3 "$work/silent.py" "$work/metrics"
kill $exporter
ended_well() { wait $exporter; }
check "SIGTERM ends the exporter with success" ended_well
check "its socket is gone" test ! -e "$work/metrics"
check "an address that is none is a wrong usage" status_is 2 "$VERBENA" exporter --listen nonsense

# --- trouble ---
for args in "stat" "stat --json" "stat qps" "stat --openmetrics" "stat --help" "devices" "devices --json" "help" "version"; do
	check "verbena $args into a full file fails" sh -c 'v=$0; "$v" "$@" >/dev/full 2>"'"$work/err"'" && exit 1; grep -q "No space left" "'"$work/err"'"' "$VERBENA" $args
done
fits_a_screen() { # COMMAND: 80 columns and 24 lines. The last line may have the path of a manual page
	"$VERBENA" $1 --help | sed '/^More: /d' >"$work/help" && awk 'length > 80 { print; bad = 1 } END { exit bad || NR > 23 || NR < 2 }' "$work/help"
}
for command in "" $(sed -n 's/^\([a-z]*\)|.*/\1/p' "$ROOT/data/commands"); do
	check "verbena $command --help fits a terminal" fits_a_screen "$command"
done
check "a reader that goes away is no error to talk about" sh -c '(trap "" PIPE; "$0" stat qps --json 2>"'"$work/err"'") | true; [ ! -s "'"$work/err"'" ]' "$VERBENA"
check "an unknown argument is a wrong usage" status_is 2 "$VERBENA" stat --nonsense
check "--rates without a number is a wrong usage" status_is 2 "$VERBENA" stat --rates
check "a process without an adapter is a failure" status_is 1 "$VERBENA" stat --pid $$
is_stopped() { grep -q '^State:.T' "/proc/$pid/status"; }
kill -STOP "$pid"
wait_for 20 is_stopped
check "a stopped program is named, and the status is 1" sh -c '"$0" stat processes >/dev/null 2>"'"$work/err"'"; [ $? = 1 ] && grep -q "'"$pid"' did not answer" "'"$work/err"'"' "$VERBENA"
# what it has shown counts on
device_total() { "$VERBENA" stat --openmetrics 2>/dev/null | sed -n 's/^verbena_device_port_xmit_packets_total{device="roce_lo",user="'"$(id -u)"'"} //p'; }
sysfs_total() { "$VERBENA" run cat "$sysfs/counters/port_xmit_packets"; }
kill -CONT "$pid"
before_stop=$(device_total)
kill -STOP "$pid"
wait_for 20 is_stopped
check "the sums do not go back while a program is stopped" sh -c '[ "$0" -ge "$1" ]' "$(device_total)" "${before_stop:-x}"
check "nor do those of /sys" sh -c '[ "$0" -ge "$1" ]' "$(sysfs_total)" "${before_stop:-x}"
check "a stopped program is shown as it was" sh -c '"$0" stat devices --json 2>/dev/null >"$1"; grep -q "\"programs\": *2" "$1"' "$VERBENA" "$work/json"
kill -CONT "$pid"
# one program is killed, and the other one ends by a signal: what was seen of either does not go back
"$VERBENA" stat devices --json >"$work/seen"
seen=$(python3 -c 'import json, sys; print(next(r["counters"]["port_xmit_packets"] for r in json.load(sys.stdin)["devices"] if r["device"] == "roce_lo"))' <"$work/seen")
kill -KILL "$pid"
wait "$server" 2>/dev/null
kill "$client" 2>/dev/null
wait "$client" 2>/dev/null
check "the counters of an adapter outlive its programs" stat_has "any(r['device'] == 'roce_lo' and r.get('programs', 0) == 0 and r['counters']['port_xmit_packets'] >= ${seen:-x} > 0 for r in d['devices'])" devices
check "so they do in /sys" sh -c '[ "$("$0" run cat '"$sysfs"'/counters/port_xmit_packets)" -ge "$1" ]' "$VERBENA" "${seen:-x}"
check "and in OpenMetrics" sh -c '[ "$0" -ge "$1" ]' "$(device_total)" "${seen:-x}"
ends_by_itself() { # a program that ends well adds exactly what it has counted
	local before after
	before=$(device_total)
	pair ibv_rc_pingpong -d roce_lo -g 1 -n 100 || return 1
	after=$(device_total)
	echo "$before, then $after"
	[ $((after - before)) = 200 ]
}
check "programs that nobody has asked add what they have sent" ends_by_itself
# readers of all kinds while programs start, end and are killed
never_goes_back() {
	local i n last=0 last_sysfs=0 pids=()
	for i in 1 2 3; do
		(work=$work/storm$i
		mkdir -p "$work"
		for n in 1 2 3 4; do
			pair ibv_rc_pingpong -d roce_lo -g 1 -n 2000 >/dev/null 2>&1
		done) &
		pids+=($!)
	done
	for ((i = 0; i < 40; i++)); do
		n=$(device_total)
		[ "${n:-0}" -ge "$last" ] || { echo "the sum was $last, and is $n"; wait "${pids[@]}"; return 1; }
		last=$n
		n=$(sysfs_total)
		[ "${n:-0}" -ge "$last_sysfs" ] || { echo "the sum of /sys was $last_sysfs, and is $n"; wait "${pids[@]}"; return 1; }
		last_sysfs=$n
	done
	wait "${pids[@]}"
}
check "no sum goes back while programs end" never_goes_back
check "and no more when the counters are read again" sh -c '[ "$0" = "$1" ]' "$(device_total)" "$(device_total)"
check "a killed program is not shown any more" wait_for 20 stat_has 'd == {"processes": []}' processes
check "and its name is removed" sh -c '[ -z "$(ls "$0"/control-* | grep -v "^ended-[0-9]*$")" ]' "$VERBENA_RUNTIME"
garbage() { # in the file of ended programs
	local f
	for f in "$VERBENA_RUNTIME"/control-*/ended-*; do
		[ -f "$f" ] && cp "$f" "$work/ended" || return 1
		for text in '{"devices": [{"device": "roce_lo", "counters": 7}, 3, {"device": 1}]}' '{"devices": [' '"device": "x"counters": {"a": 99999999999999999999999' ''; do
			printf '%s' "$text" >"$f"
			"$VERBENA" stat devices >/dev/null || return 1
			"$VERBENA" run cat "$sysfs/counters/port_xmit_packets" >/dev/null || return 1
			pair ibv_rc_pingpong -d roce_lo -g 1 -n 10 || return 1
		done
		head -c 200000 /dev/urandom >"$f"
		"$VERBENA" stat devices >/dev/null || return 1
		rm "$f" && ln -s "$work/ended" "$f" && pair ibv_rc_pingpong -d roce_lo -g 1 -n 10 || return 1
		[ -f "$f" ] && [ ! -L "$f" ] || return 1 # a link is not followed but replaced
	done
}
check "garbage in the file of ended programs does no harm" garbage

forged() { # files with more adapters than any program has, and names that are read as another file's
	local dir before i
	dir=$(ls -d "$VERBENA_RUNTIME"/control-*) && before=$(device_total) || return 1
	for i in 1 2 3; do
		python3 -c "print({'devices': [{'device': f'd$i_{n}', 'counters': {'port_xmit_data': -5}} for n in range(1500)]})" | tr "'" '"' >"$dir/ended-$i"
	done
	for i in "$dir"/ended-[0-9]*; do touch "$dir/ended-0${i##*/ended-}"; done
	"$VERBENA" stat --openmetrics >"$work/page" || return 1
	grep -q '^# EOF' "$work/page" && [ "$(device_total)" = "$before" ] || return 1
	[ "$(grep -c '^verbena_device_port_xmit_data_bytes_total' "$work/page")" -le 64 ] && ! grep -q '} -' "$work/page" || return 1
	rm "$dir"/ended-[123] "$dir"/ended-0*
}
check "forged files of ended programs do not stop the page" forged

# --- many objects: more than one answer, and more than a socket takes at once ---
start_server ib_write_bw -d roce_lo -F -D 60 -q 400 -s 64 && start_client ib_write_bw -d roce_lo -F -D 60 -q 400 -s 64
all_listed() { rdma_has 'len({r["lqpn"] for r in d}) == len(d) == 800' resource show qp; }
check "rdma resource show qp lists 800 queue pairs" wait_for 30 all_listed
kill "$server" "$client" 2>/dev/null
wait "$server" "$client" 2>/dev/null

# --- hostile programs ---
# fake_program ANSWER [NAMES]: a program that gives this answer to each question, on so many sockets; sets $fake. @ is the
# number of the question
cat >"$work/fake.py" <<'IN'
import os, select, socket, sys
d = os.environ["VERBENA_RUNTIME"] + "/control-%d" % os.geteuid()
os.makedirs(d, 0o700, exist_ok=True)
listeners = []
for i in range(int(sys.argv[2])):
    s = socket.socket(socket.AF_UNIX)
    s.bind(d + "/%d-%d-%016x" % (os.getpid(), os.stat("/proc/self/ns/net").st_ino, i + 1))
    s.listen(16)
    listeners.append(s)
print("ready", flush=True)
asked = 0
while True:
    for s in select.select(listeners, [], [])[0]:
        c = s.accept()[0]
        try:
            if c.recv(4096):
                asked += 1
                c.sendall(sys.argv[1].replace("@", str(asked)).encode(errors="surrogateescape"))
        except OSError:
            pass
        c.close()
IN
fake_program() {
	rm -f "$work/fake.out"
	timeout 100 python3 "$work/fake.py" "$1" "${2:-1}" >"$work/fake.out" &
	fake=$!
	wait_for 20 grep -qs ready "$work/fake.out"
}
end_fake() {
	kill "$fake"
	wait "$fake" 2>/dev/null
	rm -f "$VERBENA_RUNTIME"/control-*/*-0000*
}
fake_program '{"qps": [{"qpn": 1, "counters": 5}, {"qpn": 2, "counters": {"a": [], "b": 1}}]}'
check "counters that are no object have no rates" stat_has 'len(d["qps"]) == 2 and "rates" not in d["qps"][0] and "rates" in d["qps"][1]' qps --rates 0.1
end_fake
faults_are() { # STATUS EXPRESSION: of the list of rules as JSON
	"$VERBENA" fault list --json >"$work/json" 2>"$work/err"
	[ $? = "$1" ] || { cat "$work/json" "$work/err"; return 1; }
	! LC_ALL=C grep -q '[^ -~]' "$work/json" && member "$2" <"$work/json"
}
fake_program "$(printf '[{"id": 1, "hits": 2, "rule": "\033[2J\302\233"}]}, {"pid": 1}')"
check "rules of a hostile program are JSON without what a terminal obeys" faults_are 0 'len(d) == 1 and d[0]["rules"][0]["hits"] == 2'
end_fake
fake_program "$(printf '\033]0;x')"
check "what is no list of rules is an error" faults_are 1 'd == []'
end_fake
fake_program "$(printf '{"qps": [{"qpn": 1, "state": "\377\302\233\303\266"}]}')"
is_utf8() { "$VERBENA" stat qps --json | python3 -c 'import json, sys; assert json.loads(sys.stdin.buffer.read().decode())["qps"][0]["state"] == "??\u00f6"'; }
check "a name that is no UTF-8 is JSON all the same" is_utf8
end_fake
fake_program '{"qps": [{"qpn": 1}], "next": 1}'
check "a program whose list repeats is shown" stat_has 'len(d["qps"]) == 2' qps
end_fake
fake_program '{"qps": [], "next": @}'
check "a program whose list has no end is named, and the status is 1" sh -c '"$0" stat qps >/dev/null 2>"'"$work/err"'"; [ $? = 1 ] && grep -q "did not answer" "'"$work/err"'"' "$VERBENA"
end_fake
fake_program "{\"devices\": [$(printf '{"device": "roce_%d"},' {1..65}){}]}"
check "a program with too many adapters is named, and the status is 1" sh -c '"$0" stat processes >/dev/null 2>"'"$work/err"'"; [ $? = 1 ] && grep -q "more than is shown" "'"$work/err"'"' "$VERBENA"
end_fake
fake_program "{\"devices\": [$(printf ',{"device": "roce_%d"}' {1..60} | tail -c +2)]}" 60
too_many_rows() { "$VERBENA" stat --openmetrics >"$work/page" 2>"$work/err"; [ $? = 1 ] && grep -q "too many adapters" "$work/err" && [ "$(tail -1 "$work/page")" = "# EOF" ] && grep -q 'verbena_qps{device="roce_1"' "$work/page"; }
check "more rows than a page of metrics has room for are left out" too_many_rows
end_fake
fake_program '{"qps": [{"qpn": 1}]}' 60
few_descriptors() { (ulimit -S -n 40 && stat_has 'len(d["qps"]) == 60' qps); }
check "more programs than descriptors are shown" few_descriptors
end_fake
fake_program '{"qps": [{"qpn": 1}]}' 530
check "one user's programs are at most 512" stat_has 'len(d["qps"]) == 512' qps
end_fake

# --- networks ---
export VERBENA_WIRE=always
start_server ib_write_lat -d roce_lo -F -D 250 -s 4096 && start_client ib_write_lat -d roce_lo -F -D 250 -s 4096
roce_sends() { stat_has 'len(d["qps"]) == 2 and all(r["path"] == "roce" and r["peer"] == "127.0.0.1" and r["counters"]["port_xmit_packets"] > 100 for r in d["qps"])' qps; }
check "queue pairs over RoCE have the peer's address, and count packets" wait_for 30 roce_sends
kill "$server" "$client" 2>/dev/null
wait "$server" "$client" 2>/dev/null
unset VERBENA_WIRE
free_port
timeout 200 "${run[@]}" rping -s -a 127.0.0.1 -p "$port" -C 500000000 >/dev/null 2>&1 &
server=$!
connections() { stat_has 'sorted(r["state"] for r in d["connections"]) == ["CONNECT", "CONNECT", "LISTEN"]' connections; }
rping_listens() { stat_has 'any(r["state"] == "LISTEN" for r in d["connections"])' connections; }
wait_for 20 rping_listens >/dev/null
timeout 200 "${run[@]}" rping -c -a 127.0.0.1 -p "$port" -C 500000000 >/dev/null 2>&1 &
client=$!
check "communication ids are shown with the kernel's names of states" wait_for 30 connections
check "so they are by rdma resource show cm_id" rdma_has "sorted(r['state'] for r in d) == ['CONNECT', 'CONNECT', 'LISTEN'] and all(r['ps'] == 'TCP' and '127.0.0.1:' in r['src-addr'] and r['comm'] == 'rping' for r in d) and sum(r.get('dst-addr', '').endswith('127.0.0.1:$port') for r in d) == 1" resource show cm_id
kill "$server" "$client" 2>/dev/null
wait "$server" "$client" 2>/dev/null
finish
