#!/bin/sh
# flood.sh - runs flood_test in its own network, where unused source addresses can be forged
# SPDX-License-Identifier: MIT
# flood.sh PROGRAM
here=$(cd "$(dirname "$0")" && pwd)
if [ -z "${VERBENA_TEST_NETWORK:-}" ]; then
	unshare -n true 2>/dev/null || {
		echo "no right to make a network namespace"
		exit 77
	}
	VERBENA_TEST_NETWORK=own exec "$here/../../support/own-network" "$0" "$@"
fi
ip -6 addr show dev own0 2>/dev/null | grep -q fd00:6f::1 || {
	echo "no interface with groups of IPv6: ip(8) is missing"
	exit 77
}
exec "$here/api.sh" "$@"
