#!/bin/bash
# bench.sh - verbena bench: on one host, between two, hostile peers, no connection, wrong usage
# follows: verbena-bench(1)
# SPDX-License-Identifier: MIT
# usage: bench.sh, with BUILD in the environment
source "$(dirname "${BASH_SOURCE[0]}")/../net/lib.sh"
need python3
hosts 9000 || { echo "not ok two hosts"; exit 1; }

measure() { # STATUS OPTION...: from host a
	local status=0 want=$1
	shift
	timeout $((120 * SLOW)) "${on_a[@]}" "$VERBENA" bench "$@" >"$work/report" 2>"$work/err" </dev/null || status=$?
	cat "$work/report" "$work/err"
	[ $status = "$want" ] && return 0
	echo "exit status $status, not $want"
	return 1
}
finds() { # PATTERN
	grep -qE "$1" "$work/report" && return 0
	echo "missing: $1"
	return 1
}
here() {
	measure 0 --seconds 2 --size 8192 && finds '^RDMA, same host +latency [0-9.]+ us' && finds '^RDMA, iWARP works' &&
		finds '^ +8192 bytes: send [1-9][0-9]*, write [1-9][0-9]*, read [1-9]' && finds "^RDMA, RoCE works: [0-9.]+ times TCP's bandwidth"
}
between() { # ADDRESS
	measure 0 "$1" --seconds 2 --json && python3 - "$work/report" <<-'IN'
		import json, sys
		r = json.load(open(sys.argv[1]))
		assert r["status"] == "ok" and [x["path"] for x in r["results"]] == ["roce", "tcp", "udp"], r
		assert all(x["ok"] and x["latency_median_us"] > 0 for x in r["results"]), r
		b = r["results"][0]["bandwidth"]
		assert [x["bytes"] for x in b] == [4096, 65536, 1048576] and all(x[w] > 0 for x in b for w in ("send", "write", "read")), r
		assert len(r["verdict"]) == 1 and "works" in r["verdict"][0], r
	IN
}
no_server() { measure 1 $V4_B --seconds 1 --port 7999 && grep -q 'no connection: Connection refused' "$work/err" && finds 'does not work'; }
no_name() { measure 1 no-such-host.invalid; }
usage() {
	measure 2 --seconds 0 && measure 2 --seconds x && measure 2 --size 99999999 && measure 2 --size && measure 2 --frob && measure 2 a b &&
		measure 2 --serve --json && measure 2 --port 70000 && measure 2 '' && measure 2 --hardware
}
full() {
	timeout 60 "${on_a[@]}" "$VERBENA" bench $V4_B --seconds 1 --size 64 >/dev/full 2>"$work/err" && return 1
	grep -q 'No space left' "$work/err"
}
# rubbish, half an exchange, too large a size, an RDMA session that nobody joins, a flood of connections
hostile() {
	timeout 60 "${on_a[@]}" python3 - $V4_B <<-'IN'
		import os, socket, struct, sys
		def ask(data, wait=True):
		    s = socket.create_connection((sys.argv[1], 7472), 5)
		    s.settimeout(10)
		    s.sendall(data)
		    try:
		        return s, s.recv(100) if wait else b""
		    except ConnectionResetError:
		        return s, b""
		magic = b"VBbench1"
		for bad in (os.urandom(16), b"GET / HTTP/1.1\r\n\r\n", magic + struct.pack(">II", 0, 1 << 25), magic + struct.pack(">II", 9, 64),
		            magic + struct.pack(">II", 0, 0)):
		    s, got = ask(bad)
		    assert got == b"", got
		    s.close()
		kept = []
		s, got = ask(magic + struct.pack(">II", 0, 65536))
		assert len(got) == 24 and got[:8] == magic, got
		s.close()
		s, got = ask(magic + struct.pack(">II", 1, 64))
		s.sendall(b"x" * 10)
		s.close()
		s, got = ask(magic + struct.pack(">II", 3, 64))
		port, token = struct.unpack(">QQ", got[8:])
		u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
		u.settimeout(0.5)
		u.sendto(b"\0" * 64, (sys.argv[1], port))
		try:
		    raise SystemExit("answered a datagram without the number: %r" % u.recv(64))
		except TimeoutError:
		    s.close()
		for i in range(20):
		    kept.append(ask(b"V", wait=False)[0])
	IN
}
still_serves() { between $V4_B && [ "$(ip netns pids $B | wc -l)" -le 12 ] && kill -0 $server; }
stuck() { # a session that is stopped in the middle does not hold the server
	"${on_a[@]}" "$VERBENA" bench $V4_B --seconds 30 >/dev/null 2>&1 &
	local client=$!
	sleep 2
	kill -9 $client
	between $V4_B
}

check "both ends on one host: each path, TCP and UDP, and a verdict" here
check "nobody waits" no_server
check "no such name" no_name
check "wrong usage" usage
: >"$work/server.out"
timeout 900 "${on_b[@]}" "$VERBENA" bench --serve >"$work/server.out" 2>&1 </dev/null &
server=$!
wait_for 20 grep -q 'waits on TCP port 7472' "$work/server.out"
check "between two hosts, IPv4" between $V4_B
check "between two hosts, IPv6" between $V6_B
check "output that cannot be written is an error" full
check "peers that send anything are refused" hostile
check "and the server still serves" still_serves
check "a client that is killed leaves the server free" stuck
kill $server
wait $server 2>/dev/null
finish
