#!/bin/bash
# faults.sh - fault injection with stock programs: over RoCE, iWARP and on one host, in connections, and at run time
# follows: man/verbena-fault.1
# SPDX-License-Identifier: MIT
HERE=$(cd "$(dirname "$0")" && pwd)
source "$HERE/../../support/lib.sh"
source "$HERE/../../support/cm.sh"
need ibv_rc_pingpong
D=(-d roce_lo -g 1 -c)

# with RULES COMMAND…: both ends have them
with() { VERBENA_FAULT=$1 "${@:2}"; }
wired() { VERBENA_WIRE=always "$@"; }
# The numbers of the packets on which the rules acted, as the last program of each end has logged them
hits_of() { sed -n 's/^verbena: fault \([0-9]*\): .*number \([0-9]*\)$/\1 \2/p' "$work/$1.out"; }
acted() { [ -n "$(hits_of client)" ] || { echo "the rule did not act"; return 1; }; }

# --- packets of RoCE ---
# count= in the rules: a program that has all its data ends, and cannot repeat the acknowledgement of its peer's last send
loses() { VERBENA_LOG=debug with "$1" wired pair ibv_rc_pingpong "${D[@]}" -n 300 && acted; }
check "RoCE: 5 % lost" loses "drop p=0.05 seed=1 count=30"
check "RoCE: each 20th twice" loses "duplicate every=20"
check "RoCE: 10 % late" loses "reorder p=10% seed=2 count=40"
check "RoCE: received packets are lost" loses "drop dir=rx every=30 count=15"
check "RoCE: received packets come late and twice" loses "reorder dir=rx p=0.1 seed=3 count=40; duplicate dir=rx every=7"
check "RoCE: one opcode is lost" loses "drop opcode=RC_SEND_LAST every=15 count=10; drop opcode=ACK every=15 count=10"
check "RoCE: a delay" loses "delay=200us; drop nth=3"
check "RoCE: a rate" loses "rate=200M; drop nth=3"
corrupted() {
	loses "$1" || return 1
	grep -h 'packets and .* received; dropped' "$work/server.out" "$work/client.out" | grep -q ' [1-9][0-9]* ICRC' ||
		{ echo "no ICRC error is counted"; grep -h ICRC "$work/server.out"; return 1; }
}
check "RoCE: corrupted packets are counted as ICRC errors, and their data is not delivered" corrupted "corrupt every=40 count=15"
check "RoCE: the same where they are received" corrupted "corrupt dir=rx every=40 count=15"
all_lost() { ! with "drop" wired pair ibv_rc_pingpong "${D[@]}" -n 10 >/dev/null && grep -q 'retry counter exceeded' "$work/client.out" "$work/server.out"; }
check "RoCE: if all is lost, the retries are spent" all_lost
others() { with "drop device=roce_eth99; drop qp=1; drop peer=10.9.8.7; drop path=local; drop opcode=READ; drop after=1000s" wired pair ibv_rc_pingpong "${D[@]}" -n 100; }
check "RoCE: rules for others do nothing" others

# The client alone has rules, so that what it sends does not depend on time
same_hits() {
	local turn
	for turn in 1 2; do
		start_server_wired || return 1
		VERBENA_LOG=debug VERBENA_FAULT="duplicate p=0.1 seed=11 opcode=SEND; duplicate p=0.2 seed=12 opcode=SEND" wired start_client ibv_rc_pingpong "${D[@]}" -n 200
		wait "$client" && wait "$server" || { said_by_both; return 1; }
		# the client sends 800 packets and what it repeats
		hits_of client | awk '$2 <= 800' >"$work/hits.$turn"
	done
	[ -s "$work/hits.1" ] && diff "$work/hits.1" "$work/hits.2"
}
start_server_wired() { VERBENA_WIRE=always start_server ibv_rc_pingpong "${D[@]}" -n 200; }
check "the same seed gives the same list of hits" same_hits
if command -v ib_send_bw >/dev/null; then
	check "RoCE: ib_send_bw, the older form" with "loss=2,dup=2,reorder=2,corrupt=1,seed=7" wired pair ib_send_bw -d roce_lo -F -s 8192 -n 500
	check "RoCE: ib_send_bw, 5 % lost" with "drop p=0.05 seed=1" wired pair ib_send_bw -d roce_lo -F -s 8192 -n 500
	check "RoCE: ib_write_bw, 2 % lost, 2 % late" with "drop p=2% seed=1; reorder p=2% seed=2" wired pair ib_write_bw -d roce_lo -F -n 500
	check "RoCE: ib_read_bw, lost responses" with "drop opcode=READ_RESPONSE p=0.02 seed=4" wired pair ib_read_bw -d roce_lo -F -n 300
