#!/bin/bash
# launched.sh - what verbena run starts: paths, shells, pipelines, scripts; Python, Java, Go, Rust; in an unprivileged sandbox
# follows: verbena-run(1)
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/../../support/lib.sh"
need ibv_devices ibv_rc_pingpong gcc
devices=$(command -v ibv_devices)

has_lo() { # COMMAND…: it succeeds, and prints our adapter
	timeout $((60 * SLOW)) "${run[@]}" "$@" >"$work/printed"
	local status=$?
	cat "$work/printed"
	[ $status = 0 ] && grep -q roce_lo "$work/printed"
}
check "an absolute path" has_lo "$devices"
relative() { ln -sf "$devices" "$work/here"; cd "$work" && has_lo ./here; }
check "a relative path, through a symbolic link" relative
check "a name in PATH" has_lo ibv_devices
check "a shell's command" has_lo sh -c 'ibv_devices'
check "a pipeline, with a subshell" has_lo bash -c '(ibv_devices | cat) 2>&1 | sort'
printf '#!/bin/sh\nset -e\ncd /\nexec env -u HOME nice -n 1 %s\n' "$devices" >"$work/script"
chmod 755 "$work/script"
check "a script that changes its directory and replaces itself" has_lo "$work/script"
check "xargs, which starts several" has_lo sh -c 'printf "1\n2\n" | xargs -n 1 -P 2 sh -c ibv_devices'
check "a program that is found after --" has_lo -- ibv_devices
statuses() {
	local s
	for s in 0 3 125; do "${run[@]}" sh -c "exit $s"; [ $? = $s ] || return 1; done
	"${run[@]}" sh -c 'kill -9 $$'
	[ $? = 137 ] || return 1
	"${run[@]}" "$work/nothing" 2>"$work/err"
	[ $? = 127 ] && [ "$(wc -l <"$work/err")" = 1 ]
}
check "the exit status is the program's, and 127 if there is none" statuses
arguments() { [ "$("${run[@]}" printf '%s|' 'a b' '' '*' $'new\nline' --json)" = "a b||*|"$'new\nline'"|--json|" ]; }
check "arguments arrive unchanged" arguments
streams() { [ "$(head -c 3000000 /dev/zero | "${run[@]}" cat | wc -c)" = 3000000 ]; }
check "standard input and output are the program's" streams

# --- programs that the libraries cannot reach ---
warns() { # HOW SAYS: a program that is built so is started, and one line says why it has no adapter
	echo 'int main(void) { return 7; }' >"$work/reach.c"
	$1 -o "$work/reach" "$work/reach.c" || return 1
	timeout $((60 * SLOW)) "${run[@]}" "$work/reach" 2>"$work/err"
	local status=$?
	cat "$work/err"
	[ $status = 7 ] && if [ -n "$2" ]; then [ "$(wc -l <"$work/err")" = 1 ] && grep -q "$2" "$work/err"; else [ ! -s "$work/err" ]; fi
}
no_warning() { # COMMAND…
	timeout $((60 * SLOW)) "${run[@]}" "$@" >/dev/null 2>"$work/err"
	! grep "cannot load" "$work/err"
}
if sanitized; then
	skip "statically linked programs" "the sanitizer is preloaded, and its warnings are printed too"
else
	check "a statically linked program is named" warns "gcc -static" "is statically linked"
	check "one that is position independent, too" warns "gcc -static-pie" "is statically linked"
	check "an ordinary program is not" warns gcc ""
fi
check "nor is the dynamic linker that starts an ordinary one" no_warning "$(readelf -l "$devices" | sed -n 's/.*interpreter: \(.*\)]/\1/p')" "$devices"
check "nor is a script" no_warning "$work/script"

# --- languages ---
cat >"$work/verbs.py" <<'IN'
import ctypes, os, subprocess
verbs = ctypes.CDLL('libibverbs.so.1', use_errno=True)
verbs.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
verbs.ibv_get_device_name.restype = ctypes.c_char_p
verbs.ibv_open_device.restype = ctypes.c_void_p
verbs.ibv_alloc_pd.restype = ctypes.c_void_p
devices = verbs.ibv_get_device_list(None)
assert devices[0]
context = verbs.ibv_open_device(ctypes.c_void_p(devices[0]))
assert context and verbs.ibv_alloc_pd(ctypes.c_void_p(context))
assert 'roce_lo' in os.listdir('/sys/class/infiniband')
print(verbs.ibv_get_device_name(ctypes.c_void_p(devices[0])).decode(), subprocess.check_output(['ibv_devices']).decode())
IN
if ! command -v python3 >/dev/null; then
	skip "Python" "it is not installed"
