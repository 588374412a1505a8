# programs.sh - programs over rsockets as cases, for scripts in tests/apps and tests/net
# follows: rsocket(7)
# SPDX-License-Identifier: MIT
# sourced after lib.sh, which says how a program is started on either host
PRELOAD=$BUILD/src/rsocket/preload/librspreload.so
declare -p on_a on_b >/dev/null 2>&1 || on_a=() on_b=()

# An rsocket that listens is not in /proc/net/tcp: who is refused comes again. (rstream and riostream that connect without
# blocking then say "rpoll" and the errno of the call before.)
start_rserver() { # COMMAND…
	timeout -k 2 $((LIMIT * SLOW)) ${on_b[@]+"${on_b[@]}"} "${run[@]}" "$@" >"$work/server.out" 2>&1 </dev/null &
	server=$!
	[ ${#on_b[@]} = 0 ] || wait_for 20 answers || :
}
# Port 4791 is open: before, a request to connect is lost, and comes again after seconds
answers() { gone "$server" || ip netns exec "$B" grep -qsi ':12B7 ' /proc/net/udp /proc/net/udp6; }
datagrams_come() { # PORT
	gone "$server" || ${on_b[@]+ip netns exec "$B"} grep -qsi ":$(printf %04X "$1") " /proc/net/udp /proc/net/udp6
}
client() { # COMMAND…
	local end=$((SECONDS + 20 * SLOW)) status
	while :; do
		timeout -k 2 $((LIMIT * SLOW)) ${on_a[@]+"${on_a[@]}"} "${run[@]}" "$@" >"$work/client.out" 2>&1 </dev/null
		status=$?
		[ $status != 0 ] && [ $SECONDS -lt $end ] && ! gone "$server" && grep -qi "refused\|couldn't connect\|rpoll: operation now in progress" "$work/client.out" || return $status
		sleep 0.1
	done
}
stop_server() {
	kill "$server" 2>/dev/null
	wait "$server" 2>/dev/null
	return 0
}
# ended STATUS: the client did with it; the server must succeed too
ended() {
	local s
	[ "$1" = 0 ] || wait_for 3 gone "$server" || kill "$server"
	wait "$server"
	s=$?
	[ "$1" = 0 ] && [ $s = 0 ] && return 0
	echo "server ended with $s, client with $1"
	said_by_both
	return 1
}
# A port that no earlier case has used
rport=$((20000 + RANDOM % 8000))
next_port() { rport=$((rport + 1)); }

# both PROGRAM ARGS…: both ends of it, and both succeed
both() {
	local on=()
	next_port
	case $HOST in *:*) on=(-f ipv6 -b "$HOST") ;; esac
	start_rserver "$@" -p $rport ${on[@]+"${on[@]}"}
	client "$@" -p $rport ${on[@]+-f ipv6} -s "$HOST"
	ended $?
}

# served PROGRAM ARGS…: the server has no end
served() {
	local status
	next_port
	start_rserver "$1" -p $rport
	client "${@:2}" -p $rport
	status=$?
	[ $status = 0 ] || said_by_both
	stop_server
	return $status
}

copied() { # BYTES
	head -c "$1" /dev/urandom >"$work/from"
	rm -f "$work/to"
	served rcopy rcopy "$work/from" "$HOST:$work/to" && cmp "$work/from" "$work/to"
}

echoed() { # udpong ARGS…
	local status
	next_port
	start_rserver udpong -b "$HOST" -p $rport "$@"
	wait_for 20 datagrams_come "$rport" # one for nobody is lost
	client udpong -p $rport -s "$HOST" "$@"
	status=$?
	[ $status = 0 ] || said_by_both
	stop_server
	return $status
}

rsocket_programs() {
	local m
	for m in b a n; do
		check "rstream -T $m: one size, verified" both rstream -T v -T $m -S 65536 -C 50 -I 4
	done
	check "rstream: every size, verified" both rstream -T v -S all -C 3 -I 1
	check "rstream: connected by rdma_resolve" both rstream -T v -T r -S 4096 -C 50 -I 2
	check "rstream: small buffers" both rstream -T v -B 8192 -S 100000 -C 20 -I 2
	check "rstream: nothing inline" both rstream -T v -i 0 -S 64 -C 100 -I 4
	check "rstream: keep-alives" both rstream -T v -k 1 -S 4096 -C 100 -I 4
	for m in b a n; do check "riostream -T $m: verified" both riostream -T v -T $m -S 65536 -C 50 -I 4; done
	check "riostream: every size, verified" both riostream -T v -S all -C 3 -I 1
	check "rcopy: 10 MB" copied 10000000
	check "rcopy: 1 byte" copied 1
	for m in b a n; do check "udpong -T $m" echoed -T e -T $m -S 500 -C 100; done
}

# --- programs that know only sockets ---
plain() { # COMMAND…: over the preload library
	(
		run=("${run[@]}" env "LD_PRELOAD=$PRELOAD")
		"$@"
	)
}
iperf() { # ARGS…: of the client
	next_port
	start_rserver iperf3 -s -1 -p $rport
	client iperf3 -c "$HOST" -p $rport "$@"
	ended $?
}
python() { # HOW [HOW OF THE CLIENT]
	local s
	start_rserver python3 "$ROOT/tests/rsocket/plain.py" serve "$1" "$HOST"
	[ "$1" != dgram ] || wait_for 20 datagrams_come 7475
	client python3 "$ROOT/tests/rsocket/plain.py" call "${2:-block}" "$HOST"
	ended $?
}
downloaded() { # BYTES: python's server, curl
	local status
	next_port
	mkdir -p "$work/web"
	head -c "$1" /dev/urandom >"$work/web/file"
	start_rserver python3 -m http.server --bind "$HOST" -d "$work/web" $rport
	client curl -sS -o "$work/got" "http://$HOST:$rport/file" && cmp "$work/web/file" "$work/got"
	status=$?
	[ $status = 0 ] || said_by_both
	stop_server
	return $status
}

plain_programs() {
	local m
	if sanitized || [ ! -e "$PRELOAD" ]; then
		skip "programs over the preload library" "it is not there, or the build is sanitized"
		return
	fi
	check "rstream -T s over the preload library" plain both rstream -T s -T v -S 65536 -C 50 -I 4
	if command -v iperf3 >/dev/null; then
		check "iperf3" plain iperf -t 1
		check "iperf3, the other way" plain iperf -t 1 -R
		check "iperf3, four streams both ways" plain iperf -t 1 -P 2 --bidir
	else
		skip iperf3 "it is not installed"
	fi
	if command -v curl >/dev/null; then check "curl from python's web server, 50 MB" plain downloaded 50000000
	else skip curl "it is not installed"; fi
	for m in block select poll epoll edge; do check "python: $m" plain python $m; done
	check "python: asyncio" plain python aio aio
	check "python: datagrams" plain python dgram dgram
	RDMAV_FORK_SAFE=1 check "python: accept, then fork" plain python fork
}

# api ADDRESS: both ends in one process, on the client's host
api() {
	timeout -k 2 $((LIMIT * SLOW)) ${on_a[@]+"${on_a[@]}"} "${run[@]}" "$BUILD/tests/rsocket/rsocket_api" "$1"
}
on_wire() { (export VERBENA_WIRE=always; "$@"); }