fi

# --- one host ---
check "one host: a delay" with "delay=1ms" pair ibv_rc_pingpong "${D[@]}" -n 50
check "one host: lost requests are repeated" with "drop every=20 count=3" pair ibv_rc_pingpong "${D[@]}" -n 60
check "one host: events" with "delay=2ms p=0.5 seed=1" pair ibv_rc_pingpong "${D[@]}" -n 60 -e
status_seen() { ! with "wc=$1 op=SEND nth=5" "${@:3}" pair ibv_rc_pingpong "${D[@]}" -n 50 >/dev/null && grep -qh "Failed status $2" "$work/server.out" "$work/client.out"; }
check "one host: a completion with an error" status_seen REM_ACCESS_ERR "remote access error"
check "RoCE: a completion with an error" status_seen RNR_RETRY_EXC_ERR "RNR retry counter exceeded" wired
refused_mr() { ! with "reg=ENOMEM" pair ibv_rc_pingpong "${D[@]}" -n 5 >/dev/null; grep -q "Couldn't register MR" "$work/server.out"; }
check "registration fails" refused_mr

# --- connections ---
if command -v rping >/dev/null; then
	there=127.0.0.1
	LIMIT_CM=60 at=7174
	# cm_event RULE EVENT ENV…: the server at port $at has the rule, the client sees the event
	cm_event() {
		local s status
		rm -f "$work/server.out"
		env "${@:3}" VERBENA_FAULT="$1" timeout -k 2 $((LIMIT_CM * SLOW)) "${run[@]}" rping -s -a $there -p $at -C 2 >"$work/server.out" 2>&1 </dev/null &
		s=$!
		wait_for 20 rping_waits || { kill $s; return 1; }
		env "${@:3}" timeout -k 2 $((LIMIT_CM * SLOW)) "${run[@]}" rping -c -a $there -p $at -C 2 >"$work/client.out" 2>&1 </dev/null
		status=$?
		kill $s 2>/dev/null
		wait $s 2>/dev/null
		cat "$work/client.out"
		[ $status != 0 ] && grep -q "$2" "$work/client.out"
	}
	rping_waits() { [ -n "$(ls "$VERBENA_RUNTIME" 2>/dev/null)" ] && sleep 1; }
	# it takes a minute, so it is tried while the others are
	never_answered() {
		trap - EXIT
		work=$work/never LIMIT_CM=120 at=7175
		mkdir "$work"
		cm_event "cm=ignore" RDMA_CM_EVENT_UNREACHABLE
	}
	(never_answered) >"$work/never.out" 2>&1 &
	never=$!
	check "a connection request is rejected" cm_event "cm=reject" "RDMA_CM_EVENT_REJECTED, error 28"
	check "it is rejected for a reason" cm_event "cm=reject=10" "RDMA_CM_EVENT_REJECTED, error 10"
	check "iWARP: a connection request is rejected" cm_event "cm=reject" RDMA_CM_EVENT_REJECTED VERBENA_WIRE=always VERBENA_DEVICES=iwarp:lo
	# 4.3 s later the client repeats its request, which the rule lets through
	asked_twice() { VERBENA_LOG=debug VERBENA_FAULT="cm=ignore count=1" both rping -s -a $there -C 2 -- rping -c -a @ -C 2 && grep -q '^verbena: fault 1: cm: number 1$' "$work/server.out"; }
	check "a connection request is not answered, and the next one is" asked_twice
	check "iWARP: a connection request is not answered, and the connection ends" cm_event "cm=ignore" "RDMA_CM_EVENT_\(UNREACHABLE\|REJECTED\)" VERBENA_WIRE=always VERBENA_DEVICES=iwarp:lo
	removed() { # the client waits for an answer when its adapter goes; a busy rping may end by a failed request first
		local s c program
		rm -f "$work/server.out"
		timeout -k 2 $((60 * SLOW)) "${run[@]}" rping -s -a $there >"$work/server.out" 2>&1 </dev/null &
		s=$!
		wait_for 20 rping_waits || { kill $s; return 1; }
		timeout -k 2 $((60 * SLOW)) "${run[@]}" rping -c -v -a $there >"$work/client.out" 2>&1 </dev/null &
		c=$!
		program=$(program_of "$s")
		wait_for 20 grep -q '^ping data' "$work/client.out" && kill -STOP "$program" && sleep 1 &&
			"$VERBENA" fault add --pid "$(program_of "$c")" device=remove
		wait $c
		c=$?
		kill -CONT "$program"
		wait $s
		cat "$work/client.out"
		[ $c != 0 ] && [ $c != 124 ] && grep -q 'DEVICE_REMOVAL\|device removal' "$work/client.out"
	}
	check "a program of rdma_cm sees that its adapter is removed" removed
	iwarp() { VERBENA_WIRE=always VERBENA_DEVICES=iwarp:lo with "$@"; }
	check "iWARP: a delay" iwarp "delay=1ms" both rping -s -a $there -C 20 -V -- rping -c -a @ -C 20 -V
	check "iWARP: a rate" iwarp "rate=2M" both rping -s -a $there -C 20 -V -S 5000 -- rping -c -a @ -C 20 -V -S 5000
	# rping says that its connection has ended, and succeeds
	ends_early() {
		iwarp "$1" both rping -s -a $there -C 50 -V -- rping -c -a @ -C 50 -V
		cat "$work/client.out"
		grep -q 'DISCONNECT EVENT' "$work/client.out"
	}
	check "iWARP: a cut connection ends both programs" ends_early "cut nth=20"
	VERBENA_MPA=crc check "iWARP: a corrupted FPDU ends the connection" ends_early "corrupt nth=20"
	never_ended() { wait $never || { cat "$work/never.out"; return 1; }; }
