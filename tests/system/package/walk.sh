#!/bin/bash
# walk.sh - the first hour of a new user on a clean Debian 12: packages, doctor, ping-pong, capture, fault, top, languages, sandboxes
# follows: verbena(1), verbena-run(1), verbena-doctor(1), verbena-top(1)
# SPDX-License-Identifier: MIT
# usage: WALK=yes walk.sh [PATTERN]   only the cases whose sentence matches. Takes minutes, so it is run by hand
# WALK_ROOT: a root made before (.tar); WALK_DEBS: a folder of packages of `make deb`. WALK_OUT: where screens and pictures go, to be looked at
source "$(dirname "$0")/../../support/lib.sh"
[ -n "${WALK:-}" ] || { skip "the walk of a new user" "it takes minutes: WALK=yes tests/system/package/walk.sh"; exit 0; }
need mmdebstrap dpkg-buildpackage unshare
[ "$(id -u)" = 0 ] && unshare -mnpf true 2>/dev/null || { skip "the walk of a new user" "needs root and namespaces"; exit 0; }
sanitized && { skip "the walk of a new user" "the packages are built without sanitizers"; exit 0; }
only=${1:-.}
out=${WALK_OUT:-$work/out}
mkdir -p "$out"
unset VERBENA_RUNTIME XDG_CONFIG_HOME

# --- the root, the packages, and a user ---
root=$work/root
make_root() {
	local tar=${WALK_ROOT:-$work/root.tar}
	[ -s "$tar" ] || timeout 900 mmdebstrap --quiet --variant=minbase --dpkgopt='path-exclude=/usr/share/{doc,locale}/*' \
		--include=ibverbs-utils,rdmacm-utils,perftest,iproute2,procps,tmux,tshark,man-db,python3,default-jdk-headless,golang-go,gcc,libc6-dev,libibverbs-dev,rustc,bubblewrap,libisal2,libjson-c5,liburing2,libssl3 \
		bookworm "$tar" </dev/null || return 1
	mkdir "$root" && tar -C "$root" -xf "$tar" --exclude='./dev/*' || return 1
	mkdir -p "$root"/dev/{shm,pts} "$root"/{debs,old}
	for d in null zero full random urandom tty; do cp -a "/dev/$d" "$root/dev/"; done
	ln -s pts/ptmx "$root/dev/ptmx"
}
make_debs() {
	local from=${WALK_DEBS:-$work/debs} p
	[ -n "${WALK_DEBS:-}" ] || env -u CC -u CFLAGS DEB_BUILD_OPTIONS="parallel=$(nproc)" "$ROOT/data/deb" "$from" || return 1
	for p in verbena libverbena1 verbena-storage libverbena-nvme0; do cp "$from/${p}"_*.deb "$root/debs/" || return 1; done
}
check "a clean Debian 12" make_root
check "make deb builds the packages" make_debs
[ $failed = 0 ] || exit 1
# inside USER COMMAND: with namespaces of its own for mounts, processes and the network, where lo is up
inside() {
	timeout 200 unshare -mnpf --mount-proc bash -uc '
		mount --make-rprivate / && mount --bind "$1" "$1" && mount -t proc proc "$1/proc" && mount -t tmpfs -o mode=755 none "$1/run" &&
			mount -t tmpfs -o mode=1777 none "$1/dev/shm" && mount -t devpts -o newinstance,ptmxmode=0666,mode=0620 none "$1/dev/pts" &&
			mount --rbind /sys "$1/sys" && ip link set lo up && cd "$1" && pivot_root . old && umount -l /old && mkdir -p "/home/$2" && cd "/home/$2" || exit 99
		as=(env -i "HOME=/home/$2" "USER=$2" PATH=/usr/sbin:/usr/bin:/sbin:/bin TERM=xterm LC_ALL=C.UTF-8)
		[ "$2" = root ] || as=(setpriv --reuid "$2" --regid "$2" --init-groups "${as[@]}")
		exec "${as[@]}" bash -uc "$3"' bash "$root" "$1" "$(declare -f both); $2" </dev/null
}
both() { # SERVER… -- CLIENT…: the server in the background; the status is the client's, what the server says is in server.out
	local server=() s status
	while [ "$1" != -- ]; do server+=("$1"); shift; done
	shift
	timeout 60 "${server[@]}" >server.out 2>&1 & s=$!
	sleep 1
	timeout 60 "$@"
	status=$?
	[ $status = 0 ] || kill $s 2>/dev/null
	wait $s || { [ $status != 0 ] || cat server.out; return $((status + 1)); }
	return $status
}
walks() { # SENTENCE USER COMMAND
	! [[ $1 =~ $only ]] || check "$1" inside "$2" "$3"
}
check "dpkg installs the packages, and there is a user" inside root 'dpkg -i /debs/*.deb && useradd -m -s /bin/bash ann && [ -z "$(dpkg --audit)" ]'

