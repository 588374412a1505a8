#!/bin/sh
# loads.sh - RDMA programs, drivers and plugins of this machine find all their symbols in our libraries
# SPDX-License-Identifier: MIT
# VB_LIBDIR: the folder of our libraries. Programs: those of perftest, ibverbs-utils and rdmacm-utils, if installed.
failed=0 seen=0
export LD_LIBRARY_PATH=$VB_LIBDIR

resolves() { # ldd -r binds everything, like BIND_NOW
	seen=$((seen + 1))
	if ! ldd "$1" | grep -q "$VB_LIBDIR/lib\(ibverbs\|rdmacm\).so.1"; then
		echo "$1: does not use our library"
		failed=1
	fi
	lost=$(ldd -r "$1" 2>&1 | grep -E 'undefined symbol|version .* not found|not found')
	[ -z "$lost" ] && return
	echo "$1:"
	echo "$lost"
	failed=1
}

for name in ib_send_bw ib_send_lat ib_write_bw ib_write_lat ib_read_bw ib_read_lat ib_atomic_bw ib_atomic_lat raw_ethernet_bw \
	ibv_devices ibv_devinfo ibv_rc_pingpong ibv_srq_pingpong ibv_uc_pingpong ibv_ud_pingpong ibv_xsrq_pingpong ibv_asyncwatch \
	rping rdma_client rdma_server ucmatose udaddy mckey cmtime rstream riostream qperf; do
	program=$(command -v "$name") && resolves "$program"
done
# drivers: their libraries need the private node
for driver in $(/sbin/ldconfig -p 2>/dev/null | awk '/lib(mlx4|mlx5|efa|mana)\.so\.1 / { print $NF }'); do
	resolves "$driver"
done
for module in /usr/lib/python3/dist-packages/pyverbs/*.so; do
	# those that use neither library are not checked
	[ -e "$module" ] && ldd "$module" | grep -q 'libibverbs\|librdmacm' && resolves "$module"
done
for plugin in /usr/lib/*/ucx/libuct_ib.so.0 /usr/lib/*/ucx/libuct_rdmacm.so.0 /usr/lib/*/libfabric.so.1 \
	/usr/lib/*/rsocket/librspreload.so; do
	[ -e "$plugin" ] && resolves "$plugin"
done
if [ $seen -eq 0 ]; then
	echo "skipped: no RDMA program on this machine"
	exit 77
fi
# it prints its version and ends with 1
if command -v ib_send_bw >/dev/null && ! LD_BIND_NOW=1 ib_send_bw --version | grep Version; then
	echo "ib_send_bw --version failed"
	failed=1
fi
echo "$seen programs, drivers and modules"
exit $failed
