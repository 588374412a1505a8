#!/bin/sh
# neighbour.sh - resolves Ethernet addresses from the neighbour table, by a query, behind a gateway, and not at all
# SPDX-License-Identifier: MIT
# neighbour.sh <the program `neighbour`>: uses its own network namespaces
if [ "$2" != inside ]; then
	unshare -rn true 2>/dev/null && command -v ip >/dev/null || { echo "skipped: no network namespaces, or no ip"; exit 77; }
	XDG_RUNTIME_DIR=$(mktemp -d) && export XDG_RUNTIME_DIR && trap 'rm -rf "$XDG_RUNTIME_DIR"' EXIT
	unshare -rn sh "$0" "$1" inside
	exit
fi
program=$1 failed=0

expect() { # expected, device, source, destination
	got=$("$program" "$2" "$3" "$4")
	[ "$got" = "$1" ] && return
	echo "$2 $3 to $4: $got, where $1 is expected"
	failed=1
}

set -e
ip link set lo up
ip link add v0 address 02:00:00:00:00:10 type veth peer name v1 address 02:00:00:00:00:20
unshare -n sleep 600 &
peer=$!
trap 'kill $peer; wait $peer 2>/dev/null' EXIT
until [ "$(readlink /proc/$peer/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.01; done
ip link set v1 netns $peer
nsenter -t $peer -n sh -c 'ip link set v1 up && ip addr add 10.9.0.2/24 dev v1 && ip addr add fd09::2/64 dev v1 nodad'
ip link set v0 up
ip addr add 10.9.0.1/24 dev v0
ip addr add fd09::1/64 dev v0 nodad
ip neigh add 10.9.0.7 lladdr 02:00:00:00:00:77 dev v0 nud permanent
ip route add 10.10.0.0/16 via 10.9.0.7
set +e

expect "02:00:00:00:00:77 0xffff" roce_v0 10.9.0.1 10.9.0.7
expect "02:00:00:00:00:20 0xffff" roce_v0 10.9.0.1 10.9.0.2
expect "02:00:00:00:00:20 0xffff" roce_v0 fd09::1 fd09::2
expect "02:00:00:00:00:77 0xffff" roce_v0 10.9.0.1 10.10.1.1
expect "02:00:00:00:00:10 0xffff" roce_v0 10.9.0.1 10.9.0.1
expect "00:00:00:00:00:00 0xffff" roce_lo 127.0.0.1 127.0.0.9
expect "01:00:5e:01:02:03 0xffff" roce_v0 10.9.0.1 224.1.2.3
expect "33:33:00:00:00:01 0xffff" roce_v0 fd09::1 ff02::1
expect -113 roce_v0 10.9.0.1 10.9.0.99
expect -113 roce_v0 10.9.0.1 10.200.0.1

# not every kernel has VLANs
if ip link add link v0 name v0.5 type vlan id 5 2>/dev/null; then
	ip link set v0.5 up
	ip addr add 10.11.0.1/24 dev v0.5
	ip neigh add 10.11.0.2 lladdr 02:00:00:00:00:55 dev v0.5 nud permanent
	expect "02:00:00:00:00:55 0x5" roce_v0.5 10.11.0.1 10.11.0.2
else
	echo "no VLANs here: not checked"
fi
exit $failed
