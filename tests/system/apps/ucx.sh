#!/bin/bash
# ucx.sh - Debian's UCX, unmodified, over reliable connections and datagrams: on one host, and between two
# follows: ucx_info(1), ucx_perftest(1)
# SPDX-License-Identifier: MIT
# UCX_TLS allows only verbs: UCX's own shared memory, CMA and TCP are forbidden, and it prints the lanes that it uses
case ${1:-} in
cable) source "$(dirname "$0")/../net/lib.sh" ;;
*) source "$(dirname "$0")/../../support/lib.sh" ;;
esac
need ucx_info ucx_perftest
sanitized && { skip "ucx" "UCX takes the place of the sanitizer's signal handlers"; exit 0; }
export UCX_LOG_LEVEL=info UCX_WARN_UNUSED_ENV_VARS=n
# UCX before 1.14 would take each datagram's header for IPv6 and compare its destination
export UCX_UD_VERBS_ETH_DGID_CHECK=n
RC=rc_verbs,ud_verbs # a reliable connection is set up with datagrams

# perf TLS TEST ARGS…: both ends succeed, the client prints the final row, and every lane uses the first transport
perf() {
	local tls=$1 kind=${1%%,*} f
	shift
	UCX_TLS=$tls pair ucx_perftest -t "$@" || return 1
	grep -q '^Final: ' "$work/client.out" || { echo "no figures"; said_by_both; return 1; }
	for f in client server; do
		grep -q "ep_cfg.*$kind/$UCX_NET_DEVICES" "$work/$f.out" || { echo "$f: no lane of $kind"; said_by_both; return 1; }
		grep 'ep_cfg' "$work/$f.out" | grep -E '(tcp|sysv|posix|cma|xpmem)/' && { echo "$f: other lanes"; return 1; }
	done
	return 0
}

# uct TRANSPORT TEST ARGS…: the layer below, which uses exactly one transport
uct() {
	local tl=$1
	shift
	UCX_TLS=$tl pair ucx_perftest -d "$UCX_NET_DEVICES" -x "$tl" -t "$@" || return 1
	grep -q '^Final: ' "$work/client.out" || { echo "no figures"; said_by_both; return 1; }
}

shows() { # DEVICE TRANSPORT
	"${run[@]}" ucx_info -d 2>&1 | awk -v device="$1:1" -v tl="$2" '/Transport:/ { t = $3 } /Device:/ && $3 == device && t == tl { n++ } END { exit !n }'
}

if [ "${1:-}" = cable ]; then
	check "two hosts" hosts || exit 1
	export UCX_NET_DEVICES=$DEV:1
	export UCX_IB_GID_INDEX=$V6
	for t in tag_lat ucp_put_lat ucp_am_lat ucp_get; do
		check "two hosts: $t, 4096 bytes by rc_verbs" crossing 400000 perf $RC $t -s 4096 -n 100 -w 10
	done
	check "two hosts: tag_bw, 1 MiB by rc_verbs" crossing 20000000 perf $RC tag_bw -s 1048576 -n 20 -w 2
	for t in tag_lat tag_bw; do
		check "two hosts: $t, 4096 bytes by ud_verbs" crossing 400000 perf ud_verbs $t -s 4096 -n 100 -w 10
	done
	unset UCX_IB_GID_INDEX
	check "two hosts: tag_lat by rc_verbs, the GID that UCX chooses" crossing 40000 perf $RC tag_lat -s 400 -n 100 -w 10
	check "two hosts: tag_lat by ud_verbs, the GID that UCX chooses" crossing 40000 perf ud_verbs tag_lat -s 400 -n 100 -w 10
	check "two hosts: ucp_fadd by rc_verbs" crossing 10000 perf $RC ucp_fadd -n 100 -w 10
	finish
fi

for t in rc_verbs ud_verbs; do check "ucx_info: roce_lo has $t" shows roce_lo $t; done
export UCX_NET_DEVICES=roce_lo:1
for t in tag_lat tag_bw ucp_put_lat ucp_put_bw ucp_get ucp_am_lat stream_bw; do
	check "$t: 4096 bytes by rc_verbs" perf $RC $t -s 4096 -n 500 -w 10
	check "$t: 1 MiB by rc_verbs" perf $RC $t -s 1048576 -n 20 -w 2
	check "$t: 4096 bytes by ud_verbs" perf ud_verbs $t -s 4096 -n 50 -w 10
done
for t in ucp_fadd ucp_cswap ucp_swap ucp_add; do check "$t by rc_verbs" perf $RC $t -n 500 -w 10; done
for tl in rc_verbs ud_verbs; do check "am_lat: the transport $tl by itself" uct $tl am_lat -n 500 -w 10; done
check "put_lat: the transport rc_verbs by itself" uct rc_verbs put_lat -D short -n 500 -w 10
check "get: the transport rc_verbs by itself" uct rc_verbs get -D zcopy -s 4096 -n 500 -w 10
check "fadd: the transport rc_verbs by itself" uct rc_verbs fadd -D short -n 500 -w 10
for x in 0 2; do UCX_IB_GID_INDEX=$x check "tag_lat by rc_verbs, GID $x" perf $RC tag_lat -n 200 -w 10; done
unset UCX_UD_VERBS_ETH_DGID_CHECK
check "tag_lat by ud_verbs, destinations compared" perf ud_verbs tag_lat -n 500 -w 10
"$0" cable || failed=1
finish
