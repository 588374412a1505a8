#!/bin/bash
# users.sh - two users on one machine: each has its own broker, root's broker serves both, and neither reaches the other
# follows: verbena-broker(8), "Users"
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/../../support/lib.sh"
need ib_send_lat setpriv
[ "$(id -u)" = 0 ] || { skip users "only root can be two users"; exit 0; }
sanitized && { skip users "a sanitized build writes its reports as one user"; exit 0; }
A=65534 B=47110
as() { # UID COMMAND…
	setpriv --reuid "$1" --regid "$1" --clear-groups env -u XDG_RUNTIME_DIR -u VERBENA_RUNTIME HOME=/nonexistent "${@:2}"
}
as $A test -x "$VERBENA" || { skip users "$BUILD is not open to other users"; exit 0; }

# Its own /run and /tmp hide the rest of the machine
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
unset VERBENA_RUNTIME
run_as() { # UID: the launcher, as that user
	if [ "$1" = 0 ]; then run=("$VERBENA" run); else run=(setpriv --reuid "$1" --regid "$1" --clear-groups env -u XDG_RUNTIME_DIR HOME=/nonexistent "$VERBENA" run); fi
}
brokers() { # all brokers of this network namespace
	local p
	for p in $(pgrep -x verbena-broker); do
		[ "$(readlink "/proc/$p/ns/net")" = "$(readlink /proc/self/ns/net)" ] && echo "$p"
	done
}
no_broker() { [ -z "$(brokers)" ]; }
owners() { for p in $(brokers); do stat -c %u "/proc/$p" 2>/dev/null; done; }

# together UID UID: a pair of each user at the same time, both succeed. Sets $seen: the owners of the brokers meanwhile
pair_of() { # UID NAME: in a subshell with its own files
	( trap - EXIT; work=$work/$2; mkdir -p "$work"; run_as "$1"; RANDOM=$((BASHPID * 7)); pair ib_send_lat -F -d roce_lo -D 2 )
}
together() {
	local one two all=
	pair_of "$1" one >"$work/one.said" 2>&1 & one=$!
	pair_of "$2" two >"$work/two.said" 2>&1 & two=$!
	until gone $one && gone $two; do
		all="$all $(owners)"
		sleep 0.05
	done
	seen=$(printf '%s\n' $all | sort -nu | paste -sd' ')
	wait $one && wait $two && return 0
	cat "$work/one.said" "$work/two.said"
	return 1
}
check "two users, each with a pair of its own" together $A $B
check "each user had a broker of its own" test "$seen" = "$B $A"
check "both brokers are gone" wait_for 30 no_broker

timeout 600 "$VERBENA" run ibv_asyncwatch -d roce_lo >"$work/root" 2>&1 </dev/null &
root=$!
wait_for 20 grep -q 'async event FD' "$work/root"
check "with root's broker there, a pair of each user and" together $A $B
check "root's broker served them all" test "$seen" = 0
check "root and a user, each with a pair" together 0 $A

# Data between two users goes by UDP over loopback: root's broker serves both, and lets neither into the other's memory
across() { # UID UID: server of one, client of the other
	local c
	run_as "$1"
	start_server ib_send_bw -F -d roce_lo -n 100 -u 18 || return 1
	run_as "$2"
	start_client ib_send_bw -F -d roce_lo -n 100 -u 18
	pair_of "$1" beside >"$work/beside.said" 2>&1 || { echo "a pair beside it failed"; cat "$work/beside.said"; return 1; }
	wait "$client"
	c=$?
	kill "$server" 2>/dev/null
	wait "$server" 2>/dev/null
	[ $c = 0 ] && return 0
	echo "the client ended with $c"
	said_by_both
	return 1
}
check "a client of one user against a server of the other: they talk, and disturb nobody" across $A $B
check "the same the other way" across $B $A
check "root's client against a user's server" across $A 0
kill $root
wait $root 2>/dev/null

# what a user can see of the other
closed() { # no runtime directory or segment of A is open to B
	run_as $A
	start_server ib_send_lat -F -d roce_lo || return 1
	local p files f status=0
	p=$(program_of "$server")
	for f in $(find /tmp /run -maxdepth 1 -uid $A -name 'verbena*' 2>/dev/null); do
		as $B test -r "$f" && { echo "$f can be read"; status=1; }
		as $B test -x "$f" && { echo "$f can be entered"; status=1; }
	done
	as $B cat "/proc/$p/maps" >/dev/null 2>&1 && { echo "/proc/$p/maps can be read"; status=1; }
	kill "$p"
	wait "$server" 2>/dev/null
	return $status
}
check "a user's runtime directory is closed to others" closed
rm -rf /tmp/verbena-$A /tmp/verbena-$B
finish
