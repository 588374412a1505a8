#!/bin/sh
# symbols.sh - every symbol and version of rdma-core's libraries is in ours, with the same default version
# follows: libibverbs.map, librdmacm.map of rdma-core 44.0 (Debian 12) and 65.0
# SPDX-License-Identifier: MIT
# VB_LIBDIR: the folder of our libraries. symbols.sh <folder of the lists>
lists=$1
failed=0

exports() { # type and name@version or name@@version, without the versions' own symbols and our private ones
	nm -D --with-symbol-versions --defined-only "$1" | awk '$2 != "A" && $3 !~ /@VERBENA_PRIVATE_/ { print $2, $3 }' | sort
}

missing() { # name, list, our library
	gone=$(comm -23 "$2" "$3")
	[ -z "$gone" ] && return
	echo "$1: not in ours:"
	echo "$gone"
	failed=1
}

tmp=$(mktemp -d) && trap 'rm -rf "$tmp"' EXIT
for lib in libibverbs librdmacm; do
	exports "$VB_LIBDIR/$lib.so.1" >"$tmp/ours"
	sort "$lists/$lib-44.symbols" >"$tmp/44"
	missing "$lib 44.0" "$tmp/44" "$tmp/ours"

	sed 's/^. //; s/@@/@/' "$tmp/ours" | sort >"$tmp/names"
	sort "$lists/$lib-65.symbols" >"$tmp/65"
	missing "$lib 45 to 65" "$tmp/65" "$tmp/names"
	sed 's/^. //; s/@@/@/' "$tmp/44" | sort - "$tmp/65" | comm -13 - "$tmp/names" >"$tmp/extra"
	if [ -s "$tmp/extra" ]; then
		echo "$lib: exported, but in no release of rdma-core:"
		cat "$tmp/extra"
		failed=1
	fi

	theirs=$(/sbin/ldconfig -p 2>/dev/null | awk -v l="$lib.so.1" '$1 == l { print $NF; exit }')
	if [ -n "$theirs" ]; then
		exports "$theirs" >"$tmp/theirs"
		missing "$theirs" "$tmp/theirs" "$tmp/ours"
	else
		echo "$lib.so.1 of this machine: none, compared with the lists only"
	fi
done
exit $failed
