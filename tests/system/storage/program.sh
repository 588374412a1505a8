#!/bin/bash
# program.sh - verbena-target as a program: its first output, control socket, reloaded configuration, end
# follows: man/verbena-target.8
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/lib.sh"
target=$(realpath "$1")
start() { # ARGS…: waits until it has printed its address
	serve out 1 "$@"
	port=$(sed -n '1s/.*:\([0-9]*\)\/nqn.*/\1/p' "$work/out")
}
ends_with() { # STATUS
	local status
	wait "$pid"
	status=$?
	pids=()
	[ $status = "$1" ]
}
stops() {
	kill -TERM "$pid"
	ends_with 0
}
says() { # PATTERN: appears in the status
	"$target" status --port "$port" >"$work/status" && grep -q "$1" "$work/status"
}
soon_says() {
	in_time says "$1" || { cat "$work/status"; return 1; }
}
denied() { refused timeout 60 "$target" "$@"; }
url_is() { [ "$(head -1 "$work/out")" = "nvme+tcp://127.0.0.1:$port/$1" ]; }

truncate -s 8M "$work/a.img"
truncate -s 4M "$work/b.img"
start --export "$work/a.img" --export memory:16M --port 0 --nqn nqn.2026-01.test:disk
check "the first line is the URL" url_is nqn.2026-01.test:disk
check "status tells of both namespaces" says '"size": 16777216'
check "an image that is served is not served twice" denied --export "$work/a.img" --port 0
check "a request that is none is refused" denied sing --port "$port"
check "SIGTERM ends it well" stops
check "its control socket is gone" test ! -e "$work/target-$port.sock"

start --export "$work/a.img" --port 0 --threads
first=$(head -1 "$work/out")
check "it works without io_uring" says '"threads"'
check "the control socket stops it" "$target" stop --port "$port"
check "… and well" ends_with 0
start --export "$work/a.img" --port 0
check "an image keeps its name" test "${first##*/}" = "$(head -1 "$work/out" | sed 's,.*/,,')"
stops

uuid() { says '"uuid"' && sed -n 's/.*"uuid": "\([^"]*\)".*/\1/p' "$work/status" | head -1; }
named_by_image() {
	local first second third
	truncate -s 4M "$work/c.img" "$work/d.img"
	start --export "$work/c.img" --port 0 --nqn nqn.2026-01.test:c && first=$(uuid) && stops && mv "$work/c.img" "$work/e.img" &&
		start --export "$work/e.img" --port 0 --nqn nqn.2026-01.test:e && second=$(uuid) && stops && mv "$work/d.img" "$work/c.img" &&
		start --export "$work/c.img" --port 0 --nqn nqn.2026-01.test:c && third=$(uuid) && stops && echo "$first $second $third" &&
		[ -n "$first" ] && [ "$first" = "$second" ] && [ "$first" != "$third" ]
}
if [ "$(stat -f -c %i "$work")" != 0 ] && [ "$(stat -c %W "$work/a.img")" != 0 ]; then
	check "a namespace's UUID is that of its image" named_by_image
else
	echo "skip a namespace's UUID is that of its image: the file system here has no id, or its files no time of birth"
fi

