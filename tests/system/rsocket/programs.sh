# programs.sh - cases for programs over rsockets, for scripts in tests/system/apps and tests/system/net
# follows: rsocket(7)
# SPDX-License-Identifier: MIT
# sourced after lib.sh, which defines how a program is started on either host
PRELOAD=$BUILD/src/rsocket/preload/librspreload.so
declare -p on_a on_b >/dev/null 2>&1 || on_a=() on_b=()

# A listening rsocket is not in /proc/net/tcp, so a refused client retries. (rstream and riostream with a nonblocking
# connect then print "rpoll" and the errno of the previous call.)
start_rserver() { # COMMAND…; datagrams: the port where it receives them
	[ ${#on_b[@]} = 0 ] || wait_for 20 test ! -e "$work/b/broker.sock" || : # the port does not belong to the last server's broker
	timeout -k 2 $((LIMIT * SLOW)) ${on_b[@]+"${on_b[@]}"} "${run[@]}" "$@" >"$work/server.out" 2>&1 </dev/null &
	server=$!
	if [ -n "${datagrams:-}" ]; then
		wait_for 20 datagrams_come "$datagrams" || : # one without a receiver is lost
	elif [ ${#on_b[@]} != 0 ]; then
		wait_for 20 answers || :
	fi
}
# Before the port is open, a connection request is lost, and repeated after seconds
answers() { gone "$server" || port_is_open; }
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
# ended STATUS: the client's exit status; the server must succeed too
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

# both PROGRAM ARGS…: both ends succeed
both() {
	local on=()
	next_port
	case $HOST in *:*) on=(-f ipv6 -b "$HOST") ;; esac
	start_rserver "$@" -p $rport ${on[@]+"${on[@]}"}
	client "$@" -p $rport ${on[@]+-f ipv6} -s "$HOST"
	ended $?
}

# served PROGRAM ARGS…: the server does not end
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
	local status datagrams
	next_port
	datagrams=$rport
	start_rserver udpong -b "$HOST" -p $rport "$@"
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

# --- programs that only use sockets ---
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
	local s datagrams=
	[ "$1" != dgram ] || datagrams=7475
	start_rserver "${PYTHON:-python3}" "$ROOT/tests/system/rsocket/plain.py" serve "$1" "$HOST"
	client "${PYTHON:-python3}" "$ROOT/tests/system/rsocket/plain.py" call "${2:-block}" "$HOST"
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

# fetched COMMAND…: it downloads the whole file of $work/web to $work/got
fetched() {
	rm -f "$work/got"
	client "$@" "http://$HOST:$rport/file" && cmp "$work/web/file" "$work/got" && return 0
	echo "$1"
	said_by_both
	return 1
}
# ab: every answer must be right
asked() { # ARGS…
	client ab -q -n 40 "$@" "http://$HOST:$rport/small" && grep -q '^Failed requests: *0$' "$work/client.out" && return 0
	echo "ab $*"
	cat "$work/client.out"
	return 1
}
# Workers have only the environment that the configuration sets
nginx_serves() { # LINES of the configuration
	next_port
	mkdir -p "$work/web" "$work/nginx"
	head -c 20000000 /dev/urandom >"$work/web/file"
	chmod -R a+rX "$work/web"
	cat >"$work/nginx.conf" <<-EOF
		env VERBENA_RUNTIME; env VERBENA_WIRE;
		daemon off; pid $work/nginx/pid; error_log stderr; user root;
		$1
		events {}
		http {
			access_log off; sendfile on;
			client_body_temp_path $work/nginx/a; proxy_temp_path $work/nginx/b; fastcgi_temp_path $work/nginx/c;
			uwsgi_temp_path $work/nginx/d; scgi_temp_path $work/nginx/e;
			server { listen $HOST:$rport; root $work/web; }
		}
	EOF
	start_rserver nginx -c "$work/nginx.conf"
}
from_nginx() { # LINES CONNECTIONS-AT-A-TIME
	local status=0
	nginx_serves "$1"
	head -c 100 /dev/urandom >"$work/web/small"
	fetched curl -sS -o "$work/got" || status=1
	! command -v wget >/dev/null || fetched wget -q --tries=1 -O "$work/got" || status=1
	! command -v ab >/dev/null || { asked -c "$2" && asked -c "$2" -k; } || status=1
	stop_server
	return $status
}
from_redis() {
	local status=0
	next_port
	start_rserver redis-server --port $rport --bind "$HOST" --save '' --protected-mode no --dir "$work"
	client redis-cli -h "$HOST" -p $rport set key value && client redis-cli -h "$HOST" -p $rport get key &&
		grep -qx value "$work/client.out" || status=1
	client redis-benchmark -h "$HOST" -p $rport -n 2000 -c 10 -P 4 -t set,get,lpush -q || status=1
	[ $status = 0 ] || said_by_both
	stop_server
	return $status
}
sockperf_says() { # ARGS…
	local status datagrams=
	next_port
	[ "${1:-}" = --tcp ] || datagrams=$rport
	start_rserver sockperf sr -i "$HOST" -p $rport "$@"
	client sockperf pp -i "$HOST" -p $rport -t 1 "$@" && grep -q 'avg-latency=' "$work/client.out"
	status=$?
	[ $status = 0 ] || said_by_both
	stop_server
	return $status
}
by_socat() { # BYTES
	next_port
	head -c "$1" /dev/urandom >"$work/from"
	start_rserver socat -u "TCP-LISTEN:$rport,bind=$HOST" "OPEN:$work/to,creat,trunc"
	client socat -u "OPEN:$work/from" "TCP:$HOST:$rport"
	ended $? && cmp "$work/from" "$work/to"
}
from_memcached() {
	local status=0
	next_port
	head -c 900000 /dev/urandom >"$work/blob"
	start_rserver memcached -u root -U 0 -l "$HOST" -p $rport -t 4
	client memccp "--servers=$HOST:$rport" "$work/blob" && client memccat "--servers=$HOST:$rport" blob &&
		head -c 900000 "$work/client.out" | cmp - "$work/blob" &&
		client memcslap "--servers=$HOST:$rport" --concurrency=8 --initial-load=200 --execute-number=50 --test=get &&
		grep -q '^Time to get *[1-9]' "$work/client.out" || status=1
	[ $status = 0 ] || said_by_both | strings
	stop_server
	return $status
}
from_nbdkit() { # BYTES
	local status=0
	next_port
	head -c "$1" /dev/urandom >"$work/from"
	start_rserver nbdkit -f -i "$HOST" -p $rport memory "$1"
	client nbdcopy "$work/from" "nbd://$HOST:$rport" && client nbdcopy "nbd://$HOST:$rport" "$work/to" &&
		cmp "$work/from" "$work/to" || status=1
	[ $status = 0 ] || said_by_both
	stop_server
	return $status
}
# A client without an adapter: the program must not read the server's bytes for RDMA
without_adapter() {
	start_rserver python3 "$ROOT/tests/system/rsocket/plain.py" serve fork "$HOST"
	client env VERBENA_DEVICES=none python3 "$ROOT/tests/system/rsocket/plain.py" call block "$HOST"
	ended $?
}
# where_there_is PROGRAM SENTENCE COMMAND…: only if PROGRAM is installed
where_there_is() {
	if command -v "$1" >/dev/null; then check "${@:2}"
	else skip "$1" "it is not installed"; fi
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
	if /usr/bin/python3 -c "import uvloop" 2>/dev/null; then
		PYTHON=/usr/bin/python3 check "python: uvloop" plain python uv uv
	else
		skip "python: uvloop" "it is not installed"
	fi
	check "python: datagrams" plain python dgram dgram
	RDMAV_FORK_SAFE=1 check "python: accept, then fork" plain python fork
	RDMAV_FORK_SAFE=1 check "python: a child for each connection, of which a client with one thread has six" plain python forks forks
	RDMAV_FORK_SAFE=1 check "python: accept, then fork, and a client without an adapter" plain without_adapter
	where_there_is nginx "nginx, one process: curl, wget, ab" plain from_nginx "master_process off;" 4
	RDMAV_FORK_SAFE=1 where_there_is nginx "nginx with two workers: curl, wget, ab" plain from_nginx "worker_processes 2;" 8
	where_there_is redis-server "redis: redis-cli, redis-benchmark" plain from_redis
	AGAIN=1 where_there_is sockperf "sockperf" plain sockperf_says --tcp
	AGAIN=1 where_there_is sockperf "sockperf, datagrams" plain sockperf_says
	where_there_is socat "socat: 10 MB" plain by_socat 10000000
	where_there_is memccp "memcached: memccp, memccat, memcslap" plain from_memcached
	where_there_is nbdcopy "nbdkit: nbdcopy there and back, 10 MB" plain from_nbdkit 10485760
}

# api ADDRESS: both ends in one process, on the client's host
api() {
	timeout -k 2 $((LIMIT * SLOW)) ${on_a[@]+"${on_a[@]}"} "${run[@]}" "$BUILD/tests/system/rsocket/rsocket_api" "$1"
}
# calls [TEST]: the same with a program that only uses sockets
calls() {
	timeout -k 2 $((LIMIT * SLOW)) ${on_a[@]+"${on_a[@]}"} "${run[@]}" "$BUILD/tests/system/rsocket/rsocket_plain" 127.0.0.1 "$@"
}
on_wire() { (export VERBENA_WIRE=always; "$@"); }
