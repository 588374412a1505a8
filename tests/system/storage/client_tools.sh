#!/bin/bash
# client_tools.sh - verbena-disk and the nbdkit plugin against verbena-target: data copied there reads back the same
# follows: man/verbena-disk.1, man/nbdkit-verbena-plugin.1
# SPDX-License-Identifier: MIT
# client_tools.sh TARGET DISK [PLUGIN]
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/medium.sh"
target=$(realpath "$1")
disk=$(realpath "$2")
plugin=${3:+$(realpath "$3")}
medium memory 64M
serve out 1 --export "$medium" --port 0 --nqn nqn.2026-01.test:tools
url=$(head -1 "$work/out")
address=${url%/*}

{
	head -c 9000000 /dev/urandom
	head -c 8000000 /dev/zero
	head -c 3000007 /dev/urandom
} >"$work/source"
size=$(stat -c %s "$work/source")

check "info says how large it is" sh -c "'$disk' info '$url' | grep -q 67108864"
check "… in JSON, too" python3 -c 'import json,subprocess,sys; assert json.loads(subprocess.check_output(sys.argv[1:]))["size"] == 67108864' "$disk" --json info "$url"
check "list names it" sh -c "'$disk' list '$address' | grep -qxF '$url'"
check "a file is copied to it" "$disk" copy "$work/source" "$url"
check "… and it to a file" "$disk" --queues=3 copy "$url" "$work/back"
check "… that begins the same" cmp -n "$size" "$work/source" "$work/back"
check "… and has holes where it is zero" sh -c "[ \$(du -k '$work/back' | cut -f1) -lt 20000 ]"
part() { "$disk" read "$url" 1m 2m | cmp - <(tail -c +1048577 "$work/source" | head -c 2097152); }
check "a part is read" part
piece() { head -c 3001 "$work/source" | "$disk" write "$url" 32m && "$disk" read "$url" 32m 4k | cmp -n 3001 - "$work/source"; }
check "standard input is written" piece
check "what is larger than the disk is refused" refused "$disk" copy <(head -c 70000000 /dev/zero) "$url"
check "half a block is not read" refused "$disk" read "$url" 1
check "a subsystem that is not there" refused "$disk" info "${url}x"
bench() { "$disk" --json --seconds=1 --write=30 "$@" bench "$url" | python3 -c 'import json,sys; r = json.load(sys.stdin); assert r["iops"] > 0 and r["latency_us"]["p50"] > 0, r'; }
check "bench, random" bench
paths() {
	local two="$address,127.0.0.1:1/nqn.2026-01.test:tools"
	"$disk" info "$two" | tee /dev/stderr | grep -q "^path .*, optimized: in use" && "$disk" --json info "$two" |
		python3 -c 'import json, sys; p = json.load(sys.stdin)["paths"]; assert [(x["connected"], x["used"]) for x in p] == [(True, True), (False, False)] and "refused" in p[1]["why"], p' &&
		"$disk" copy "$work/source" "$two" && "$disk" read "$two" 1m 2m | cmp - <(tail -c +1048577 "$work/source" | head -c 2097152)
}
check "of two paths the one that is there is used, and info says so" paths
check "bench, sequential and with digests" bench --sequential --size=64k --depth=8 --digests

bar() { script -qec "'$disk' copy '$work/source' '$url'" /dev/null | tr '\r' '\n' | grep -q '100%'; }
if command -v script >/dev/null; then check "a copy shows on a terminal how far it is" bar; fi

# a target's information about itself and others
cat >"$work/two.json" <<-EOF
	{"listen": [{"address": "127.0.0.1", "port": 0}],
	 "referrals": [{"transport": "tcp", "address": "192.0.2.9", "port": 8009}, {"transport": "rdma", "address": "2001:db8::9", "port": 4420}],
	 "subsystems": [{"nqn": "nqn.2026-01.test:a", "allow_any_host": true, "namespaces": [{"nsid": 1, "backend": "memory", "size": "1M"}]},
	  {"nqn": "nqn.2026-01.test:b", "allow_any_host": true, "namespaces": [{"nsid": 9, "backend": "null", "size": "1G"}]}]}
EOF
serve two 2 --config "$work/two.json"
two=$(head -1 "$work/two")
names() {
	"$disk" list "${two%/*}" >"$work/list" && diff - "$work/list" <<-EOF
		$two
		${two%a}b
		ask also nvme+tcp://192.0.2.9:8009/nqn.2014-08.org.nvmexpress.discovery
		ask also nvme+rdma://[2001:db8::9]:4420/nqn.2014-08.org.nvmexpress.discovery
	EOF
}
check "list names all subsystems, and who else may be asked" names

# authentication: a host without the right secret is rejected
secret=DHHC-1:00:ABEiM0RVZneImaq7zN3u/wARIjNEVWZ3iJmqu8zd7v8qDMNU:
proof=DHHC-1:01:O3n/ZbCI/WDi1riVIMg1GqhQ1O55egewVNEk9/ZQLPyt5+by:
echo $secret >"$work/secret"
echo $proof >"$work/proof"
host=nqn.2026-01.test:host
locked=
if "$disk" --secret-file="$work/secret" info "$url" >/dev/null 2>"$work/said" || ! grep -q OpenSSL "$work/said"; then
	cat >"$work/conf.json" <<-EOF
		{"listen": [{"address": "127.0.0.1", "port": 0}],
		 "subsystems": [{"nqn": "nqn.2026-01.test:locked", "require_authentication": true,
		  "hosts": ["nqn.2026-01.test:poor", {"nqn": "$host", "secret": "$work/secret", "controller_secret": "$proof", "dh_groups": ["ffdhe2048"]}],
		  "namespaces": [{"nsid": 1, "backend": "memory", "size": "64M"}]}]}
	EOF
	serve locked 1 --config "$work/conf.json"
	locked=$(head -1 "$work/locked")
	own() { "$disk" --host-nqn=$host "$@"; }
	check "authentication: the secret opens the disk" own --secret-file="$work/secret" --queues=2 copy "$work/source" "$locked"
	check "… and what was written is there" sh -c "'$disk' --host-nqn=$host --secret-file='$work/secret' read '$locked' 0 8m | cmp -n 8388608 - '$work/source'"
	check "… with a proof of the target's" own --secret-file="$work/secret" --controller-secret-file="$work/proof" info "$locked"
	# empty: as not set; wrong: the variable is named
	for v in VERBENA_NVME_SECRET VERBENA_NVME_CONTROLLER_SECRET VERBENA_NVME_TLS_KEY; do
		named() { "$disk" info "$locked" 2>"$work/err"; [ $? = 2 ] && [ "$(wc -l <"$work/err")" = 1 ] && grep -q "^verbena-disk: $v " "$work/err"; }
		export $v=secret
		check "$v with a wrong value is named" named
		export $v=
		check "$v that is empty is as not set" "$disk" --host-nqn=$host --secret-file="$work/secret" info "$locked"
		unset $v
	done
	check "… from the environment" env VERBENA_NVME_SECRET=$secret VERBENA_NVME_CONTROLLER_SECRET=$proof "$disk" --host-nqn=$host info "$locked"
	check "no secret is refused" refused own info "$locked"
	check "… another, too" refused own --secret-file="$work/proof" info "$locked"
	check "… another host, too" refused "$disk" --host-nqn=nqn.2026-01.test:poor --secret-file="$work/secret" info "$locked"
	check "… and another target" refused own --secret-file="$work/secret" --controller-secret-file="$work/secret" info "$locked"
	check "what is no secret is refused" refused own --secret-file="$work/source" info "$locked"
else
	echo "skip authentication: built without OpenSSL"
fi

if [ -z "$plugin" ] || ! command -v nbdkit >/dev/null || ! command -v nbdcopy >/dev/null || ! command -v qemu-io >/dev/null; then
	echo "skip the nbdkit plugin: nbdkit, libnbd-bin or qemu-utils is not installed, or the plugin not built"
	exit $failed
fi
nbdkit -f -U "$work/nbd" "$plugin" url="$url" queues=2 >"$work/nbdkit" 2>&1 &
pids+=($!)
in_time test -S "$work/nbd"
nbd="nbd+unix:///?socket=$work/nbd"
copies() { nbdcopy "$work/source" "$nbd" && nbdcopy "$nbd" "$work/nbd.back" && cmp -n "$size" "$work/source" "$work/nbd.back"; }
check "nbdkit: a file is copied there and back" copies
counted() {
	"$target" status --port "$(sed 's,.*:\([0-9]*\)/.*,\1,' <<<"$url")" | python3 -c 'import json, sys
s = [s for s in json.load(sys.stdin)["subsystems"] if s["nqn"] == "nqn.2026-01.test:tools"][0]
c, = s["controllers"]
assert c["transport"] == "tcp" and c["queues"] == 2 and c["host"] and c["peer"], c
assert c["written_bytes"] >= 9000000 and c["read_bytes"] >= s["namespaces"][0]["size"] and c["errors"] == 0, c'
}
check "the target's status tells who is connected, and how much it has read and written" counted
check "nbdkit: what was written by NBD is on the disk" sh -c "'$disk' copy '$url' '$work/back' && cmp '$work/back' '$work/nbd.back'"
odd() {
	local s
	s=$(printf '%s\n' 'write -P 1 0 4096' 'write -P 2 513 1000' 'write -z 600 100' 'write -z 1 2' 'discard 100 300' 'flush' \
		'read -P 2 513 87' 'read -P 0 600 100' 'read -P 2 700 813' 'read -P 1 1513 2583' 'read -P 0 1 2' 'read -P 1 0 1' |
		qemu-io --image-opts "driver=raw,file.driver=nbd,file.server.type=unix,file.server.path=$work/nbd") && ! grep -q 'failed\|error' <<<"$s" || { echo "$s"; return 1; }
}
check "nbdkit: requests that are not whole blocks" odd
[ -z "$locked" ] ||
	check "nbdkit: a secret from a file" nbdkit -U - "$plugin" url="$locked" secret=+"$work/secret" controller-secret=+"$work/proof" host-nqn=$host \
		--run "nbdinfo --size \$uri | grep -qx 67108864 && '$target' status --port '$(sed 's,.*:\([0-9]*\)/.*,\1,' "$work/locked")' | grep -q '\"authenticated\": true'"
check "nbdkit: clients are told of blocks and connections" sh -c "nbdinfo '$nbd' | grep -q 'can_multi_conn: true' && nbdinfo '$nbd' | grep -q 'block_size_preferred: 4096'"
exit $failed
