# cm.sh - pairs of programs that connect by rdma_cm, one of them in the lab's guest
# follows: rdma_cm(7)
# SPDX-License-Identifier: MIT
# sourced after lab/lib.sh. $only: pattern of the sentences of the wanted cases; $early: what a client prints if its
# server does not listen yet; HERE_IP, THERE_IP: the addresses of the two; $f: their family, for sentences
LIMIT=40
ours() { "${on_here[@]}" "$ROOT/tests/interop/lab/bounded" $((LIMIT * SLOW)) "${run[@]}" "$@"; }
theirs() { VERBENA_LAB_S=$((LIMIT + 20)) "$LAB" guest "/root/bounded $LIMIT $*"; }
guest_gets_bounded() { check "the guest gets the one that tells where a program hangs" "$LAB" put "$ROOT/tests/interop/lab/bounded"; }
# polling the guest with a round trip each time is slow
guest_listens() { "$LAB" guest "for i in \$(seq 100); do rdma resource show cm_id | grep -q LISTEN && exit 0; sleep 0.1; done; exit 1"; }
guest_is_free() { "$LAB" guest "for i in \$(seq 100); do rdma resource show cm_id | grep -q LISTEN || exit 0; sleep 0.1; done; exit 1"; }

client_until_served() { # COMMAND…: sets $c
	local end=$((SECONDS + 20 * SLOW))
	while :; do
		"$@" >"$work/client.out" 2>&1 </dev/null && c=0 || c=$?
		[ $c != 0 ] && grep -q "$early" "$work/client.out" && [ $SECONDS -lt $end ] && ! gone "$server" || return 0
		sleep 0.5
	done
}

# @ in the client's arguments is the server's address. LASTS=: the server does not end by itself.
# ONCE=: the server accepts only one client.
LASTS=
ONCE=
both() { # WAY SERVER… -- CLIENT…: WAY names the server's side, verbena or another
	local way=$1 server_args=() client_args s c
	shift
	while [ "$1" != -- ]; do server_args+=("$1"); shift; done
	shift
	if [ "$way" = verbena ]; then
		client_args=("${@//@/$HERE_IP}")
		ours "${server_args[@]}" >"$work/server.out" 2>&1 </dev/null &
		server=$!
		sleep 0.3
		client_until_served theirs "${client_args[@]//"$work"\/rdmap//root/rdmap}"
	else
		client_args=("${@//@/$THERE_IP}")
		guest_is_free
		theirs "${server_args[@]//"$work"\/rdmap//root/rdmap}" >"$work/server.out" 2>&1 &
		server=$!
		guest_listens
		if [ -z "$ONCE" ]; then
			client_until_served ours "${client_args[@]}"
		else
			ours "${client_args[@]}" >"$work/client.out" 2>&1 </dev/null && c=0 || c=$?
		fi
	fi
	[ $c = 0 ] && [ -z "$LASTS" ] || wait_for 3 gone "$server" || stop_server "$way"
	wait "$server"
	s=$?
	[ -z "$LASTS" ] || s=0
	[ $s = 0 ] && [ $c = 0 ] && return 0
	echo "server ended with $s, client with $c: $*"
	hung || said_by_both
	return 1
}
hung() { # one of the two: its side, in full
	grep -q '^--- .*: not done after' "$work/server.out" "$work/client.out" && tail -n 70 "$work/server.out" "$work/client.out"
}
stop_server() {
	if [ "$1" = verbena ]; then
		kill "$(program_of "$server")" 2>/dev/null
	else
		theirs pkill "'rping|ucmatose|udaddy|rdma|rcopy|rstream|ib_'"
	fi
}

wanted() { grep -q -- "$only" <<<"$1"; } # SENTENCE
case_of() { # WAY SENTENCE SERVER… -- CLIENT…
	local sentence="$1 serves, $f: $2"
	! wanted "$sentence" || check "$sentence" both "$1" "${@:3}"
}

copies() { # WAY: the received data equals the sent data
	local LASTS=1 from to
	rm -f "$work/copy"
	if [ "$1" = verbena ]; then
		"$LAB" guest "rm -f /tmp/copy; head -c 300000 /dev/urandom >/tmp/big"
		both "$1" rcopy -- rcopy /tmp/big "@:$work/copy" || return 1
		from=$("$LAB" guest "md5sum </tmp/big") to=$(md5sum <"$work/copy")
	else
		head -c 300000 /dev/urandom >"$work/big"
		both "$1" rcopy -- rcopy "$work/big" "@:/tmp/copy" || return 1
		from=$(md5sum <"$work/big") to=$("$LAB" guest "md5sum </tmp/copy")
	fi
	[ "$from" = "$to" ]
}
