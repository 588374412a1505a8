# cm.sh - pairs of programs that connect by rdma_cm, for scripts in tests/system/apps and tests/system/net
# follows: rdma_cm(7)
# SPDX-License-Identifier: MIT
# sourced after lib.sh; or after net/lib.sh, and then the server runs on b and the client on a
declare -p on_a on_b >/dev/null 2>&1 || on_a=(env) on_b=(env)
LIMIT=100
there=127.0.0.1 # the address of the server: @ in the client's arguments
endless=        # not empty: the server does not end by itself
enough=(true)   # condition to wait for before such a server is stopped
ready=(sleep 0.2) # condition to wait for before the first client starts

# No table lists rdma_cm listeners, so a client that started too early is refused and started again
early='REJECTED[,;] error:\{0,1\} 8\|UNREACHABLE[,;] error:\{0,1\} 1\|onnection refused\|CM event bl blka 8'

# both SERVER… -- CLIENT…: both succeed
both() {
	local server_args=() end=$((SECONDS + 20 * SLOW)) s c
	while [ "$1" != -- ]; do server_args+=("$1"); shift; done
	shift
	timeout -k 2 $((LIMIT * SLOW)) "${on_b[@]}" "${run[@]}" "${server_args[@]}" >"$work/server.out" 2>&1 </dev/null &
	s=$!
	wait_for 20 "${ready[@]}"
	while :; do
		timeout -k 2 $((LIMIT * SLOW)) "${on_a[@]}" "${run[@]}" "${@//@/$there}" >"$work/client.out" 2>&1 </dev/null && c=0 || c=$?
		[ $c != 0 ] && grep -q "$early" "$work/client.out" && ! gone $s && [ $SECONDS -lt $end ] || break
		sleep 0.2
	done
	if [ $c = 0 ] && [ -n "$endless" ]; then
		wait_for 20 "${enough[@]}"
		kill $s 2>/dev/null
	elif [ $c != 0 ]; then
		wait_for 3 gone $s || kill $s
	fi
	wait $s
	s=$?
	[ -z "$endless" ] || s=0
	[ $s = 0 ] && [ $c = 0 ] && return 0
	echo "server ended with $s, client with $c: $*"
	said_by_both
	return 1
}

# The same with a server that is killed when the client has ended
served() {
	endless=1
	both "$@"
	local status=$?
	endless=
	return $status
}

# A datagram to a group without members is lost
joined() { "${on_b[@]}" ip maddr show | grep -q " $1\( \|\$\)"; } # GROUP
group() { # GROUP ADDRESS-OF-SERVER ADDRESS-OF-CLIENT
	local ready=(joined "$1")
	both mckey -m "$1" -b "$2" -C 5 -- mckey -s -m "$1" -b "$3" -C 5
}

# rcopy writes a file where it is told to
copies() {
	head -c 3000000 /dev/urandom >"$work/big"
	rm -f "$work/copy"
	local enough=(cmp -s "$work/big" "$work/copy")
	served rcopy -- rcopy "$work/big" "@:$work/copy" && cmp "$work/big" "$work/copy"
}

# its server of version 44 never ends; the client reports errors
cmtimes() { # ADDRESS CONNECTIONS
	served cmtime -b "$1" -c "$2" -- cmtime -s "$1" -c "$2" && ! grep "event:" "$work/client.out"
}
