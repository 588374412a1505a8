#!/bin/bash
# link.sh - verbena link: what it writes, what programs make of it, wrong files, two commands at once
# follows: verbena-link(1)
# SPDX-License-Identifier: MIT
# usage: own-network link.sh VERBENA
set -u
verbena=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export VERBENA_RUNTIME=$work/runtime XDG_CONFIG_HOME=$work/config
unset VERBENA_DEVICES
mkdir -m 700 "$VERBENA_RUNTIME"
conf=$XDG_CONFIG_HOME/verbena/devices.conf
failed=0
check() { # SENTENCE COMMAND...
	local name=$1
	shift
	if "$@" >"$work/log" 2>&1; then
		echo "ok $name"
	else
		echo "not ok $name"
		sed 's/^/  /' "$work/log" "$work/err"
		failed=1
	fi
}
link() { # STATUS WORD...
	local status=0 want=$1
	shift
	timeout 60 "$verbena" link "$@" >"$work/out" 2>"$work/err" </dev/null || status=$?
	[ $status = "$want" ] || { echo "link $*: exit status $status, not $want"; return 1; }
}
own() { link "$@" --user; }
names() { "$verbena" devices 2>/dev/null | awk '$2 == "lo" { print $1 }' | sort | tr '\n' ' '; }
one_line() { # PATTERN
	[ "$(wc -l <"$work/err")" = 1 ] && grep -qE "$1" "$work/err"
}