config() { # NAMESPACES
	cat >"$work/conf.json" <<-EOF
		{"listen": [{"transport": "tcp", "address": "127.0.0.1", "port": 0}],
		 "subsystems": [{"nqn": "nqn.2026-01.test:one", "hosts": ["nqn.2026-01.test:host"], "namespaces": [$1]}]}
	EOF
}
a="{\"nsid\": 1, \"backend\": \"file\", \"path\": \"$work/a.img\"}"
b="{\"nsid\": 2, \"backend\": \"mapped\", \"path\": \"$work/b.img\", \"uuid\": \"00112233-4455-6677-8899-aabbccddeeff\"}"
config "$a"
start --config "$work/conf.json"
check "a configuration is served" url_is nqn.2026-01.test:one
config "$a, $b"
truncate -s 12M "$work/a.img"
kill -HUP "$pid"
check "SIGHUP adds a namespace" soon_says 00112233-4455-6677-8899-aabbccddeeff
check "… and sees that a file has grown" soon_says '"size": 12582912'
config "$b"
check "the control socket reads it again, too" "$target" reload --port "$port"
gone() { says '"size": 4194304' && ! grep -q '"nsid": 1' "$work/status"; }
check "a namespace that is not in it any more is gone" in_time gone
echo '{"listen": 7}' >"$work/conf.json"
kill -HUP "$pid"
check "a configuration that is wrong changes nothing" soon_says '"nsid": 2'
check "ANA states are set by the control socket" "$target" ana nqn.2026-01.test:one 1 inaccessible --port "$port"
check "it ends well" stops
for bad in '' '{' '[]' '{"x": 1}' '{"subsystems": [{"nqn": "disk"}]}' '{"subsystems": [{"nqn": "nqn.2026-01.a:b", "namespaces": [{"nsid": 0}]}]}' \
	'{"subsystems": [{"nqn": "nqn.2026-01.a:b", "hosts": [{"nqn": "nqn.2026-01.a:h", "secret": "DHHC-1:00:AAAA:"}]}]}' \
	'{"subsystems": [{"nqn": "nqn.2026-01.a:b", "hosts": [{"secret": "/nowhere"}]}]}' \
	'{"subsystems": [{"nqn": "nqn.2026-01.a:b", "hosts": ["nqn.2026-01.a:h", {"nqn": "nqn.2026-01.a:h"}]}]}' \
	'{"subsystems": [{"nqn": "nqn.2026-01.a:b", "hosts": [{"nqn": "nqn.2026-01.a:h", "dh_groups": []}]}]}' \
	'{"subsystems": [{"nqn": "nqn.2026-01.a:b"}, {"nqn": "nqn.2026-01.a:b"}]}' \
	'{"subsystems": [{"nqn": "nqn.2026-01.a:b", "cntlid": [7]}]}' '{"subsystems": [{"nqn": "nqn.2026-01.a:b", "cntlid": [0, 7]}]}' \
	'{"subsystems": [{"nqn": "nqn.2026-01.a:b", "cntlid": [8, 7]}]}' '{"subsystems": [{"nqn": "nqn.2026-01.a:b", "cntlid": [1, 65520]}]}' \
	'{"memory": -1}' '{"listen": [{"address": 5}]}' '{"queues": "many"}'; do
	printf %s "$bad" >"$work/conf.json"
	check "no configuration: $bad" denied --config "$work/conf.json"
done
check "nothing to serve is no use" denied --port 0

with_secret() { # FILE
	cat >"$work/conf.json" <<-EOF
		{"listen": [{"transport": "tcp", "address": "127.0.0.1", "port": 0}],
		 "subsystems": [{"nqn": "nqn.2026-01.test:one", "hosts": [{"nqn": "nqn.2026-01.test:host", "secret": "$1"}]}]}
	EOF
}
if "$target" --help >/dev/null && grep -q libcrypto < <(ldd "$target"); then
	secret=DHHC-1:00:ABEiM0RVZneImaq7zN3u/wARIjNEVWZ3iJmqu8zd7v8qDMNU:
	echo $secret >"$work/secret"
	with_secret "$work/secret"
	chmod 666 "$work/secret"
	check "a secret that everybody can write is refused" denied --config "$work/conf.json"
	for mode in 644 600; do
		chmod $mode "$work/secret"
		start --config "$work/conf.json"
		stops
		[ $mode = 600 ] || check "a secret that everybody can read is told of" grep -q "secret: everybody can read" "$work/out.err"
		[ $mode = 644 ] || check "one for its owner is not" refused grep "everybody" "$work/out.err"
	done
fi
config "$a"
chmod 666 "$work/conf.json"
check "a configuration that everybody can write is refused" denied --config "$work/conf.json"
chmod 644 "$work/conf.json"

