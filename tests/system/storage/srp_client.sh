#!/bin/bash
# srp_client.sh - srp:// disks: verbena-disk and the nbdkit plugin at verbena-srp-target, the library at an odd target
# see: tests/system/storage/srp_client_test.c; man/verbena-disk.1
# SPDX-License-Identifier: MIT
# srp_client.sh TEST TARGET DISK [PLUGIN]
source "$(cd "$(dirname "$0")" && pwd)/../../support/lib.sh"
test=$1 target=$2 disk=$3 plugin=${4:-}
limit=$((60 * SLOW))
bounded() { timeout -k 2 $limit "${run[@]}" "$@"; }
serve() { # PORT
	truncate -s 16M "$work/image"
	"${run[@]}" "$target" --port "$1" --guid 0002c90300001234 --export memory:64M --export null:1G --export "$work/image" >"$work/out" 2>>"$work/err" &
	server=$!
	for _ in $(seq $((200 * SLOW))); do
		grep -q dest= "$work/out" && break
		sleep 0.05
	done
	port=$(sed 's/.*://' "$work/out")
}
trap 'kill -9 $server 2>/dev/null; rm -rf "$work"' EXIT
refused() { ! bounded "$@"; }

check "an odd target, in order" bounded "$test"
serve 0
address=srp://127.0.0.1:$port url=$address/2c90300001234
head -c 3000007 /dev/urandom >"$work/source"
check "info describes the unit" sh -c 'timeout 60 "$@" | grep -q "VERBENA SRP DISK"' - "${run[@]}" "$disk" info "$url"
check "… in JSON, too" python3 -c 'import json,subprocess,sys; i = json.loads(subprocess.check_output(sys.argv[1:])); assert i["size"] == 1 << 30 and i["transport"] == "srp" and i["discard"] and i["write_zeroes"], i' \
	"${run[@]}" "$disk" --json info "$url?lun=1"
renamed() {
	"$VERBENA" link add w0 type roce netdev lo && bounded "$disk" info "$url" >"$work/info" && "$VERBENA" link del w0 && grep -q 'RoCE by Verbena, w0' "$work/info"
}
check "… and the adapter, which has another name" renamed
lists() { bounded "$disk" list "$url" | diff - <(printf '%s\n' "$address/0002c90300001234:0002c90300001234?lun="{0,1,2}); }
check "list names its units" lists
check "a port that is not there is refused" refused "$disk" info "$address/1:2"
unproven() { ! VERBENA_NVME_SECRET=$secret VERBENA_NVME_CONTROLLER_SECRET=$secret bounded "$disk" info "$url" >"$work/err" 2>&1 && grep -q 'no authentication' "$work/err"; }
secret=DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:
check "a target that shall prove its identity is refused" unproven
check "a unit that is not there is refused" refused "$disk" info "$url?lun=9"
copies() { bounded "$disk" copy "$work/source" "$url" && bounded "$disk" --queues=3 copy "$url" "$work/back" && cmp -n 3000007 "$work/source" "$work/back"; }
check "what is copied there is copied back" copies
piece() { head -c 3001 "$work/source" | bounded "$disk" write "$url" 32m && bounded "$disk" read "$url" 32m 4k | cmp -n 3001 - "$work/source"; }
check "parts of blocks are written" piece

# Reads and writes go on while the target is killed and another takes its place
outlives() {
	bounded "$disk" --json --seconds=4 --write=30 --depth=16 bench "$url?lun=1" >"$work/bench" &
	local bench=$! old=$server
	sleep 1.5
	kill -9 "$old"
	wait "$old" 2>/dev/null
	serve "$port"
	wait "$bench" && python3 -c 'import json,sys; r = json.load(open(sys.argv[1])); assert r["reconnects"] >= 1 and r["iops"] > 0, r' "$work/bench"
}
check "requests go on at the next target after one was killed" outlives

if [ -n "$plugin" ] && command -v nbdkit >/dev/null && command -v nbdcopy >/dev/null; then
	by_nbd() { bounded nbdkit -U - "$plugin" url="$url" --run "nbdcopy '$work/source' \$uri && nbdcopy \$uri '$work/nbd'" && cmp -n 3000007 "$work/source" "$work/nbd"; }
	check "nbdkit serves it" by_nbd
	# nobody reads or writes meanwhile: the target's report says it
	size_is() { [ "$(nbdinfo --size "nbd+unix:///?socket=$work/nbd.sock")" = "$1" ]; }
	grows() {
		bounded nbdkit -f -U "$work/nbd.sock" "$plugin" url="$url?lun=2" &
		local nbdkit=$! status=0
		wait_for 10 test -S "$work/nbd.sock" && size_is $((16 << 20)) && truncate -s 24M "$work/image" && "$target" resize 2 --port "$port" &&
			wait_for 10 size_is $((24 << 20)) || status=1
		kill $nbdkit
		wait $nbdkit
		return $status
	}
	if command -v nbdinfo >/dev/null; then check "a unit that grows is seen to have" grows; fi
fi
kill "$server"
check "the target ends well" wait "$server"
exit $((failed > 0))
