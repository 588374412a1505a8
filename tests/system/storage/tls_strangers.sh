#!/bin/bash
# tls_strangers.sh - verbena-target and verbena-disk over TLS: with each other, with openssl(1), and with unwanted peers
# follows: man/verbena-target.8, man/verbena-disk.1; NVMe/TCP transport specification 1.0, 3.6.1
# SPDX-License-Identifier: MIT
# tls_strangers.sh TARGET DISK
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/medium.sh"
target=$(realpath "$1")
disk=$(realpath "$2")
host=nqn.2026-01.test:host
nqn=nqn.2026-01.test:disk
echo NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ: >"$work/key"
echo NVMeTLSkey-1:02:ABEiM0RVZneImaq7zN3u/wARIjNEVWZ3iJmqu8zd7v8AESIzRFVmd4iZqrvM3e7/AX3mVQ==: >"$work/long"
medium_json 64M
cat >"$work/conf.json" <<-EOF
	{"listen": [{"address": "127.0.0.1", "port": 0, "tls": "required"}, {"address": "127.0.0.2", "port": 0, "tls": "allowed"},
	  {"address": "127.0.0.3", "port": 0}],
	 "stall_seconds": 3,
	 "subsystems": [{"nqn": "$nqn", "hosts": [{"nqn": "$host", "tls_key": "$work/key"}, {"nqn": "$host.long", "tls_key": "$work/long"}],
	  "namespaces": [{"nsid": 1, $medium}]}]}
EOF
serve out 3 --config "$work/conf.json"
url=$(sed -n 1p "$work/out")
lax=$(sed -n 2p "$work/out")
plain=$(sed -n 3p "$work/out")
port=$(sed 's,.*127.0.0.1:\([0-9]*\)/.*,\1,' <<<"$url")
own() { "$disk" --host-nqn=$host "$@"; }
head -c 9000001 /dev/urandom >"$work/source"

check "the URL says that it has to be TLS" grep -q '^nvme+tls://127.0.0.1' <<<"$url"
check "… where it has to" grep -q '^nvme+tcp://127.0.0.2' <<<"$lax"
copies() { own --tls-key-file="$work/key" --queues=3 copy "$work/source" "$1" && own --tls-key-file="$work/key" read "$1" 0 9m | head -c 9000001 | cmp - "$work/source"; }
check "with the key what is written is read" copies "$url"
check "… with digests, too" own --tls-key-file="$work/key" --digests read "$url" 0 1m
check "… where plain connections are allowed, too" copies "$lax"
check "… and a plain one there" own read "$lax" 0 4k
check "… and elsewhere" own read "$plain" 0 4k
check "a key of 48 bytes, another cipher" "$disk" --host-nqn=$host.long --tls-key-file="$work/long" info "$url"
check "discovery is inside of TLS, and says so" sh -c "'$disk' --host-nqn=$host --tls-key-file='$work/key' list '${url%/*}' | grep -qx '$url'"
check "no key is refused" refused own info "$url"
check "… and by nvme+tcp" refused own info "${url/tls/tcp}"
check "another key is refused" refused own --tls-key-file="$work/long" info "$url"
check "another host's key is refused" refused "$disk" --host-nqn=$host.long --tls-key-file="$work/key" info "$url"
check "RDMA is not used with a key" refused own --tls-key-file="$work/key" info "${url/tls/rdma}"
check "a plain target is refused by who has a key" refused own --tls-key-file="$work/key" --reconnect=0 info "$plain"

if ! command -v openssl >/dev/null || ! command -v python3 >/dev/null; then
	echo "skip openssl: openssl or python3 is not installed"
	exit $failed
fi
psk=$(
	python3 - $host $nqn <<-'EOF'
		import base64, hashlib, hmac, struct, sys
		def expand(h, key, label, context, length):
		    prk = hmac.new(bytes(hashlib.new(h).digest_size), key, h).digest()
		    label = b'tls13 ' + label
		    info = struct.pack('>HB', length, len(label)) + label + bytes([len(context)]) + context
		    return hmac.new(prk, info + b'\1', h).digest()[:length]
		host, nqn = [a.encode() for a in sys.argv[1:]]
		key = base64.b64decode('VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ')[:32]
		retained = expand('sha256', key, b'HostNQN', host, 32)
		print(expand('sha256', retained, b'nvme-tls-psk', b'NVMe0R01 ' + host + b' ' + nqn, 32).hex())
	EOF
)
shakes() { # IDENTITY PSK…
	timeout 60 openssl s_client -connect 127.0.0.1:"$port" -tls1_3 -psk_identity "$1" -psk "$2" "${@:3}" </dev/null >"$work/shaken" 2>&1
	cat "$work/shaken"
	grep -q 'Reused, TLSv1.3, Cipher is TLS_AES_128_GCM_SHA256' "$work/shaken"
}
check "openssl s_client shakes hands" shakes "NVMe0R01 $host $nqn" "$psk"
check "… by the group that the specification wants" shakes "NVMe0R01 $host $nqn" "$psk" -groups ffdhe3072
check "… not with another key" refused shakes "NVMe0R01 $host $nqn" "${psk//1/2}"
check "… not with another name" refused shakes "NVMe0R01 $host.long $nqn" "$psk"
check "… not with a name that is none" refused shakes "NVMe0R01 $host" "$psk"
check "… not by TLS 1.2" refused timeout 60 openssl s_client -connect 127.0.0.1:"$port" -tls1_2 -psk_identity "NVMe0R01 $host $nqn" -psk "$psk" </dev/null

# an impostor with an unsolicited certificate
openssl req -x509 -newkey rsa:2048 -nodes -keyout "$work/pem" -out "$work/cert" -days 2 -subj /CN=impostor >/dev/null 2>&1
openssl s_server -accept 127.0.0.1:0 -tls1_3 -cert "$work/cert" -key "$work/pem" >"$work/server" 2>&1 &
pids+=($!)
in_time grep -q ACCEPT "$work/server"
impostor_port=$(sed -n 's/^ACCEPT .*://p' "$work/server")
impostor() {
	local said
	said=$(own --tls-key-file="$work/key" --reconnect=0 info "nvme+tls://127.0.0.1:$impostor_port/$nqn" 2>&1) && return 1
	echo "$said"
	grep -q 'does not accept TLS with this key' <<<"$said"
}
check "a certificate is no key" impostor

# hosts that begin and then stall
half() {
	exec 7<>/dev/tcp/127.0.0.1/"$port" && printf '\x16\x03\x01\x02\x00\x01\x00\x01\xfc' >&7
	timeout 60 cat <&7 >/dev/null
}
check "a handshake that stops is ended by the target" half
check "… and others go on" own --tls-key-file="$work/key" info "$url"
exit $failed