elif sanitized; then
	skip "Python" "the sanitized launcher preloads no shim"
else
	check "Python: a device by ctypes, a child, and /sys" has_lo python3 "$work/verbs.py"
fi

# --- valgrind ---
# with this status memcheck says that it has found an error
memcheck=(valgrind --error-exitcode=9 --leak-check=no)
starts_broker() { # the first program starts it
	local status
	VERBENA_RUNTIME=$(mktemp -d "$work/valgrind.XXXXXX") timeout $((120 * SLOW)) "${run[@]}" valgrind --error-exitcode=9 ibv_devinfo -d roce_lo >"$work/printed" 2>&1
	status=$?
	cat "$work/printed"
	[ $status = 0 ] && grep -q PORT_ACTIVE "$work/printed"
}
# a program that ends with the device open, while the library's thread runs
leaves_it_open() {
	cat >"$work/open.c" <<-'IN'
		#include <infiniband/verbs.h>
		static struct ibv_context *kept;
		int main(void)
		{
			struct ibv_device **list = ibv_get_device_list(NULL);
			kept = list && list[0] ? ibv_open_device(list[0]) : NULL;
			if (list)
				ibv_free_device_list(list);
			return !kept || !ibv_alloc_pd(kept);
		}
	IN
	cc -o "$work/open" "$work/open.c" -libverbs &&
		timeout $((120 * SLOW)) "${run[@]}" valgrind --error-exitcode=9 --leak-check=full --errors-for-leak-kinds=definite,indirect,possible "$work/open"
}
on_the_wire() { VERBENA_WIRE=always pair "${memcheck[@]}" ibv_rc_pingpong -d roce_lo -g 1 -n 100; }
if ! command -v valgrind >/dev/null; then
	skip "valgrind" "it is not installed"
elif sanitized; then
	skip "valgrind" "it and a sanitizer exclude each other"
else
	check "valgrind: the first program starts the broker, and ends at once" starts_broker
	check "valgrind: the library's threads are no leaks" leaves_it_open
	check "valgrind: memcheck finds no error in a ping-pong of RoCE" on_the_wire
	check "valgrind: a ping-pong of one host" pair "${memcheck[@]}" ibv_rc_pingpong -d roce_lo -g 1 -n 100
fi
mkdir "$work/java" "$work/go" "$work/rust"
cat >"$work/java/Devices.java" <<'IN'
import java.io.File;
public class Devices {
	public static void main(String[] args) throws Exception {
		for (String name : new File("/sys/class/infiniband").list())
			System.out.println("listed " + name);
		Process child = new ProcessBuilder("ibv_devices").inheritIO().start();
		System.exit(child.waitFor());
	}
}
IN
java_lists() {
	javac -d "$work/java" "$work/java/Devices.java" || return 1
	timeout 100 "${run[@]}" java -Xmx64m -cp "$work/java" Devices | tee "$work/java/said"
	grep -q '^listed roce_lo$' "$work/java/said" && grep -q '^ *roce_lo' "$work/java/said"
}
if ! command -v javac >/dev/null || ! command -v java >/dev/null; then
	skip "Java" "no JDK is installed (default-jdk-headless)"
elif sanitized; then
	skip "Java" "the sanitized launcher preloads no shim"
else
	check "Java: the virtual machine sees /sys/class/infiniband, and starts ibv_devices" java_lists
fi
cat >"$work/go/main.go" <<'IN'
package main

/*
#cgo LDFLAGS: -libverbs
#include <infiniband/verbs.h>
#include <stdlib.h>
static struct ibv_mr *reg(struct ibv_pd *pd, void *p, size_t n) { return ibv_reg_mr(pd, p, n, IBV_ACCESS_LOCAL_WRITE); }
*/
import "C"
import (
	"fmt"
	"os"
	"sync"
	"unsafe"
)

