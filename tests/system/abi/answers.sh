#!/bin/sh
# answers.sh - rates, texts and marshalling equal those of the machine's own libraries, in separate processes
# SPDX-License-Identifier: MIT
# VB_LIBDIR: the folder of our libraries. answers.sh <the program `answers`>
theirs() { /sbin/ldconfig -p 2>/dev/null | awk -v l="$1" '$1 == l { print $NF; exit }'; }
verbs=$(theirs libibverbs.so.1)
cm=$(theirs librdmacm.so.1)
if [ -z "$verbs" ] || [ -z "$cm" ]; then
	echo "skipped: no libibverbs.so.1 and librdmacm.so.1 of rdma-core on this machine"
	exit 77
fi
tmp=$(mktemp -d) && trap 'rm -rf "$tmp"' EXIT
"$1" "$verbs" "$cm" >"$tmp/theirs" || exit 1
# librdmacm needs a libibverbs: ours
LD_LIBRARY_PATH=$VB_LIBDIR "$1" "$VB_LIBDIR/libibverbs.so.1" "$VB_LIBDIR/librdmacm.so.1" >"$tmp/ours" || exit 1
diff -u "$tmp/theirs" "$tmp/ours"
