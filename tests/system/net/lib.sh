# lib.sh - two hosts as network namespaces, joined by a cable; the server runs on b, the client on a
# follows: ip-netns(8), veth(4)
# SPDX-License-Identifier: MIT
# sourced, not run; needs root
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$HERE/../../support/lib.sh"
NAME=$(basename "$0" .sh)
need ip ethtool ibv_rc_pingpong
[ "$(id -u)" = 0 ] || { skip "$NAME" "only root makes network namespaces"; exit 0; }

A=vb$$a B=vb$$b
V4_A=192.0.2.1 V4_B=192.0.2.2 V6_A=2001:db8::1 V6_B=2001:db8::2
HOST=$V4_B # address of the exchange over TCP
V4=1 V6=2  # the indices of the addresses' GIDs
DEV=roce_net0
# "${on_a[@]}" COMMAND: runs on host a. Programs of a never meet those of b in shared memory
on_a=(ip netns exec $A env "VERBENA_RUNTIME=$work/a")
on_b=(ip netns exec $B env "VERBENA_RUNTIME=$work/b")
cable_pid=

net_cleanup() {
	local status=$? n p
	[ $BASHPID = $$ ] || return # a child that got SIGTERM before its exec
	trap - EXIT INT TERM
	[ -z "$cable_pid" ] || kill "$cable_pid" 2>/dev/null
	for n in $A $B; do
		[ -e /run/netns/$n ] || continue
		for p in $(ip netns pids $n); do kill -9 "$p" 2>/dev/null; done
		ip -n $n link del net0 2>/dev/null
		ip netns del $n
	done
	(exit $status)
	cleanup
}
trap net_cleanup EXIT
trap 'exit 130' INT TERM

# --- the hosts ---
# hosts [MTU]: net0 of each is an end of a veth pair
hosts() {
	namespaces
	ip -n $A link add net0 type veth peer name net0 netns $B || return 1
	addresses "${1:-1500}"
}

# bad_hosts [MTU [PORT]]: the same, with a cable that can lose packets to a UDP port, RoCE's if none is given (cable.c)
bad_hosts() {
	namespaces
	compile cable cable.c || return 1
	mkfifo "$work/cable.in"
	"$work/cable" $A $B net0 "${2:-4791}" <"$work/cable.in" >"$work/cable.out" 2>&1 &
	cable_pid=$!
	exec 8>"$work/cable.in"
	wait_for 20 grep -q ready "$work/cable.out" || { cat "$work/cable.out"; return 1; }
	addresses "${1:-1500}"
}

# cable SETTINGS…: from now on; the last line of cable.out has the counts since the last time
cable() {
	local lines
	lines=$(wc -l <"$work/cable.out")
	echo "$* " >&8
	wait_for 20 cable_answers "$lines"
}
cable_answers() { [ "$(wc -l <"$work/cable.out")" -gt "$1" ]; }

# on_cable SETTINGS COMMAND…: COMMAND succeeds, and the cable did what SETTINGS say
on_cable() {
	local settings=$1 status word is name
	shift
	cable $settings || return 1
	"$@"
	status=$?
	cable
	is=" $(tail -1 "$work/cable.out") "
	[ $status = 0 ] || { echo "on the cable:$is"; return $status; }
	for word in $settings; do
		name=$(sed 's/=.*//; s/^loss$/lost/; s/^dup$/twice/; s/^reorder$/late/; s/^corrupt$/corrupted/' <<<"$word")
		[ "$name" != seed ] && [[ $is == *" $name 0 "* ]] && { echo "the cable did not do what it was told:$is"; return 1; }
	done
	return 0
}

namespaces() {
	local n
	mkdir -m 700 "$work/a" "$work/b"
	for n in $A $B; do
		ip netns add $n || exit 1
		ip -n $n link set lo up
	done
}

addresses() { # MTU
	local n
	for n in $A $B; do
		ip netns exec $n sysctl -qw net.ipv6.conf.net0.accept_dad=0 2>/dev/null
		ip -n $n link set net0 mtu "$1" up
	done
	ip -n $A addr add $V4_A/24 dev net0
	ip -n $B addr add $V4_B/24 dev net0
	ip -n $A addr add $V6_A/64 dev net0 nodad
	ip -n $B addr add $V6_B/64 dev net0 nodad
	wait_for 20 settled $A && wait_for 20 settled $B
}
settled() { ip -n "$1" -6 addr show dev net0 scope link | grep -q inet6 && ! ip -n "$1" addr show dev net0 | grep -q tentative; }

