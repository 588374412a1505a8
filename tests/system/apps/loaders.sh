#!/bin/bash
# loaders.sh - programs that open the library with dlopen
# follows: dlopen(3), ucx_info(1)
# see: the program with dlvsym is tests/system/abi/nccl_loader.c
# SPDX-License-Identifier: MIT
source "$(dirname "$0")/../../support/lib.sh"

ctypes() { # NAME: Python's ctypes finds our library under it, and it works
	timeout 60 "${run[@]}" /usr/bin/python3 - "$1" "$lib_dir/" <<-'EOF'
		import ctypes, sys
		v = ctypes.CDLL(sys.argv[1], use_errno=True)
		v.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
		v.ibv_get_device_name.restype = ctypes.c_char_p
		v.ibv_open_device.restype = ctypes.c_void_p
		n = ctypes.c_int()
		devices = v.ibv_get_device_list(ctypes.byref(n))
		names = [v.ibv_get_device_name(ctypes.c_void_p(devices[i])).decode() for i in range(n.value)]
		assert 'roce_lo' in names, names
		context = v.ibv_open_device(ctypes.c_void_p(devices[names.index('roce_lo')]))
		assert context, ctypes.get_errno()
		v.ibv_free_device_list(devices)
		assert v.ibv_close_device(ctypes.c_void_p(context)) == 0
		assert sys.argv[2] in open('/proc/self/maps').read(), 'another libibverbs'
	EOF
}
if [ -x /usr/bin/python3 ]; then
	check "Python's ctypes opens libibverbs.so.1" ctypes libibverbs.so.1
	check "Python's ctypes opens libibverbs.so" ctypes libibverbs.so
else
	skip "Python's ctypes" "no /usr/bin/python3"
fi

ucx_sees() {
	timeout 120 "${run[@]}" ucx_info -d >"$work/out" 2>&1 || { tail -20 "$work/out"; return 1; }
	grep -q 'Device: roce_lo:1' "$work/out" || { echo "no roce_lo:1 in:"; grep Device: "$work/out"; return 1; }
}
if sanitized; then
	skip "ucx_info -d" "it needs the path shim, which a sanitized build does not preload"
elif command -v ucx_info >/dev/null; then
	check "ucx_info -d shows roce_lo:1" ucx_sees
else
	skip "ucx_info -d" "ucx-utils is not installed"
fi
finish
