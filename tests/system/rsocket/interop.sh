#!/bin/bash
# interop.sh - our rsockets and preload library against rdma-core's own, in a guest with the kernel's rxe (or siw)
# follows: rsocket(7)
# SPDX-License-Identifier: MIT
# interop.sh build DIR      makes librs.so, librspre.so, ah.so and api here, against the system's librdmacm: copy DIR and
#                           plain.py to the guest. librs.so precedes the system's rsockets.
# interop.sh run ADDRESS    in the guest, in the folder with those files: all pairs of implementations, in both roles
set -u
here=$(cd "$(dirname "$0")" && pwd)
build() {
	src=$here/../../../src
	cc="${CC:-gcc} -std=gnu17 -D_GNU_SOURCE -I$src -O2 -fPIC"
	$cc -shared -fvisibility=hidden "$src"/rsocket/rs_*.c -Wl,-z,nodelete,-z,defs -lrdmacm -libverbs -lpthread -o "$1/librs.so"
	$cc -U_FORTIFY_SOURCE -fno-builtin -shared -fvisibility=hidden "$src"/rsocket/preload/*.c -Wl,-z,defs -lrdmacm -libverbs \
		-lpthread -ldl -o "$1/librspre.so"
	$cc -shared "$here/ah_shim.c" -libverbs -ldl -o "$1/ah.so"
	$cc -fsanitize=address,undefined -fno-sanitize-recover -static-libasan -static-libubsan "$here/api_test.c" \
		"$src"/rsocket/rs_*.c -lrdmacm -libverbs -lpthread -o "$1/api"
}
bad=0
pair() { # name, preload of the server, preload of the client, command of the server, command of the client
	LD_PRELOAD=$2 timeout 40 $4 >server.log 2>&1 &
	local server=$! c s
	sleep "${WAIT:-2}"
	LD_PRELOAD=$3 timeout 40 $5 >client.log 2>&1
	c=$?
	wait $server
	s=$?
	case $4 in *rcopy* | *udpong*) s=0 ;; esac # servers that do not end
	if [ $c = 0 ] && [ $s = 0 ]; then
		echo "ok $1"
	else
		echo "FAIL $1: server $s, client $c"
		tail -n 3 server.log client.log
		bad=1
	fi
}
run() {
	local to=$1 ours=$here/librs.so shim=$here/ah.so plain="$here/librs.so $here/librspre.so" m
	local theirs=$(echo /usr/lib/*/rsocket/librspreload.so) n="-S 65536 -C 10 -I 2"
	for m in b a n; do
		pair "rstream $m, we serve" "$ours" "" "rstream -T v -T $m $n" "rstream -s $to -T v -T $m $n"
		pair "rstream $m, we call" "" "$ours" "rstream -T v -T $m $n" "rstream -s $to -T v -T $m $n"
	done
	pair "rstream sizes, we serve" "$ours" "" "rstream -T v -S all -C 3 -I 1" "rstream -s $to -T v -S all -C 3 -I 1"
	pair "rstream sizes, we call" "" "$ours" "rstream -T v -S all -C 3 -I 1" "rstream -s $to -T v -S all -C 3 -I 1"
	pair "riostream, we serve" "$ours" "" "riostream -T v $n" "riostream -s $to -T v $n"
	pair "riostream, we call" "" "$ours" "riostream -T v $n" "riostream -s $to -T v $n"
	head -c 3000000 /dev/urandom >big
	for m in "$ours|" "|$ours"; do
		rm -f copy
		pair "rcopy ${m:0:1}" "${m%|*}" "${m#*|}" "timeout 8 rcopy" "rcopy big $to:$PWD/copy"
		cmp big copy || bad=1
	done
	pair "udpong, we serve" "$ours" "$shim" "timeout 8 udpong -b $to -T e" "udpong -s $to -T e -S 500 -C 30"
	pair "udpong, we call" "$shim" "$ours" "timeout 8 udpong -b $to -T e" "udpong -s $to -T e -S 500 -C 30"
	pair "preload, we serve" "$plain" "$theirs" "rstream -T s -T v $n" "rstream -s $to -T s -T v $n"
	pair "preload, we call" "$theirs" "$plain" "rstream -T s -T v $n" "rstream -s $to -T s -T v $n"
	export RDMAV_FORK_SAFE=1
	pair "fork, we serve" "$plain" "$theirs" "rstream -T s -T v -T f $n" "rstream -s $to -T s -T v $n"
	pair "fork, we call" "$theirs" "$plain" "rstream -T s -T v -T f $n" "rstream -s $to -T s -T v $n"
	pair "python, accept and fork" "$plain" "$plain" "python3 plain.py serve fork" "python3 plain.py call block $to"
	unset RDMAV_FORK_SAFE
	for m in block select poll epoll edge; do
		pair "python $m" "$plain" "$plain" "python3 plain.py serve $m" "python3 plain.py call block $to"
	done
	WAIT=8 pair "python asyncio" "$plain" "$plain" "python3 plain.py serve aio" "python3 plain.py call aio $to"
	pair "python datagrams" "$plain" "$plain" "python3 plain.py serve dgram" "python3 plain.py call dgram $to"
	timeout 100 ./api "$to" || bad=1
	exit $bad
}
case ${1:-} in
build) build "$2" ;;
run) run "$2" ;;
*) sed -n '5,8s/^# //p' "$0" ;;
esac