# --- the commands of README.md ---
walks "doctor finds nothing wrong" ann 'verbena doctor; s=$?; [ $s -lt 2 ] && verbena doctor | grep -q "^\[ok\] *same-host: .*arrived whole"'
walks "a command that is not there is named, with the way to the list" ann 'verbena bogus 2>said; [ $? = 2 ] && grep -q "verbena help" said'
walks "the manual pages are there" ann 'for p in verbena verbena-run verbena-fault 7:verbena; do s=${p%:*}; [ $s = $p ] && s=1; man -P cat $s ${p#*:} | grep -q VERBENA || exit 1; done'
walks "a ping-pong" ann 'p=(verbena run ibv_rc_pingpong -d roce_lo -g 1); both "${p[@]}" -- "${p[@]}" 127.0.0.1'
walks "one without a GID: the reason is said" ann 'p=(verbena run ibv_rc_pingpong); both "${p[@]}" -- "${p[@]}" 127.0.0.1; grep "give the program the index of a GID" server.out'
walks "rping, and rping by iWARP" ann 'both verbena run rping -s -a 127.0.0.1 -C 3 -- verbena run rping -c -a 127.0.0.1 -C 3 && d="--device iwarp:lo --wire always" &&
	both verbena run $d rping -s -a 127.0.0.1 -C 3 -- verbena run $d rping -c -a 127.0.0.1 -C 3'
walks "its packets, in tshark" ann 'p=(ibv_rc_pingpong -d roce_lo -g 1 -n 3); both verbena run "${p[@]}" -- verbena run --capture out.pcapng "${p[@]}" 127.0.0.1 &&
	tshark -n -r out.pcapng | tee frames && [ $(grep -c "RC Send Last" frames) -ge 3 ] && grep -q "RC Acknowledge" frames'
walks "a fault makes it fail, and the message says how" ann 'p=(ibv_rc_pingpong -d roce_lo -g 1)
	both verbena run "${p[@]}" -- verbena run --fault "wc=RETRY_EXC_ERR op=SEND nth=3" "${p[@]}" 127.0.0.1 2>said; s=$?; cat said; [ $s = 2 ] || [ $s = 1 ] && grep -q "retry counter exceeded" said'
walks "a rule without quotes: the message says so" ann 'verbena run --fault drop p=0.1 true 2>said; [ $? = 127 ] && grep quotes said'
walks "an adapter that is not there: the message says so" ann 'verbena run --device roce:eth9 ibv_devices 2>said; grep "no interface" said'
walks "a disk, served and copied" ann 'head -c 3000000 /dev/urandom >disk; truncate -s 4M disk; verbena run verbena-target --export disk --transport auto >url & t=$!; sleep 2
	verbena run verbena-disk info $(sed -n "1s/nvme+tcp/nvme+auto/p" url) && verbena run verbena-disk copy $(sed -n "1s/nvme+tcp/nvme+auto/p" url) copy && kill $t && wait $t && cmp disk copy'
walks "bench has a verdict" ann 'verbena bench --seconds 3 | tee said; [ ${PIPESTATUS[0]} = 0 ] && [ -s said ]'

# --- verbena top beside it: the screens are in $out ---
tops() {
	inside ann 't="tmux -f /dev/null"; $t new-session -d -s top -x 120 -y 20 "verbena top"; p=(ib_write_bw -F -d roce_lo -D 20)
		verbena run "${p[@]}" >/dev/null & sleep 1; verbena run "${p[@]}" 127.0.0.1 >/dev/null & sleep 4; $t capture-pane -p -t top >top.120; $t resize-window -t top -x 40 -y 10; sleep 2
		$t capture-pane -p -t top >top.40; $t send-keys -t top q; kill %1 %2; $t kill-server; cat top.120 top.40
		grep -qE "ib_write_bw .* [0-9.]+ [MG]b/s" top.120 && grep -q "ib_write_bw *roce_lo" top.40 && grep -q "^q quit" top.40 && ! awk "length > 40" top.40 | grep .'
	local status=$?
	cp "$root"/home/ann/top.* "$out/"
	return $status
}
[[ "top beside it, also in a small terminal" =~ $only ]] && check "top beside it, also in a small terminal" tops

