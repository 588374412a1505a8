#!/bin/bash
# capture.sh - verbena run --capture and verbena capture: every frame is right, and every failure is one clear line
# follows: verbena-capture(1), docs/capture.md
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/../../support/lib.sh"
need tshark python3 ibv_rc_pingpong ib_write_bw rping
sanitized && { skip "capture" "the launcher cannot preload the sanitizer into the collector's child"; exit 0; }

# recorded NAME SERVER -- CLIENT: both succeed, below one verbena run --capture; @ in the client's arguments is a port
recorded() {
	local name=$1 server=() tail
	shift
	while [ "$1" != -- ]; do server+=("$1"); shift; done
	shift
	cat >"$work/both.sh" <<-'EOF2'
		set -u
		server=$1 client=$2 out=$3
		$server >"$out.server" 2>&1 &
		for i in $(seq 60); do
			sleep 0.2
			$client >"$out.client" 2>&1 && { wait; exit $?; }
			kill -0 $! 2>/dev/null || break
		done
		kill $! 2>/dev/null
		exit 1
	EOF2
	free_port
	timeout -k 2 100 "$VERBENA" run --capture "$work/$name.pcapng" bash "$work/both.sh" "${server[*]//@/$port}" "${*//@/$port}" "$work/$name" 2>"$work/$name.err"
	local status=$?
	tail=$(tail -1 "$work/$name.err")
	[ $status = 0 ] && [[ $tail = *" frames captured, 0 dropped"* ]] && return 0
	cat "$work/$name".{err,server,client}
	return 1
}
right() { # NAME MTU LINE…: frames.py finds nothing wrong, and prints these lines
	local line
	python3 "$ROOT/tests/support/frames.py" "$work/$1.pcapng" $2 >"$work/frames" 2>&1 || { cat "$work/frames"; return 1; }
	for line in "${@:3}"; do
		grep -q "^$line\$" "$work/frames" || { echo "no '$line' in:"; cat "$work/frames"; return 1; }
	done
}
# tshark decodes each frame; it calls comments "expert information", and a hop limit of 1 a warning
decoded() { # NAME PROTOCOL
	tshark -n -r "$work/$1.pcapng" --disable-protocol rpcordma --disable-protocol infiniband.eoib --disable-heuristic eth_over_ib \
		-Y "_ws.malformed || _ws.expert.severity == error || !$2" >"$work/bad" 2>"$work/tshark.err"
	[ ! -s "$work/bad" ] || { head -5 "$work/bad"; return 1; }
}
lines_of() { tshark -n -r "$work/$1.pcapng" ${2:+-Y "$2"} 2>/dev/null | wc -l; }