# flat: the sender splits packets, so that a capture shows them as on a real link
flat() {
	local n
	for n in $A $B; do ip netns exec $n ethtool -K net0 tx-udp-segmentation off tso off gso off gro off >/dev/null 2>&1; done
}

# capturing FILE COMMAND…: COMMAND succeeds while b's packets go to FILE; ${capture[@]}: the filter and options of
# tcpdump
capturing() {
	local pcap=$1 status dump
	shift
	rm -f "$work/tcpdump.out"
	"${on_b[@]}" tcpdump -i net0 -s 0 -B 65536 -U -w "$pcap" "${capture[@]}" >"$work/tcpdump.out" 2>&1 &
	dump=$!
	wait_for 20 grep -qs 'listening on' "$work/tcpdump.out" || { kill $dump; return 1; }
	"$@"
	status=$?
	wait_for 30 quiet "$pcap"
	kill -INT $dump
	wait $dump
	grep -q '^0 packets dropped by kernel' "$work/tcpdump.out" || { cat "$work/tcpdump.out"; return 1; }
	return $status
}
quiet() { # FILE: it does not grow any more; tcpdump writes once a second
	local before
	before=$(stat -c %s "$1")
	sleep 1.5
	[ "$(stat -c %s "$1")" = "$before" ]
}

# --- a small program of this folder ---
compile() { # NAME SOURCE… [-l…]
	(cd "$HERE" && "${CC:-gcc}" -std=gnu17 -O2 -w -o "$work/$1" "${@:2}") && chmod 755 "$work/$1"
}
compile_verify() { compile verify verify.c plan.c link.c -libverbs; }

# --- pairs across the cable, instead of those on one host ---
listens() {
	ip netns exec $B cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | grep -qi "^ *[0-9]*: [0-9A-F]*:$(printf %04X "$1") [0-9A-F]*:0000 0A"
}
start_server() {
	free_port
	rm -f "$work/server.out"
	timeout -k 2 $((LIMIT * SLOW)) "${on_b[@]}" "${run[@]}" "$@" -p "$port" >"$work/server.out" 2>&1 </dev/null &
	server=$!
	wait_for 20 server_up
}
start_client() {
	rm -f "$work/client.out"
	timeout -k 2 $((LIMIT * SLOW)) "${on_a[@]}" "${run[@]}" "$@" -p "$port" "$HOST" >"$work/client.out" 2>&1 </dev/null &
	client=$!
}

# UDP port 4791 of b is open, and not just being opened, when packets are lost
port_sockets() { ip netns exec "$B" cat /proc/net/udp /proc/net/udp6 2>/dev/null | grep -ci ':12B7 '; }
port_is_open() {
	local n
	n=$(port_sockets)
	[ "$n" -gt 0 ] && [ "$n" = "$(port_sockets)" ]
}

# --- did it cross? ---
# The bytes that each side has received
came() { ip -n "$1" -s -j link show net0 | sed -n 's/.*"rx":{"bytes":\([0-9]*\).*/\1/p'; }

# crossing BYTES COMMAND…: COMMAND succeeds, and at least BYTES bytes cross the cable, both directions together
crossing() {
	local least=$1 a b
	shift
	a=$(came $A) b=$(came $B)
	"$@" || return 1
	crossed=$(($(came $A) - a + $(came $B) - b))
	[ $crossed -ge "$least" ] && return 0
	echo "only $crossed bytes of $least went over the cable"
	return 1
}

# several N FUNCTION ARGS…: N of them at once, each with its own output files; all succeed
several() {
	local n=$1 i pids=() status=0
	shift
	for ((i = 0; i < n; i++)); do
		(
			trap - EXIT
			work=$work/$i
			mkdir -p "$work"
			RANDOM=$((BASHPID * 7 + i))
			"$@" >"$work/said" 2>&1
		) &
		pids+=($!)
	done
	for ((i = 0; i < n; i++)); do
		wait "${pids[i]}" || { status=1; cat "$work/$i/said"; }
	done
	return $status
}