adds() {
	own 0 add w0 type iwarp netdev lo && [ "$(names)" = "roce_lo w0 " ] && own 0 add r0 type roce netdev lo mtu 1024 &&
		[ "$(names)" = "r0 w0 " ] && grep -qx 'link r0 type roce netdev lo mtu 1024' "$conf" &&
		"$verbena" devices | grep -qE '^r0 .* 1024/'
}
sets() {
	own 0 set r0 name r1 mtu auto down && [ "$(names)" = "r1 w0 " ] && "$verbena" devices | grep -qE '^r1 +lo +DOWN' &&
		own 0 set r1 up && "$verbena" devices | grep -qE '^r1 +lo +ACTIVE .*4096/' && own 1 set r1 type iwarp && one_line "'w0' already"
}
shows() {
	link 0 show && grep -qE '^r1 +roce +lo +active +auto +line 2' "$work/out" && link 0 show r1 --json &&
		/usr/bin/python3 -c 'import json, sys; r = json.load(open(sys.argv[1])); assert [l["name"] for l in r["links"]] == ["r1"]' "$work/out"
}
deletes() {
	printf '# kept\n' >>"$conf"
	own 0 del r1 && own 0 del w0 && [ "$(names)" = "roce_lo " ] && grep -qx '# kept' "$conf" && own 0 automatic off &&
		[ "$(names)" = "" ] && own 0 automatic on && own 0 automatic off && [ "$(grep -c automatic "$conf")" = 1 ] && own 0 automatic on
}
automatic_adapter() {
	own 0 set roce_lo down && "$verbena" devices | grep -qE '^roce_lo +lo +DOWN' && own 0 del roce_lo &&
		own 1 del roce_lo && one_line 'automatic off'
}
refuses() {
	own 1 add x type roce netdev nowhere0 && one_line "no interface 'nowhere0'" && own 0 add x type roce netdev nowhere0 --force &&
		link 0 show && grep -qE '^x .* absent' "$work/out" && own 0 del x && own 1 del x && own 1 set x up && link 1 show x &&
		own 2 add x && own 2 add && own 2 add ../x type roce netdev lo && own 2 add x type roce netdev lo mtu 1500 &&
		own 2 add x type rxe netdev lo && own 2 set roce_lo && link 2 frob && link 2 --frob && own 2 add x type roce netdev "a b" &&
		link 2 add x type roce netdev lo --user --system
}
# each file: what is wrong, the line, and whether `good` is still there
wrong_file() { # LINE TEXT
	printf "$2" >"$conf"
	cp "$conf" "$work/before"
	"$verbena" devices >"$work/out" 2>"$work/err"
	[ $? = 1 ] && one_line "devices.conf:$1: " && grep -q '^good ' "$work/out" && own 1 add x type iwarp netdev lo &&
		grep -q "devices.conf:$1: " "$work/err" && cmp "$conf" "$work/before"
}
wrong_files() {
	local good='link good type roce netdev lo\n' long
	long=$(printf 'x%.0s' {1..600})
	wrong_file 2 "${good}link half type iwa" && wrong_file 2 "${good}link cut type iwarp netdev lo" && wrong_file 1 "lnik x\n$good" &&
		wrong_file 1 "link x type rxe netdev lo\n$good" && wrong_file 2 "${good}link other type roce netdev lo\n" &&
		wrong_file 2 "${good}$long\n" && wrong_file 2 "${good}a\0b\n" && wrong_file 3 "${good}\n\377\376\n" &&
		wrong_file 1 "link a type iwarp type iwarp netdev lo\n$good" && wrong_file 2 "${good}automatic\n"
}
unusable() { # COMMAND that makes the file
	rm -rf "$conf"
	"$@"
	timeout 60 "$verbena" devices >"$work/out" 2>"$work/err"
	[ $? = 1 ] && one_line 'devices.conf: ' && grep -q '^roce_lo ' "$work/out" && own 1 add x type iwarp netdev lo
}
unusable_files() {
	unusable mkfifo "$conf" && unusable mkdir "$conf" && unusable ln -s /dev/zero "$conf" && unusable truncate -s 100000 "$conf" &&
		unusable install -m 666 /dev/null "$conf" || return 1
	[ "$(id -u)" != 0 ] || unusable install -o 12345 /dev/null "$conf" || return 1
	rm -rf "$conf"
}
at_once() {
	local i
	rm -f "$conf"
	for i in {1..12}; do
		timeout 60 "$verbena" link add n$i type roce netdev none$i --force --user &
	done
	wait
	[ "$(grep -c '^link n' "$conf")" = 12 ] && [ "$(ls -A "${conf%/*}")" = devices.conf ]
}
variable_first() {
	printf 'link good type roce netdev lo\nwrong\n' >"$conf"
	[ "$(VERBENA_DEVICES=iwarp:lo names)" = "iwarp_lo " ] && VERBENA_DEVICES=iwarp:lo "$verbena" devices 2>&1 | grep -q wrong && return 1
	rm "$conf"
}
# a program that runs gets the events of an interface that changes or goes
event() { grep -qE "\($1\)" "$work/watch"; }
wait_event() { # NUMBER of the event
	local i
	for ((i = 0; i < 200; i++)); do
		event "$1" && return 0
		sleep 0.1
	done
	echo "no event $1:"; cat "$work/watch"
	return 1
}
running() {
	own 0 add e0 type roce netdev lo && own 0 add w0 type iwarp netdev lo || return 1
	: >"$work/watch" # else what the last program wrote may be read before this one runs
	timeout 120 stdbuf -oL "$verbena" run ibv_asyncwatch -d "$1" >"$work/watch" 2>&1 &
	local pid=$! status
	for ((i = 0; i < 200; i++)); do grep -q 'async event FD' "$work/watch" && break; sleep 0.1; done
	own 0 set "$1" down && wait_event 10 && own 0 set "$1" up && wait_event 9 && { [ "$1" = e0 ] || { own 0 del w0 && wait_event 8; }; }
	status=$?
	kill $pid 2>/dev/null
	wait $pid 2>/dev/null
	rm -f "$conf"
	return $status
}
# an event of an interface is no reason to read the file: the program may have lost the privilege for it
kept() {
	local status=0
	own 0 add w0 type iwarp netdev lo || return 1
	: >"$work/watch"
	timeout 120 stdbuf -oL "$verbena" run ibv_asyncwatch -d w0 >"$work/watch" 2>&1 &
	local pid=$! i
	for ((i = 0; i < 200; i++)); do grep -q 'async event FD' "$work/watch" && break; sleep 0.1; done
	mv "$conf" "$work/away"
	ip link set lo down && wait_event 10 && ip link set lo up && wait_event 9 || status=1
	: >"$work/watch"
	mv "$work/away" "$conf"
	own 0 set w0 down && wait_event 10 && own 0 del w0 && wait_event 8 || status=1
	kill $pid 2>/dev/null
	wait $pid 2>/dev/null
	rm -f "$conf"
	return $status
}
# the file is on a server that does not answer: a file system whose daemon reads no request
cat >"$work/hung.py" <<-'IN'
	import ctypes, os, signal, sys
	fd = os.open("/dev/fuse", os.O_RDWR)
	libc = ctypes.CDLL(None, use_errno=True)
	if libc.mount(b"hung", sys.argv[1].encode(), b"fuse", 0, b"fd=%d,rootmode=40000,user_id=0,group_id=0" % fd):
	    sys.exit("mount: " + os.strerror(ctypes.get_errno()))
	print("mounted", flush=True)
	signal.pause()
IN
cat >"$work/ask.py" <<-'IN'
	import os, socket, sys
	d = os.environ["VERBENA_RUNTIME"] + "/control-%d" % os.geteuid()
	pid = sys.argv[1]
	name = [n for n in os.listdir(d) if n.startswith(pid + "-") and not n.endswith(".shown")][0]
	s = socket.socket(socket.AF_UNIX)
	s.settimeout(20)
	s.connect(d + "/" + name)
	s.sendall(sys.argv[2].encode() + b"\n")
	text = b""
	while part := s.recv(65536):
	    text += part
	print(text.decode())
	sys.exit(text.startswith(b'{"error"') or not text)
IN
hung_server() { # in a mount namespace of its own
	local status=0 pid program daemon i
	own 0 add e0 type roce netdev lo || return 1
	: >"$work/watch"
	: >"$work/hung"
	timeout 120 stdbuf -oL "$verbena" run ibv_asyncwatch -d e0 >"$work/watch" 2>&1 &
	pid=$!
	for ((i = 0; i < 200; i++)); do grep -q 'async event FD' "$work/watch" && break; sleep 0.1; done
	program=$(pgrep -P "$pid")
	timeout 100 python3 "$work/hung.py" "${conf%/*}" >"$work/hung" 2>&1 &
	daemon=$!
	for ((i = 0; i < 200; i++)); do grep -q . "$work/hung" && break; sleep 0.1; done
	cat "$work/hung"
	grep -q mounted "$work/hung" || status=1
	for i in refresh about refresh devices; do
		[ $status = 0 ] && { python3 "$work/ask.py" "$program" $i || status=1; }
	done
	kill $daemon
	wait $daemon 2>/dev/null
	umount -l "${conf%/*}"
	[ $status = 0 ] && own 0 set e0 down && wait_event 10 || status=1
	kill $pid 2>/dev/null
	wait $pid 2>/dev/null
	rm -f "$conf"
	return $status
}
# interfaces may have any name without a slash, a colon and a space
odd_names() {
	local status=0 words
	ip link add name 'q"\' type veth peer name $'\xff\xe9' || return 1
	for words in devices 'link show'; do
		"$verbena" $words --json | python3 -c 'import json, sys
r = json.load(sys.stdin.buffer)
names = [x.get("interface", x.get("netdev")) for x in (r if isinstance(r, list) else r["links"])]
print(names); sys.exit("q\"\\" not in names or "??" not in names)' || status=1
	done
	"$verbena" run true || status=1
	ip link del name 'q"\'
	return $status
}
output() {
	"$verbena" link show >/dev/full 2>"$work/err" && return 1
	grep -q 'No space left' "$work/err" || return 1
	"$verbena" link show --json | true
}
# the system's file, in a mount namespace: root alone
system_file() {
	unshare -m bash -c '
		set -e
		mkdir -p "$1/etc" && cp -a /etc/passwd "$1/etc" && mount --bind "$1/etc" /etc
		"$2" link add s0 type roce netdev lo
		grep -qx "link s0 type roce netdev lo" /etc/verbena/devices.conf
		"$2" devices | grep -q "^s0 "
		"$2" link add u0 type roce netdev lo --user
		"$2" devices | grep -q "^u0 "
		rm "$3"
		mkdir -p "$4/verbena" && echo "link evil type roce netdev lo" >"$4/verbena/devices.conf" && chown -R 12345 "$4"
		setpriv --reuid 12345 --clear-groups env XDG_CONFIG_HOME="$4" "$2" link show | grep -q "^evil "
		mount -t tmpfs none /mnt && cp "$2" /mnt/tool && chmod 4755 /mnt/tool
		setpriv --reuid 12345 --clear-groups env XDG_CONFIG_HOME="$4" /mnt/tool link show >"$1/suid.out"
		grep -q "^s0 " "$1/suid.out"
		setpriv --reuid 12345 --clear-groups /mnt/tool link add evil type iwarp netdev lo && exit 1
		grep -q evil /etc/verbena/devices.conf && exit 1
		chmod 666 /etc/verbena/devices.conf
		setpriv --reuid 12345 --clear-groups env XDG_CONFIG_HOME="$4" /mnt/tool link show >"$1/suid.out" 2>&1 && exit 1
		grep -q "^roce_lo " "$1/suid.out" && grep -q "others can write it" "$1/suid.out"
	' - "$work" "$verbena" "$conf" "$work/other"
}

fabric_line() { # what a program that verbena run starts is told
	own 2 add ib0 type ib fabric "$work/no fabric" || return 1
	own 0 add ib0 type ib fabric "$work/fabric" node host3 && grep -q "^link ib0 type ib fabric $work/fabric node host3$" "$conf" || return 1
	[ "$(env -u VERBENA_NODE "$verbena" run --no-shim sh -c 'echo "$VERBENA_FABRIC $VERBENA_NODE"' 2>"$work/err")" = "$work/fabric host3" ] || return 1
	[ -z "$(VERBENA_FABRIC='' "$verbena" run --no-shim sh -c 'echo "$VERBENA_FABRIC"' 2>"$work/err")" ] || return 1
	own 1 add ib0 type ib fabric other && own 2 add ib1 type ib fabric other && own 2 add ib0 type ib node x || return 1
	own 1 add ib0 type roce netdev lo && own 1 set roce_lo name ib0 && own 1 set ib0 down || return 1 # the file would be wrong
	link 0 show ib0 && grep -q "^ib0 *ib .*host3" "$work/out" || return 1
	link 0 show --json && grep -q '"node": "host3"' "$work/out" || return 1
	own 0 del ib0 && ! grep -q ib0 "$conf"
}
far_fabric() { # one of another host: nobody answers at lo's second address
	local far=udp:127.0.0.2:9 # discard
	own 2 add ib0 type ib fabric udp: node host3 secret "$work/secret" && own 2 add ib0 type ib fabric $far node host3 secret || return 1
	own 1 add ib0 type ib fabric $far && one_line 'needs node and secret' && own 1 add ib0 type ib fabric $far node host3 || return 1
	own 1 add ib0 type ib fabric $far node host3 secret "$work/none" && one_line 'none: No such file' || return 1
	own 0 add ib0 type ib fabric $far --force && own 0 del ib0 || return 1
	head -c 32 /dev/urandom >"$work/secret"
	own 0 add ib0 type ib fabric $far node host3 secret "$work/secret" || return 1
	grep -q "^link ib0 type ib fabric $far node host3 secret $work/secret$" "$conf" || return 1
	link 0 show --json && grep -q "\"secret\": \"$work/secret\"" "$work/out" || return 1
	timeout 30 "$verbena" run --no-shim true 2>"$work/err" && return 1 # within the time that a guest asks
	one_line 'no fabric process' || return 1
	own 0 del ib0
}
check "a line names a fabric, for what verbena run starts" fabric_line
check "a line names a fabric of another host, its node and its secret" far_fabric
check "add names adapters, and a RoCE adapter takes the place of the automatic one" adds
check "set renames, changes the MTU and the state" sets
check "show prints a table and JSON" shows
check "del removes one line and keeps the others; automatic off leaves what the file names" deletes
check "an automatic adapter gets a line with its first setting" automatic_adapter
check "what does not exist and wrong usage are refused" refuses
check "a wrong line is named with its number, left out, and not overwritten" wrong_files
check "what is no file, too large, or another user's is named and not used" unusable_files
check "no change is lost among twelve commands at once" at_once
check "VERBENA_DEVICES goes before the file" variable_first
if grep -q __asan_init "$verbena"; then
	echo "skip a running program: a stock program does not load a sanitizer first"
elif command -v ibv_asyncwatch >/dev/null; then
	check "a running program sees a port go down and up" running e0
	check "a running program loses an adapter that was removed" running w0
	if ip link show own0 >/dev/null 2>&1; then # else lo is not ours
		check "a running program keeps its adapter when the file is out of reach" kept
		check "names of interfaces that JSON has to quote" odd_names
	fi
	if [ "$(id -u)" = 0 ] && [ -w /dev/fuse ] && command -v python3 >/dev/null && unshare -m true 2>/dev/null; then
		declare -p work verbena conf >"$work/state"
		declare -f link own event wait_event hung_server >>"$work/state"
		check "a running program goes on while the file is on a server that does not answer" unshare -m bash -uc "source $work/state; hung_server"
	else
		echo "skip a server that does not answer: needs root, /dev/fuse and mount namespaces"
	fi
fi
check "output that cannot be written is an error" output
if [ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null; then
	chmod 755 "$work"
	check "the user's file goes before the system's; a privileged program reads the system's alone" system_file
else
	echo "skip the system's file: only root can try it"
fi
exit $failed
