#!/bin/bash
# acm.sh - Debian's ibacm on two hosts of a simulated fabric resolves names, IP addresses, LIDs and GIDs for ib_acme
# follows: ibacm(7), ibacm(8), ib_acme(1)
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/../../support/fabric.sh"
PATH=$PATH:/usr/sbin
need ibacm ib_acme unshare
unshare -rmu true 2>/dev/null || { skip fabric_acm "there are no user namespaces here"; exit 0; }
# A host has a /run and a name of its own: ibacm's socket is in /run, and ib_acme -A takes the name of the host
host() { # NODE PROGRAM ARGS…
	on "$1" unshare -rmu sh -c 'mount --bind "$1/run" /run && hostname "$2" && cd "$1" && shift 2 && exec "$@"' - "$work/$1" "$@"
}
acme() { # NODE ARGS…
	host "$1" ib_acme "${@:2}" 2>&1 | tee "$work/acme"
}
configured() { # NODE ADDRESS: what ib_acme writes, and the address, which no interface has
	local dir=$work/$1
	mkdir -p "$dir/run" && host "$1" ib_acme -A -O -D . && grep -q "^$1 ib0 1 default" "$dir/ibacm_addr.cfg" || return 1
	echo "$2 ib0 1 default" >>"$dir/ibacm_addr.cfg"
	sed -i "s,^log_file .*,log_file $dir/log,; s,^lock_file .*,lock_file $dir/pid," "$dir/ibacm_opts.cfg"
	printf '%s\n' 'log_level 1' 'support_ips_in_addr_cfg 1' >>"$dir/ibacm_opts.cfg"
}
start_acm() { # NODE
	host "$1" ibacm -P -A ibacm_addr.cfg -O ibacm_opts.cfg >"$work/$1/out" 2>&1 &
	acm+=($!)
	wait_for 10 test -S "$work/$1/run/ibacm.sock"
}
# The multicast group by which ibacm asks for names: joined when the manager has answered
joined() { grep -q 'join successful' "$work/$1/log"; }
said_by_acm() { tail -20 "$work"/host[12]/{out,log}; }
resolves() { # NODE FORMAT SOURCE DESTINATION DLID: the path that the subnet administrator has
	acme "$1" -f "$2" -s "$3" -d "$4" -v >/dev/null && grep -q "dlid: $5\$" "$work/acme" && grep -q 'SA verification: success' "$work/acme" ||
		{ cat "$work/acme"; said_by_acm; return 1; }
}
acm=()
start_fabric --generate switch:3 --network 10.1.0.0/24
sm host3 &
check "opensm brings up the fabric" wait_for 30 all_active
check "ib_acme -A and -O write host1's files" configured host1 10.1.0.1
check "... and host2's" configured host2 10.1.0.2
check "ibacm starts on host1" start_acm host1
check "... and on host2" start_acm host2
check "ibacm of host1 joins its group" wait_for 10 joined host1
check "ibacm of host2 joins its group" wait_for 10 joined host2
one=$(($(lid_of host1))) two=$(($(lid_of host2)))
gid_of() { printf 'fe80::%s' "$(port_guid "$1" | sed 's/^0x//; s/..../&:/g; s/:$//')"; }
check "host1 resolves the name of host2" resolves host1 n host1 host2 "$two"
check "host2 resolves the name of host1" resolves host2 n host2 host1 "$one"
check "host1 resolves host2's IP address" resolves host1 i 10.1.0.1 10.1.0.2 "$two"
check "host2 resolves host1's IP address" resolves host2 i 10.1.0.2 10.1.0.1 "$one"
check "host1 resolves a LID" resolves host1 l "$one" "$two" "$two"
check "host2 resolves a GID" resolves host2 g "$(gid_of host2)" "$(gid_of host1)" "$one"
endpoints() { acme host1 -e | grep -q ',1,0xffff,1,ibacmp,host1,.*10\.1\.0\.1' || { cat "$work/acme"; return 1; }; }
check "ib_acme -e lists its end point" endpoints
counted() { acme host1 -P | grep -q '^/run/.*,[0-9]' || { cat "$work/acme"; return 1; }; }
check "ib_acme -P shows its counters" counted
cached() { acme host1 -f n -s host1 -d host2 -c >/dev/null && grep -q "dlid: $two\$" "$work/acme"; }
check "a second question is answered from its cache" cached
kill "${acm[@]}"
wait "${acm[@]}"
stop_fabric
exit $((failed > 0))