# An image of a cluster that is gone: librados gives up after ten seconds. Everything here comes before that
printf '%s\n' "[global]" "mon_host = 127.0.0.1:1" "keyring = /dev/null" "auth_client_required = none" "log_file = $work/ceph.log" >"$work/ceph.conf"
dead="{\"nsid\": 3, \"backend\": \"rbd\", \"path\": \"p/i\", \"ceph_conf\": \"$work/ceph.conf\"}"
opening_or_refused() { says "\"opening\": $1" || grep -q "namespace" "$work/out.err"; } # N
opens_dead() {
	config "$a"
	start --config "$work/conf.json"
	config "$a, $dead"
	kill -HUP "$pid"
	in_time opening_or_refused 1
}
in_ten_seconds() { # COMMAND…: once more if librados has given up before, because the machine was busy
	"$@" && return 0
	grep "namespace" "$work/out.err" || return 1
	! runs "$pid" || stops
	opens_dead && "$@"
}
opens_meanwhile() { says '"opening": 1' && says '"nsid": 1' && ! grep -q "namespace" "$work/out.err"; }
add() { "$target" add nqn.2026-01.test:one nsid=4 "$@" --port "$port"; }
adds_meanwhile() {
	local adding status=0
	add backend=rbd path=p/j "ceph_conf=$work/ceph.conf" >"$work/add" 2>&1 &
	adding=$!
	in_time opening_or_refused 2
	says '"opening": 2' && says '"nsid": 1' && refused add backend=memory size=1M | grep "is being opened" && runs $adding &&
		"$target" remove nqn.2026-01.test:one 4 --port "$port" && ! grep "namespace" "$work/out.err" || status=1
	stops || status=1
	wait $adding
	return $status
}
not_added() {
	refused add backend=rbd path=p/j ceph_conf=/nowhere | grep "^error: namespace 4 (rbd p/j): /nowhere: No such file" && says '"opening": 0' &&
		! grep '"nsid": 4' "$work/status" && add backend=memory size=1M && says '"nsid": 4'
}
opens_dead
if grep -q "install\|without the backend" "$work/out.err"; then
	echo "skip an image of a cluster that is gone: no librbd"
	stops
else
	check "while an image of a cluster that is gone is opened, the target serves the others" in_ten_seconds opens_meanwhile
	check "… also one that the control socket adds, or removes meanwhile; and it ends at once" in_ten_seconds adds_meanwhile
	config "$a"
	start --config "$work/conf.json"
	check "an image that cannot be added is refused with the reason, and its number is free" not_added
	stops
	# librados has nothing of librbd
	mkdir "$work/old" && ln -s "$(find /usr/lib /usr/lib64 -name librados.so.2 2>/dev/null | head -1)" "$work/old/librbd.so.1"
	too_old() {
		denied --export rbd:p/i --port 0 --ceph-conf "$work/ceph.conf" 2>"$work/old/said" && cat "$work/old/said" &&
			[ "$(wc -l <"$work/old/said")" = 1 ] && grep "librbd.so.1 is too old: it has no rbd_" "$work/old/said"
	}
	check "a librbd that is too old is said in one line" eval 'LD_LIBRARY_PATH=$work/old${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} too_old'
fi

echo precious >"$work/file"
start --export memory:1M --port 0 --control "$work/file"
check "a file in the place of the control socket stays" grep -q precious "$work/file"
stops
check "… also at the end" grep -q precious "$work/file"
if [ "$(id -u)" = 0 ] && command -v setpriv /usr/bin/python3 >/dev/null; then
	stranger=(setpriv --reuid 65534 --regid 65534 --clear-groups)
	mkdir -m 777 "$work/open"
	chmod 711 "$work"
	start --export memory:1M --port 0 --control "$work/open/socket"
	chmod 666 "$work/open/socket"
	cp "$target" "$work/open/target" && chmod 755 "$work/open/target"
	check "its own user is answered" "$target" status --control "$work/open/socket"
	check "another user is not, whatever the socket's mode" refused timeout 20 "${stranger[@]}" "$work/open/target" stop --control "$work/open/socket"
	check "… and has changed nothing" "$target" status --control "$work/open/socket"
	stops
	"${stranger[@]}" /usr/bin/python3 -c "import socket, sys
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[1]); s.listen()
while True: s.accept()[0].sendall(b'not for you\n')" "$work/open/theirs" &
	pids+=($!)
	in_time test -S "$work/open/theirs" && sleep 0.2
	timeout 20 "$target" status --control "$work/open/theirs" >"$work/out" 2>&1
	check "a stranger's socket is not believed" refused grep "not for you" "$work/out"
else
	echo "skip other users at the control socket: only root can be one"
fi
exit $failed