# --- the page of figures, on a desktop and on a phone ---
page_is_drawn() {
	"$ROOT/bench/report" "$ROOT/bench/results/measured.json" "$out" || return 1
	local w
	for w in 1280x1600 390x1600; do
		# a window of Chromium has a least width, a frame has not
		printf '<body style="margin:0"><iframe src="figures.html" style="border:0;width:%spx;height:%spx"></iframe>' ${w/x/ } >"$out/$w.html"
		timeout 60 chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=${w/x/,} --screenshot="$out/figures-$w.png" "file://$out/$w.html" 2>/dev/null
		[ "$(stat -c %s "$out/figures-$w.png")" -gt 20000 ] || return 1
	done
}
if ! command -v chromium >/dev/null; then
	skip "the page of figures" "chromium is not installed"
elif [[ "the page of figures is drawn" =~ $only ]]; then
	check "the page of figures is drawn" page_is_drawn
fi

# --- whatever a program is written in ---
walks "shells and pipelines" ann 'verbena run sh -c "ibv_devices | grep -c roce_lo" && verbena run bash -c "(ibv_devices &); wait; ibv_devices | cat" | grep -q roce_lo && ls /etc | verbena run head -1'
mkdir "$root/walk"
cat >"$root/walk/v.py" <<'IN'
import ctypes, multiprocessing, os, subprocess, threading
v = ctypes.CDLL("libibverbs.so.1")
v.ibv_get_device_list.restype, v.ibv_open_device.restype = ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p
devices = v.ibv_get_device_list(None)
def opens():
    c = v.ibv_open_device(ctypes.c_void_p(devices[0]))
    assert c and not v.ibv_close_device(ctypes.c_void_p(c))
threads = [threading.Thread(target=opens) for _ in range(4)]
for t in threads: t.start()
for t in threads: t.join()
child = multiprocessing.get_context("fork").Process(target=opens)
child.start(), child.join()
assert child.exitcode == 0 and "roce_lo" in os.listdir("/sys/class/infiniband")
assert "roce_lo" in subprocess.check_output(["ibv_devinfo", "-l"], text=True)
IN
walks "Python: threads, a child, verbs by ctypes" ann 'verbena run python3 /walk/v.py'
cat >"$root/walk/D.java" <<'IN'
import java.io.File;
public class D {
	static int failed;
	public static void main(String[] args) throws Exception {
		if (!java.util.Arrays.asList(new File("/sys/class/infiniband").list()).contains("roce_lo"))
			System.exit(1);
		Thread[] all = new Thread[3];
		for (int i = 0; i < 3; i++)
			(all[i] = new Thread(() -> {
				try {
					failed += new ProcessBuilder("ibv_devinfo", "-d", "roce_lo").inheritIO().start().waitFor();
				} catch (Exception e) {
					failed++;
				}
			})).start();
		for (Thread t : all)
			t.join();
		System.exit(failed);
	}
}
IN
walks "Java: threads that start programs" ann 'javac -d . /walk/D.java && verbena run java -Xmx64m D'
cat >"$root/walk/plain.go" <<'IN'
package main

import (
	"fmt"
	"os/exec"
)

func main() {
	out, err := exec.Command("ibv_devinfo", "-l").CombinedOutput()
	fmt.Print(string(out), err)
}
IN
cat >"$root/walk/verbs.go" <<'IN'
package main

/*
#include <dlfcn.h>
static int devices(void)
{
	void *lib = dlopen("libibverbs.so.1", RTLD_NOW);
	void **(*list)(int *) = (void **(*)(int *))dlsym(lib, "ibv_get_device_list");
	void *(*open)(void *) = (void *(*)(void *))dlsym(lib, "ibv_open_device");
	int n = 0;
	void **all = list(&n);
	return n > 0 && open(all[0]) ? n : -1;
}
*/
import "C"
import (
	"os"
	"sync"
)

func main() {
	var all sync.WaitGroup
	for i := 0; i < 4; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			if C.devices() < 1 {
				os.Exit(1)
			}
		}()
	}
	all.Wait()
}
IN
go='export GOCACHE=$HOME/go-cache GO111MODULE=off GOFLAGS=;'
walks "Go with cgo: verbs by dlopen, in goroutines" ann "$go CGO_ENABLED=1 go build -o verbs /walk/verbs.go && verbena run ./verbs"
walks "Go without cgo: it is said that it is statically linked, and the program that it starts has the adapter" ann \
	"$go"' CGO_ENABLED=0 go build -o plain /walk/plain.go && verbena run ./plain 2>said | grep roce_lo && grep "statically linked" said'
