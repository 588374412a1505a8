#!/bin/bash
# users.sh - root and two users work on one host beside an attacker of each: nothing is read, forged, dropped or starved
# see: SECURITY.md, "Users of one host"
# usage: users.sh   ATTACK_SECONDS: for how long, 20
# SPDX-License-Identifier: MIT
HERE=$(cd "$(dirname "$0")" && pwd)
source "$HERE/../support/lib.sh"
need ip setpriv ib_send_bw rping rstream
seconds=${ATTACK_SECONDS:-20}
[ "$(id -u)" = 0 ] || { skip users "only root can be two users"; exit 0; }
sanitized && { skip users "a sanitized build writes its reports as one user"; exit 0; }
USER_A=47111 USER_B=47112
attacker=$BUILD/tests/attack/attack_beside
[ -x "$attacker" ] || { skip users "$attacker is not built"; exit 0; }
setpriv --reuid $USER_A --regid $USER_A --clear-groups test -x "$VERBENA" || { skip users "$BUILD is not open to other users"; exit 0; }

# /run and port 4791 of this script only
if [ -z "${VERBENA_USERS_ALONE:-}" ]; then
	cleanup_parent=$work
	unshare -mn true 2>/dev/null || { skip users "no right to make mount namespaces"; exit 0; }
	VERBENA_USERS_ALONE=1 unshare -mn "$BASH" "$(realpath "$0")"
	status=$?
	rm -rf "$cleanup_parent"
	exit $status
fi
ip link set lo up
mount -t tmpfs -o mode=755 none /run
mkdir -m 755 /run/verbena
export VERBENA_RUNTIME=/run/verbena
(cd "$HERE/../system/net" && "${CC:-gcc}" -std=gnu17 -O2 -w -o "$work/verify" verify.c plan.c link.c -libverbs) || exit 1
brokers() { # all brokers of this network namespace
	local p
	for p in $(pgrep -x verbena-broker); do
		[ "$(readlink "/proc/$p/ns/net")" = "$(readlink /proc/self/ns/net)" ] && echo "$p"
	done
}
as() { # UID: the prefix of its commands
	run=(setpriv --reuid "$1" --regid "$1" --clear-groups env -u XDG_RUNTIME_DIR HOME=/nonexistent "$VERBENA" run)
}

# one UID UID PROGRAM ARGS…: a server of one user and a client of the other both succeed
one() {
	local server_of=$1 client_of=$2 s c
	shift 2
	as "$server_of"
	start_server "$@" || { said_by_both; return 1; }
	as "$client_of"
	start_client "$@"
	wait "$client"
	c=$?
	[ $c = 0 ] || wait_for 3 gone "$server" || kill "$server"
	wait "$server"
	s=$?
	[ $s = 0 ] && [ $c = 0 ] && return 0
	echo "server of $server_of ended with $s, client of $client_of with $c: $*"
	said_by_both
	return 1
}
ping_pong() { # rping names its peer otherwise
	local s c
	free_port
	as "$1"
	rm -f "$work/server.out" "$work/client.out"
	timeout -k 2 $LIMIT "${run[@]}" rping -s -a 127.0.0.1 -p "$port" -V -C 50 >"$work/server.out" 2>&1 </dev/null &
	server=$!
	sleep 1
	as "$2"
	timeout -k 2 $LIMIT "${run[@]}" rping -c -a 127.0.0.1 -p "$port" -V -C 50 >"$work/client.out" 2>&1 </dev/null
	c=$?
	wait "$server"
	s=$? # the server prints this when its client disconnects
	[ $c = 0 ] && return 0
	echo "rping: server of $1 ended with $s, client of $2 with $c"
	said_by_both
	return 1
}
stream() {
	local s c
	free_port
	as "$1"
	rm -f "$work/server.out" "$work/client.out"
	timeout -k 2 $LIMIT "${run[@]}" rstream -p "$port" -S 65536 -C 200 >"$work/server.out" 2>&1 </dev/null &
	server=$!
	sleep 1
	as "$2"
	timeout -k 2 $LIMIT "${run[@]}" rstream -s 127.0.0.1 -p "$port" -S 65536 -C 200 >"$work/client.out" 2>&1 </dev/null
	c=$?
	wait "$server"
	s=$?
	[ $s = 0 ] && [ $c = 0 ] && return 0
	echo "rstream: server of $1 ended with $s, client of $2 with $c"
	said_by_both
	return 1
}

# honest NUMBER UID UID: runs one program after the other until the time is up; each must succeed
honest() { # in a subshell with its own files and ports
	trap - EXIT
	ports=$((10000 + 3000 * $1))
	free_port() {
		port=$((ports + RANDOM % 3000))
		while listens "$port"; do port=$((ports + RANDOM % 3000)); done
	}
	work=$work/$1
	mkdir -p "$work"
	local n=0 t
	while [ $SECONDS -lt $end ]; do
		for t in rc uc ud; do
			one "$2" "$3" "$verify" -d roce_lo -t $t -n 2000000 || return 1
		done
		one "$2" "$3" ib_send_bw -F -d roce_lo -n 300 -u 18 || return 1
		ping_pong "$2" "$3" || return 1
		stream "$2" "$3" || return 1
		n=$((n + 1))
	done
	echo "$n rounds"
}

verify=$work/verify
timeout $((seconds + 600)) "$VERBENA" run ibv_asyncwatch -d roce_lo >"$work/root" 2>&1 </dev/null &
root=$!
check "root's broker is there" wait_for 20 grep -q 'async event FD' "$work/root"
broker=$(brokers)
end=$((SECONDS + seconds))
names=() pids=()
for pair in "0 0" "$USER_A $USER_A" "$USER_B $USER_B" "$USER_A $USER_B" "0 $USER_A" "$USER_B 0"; do
	(honest ${#names[@]} $pair) >"$work/said.${#names[@]}" 2>&1 &
	names+=("$pair") pids+=($!)
done
attackers=()
for u in $USER_A $USER_B; do
	setpriv --reuid $u --regid $u --clear-groups env -u XDG_RUNTIME_DIR HOME=/nonexistent "$attacker" "$seconds" $((u + RANDOM)) >"$work/attacker.$u" 2>&1 </dev/null &
	attackers+=($!)
done
unharmed() { # NUMBER
	wait "${pids[$1]}" && return 0
	cat "$work/said.$1"
	return 1
}
for i in "${!names[@]}"; do check "users ${names[i]}, attackers beside: every transfer whole, every connection made" unharmed $i; done
nothing_found() { # NUMBER UID
	local status=0
	wait "${attackers[$1]}" || status=$?
	cat "$work/attacker.$2"
	return $status
}
check "the attacker of $USER_A had no socket of the group" nothing_found 0 $USER_A
check "the attacker of $USER_B had no socket of the group" nothing_found 1 $USER_B
sed 's/^/# /' "$work"/attacker.*
same_broker() { [ "$(brokers)" = "$broker" ]; }
check "the broker is the same one" same_broker
few_descriptors() { [ "$(ls "/proc/$broker/fd" | wc -l)" -le 40 ] || { ls -l "/proc/$broker/fd"; return 1; }; }
check "nothing of them is left in it" wait_for 10 few_descriptors
kill $root
wait $root 2>/dev/null
finish
