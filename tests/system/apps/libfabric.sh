#!/bin/bash
# libfabric.sh - Debian's libfabric, unmodified: its verbs provider with connections, reliable datagrams and datagrams
# follows: fi_info(1), fi_pingpong(1)
# SPDX-License-Identifier: MIT
# With -p, libfabric uses only this provider; fi_pingpong -c compares each byte
case ${1:-} in
cable) source "$(dirname "$0")/../net/lib.sh" ;;
*) source "$(dirname "$0")/../../support/lib.sh" ;;
esac
need fi_info fi_pingpong ip
sanitized && { skip "libfabric" "fi_pingpong is not built for it"; exit 0; }
LIMIT=60
on=() # prefix of each program

# fi_pingpong has its own options for the port. It names no address, so libfabric's verbs provider binds to the address
# of "localhost", which no adapter has exclusively, and picks an adapter with another address, which the server tells
# its client
start_server() {
	free_port
	[ "${cable:-}" ] && on=("${on_b[@]}")
	rm -f "$work/server.out"
	timeout -k 2 $((LIMIT * SLOW)) "${on[@]}" "${run[@]}" "$@" -B "$port" >"$work/server.out" 2>&1 </dev/null &
	server=$!
	wait_for 20 server_up
}
start_client() {
	[ "${cable:-}" ] && on=("${on_a[@]}")
	rm -f "$work/client.out"
	timeout -k 2 $((LIMIT * SLOW)) "${on[@]}" "${run[@]}" "$@" -P "$port" "$HOST" >"$work/client.out" 2>&1 </dev/null &
	client=$!
}

# pingpong PROVIDER ENDPOINT LEAST-ROWS ARGS…: both succeed with the data compared, a row for each size
pingpong() {
	local rows=$3
	pair fi_pingpong -c -p "$1" -e "$2" "${@:4}" || return 1
	[ "$(grep -cE '^[0-9]+[km]? +[0-9]+k? ' "$work/client.out")" -ge "$rows" ] && return 0
	echo "no figures"
	said_by_both
	return 1
}

offers() { # TYPE
	"${run[@]}" fi_info -p verbs -t "$1" 2>&1 | grep 'provider: verbs'
}

if [ "${1:-}" = cable ]; then
	cable=1
	check "two hosts" hosts || exit 1
	check "two hosts: verbs, connections, 1 byte" crossing 10000 pingpong verbs msg 1 -S 1 -I 100
	check "two hosts: verbs, connections, all sizes" crossing 20000000 pingpong verbs msg 5
	for m in msg tagged; do
		check "two hosts: verbs;ofi_rxm, $m, 65536 bytes" crossing 13107200 pingpong "verbs;ofi_rxm" rdm 1 -m $m -S 65536 -I 100
	done
	check "two hosts: verbs, datagrams" crossing 200000 pingpong verbs dgram 1 -S 1000 -I 100
	finish
fi

# In a network of its own: lo alone, or an interface beside it
domains() { # PATTERN FI_INFO-ARGS…: in the order of its output
	local found
	found=$("${run[@]}" fi_info -p verbs -t FI_EP_MSG "${@:2}" 2>"$work/err" | sed -n 's/^ *domain: //p' | uniq | xargs)
	[[ $found == $1 ]] && return 0
	echo "it says '$found'"
	cat "$work/err"
	return 1
}
both_kinds() { # WHERE
	check "$1: verbs, connections" pingpong verbs msg 1 -S 1000 -I 100
	check "$1: verbs;ofi_rxm" pingpong "verbs;ofi_rxm" rdm 1 -S 65536 -I 100
}
case ${1:-} in
beside)
	ip link set lo up
	# the other end of the cable has no address, and is not listed
	ip link add v0 type veth peer name v1 && sysctl -qw net.ipv6.conf.v1.disable_ipv6=1 && ip addr add 10.9.0.1/24 dev v0 &&
		ip link set v1 up && ip link set v0 up ||
		{ skip "an interface beside lo" "no veth"; exit 0; }
	check "without an address fi_info takes the interface beside lo first" domains "roce_v0*"
	check "with a loopback address, that of lo" domains roce_lo -n 127.0.0.1
	HOST=10.9.0.1
	both_kinds "an interface beside lo, by its address"
	HOST=127.0.0.1
	both_kinds "an interface beside lo, by 127.0.0.1"
	finish
	;;
lo)
	ip link set lo up
	check "where there is lo alone, fi_info takes that" domains roce_lo
	both_kinds "lo alone"
	finish
	;;
esac

for t in FI_EP_MSG FI_EP_RDM FI_EP_DGRAM; do check "fi_info: verbs offers $t" offers $t; done
# libfabric excludes loopback interfaces from its verbs endpoints
HOST=$(ip -4 -o addr show scope global up | sed -n 's/.* inet \([0-9.]*\).*/\1/p;q')
if [ -z "$HOST" ]; then
	skip "fi_pingpong on one host" "no interface but loopback has an IPv4 address"
else
	check "verbs, connections, all sizes" pingpong verbs msg 5
	for s in 1 4096 1048576; do
		check "verbs, connections, $s bytes" pingpong verbs msg 1 -S $s -I 100
		for m in msg tagged; do check "verbs;ofi_rxm, $m, $s bytes" pingpong "verbs;ofi_rxm" rdm 1 -m $m -S $s -I 100; done
	done
	check "verbs;ofi_rxm, all sizes" pingpong "verbs;ofi_rxm" rdm 5
	check "verbs, datagrams" pingpong verbs dgram 1 -S 1000 -I 100
fi
if unshare -n true 2>/dev/null; then
	for where in beside lo; do unshare -n "$0" $where || failed=1; done
fi
"$0" cable || failed=1
finish
