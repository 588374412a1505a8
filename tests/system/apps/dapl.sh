#!/bin/bash
# dapl.sh - Debian's uDAPL, unmodified, with its provider of rdma_cm: its own tests, on one host and between two namespaces
# follows: dtest(1), dapltest(1), dat.conf(5)
# SPDX-License-Identifier: MIT
case ${1:-} in
cable) source "$(dirname "$0")/../net/lib.sh" ;;
*) source "$(dirname "$0")/../../support/lib.sh" ;;
esac
source "$(dirname "$0")/../../support/cm.sh"
need dtest dtestx dtestsrq dtestcm dapltest
export DAT_OVERRIDE=$work/dat.conf
interface=lo
[ "${1:-}" = cable ] && interface=net0
echo "verbena u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 \"$interface 0\" \"\"" >"$work/dat.conf"
early="$early\|CONN_REFUSED\|non-consumer REJ, reason=8\|REJECTED\|UNREACHABLE\|Could not connect"

# passed WORDS PROGRAM…: both ends print WORDS
passed() {
	local words=$1
	shift
	both "$@" -P verbena -- "$@" -P verbena -h @ && grep -q "$words" "$work/server.out" && grep -q "$words" "$work/client.out" && return 0
	said_by_both
	return 1
}
# dapltest ARGS…: its server does not end
transacted() {
	served dapltest -T S -D verbena -- dapltest -T "$1" -s @ -D verbena "${@:2}" && grep -q 'End of Work' "$work/client.out" && return 0
	said_by_both
	return 1
}
cases() { # WHERE COMMAND-IN-FRONT…
	local where=$1
	shift
	check "dtest: sends, writes, reads, $where" "$@" passed 'Test Complete. PASSED' dtest -b 65536
	check "dtestx: immediate data, atomics, $where" "$@" passed 'immed/atomic test PASSED' dtestx
	check "dtestsrq, $where" "$@" passed 'RC SRQ Test Complete' dtestsrq
	check "dtestcm: 50 connections, $where" "$@" passed 'TOTAL:' dtestcm -c 50
	check "dapltest: transactions, $where" "$@" transacted T -i 100 -t 2 -w 2 client SR 256 server SR 256
	check "dapltest: writes, $where" "$@" transacted P -i 200 RW 4096 2
	check "dapltest: reads, $where" "$@" transacted P -i 200 RR 4096 2
}
if [ "${1:-}" = cable ]; then
	check "two hosts" hosts || exit 1
	there=$V4_B
	cases "two hosts" crossing 2000
	finish
fi
cases "one host"
"$0" cable || failed=1
finish