cat >"$root/walk/r.rs" <<'IN'
use std::os::raw::{c_char, c_int, c_void};
extern "C" {
    fn dlopen(name: *const c_char, how: c_int) -> *mut c_void;
    fn dlsym(lib: *mut c_void, name: *const c_char) -> *mut c_void;
}
fn main() {
    let lib = unsafe { dlopen(b"libibverbs.so.1\0".as_ptr() as *const c_char, 2) };
    assert!(!lib.is_null());
    let list: extern "C" fn(*mut c_int) -> *mut *mut c_void =
        unsafe { std::mem::transmute(dlsym(lib, b"ibv_get_device_list\0".as_ptr() as *const c_char)) };
    let all: Vec<_> = (0..4).map(|_| std::thread::spawn(move || {
        let mut n = 0;
        list(&mut n);
        assert!(n > 0);
    })).collect();
    for t in all { t.join().unwrap(); }
    let out = std::process::Command::new("ibv_devinfo").arg("-l").output().unwrap();
    assert!(String::from_utf8_lossy(&out.stdout).contains("roce_lo"));
}
IN
walks "Rust: verbs by dlopen, in threads, and a child" ann 'rustc -o r /walk/r.rs && verbena run ./r'
walks "a statically linked C program is named" ann 'echo "int main(void) { return 0; }" >s.c && gcc -static -o s s.c && verbena run ./s 2>said && grep "s is statically linked" said'

# --- sandboxes ---
pings='(verbena run ibv_rc_pingpong -d roce_lo -g 1 >/dev/null 2>&1 &); sleep 1; verbena run ibv_rc_pingpong -d roce_lo -g 1 127.0.0.1'
walks "root of a user namespace, without /sys" ann "unshare -Urnm sh -c 'ip link set lo up; mount -t tmpfs none /sys; verbena doctor; [ \$? -lt 2 ] && { $pings; }'"
walks "bubblewrap: a read-only root, a new /tmp, only lo" ann "bwrap --ro-bind / / --dev /dev --proc /proc --unshare-all --tmpfs /tmp --tmpfs /sys sh -c 'verbena doctor; [ \$? -lt 2 ] && { $pings; }'"
walks "where nothing can be written but /dev/shm, doctor says what to do, and that helps" ann \
	"bwrap --ro-bind / / --dev /dev --proc /proc --unshare-all sh -c 'verbena doctor >/dev/shm/said; [ \$? = 2 ] || exit 1; cat /dev/shm/said; eval \"\$(sed -n \"s/^ *mend: \(export VERBENA_RUNTIME\)/\1/p\" /dev/shm/said)\" && { $pings; } && verbena run ls /sys/class/infiniband'"
container='c() { nsenter -t $1 -n unshare -mpf --mount-proc sh -c "mount --make-rprivate / && mount -t tmpfs none /run && mkdir /run/verbena && mount --bind $2 /run/verbena && export VERBENA_RUNTIME=/run/verbena && shift 2 && exec \"\$@\"" sh "$@"; }
	pair() { for n in a b; do mkdir -p /tmp/$n /tmp/shared; done; unshare -n sleep 60 & a=$!; unshare -n sleep 60 & b=$!; sleep 1
		nsenter -t $a -n ip link add c0 type veth peer name c0 netns $b; for p in $a $b; do nsenter -t $p -n sh -c "ip link set lo up; ip link set c0 up; ip addr add 10.77.0.$((p == a ? 1 : 2))/24 dev c0"; done
		p=(verbena run --stats ibv_rc_pingpong -d roce_c0 -g 1 -n 300 -s 16384 -c); c $a $1 "${p[@]}" >server.out 2>&1 & s=$!; sleep 1.5; c $b $2 "${p[@]}" 10.77.0.1 >client.out 2>&1; r=$?; wait $s; q=$?; cat *.out; kill $a $b; [ $r$q = 00 ]; };'
walks "two containers with one runtime directory: messages, not packets" root "$container"'pair /tmp/shared /tmp/shared && grep -q "in 300 packets" client.out'
walks "two containers with a directory each: packets" root "$container"'pair /tmp/a /tmp/b && ! grep -q "in 300 packets" client.out'

# --- for all programs ---
walks "enable, and disable" root 'verbena enable --status; [ $? = 1 ] && verbena enable && verbena enable --status && ibv_devices | grep roce_lo && setpriv --reuid ann --clear-groups --regid ann ibv_devinfo -l | grep roce_lo && verbena disable && ! ibv_devices | grep roce_lo'
walks "a user cannot, and is told why" ann 'verbena enable 2>said; [ $? = 1 ] && grep root said'
walks "removal leaves nothing of it" root 'dpkg -P verbena-storage verbena libverbena1 libverbena-nvme0 && ! find / -xdev -path /debs -prune -o -path /proc -prune -o -path /home -prune -o -path "/tmp/*" -prune -o -path "/var/lib/dpkg/*" -prune -o -path "/var/log/*" -prune -o -path "/var/cache/*" -prune -o -iname "*verbena*" -print | grep .'
[ -z "${WALK_OUT:-}" ] || echo "# screens and pictures: $out"
export VERBENA_RUNTIME=$work/run
finish
