#!/bin/sh
# coverage.sh - each exported symbol is called by a test of this folder, or listed here with a reason
# SPDX-License-Identifier: MIT
# VB_LIBDIR: the folder of our libraries. coverage.sh <test programs that record their calls>
tmp=$(mktemp -d) && trap 'rm -rf "$tmp"' EXIT
export VB_CALLS="$tmp/noted"
for program in "$@"; do
	case $program in
	*answers) "$program" "$VB_LIBDIR/libibverbs.so.1" ;;
	*) "$program" ;;
	esac >"$tmp/out" 2>&1
	case $? in
	0) ;;
	77) cat "$tmp/out"; exit 77 ;;
	*) cat "$tmp/out"; echo "$program failed"; exit 1 ;;
	esac
done

# name@version reason
cat >"$tmp/reasons" <<'END'
rdma_event_str@RDMACM answers.sh calls it and compares the answers with those of rdma-core
END
# tests/system/rdmacm and tests/system/rsocket call all of their own symbols
for call in $(cat "$(dirname "$0")"/../rdmacm/*.c "$(dirname "$0")"/../rsocket/*.c | grep -o '\<r[a-z_]*(' | tr -d '(' | sort -u); do
	[ "$call" = rdma_event_str ] || nm -D --defined-only "$VB_LIBDIR/librdmacm.so.1" | grep -q " $call@" && echo "$call@RDMACM in its own tests"
done >>"$tmp/reasons"
{
	nm -D --with-symbol-versions --defined-only "$VB_LIBDIR/libibverbs.so.1" | awk '$2 != "A" && $3 !~ /VERBENA_PRIVATE/ { print $3 }'
	nm -D --defined-only "$VB_LIBDIR/librdmacm.so.1" | awk '$2 != "A" && $3 !~ /VERBENA_PRIVATE/ { sub("@.*", "", $3); print $3 "@RDMACM" }'
} | sed 's/@@/@/' | sort -u >"$tmp/exported"
{ cat "$tmp/noted"; cut -d' ' -f1 "$tmp/reasons"; } | sort -u >"$tmp/covered"
if comm -23 "$tmp/exported" "$tmp/covered" | grep .; then
	echo "exported, but neither called by a test nor excused"
	exit 1
fi
if cut -d' ' -f1 "$tmp/reasons" | sort -u | comm -23 - "$tmp/exported" | grep .; then
	echo "excused, but not exported"
	exit 1
fi
echo "$(wc -l <"$tmp/exported") symbols"