fi

# --- rules that make no sense: one line, and the program is not started ---
refuses() { # TEXT ARGS…
	local said status
	said=$("$VERBENA" run "${@:2}" -- touch "$work/started" 2>&1)
	status=$?
	echo "$said"
	[ $status = 2 ] && [ ! -e "$work/started" ] && [ "$(wc -l <<<"$said")" = 1 ] && [[ $said == *"$1"* ]]
}
while IFS='|' read -r rule text; do
	check "refused: $rule" refuses "$text" --fault "$rule"
done <<-'END'
	drip|there is no such action
	drop q=1|there is no such key
	drop p=1.5|a probability is from 0 to 1
	drop path=iwarp|TCP would repair it
	drop every=2 nth=3|only one of
	cut path=local|no connection of TCP
	delay=5|a number and a unit
	wc=SUCCESS|a status is
	reg=EWHAT|ENOMEM
	cm=maybe|reject=REASON
	device=remove for=1s|does not come back
	drop; drop p=2|rule 2
END
check "refused: a scenario that is not there" refuses "No such file" --fault "@$work/nothing"
check "refused: VERBENA_FAULT itself" env VERBENA_FAULT="drop p=9" bash -c "$(declare -f refuses); VERBENA=$VERBENA work=$work; refuses 'a probability'"
one_line() { # the library alone: one line, whatever the number of devices that are opened
	VERBENA_FAULT="drop p=9" LD_LIBRARY_PATH=$lib_dir timeout 60 ibv_devinfo 2>&1 >/dev/null | tee "$work/said.lines"
	[ "$(grep -c VERBENA_FAULT "$work/said.lines")" = 1 ]
}
sanitized || check "a rule that makes no sense is reported once" one_line

# --- a scenario ---
cat >"$work/scenario" <<-'END'
	# a short storm
	drop p=0.2 seed=5
	at 150ms add delay=1ms
	at 300ms remove all
END
check "verbena fault check: a scenario" "$VERBENA" fault check "$work/scenario"
printf 'drop\nat 5 drop\n' >"$work/wrong"
wrong_line() { "$VERBENA" fault check "$work/wrong"; [ $? = 2 ]; }
check "verbena fault check: a wrong line is refused" wrong_line
storm() { VERBENA_LOG=info with "@$work/scenario" wired pair ibv_rc_pingpong "${D[@]}" -n 4000 && grep -q 'fault 1: drop p=0.2 seed=5' "$work/client.out"; }
check "RoCE: a program passes through a scenario" storm