pp="ibv_rc_pingpong -d roce_lo -g 1 -p @ -n 10 -s 3000 -m 1024"
check "ibv_rc_pingpong on one host" recorded sends $pp -- $pp 127.0.0.1
check "its SENDs are FIRST, MIDDLE and LAST, in the order of PSNs" right sends 1024 "0x00 20" "0x01 20" "0x02 20" "interface roce_lo" "dropped 0" "payload [0-9]* 60000"
check "tshark decodes them" decoded sends infiniband
uc="ibv_uc_pingpong -d roce_lo -g 1 -p @ -n 10 -s 3000 -m 1024"
check "ibv_uc_pingpong on one host" recorded uc $uc -- $uc 127.0.0.1
check "its SENDs are UC's" right uc 1024 "0x20 20" "0x21 20" "0x22 20"
xsrq="ibv_xsrq_pingpong -d roce_lo -g 1 -p @ -n 10 -s 3000 -m 1024"
check "ibv_xsrq_pingpong on one host" recorded xrc $xsrq -- $xsrq 127.0.0.1
check "its SENDs are XRC's" right xrc 1024 "0xa0 20" "0xa1 20" "0xa2 20" "dropped 0" "payload [0-9]* 60000"
ud="ibv_ud_pingpong -d roce_lo -g 1 -p @ -n 10 -s 500"
check "ibv_ud_pingpong on one host" recorded ud $ud -- $ud 127.0.0.1
check "its datagrams are UD's" right ud 1024 "0x64 20"
wr="ib_write_bw -d roce_lo -x 1 -p @ -n 10 -s 20000 -F -m 4096"
check "ib_write_bw on one host" recorded writes $wr -- $wr 127.0.0.1
check "its one-copy WRITEs are there, split at the MTU" right writes 4096 "0x06 10" "0x07 30" "0x08 10"
check "tshark decodes them too" decoded writes infiniband
rd="ib_read_bw -d roce_lo -x 1 -p @ -n 10 -s 20000 -F -m 4096"
check "ib_read_bw on one host" recorded reads $rd -- $rd 127.0.0.1
check "its READs have responses" right reads 4096 "0x0c 10" "0x0d 10" "0x0e 30" "0x0f 10" "payload [0-9]* 200000"
at="ib_atomic_lat -d roce_lo -x 1 -p @ -n 10 -F"
check "ib_atomic_lat on one host" recorded atomics $at -- $at 127.0.0.1
check "each atomic has its answer" right atomics 4096 "0x14 10" "0x12 10"
check "rping on one host" recorded rping rping -s -a 127.0.0.1 -p @ -C 3 -- rping -c -a 127.0.0.1 -p @ -C 3
check "its connection management is there, each MAD once" right rping 4096 "0x64 [5-7]"
check "tshark names the messages" eval '[ "$(lines_of rping "infiniband.mad.attributeid == 0x10")" = 1 ]'
export VERBENA_WIRE=always
check "ibv_rc_pingpong over UDP" recorded wire $pp -- $pp 127.0.0.1
check "each packet is there, with the ICRC of the wire" right wire "" "0x00 [2-9][0-9]" "0x01 [2-9][0-9]" "0x02 [2-9][0-9]"
# only the receiver of corrupted packets is captured, so that its records are not left out
spoiled() {
	free_port
	timeout 60 "$VERBENA" run --capture "$work/spoiled.pcapng" ${cpp//@/$port} >"$work/server.out" 2>&1 &
	local s=$!
	wait_for 20 listens "$port"
	VERBENA_FAULT=corrupt=5,seed=7 timeout 60 "$VERBENA" run ${cpp//@/$port} 127.0.0.1 >"$work/client.out" 2>&1 || { said_by_both; return 1; }
	# the client ends as soon as it has all it waits for: if its last acknowledgement was corrupted, nobody answers the server
	wait $s || grep -q "transport retry counter exceeded" "$work/server.out" || { said_by_both; return 1; }
	right spoiled "" 'bad [1-9][0-9]*'
}
cpp=${pp/-n 10/-n 200}
check "packets with a wrong ICRC appear, and are called so" spoiled
export VERBENA_DEVICES=iwarp:lo
check "rping over iWARP" recorded iwarp rping -s -a 127.0.0.1 -p @ -C 3 -S 3000 -- rping -c -a 127.0.0.1 -p @ -C 3 -S 3000
check "tshark decodes its stream" decoded iwarp "(iwarp_mpa || tcp.segment_data)"
check "it has MPA, READs and WRITEs" eval '[ "$(lines_of iwarp "iwarp_mpa.req")" = 1 ] && [ "$(lines_of iwarp "iwarp_rdma.opcode == 1")" -ge 3 ] && [ "$(lines_of iwarp "tcp.analysis.flags && !tcp.analysis.ack_lost_segment")" = 0 ]'
unset VERBENA_WIRE VERBENA_DEVICES

# --- verbena capture ---
# A pair that runs until stop_pair; $server and $client are the pids of the programs
start_pair() { # [ITERATIONS]
	start_server ibv_rc_pingpong -d roce_lo -g 1 -n "${1:-100000000}" -s 1000
	start_client ibv_rc_pingpong -d roce_lo -g 1 -n "${1:-100000000}" -s 1000
	wait_for 20 connected
	server_program=$(program_of $server) client_program=$(program_of $client)
}
connected() { grep -q 'remote address' "$work/client.out"; }
stop_pair() { die $server_program $client_program; wait $server $client 2>/dev/null; return 0; }
said_once() { # STATUS TEXT COMMAND…: one line on standard error
	local status=$1 text=$2
	shift 2
	timeout 30 "$@" >"$work/out" 2>"$work/err" </dev/null
	[ $? = "$status" ] && [ "$(wc -l <"$work/err")" = 1 ] && grep -q -- "$text" "$work/err" && return 0
	cat "$work/err"
	return 1
}
capture() { timeout 60 "$VERBENA" capture "$@"; }
# two pairs of programs: --qp shows both directions of one queue pair, and nothing of the other pair
one_queue_pair() { # FIELDS ENV… -- ARGUMENTS…: FIELDS of tshark tell the directions, and have two values
	local fields=$1 env=() pids=() qpn i
	shift
	while [ "$1" != -- ]; do env+=("$1"); shift; done
	shift
	for i in 1 2; do
		free_port
		env "${env[@]}" timeout 60 "$VERBENA" run ib_send_lat "$@" -p "$port" -F -D 40 >"$work/server.out" 2>&1 </dev/null &
		pids+=($!)
		wait_for 20 listens "$port"
		env "${env[@]}" timeout 60 "$VERBENA" run ib_send_lat "$@" -p "$port" -F -D 40 127.0.0.1 >"$work/client.out" 2>&1 </dev/null &
		pids+=($!)
	done
	wait_for 30 four_sending && qpn=$("$VERBENA" stat qps --json | python3 -c 'import json, sys; print(max((r["counters"]["port_xmit_packets"], r["qpn"]) for r in json.load(sys.stdin)["qps"] if r["type"] == "RC")[1])') &&
		capture -w "$work/qp.pcapng" --qp "$qpn" --count 300 2>"$work/err"
	local status=$?
	kill "${pids[@]}" 2>/dev/null
	wait "${pids[@]}" 2>/dev/null
	tshark -n -r "$work/qp.pcapng" --disable-protocol rpcordma -T fields $fields 2>/dev/null | sort | uniq -c | tee "$work/directions"
	[ $status = 0 ] && [ "$(wc -l <"$work/directions")" = 2 ]
}
four_sending() { "$VERBENA" stat qps --json | python3 -c 'import json, sys; sys.exit(sum(r["counters"]["port_xmit_packets"] > 100 for r in json.load(sys.stdin)["qps"]) < 4)'; }
bth="-e infiniband.bth.destqp"
check "one queue pair, on one host" one_queue_pair "$bth" -- -d roce_lo -x 1
check "one queue pair, over RoCE" one_queue_pair "$bth" VERBENA_WIRE=always -- -d roce_lo -x 1
check "one queue pair, over iWARP" one_queue_pair "-e tcp.srcport -e tcp.dstport" VERBENA_WIRE=always VERBENA_DEVICES=iwarp:lo -- -d iwarp_lo -R
check "a pair runs" start_pair
check "it is captured from outside, both programs" capture -w "$work/all.pcapng" --count 2000
check "the frames are right" right all 1024
check "one program, few bytes of each frame" capture -w "$work/one.pcapng" --pid $client_program --count 100 --snaplen 60
check "none has more" eval '[ "$(tshark -n -r "$work/one.pcapng" -Y "frame.cap_len > 60" 2>/dev/null | wc -l)" = 0 ] && [ "$(lines_of one)" = 100 ]'
check "without payload" capture -w "$work/bare.pcapng" --count 100 --no-payload
check "only headers are left" eval '[ "$(tshark -n -r "$work/bare.pcapng" -Y "frame.cap_len > 58" 2>/dev/null | wc -l)" = 0 ] && [ "$(lines_of bare)" = 100 ]'
check "files in turn" capture -w "$work/turn.pcapng" --count 3000 --rotate 100K,3
check "the last three are kept, and each is right" eval '[ "$(ls "$work"/turn*.pcapng | wc -l)" = 3 ] && for f in "$work"/turn*.pcapng; do python3 "$ROOT/tests/support/frames.py" "$f" || exit 1; done'
check "into tshark" eval 'capture -w - --count 50 2>/dev/null | timeout 60 tshark -n -i - 2>/dev/null | grep -c RRoCE | grep -qx 50'
check "into a pipe that closes" eval 'capture -w - 2>"$work/err" | head -c 3000 >/dev/null; [ "${PIPESTATUS[0]}" = 0 ]'
if [ -n "$(ldconfig -p | grep libpcap.so.0.8)" ]; then
	check "a filter of libpcap" capture -w "$work/filtered.pcapng" --count 20 --filter 'udp[8] == 0x11'
	check "only acknowledgements pass it" right filtered "" "0x11 20"
	check "a bad filter" said_once 2 "filter 'udp and'" "$VERBENA" capture -w "$work/x" --filter 'udp and'
fi
check "statistics without a file" eval 'capture --stats --seconds 0.5 2>&1 | grep -q "^RC_SEND_ONLY"'
json_of_stats() {
	capture --json --seconds 0.5 >"$work/json" 2>"$work/err" && python3 -c 'import json, sys
r = json.load(open(sys.argv[1])); assert r["frames"] == sum(o["frames"] for o in r["opcodes"]) > 0 and r["files"] == 0, r' "$work/json"
}
check "the same as JSON" json_of_stats
has_frames() { [ "$(stat -c %s "$work/first.pcapng" 2>/dev/null || echo 0)" -gt 5000 ]; }
second_capture() { # of the same program, or into the same file
	local first status=0
	"$VERBENA" capture -w "$work/first.pcapng" --pid $client_program --snaplen 60 2>/dev/null & first=$!
	wait_for 20 has_frames || status=1
	said_once 1 "captured already" "$VERBENA" capture -w "$work/second.pcapng" --pid $client_program || status=1
	said_once 1 "another capture writes this file" "$VERBENA" capture -w "$work/first.pcapng" || status=1
	kill $first
	wait $first && return $status
}
check "a second capture of one program, or into one file, says so" second_capture
collector_dies() {
	"$VERBENA" capture -w "$work/killed.pcapng" 2>/dev/null &
	local c=$!
	sleep 1
	kill -9 $c
	wait $c
	sleep 0.5
	! gone $client_program && capture -w "$work/again.pcapng" --pid $client_program --count 100
}
check "a collector that is killed detaches, and the next one works" collector_dies
program_dies() {
	capture -w "$work/dies.pcapng" --pid $client_program 2>"$work/err" &
	local c=$!
	sleep 1
	kill -9 $client_program
	wait $c && [ "$(lines_of dies)" -gt 10 ]
}
check "a program that dies ends the capture, and its frames are there" program_dies
check "the pair is stopped" stop_pair
asked_again() { # a program that is stopped when the capture begins
	start_pair || return 1
	kill -STOP $server_program
	"$VERBENA" capture -w "$work/asked.pcapng" 2>"$work/err" &
	local c=$!
	wait_for 20 grep -q "$server_program does not answer" "$work/err" || { cat "$work/err"; kill $c; kill -CONT $server_program; return 1; }
	kill -CONT $server_program
	wait_for 40 has_frames_of_server
	local found=$?
	kill $c
	wait $c && [ $found = 0 ]
}
has_frames_of_server() { grep -qa "pid $server_program" "$work/asked.pcapng"; }
check "a program that does not answer is asked again, and captured when it does" asked_again
check "the second pair is stopped" stop_pair
check "no program" said_once 1 "there is no process" "$VERBENA" capture -w "$work/x" --pid 4194303
check "a program without an adapter" said_once 1 "has no open adapter" "$VERBENA" capture -w "$work/x" --pid $$
check "no such adapter" said_once 2 "there is no adapter" "$VERBENA" capture -w "$work/x" --device roce_none
check "a directory in place of the file" said_once 1 "Is a directory" "$VERBENA" capture -w "$work"
ln -s "$work/victim" "$work/link"
check "a link in place of the file is not followed" eval 'said_once 1 "symbolic link" "$VERBENA" capture -w "$work/link" && [ ! -e "$work/victim" ]'
echo long >"$work/own" && chmod 644 "$work/own"
check "a file of one's own is replaced, and nobody else can read it" eval '"$VERBENA" run --capture "$work/own" true 2>/dev/null && [ "$(stat -c %a "$work/own")" = 600 ] && ! grep -q long "$work/own"'
check "a size that is none" said_once 2 "not a size" "$VERBENA" capture -w "$work/x" --rotate 0
check "no file" said_once 2 "no file given" "$VERBENA" capture
if [ "$(id -u)" = 0 ] && id nobody >/dev/null 2>&1; then
	touch "$work/theirs" && chown nobody "$work/theirs"
	check "a file of another user gets no frames" eval 'said_once 1 "another user" "$VERBENA" capture -w "$work/theirs" && [ ! -s "$work/theirs" ]'
	check "a program of another user" said_once 1 "belongs to another user" setpriv --reuid nobody --regid nogroup --clear-groups env -u VERBENA_RUNTIME "$VERBENA" capture -w /dev/null --pid $$
fi
check "a program's exit status is kept" eval '"$VERBENA" run --capture "$work/exit.pcapng" sh -c "exit 7" 2>/dev/null; [ $? = 7 ]'
full_disk() {
	mkdir -p "$work/tiny"
	mount -t tmpfs -o size=64k tiny "$work/tiny" || return 1
	free_port
	timeout 100 "$VERBENA" run --capture "$work/tiny/full.pcapng" bash "$work/both.sh" "${fpp//@/$port}" "${fpp//@/$port} 127.0.0.1" "$work/full" 2>"$work/err"
	local status=$?
	cp "$work/tiny/full.pcapng" "$work/full.pcapng"
	umount "$work/tiny"
	cat "$work/err"
	[ $status = 125 ] && grep -q "No space left" "$work/err" && grep -q "iters in" "$work/full.client" && right full 1024
}
read_only_tmp() { # but the directory of this test, which has the runtime directory
	free_port
	timeout 100 unshare -m bash -c 'mount --make-rprivate / && mount --bind /tmp /tmp && mount --bind "$1" "$1" && mount -o remount,bind,ro /tmp && shift && ! touch /tmp/x 2>/dev/null && exec "$@"' \
		bash "$work" "$VERBENA" run --capture "$work/ro.pcapng" bash "$work/both.sh" "${pp//@/$port}" "${pp//@/$port} 127.0.0.1" "$work/ro" 2>"$work/err" || { cat "$work/err"; return 1; }
	right ro 1024 && [ -z "$(ls -d "$VERBENA_RUNTIME"/verbena-capture-* 2>/dev/null)" ]
}
fpp=${pp/-n 10/-n 200}
if [ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null; then
	[[ $VERBENA_RUNTIME != "$work"/* ]] || check "where /tmp cannot be written, the runtime directory has the socket" read_only_tmp
	check "a full disk: the program goes on, and the file ends with a whole frame" full_disk
fi
finish