func main() {
	var n C.int
	list := C.ibv_get_device_list(&n)
	for _, d := range unsafe.Slice(list, int(n)) {
		fmt.Println(C.GoString(C.ibv_get_device_name(d)))
	}
	var all sync.WaitGroup
	for i := 0; i < 8; i++ { // goroutines, on several threads
		all.Add(1)
		go func() {
			defer all.Done()
			c := C.ibv_open_device(*list)
			pd := C.ibv_alloc_pd(c)
			p := C.malloc(1 << 20)
			mr := C.reg(pd, p, 1<<20)
			cq := C.ibv_create_cq(c, 16, nil, nil, 0)
			if c == nil || pd == nil || mr == nil || cq == nil {
				os.Exit(1)
			}
			C.ibv_destroy_cq(cq)
			C.ibv_dereg_mr(mr)
			C.ibv_dealloc_pd(pd)
			C.ibv_close_device(c)
			C.free(p)
		}()
	}
	all.Wait()
}
IN
go_opens() {
	(cd "$work/go" && HOME=$work/go GOCACHE=$work/go/cache GO111MODULE=off GOFLAGS= CGO_ENABLED=1 go build -o program main.go) || return 1
	has_lo "$work/go/program"
}
if command -v go >/dev/null; then
	check "Go: devices opened by several goroutines, by cgo" go_opens
else
	skip "Go" "it is not installed (golang-go)"
fi
cat >"$work/rust/main.rs" <<'IN'
use std::ffi::{c_char, c_int, c_void, CStr};
#[link(name = "ibverbs")]
extern "C" {
    fn ibv_get_device_list(n: *mut c_int) -> *mut *mut c_void;
    fn ibv_get_device_name(d: *mut c_void) -> *const c_char;
    fn ibv_open_device(d: *mut c_void) -> *mut c_void;
    fn ibv_close_device(c: *mut c_void) -> c_int;
}
fn main() {
    let mut n = 0;
    unsafe {
        let list = ibv_get_device_list(&mut n);
        for i in 0..n as isize {
            println!("{}", CStr::from_ptr(ibv_get_device_name(*list.offset(i))).to_str().unwrap());
        }
        let first = *list as usize;
        let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(move || {
            let c = ibv_open_device(first as *mut c_void);
            assert!(!c.is_null());
            assert_eq!(ibv_close_device(c), 0);
        })).collect();
        for t in threads { t.join().unwrap(); }
    }
}
IN
rust_opens() { (cd "$work/rust" && rustc -o program main.rs) && has_lo "$work/rust/program"; }
if command -v rustc >/dev/null; then
	check "Rust: devices opened by several threads" rust_opens
else
	skip "Rust" "it is not installed (rustc)"
fi

# --- all restrictions at once: a user without rights, no /sys/class/infiniband, a read-only root, no network but lo ---
sandbox='mount --make-rprivate / && ip link set lo up && mount -t tmpfs none /sys && mount --bind "$work" "$work" && mount -o remount,bind,ro / &&
	! touch /usr/x 2>/dev/null && [ ! -e /sys/class/infiniband ] && [ "$(ip -o link | wc -l)" = 1 ]'
in_sandbox() { # COMMAND
	declare -p run SLOW HOST LIMIT work devices >"$work/state"
	declare -f >>"$work/state"
	timeout $((120 * SLOW)) unshare -Urnm "$BASH" -uc "source $work/state; $sandbox && $1"
}
if unshare -Urnm true 2>/dev/null; then
	check "a sandbox without /sys, root and network: stock programs at both ends" in_sandbox "pair ibv_rc_pingpong -d roce_lo -g 1 -n 200 -c"
	# the broker of the first sandbox may still be there; its UDP sockets belong to the network of that one
	check "the same over UDP" in_sandbox 'export VERBENA_WIRE=always; pair ibv_rc_pingpong -e -d roce_lo -g 1 -n 200 -c'
	sanitized || check "the same, and a shell sees /sys/class/infiniband" in_sandbox \
		'timeout 30 "${run[@]}" sh -c "cat /sys/class/infiniband/roce_lo/ports/1/state" | grep -q ACTIVE'
else
	skip "a sandbox" "user namespaces are forbidden here"
fi
finish