# The client alone has rules, and they act on its first packets, which do not depend on time
same_counters() {
	local turn
	printf 'duplicate p=0.1 seed=21 opcode=SEND count=8\nat 0ms add drop opcode=SEND p=0.05 seed=22 count=4\n' >"$work/seeded"
	for turn in 1 2; do
		start_server_wired || return 1
		VERBENA_LOG=debug VERBENA_FAULT="@$work/seeded" wired start_client ibv_rc_pingpong "${D[@]}" -n 200
		wait "$client" && wait "$server" || { said_by_both; return 1; }
		sed -n 's/^verbena: \(fault [12]: .*number [0-9]*\)$/\1/p' "$work/client.out" >"$work/counters.$turn"
	done
	[ "$(wc -l <"$work/counters.1")" = 12 ] && diff "$work/counters.1" "$work/counters.2"
}
check "a seeded scenario does the same twice" same_counters
watched() {
	VERBENA_FAULT="port=down after=1s for=500ms; device=remove after=3s" timeout 60 "${run[@]}" stdbuf -oL ibv_asyncwatch -d roce_lo >"$work/watch.out" 2>&1 </dev/null &
	local w=$!
	wait_for 20 grep -q DEVICE_FATAL "$work/watch.out" || wait_for 1 grep -q catastrophic "$work/watch.out"
	kill $w 2>/dev/null
	wait $w
	cat "$work/watch.out"
	grep -c event "$work/watch.out"
}
check "ibv_asyncwatch sees a port go and come back, and the adapter go" watched

# before the commands that count the programs
if command -v rping >/dev/null; then check "a connection request is never answered" never_ended; fi

# --- at run time ---
runtime() {
	local pid id
	VERBENA_WIRE=always start_server ibv_rc_pingpong "${D[@]}" -n 20000000 || return 1
	VERBENA_WIRE=always start_client ibv_rc_pingpong "${D[@]}" -n 20000000
	wait_for 20 two_programs || { echo "the programs are not there"; return 1; }
	pid=$(program_of "$client") # not before: it was still timeout's
	"$VERBENA" fault add "drop every=100" && { echo "added without a choice"; return 1; }
	id=$("$VERBENA" fault add --pid "$pid" drop every=100 seed=4 2>&1) && { echo "seed without p: $id"; return 1; }
	"$VERBENA" fault add --pid "$pid" drop every=100 || return 1
	wait_for 20 has_hits "$pid" || { "$VERBENA" fault list; return 1; }
	"$VERBENA" fault list || return 1
	"$VERBENA" fault list --json | python3 -c 'import json,sys; l=json.load(sys.stdin); assert len(l)==2 and sum(r["hits"]>0 for p in l for r in p["rules"])==1, l' || return 1
	"$VERBENA" fault remove --pid "$pid" 7 && { echo "removed what is not there"; return 1; }
	"$VERBENA" fault remove --pid="$pid" 1 --json | python3 -c 'import json,sys; l=json.load(sys.stdin); assert l == [{"pid": int(sys.argv[1]), "removed": 1}], l' "$pid" || return 1
	! has_hits "$pid" || return 1
	"$VERBENA" fault add --all --json "wc=FATAL_ERR count=1" | python3 -c 'import json,sys; l=json.load(sys.stdin); assert len(l) == 2 and all(r["id"] and r["pid"] for r in l), l' || return 1
	# the other program may wait for this one
	wait_for 20 one_has_ended || { echo "no program has ended"; return 1; }
	kill "$client" "$server" 2>/dev/null
	wait "$client" "$server"
	grep -h 'Failed status fatal error' "$work/client.out" "$work/server.out"
}
one_has_ended() { gone "$client" || gone "$server"; }
two_programs() { [ "$("$VERBENA" fault list | grep -c ^process)" = 2 ]; }
has_hits() { "$VERBENA" fault list --pid "$1" --json | grep -q '"hits": [1-9]'; }
check "rules are added, listed and removed at run time" runtime
check "without programs there is nothing to add to" bash -c "! '$VERBENA' fault add drop"
finish
