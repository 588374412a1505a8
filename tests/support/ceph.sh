# ceph.sh - a small Ceph cluster of Debian's programs, without systemd: one monitor, one manager, three OSDs
# follows: ceph-mon(8), ceph-mgr(8), ceph-osd(8), ceph.conf
# SPDX-License-Identifier: MIT
# sourced, not run. The caller sets work, run (starts a program on Verbena), SLOW and wait_for, as lib.sh does, and
#   messenger   async+posix (default) or async+rdma
#   store       memstore (default) or bluestore
#   polling     microseconds for which Ceph polls (default 0)
#   auth        none (default) or cephx: the daemons and client.admin have keys in $cluster/keyring
#   here        the address of a single host (default 127.0.0.1)
#   hosts       one (default), or three: network namespaces ${netns}0 … 2 that a bridge joins
# host 0 has the monitor, the manager, OSD 0 and the clients; host 1 has OSD 1, host 2 OSD 2 (or: osd_hosts)
messenger=async+posix store=memstore auth=none hosts=one netns=vc$$h osd_hosts=(0 1 2)
cluster=$work/ceph
declare -A ceph_pids=() # of each daemon
rdma_options=()         # lines for ceph.conf

on_rdma() { [ $messenger = async+rdma ]; }
# at HOST COMMAND…: with the libraries of Verbena only where the messenger needs them
at() {
	local there=() with=()
	[ $hosts = one ] || there=(ip netns exec "$netns$1" env "VERBENA_RUNTIME=$work/host$1")
	! on_rdma || with=("${run[@]}")
	"${there[@]}" "${with[@]}" "${@:2}"
}
client() { at 0 timeout -k 5 $((${LIMIT:-60} * SLOW)) "$@" --conf "$cluster/ceph.conf"; } # PROGRAM ARGS…
# ceph COMMAND…, or commands on standard input, one a line: the program takes longer to start than to ask
ceph() { client /usr/bin/ceph "$@"; }

address_of() { [ $hosts = one ] && echo "${here:-127.0.0.1}" || echo "192.0.2.1$1"; } # HOST

# --- the hosts ---
ceph_network() {
	local i
	ip netns add "${netns}b" && ip -n "${netns}b" link add bridge type bridge && ip -n "${netns}b" link set bridge up || return 1
	for i in 0 1 2; do
		mkdir -pm 700 "$work/host$i"
		ip netns add "$netns$i" && ip -n "$netns$i" link set lo up || return 1
		ip -n "$netns$i" link add net0 type veth peer name "port$i" netns "${netns}b" || return 1
		ip -n "${netns}b" link set "port$i" master bridge up || return 1
		ip -n "$netns$i" addr add "$(address_of "$i")/24" dev net0
		ip -n "$netns$i" link set net0 up
	done
}
ceph_network_gone() {
	local n
	for n in 0 1 2 b; do ip netns del "$netns$n" 2>/dev/null; done
	return 0
}
cut() { ip -n "${netns}b" link set "port$1" down; }  # HOST
join() { ip -n "${netns}b" link set "port$1" up; } # HOST

# --- configuration ---
# The manager's modules take seconds to load, and nothing here asks them. Changes and figures are told sooner than by default.
# Each daemon would poll for 1 ms after each message, too many for two cores. A queue longer than its buffers aborts a
# daemon; the default of 32,768 buffers would be 4 GiB each
ceph_conf() {
	local i
	cat <<-END
		[global]
		fsid = 5ebe2a44-9aaa-4a2d-8c22-6a0d6e0ee5cf
		mon_host = [v2:$(address_of 0):$mon_port]
		auth_cluster_required = $auth
		auth_service_required = $auth
		auth_client_required = $auth
		ms_type = $messenger
		ms_async_op_threads = 2
		run_dir = $cluster
		admin_socket = $cluster/\$name.\$pid.asok
		ms_mon_client_mode = crc
		log_file = $cluster/\$name.log
		mon_cluster_log_file = $cluster/cluster.log
		log_max_recent = 200
		mon_data = $cluster/mon
		mgr_data = $cluster/mgr
		osd_data = $cluster/osd\$id
		mds_data = $cluster/mds
		keyring = $([ "$auth" = none ] && echo /dev/null || echo "$cluster/keyring")
		mgr_pool = false
		mgr_module_path = $cluster
		mgr_stats_period = 1
		paxos_propose_interval = 0.1
		mon_data_avail_crit = 1
		mon_data_avail_warn = 1
		mon_osd_min_down_reporters = 1
		mon_osd_down_out_interval = 0
		mon_max_pg_per_osd = 1000
		osd_heartbeat_grace = ${grace:-10}
		osd_heartbeat_interval = 2
		osd_objectstore = $store
		osd_pool_default_size = 3
		osd_pool_default_min_size = 2
		osd_pool_default_pg_num = 4
		osd_pool_default_pgp_num = 4
		osd_pool_default_pg_autoscale_mode = off
		osd_crush_chooseleaf_type = 0
		osd_memory_target = 939524096
		osd_scrub_backoff_ratio = 0
		osd_max_scrubs = 4
		osd_scrub_sleep = 0
		osd_recovery_sleep_hdd = 0
		mon_allow_pool_delete = true
		memstore_device_bytes = 1G
		bluestore_block_size = 3G
		bluestore_block_create = true
	END
	! on_rdma || printf '%s\n' "ms_async_rdma_receive_buffers = 1024" "ms_async_rdma_receive_queue_len = 256" \
		"ms_async_rdma_send_buffers = 256" "ms_async_rdma_polling_us = ${polling:-0}" "${rdma_options[@]}"
	echo "[mon.a]
public_addr = $(address_of 0)
[mgr.x]
public_addr = $(address_of 0)
[mds.m]
public_addr = $(address_of 0)"
	for i in 0 1 2; do echo "[osd.$i]
public_addr = $(address_of ${osd_hosts[i]})
cluster_addr = $(address_of ${osd_hosts[i]})"; done
}

# --- daemons ---
daemon() { # NAME HOST PROGRAM ARGS…
	local name=$1
	at "$2" "${@:3}" -f --conf "$cluster/ceph.conf" >>"$cluster/$name.out" 2>&1 </dev/null &
	ceph_pids[$name]=$!
}
ceph_kill() { # SIGNAL NAME…: and waits for the end; fails if one of them does not end by itself
	local signal=$1 name status=0
	shift
	for name; do kill "-$signal" "$(program_of "${ceph_pids[$name]}")" 2>/dev/null; done
	for name; do
		if ! wait_for 60 gone "${ceph_pids[$name]}"; then
			echo "$name did not end within $((60 * SLOW)) s of SIG$signal"
			kill -9 "$(program_of "${ceph_pids[$name]}")" 2>/dev/null
			status=1
		fi
		wait "${ceph_pids[$name]}" 2>/dev/null
		unset "ceph_pids[$name]"
	done
	return $status
}
osd_start() { daemon "osd$1" "${osd_hosts[$1]}" ceph-osd -i "$1"; } # ID

ceph_keys() { # one file, and one key, for all
	local key
	key=$(ceph-authtool --gen-print-key) && printf "[%s]\nkey = $key\ncaps mon = \"allow *\"\ncaps osd = \"allow *\"\ncaps mgr = \"allow *\"\ncaps mds = \"allow *\"\n" \
		mon. client.admin client.rgw mgr.x mds.m osd.0 osd.1 osd.2 >"$cluster/keyring"
}

# ceph_up: sets $cluster up
ceph_up() {
	local i uuid=5ebe2a44-9aaa-4a2d-8c22-6a0d6e0ee5c made=()
	free_port
	mon_port=$port
	rm -rf "$cluster" && mkdir -p "$cluster"/{mon,mgr,mds,osd0,osd1,osd2} || return 1
	ceph_conf >"$cluster/ceph.conf"
	[ "$auth" = none ] || ceph_keys || return 1
	monmaptool --create --fsid ${uuid}f --addv a "[v2:$(address_of 0):$mon_port]" "$cluster/monmap" >"$cluster/mon.out" &&
		client ceph-mon --mkfs -i a --monmap "$cluster/monmap" $([ "$auth" = none ] || echo --keyring "$cluster/keyring") || return 1
	daemon mon 0 ceph-mon -i a
	daemon mgr 0 ceph-mgr -i x
	for i in 0 1 2; do echo "osd new $uuid$i $i"; done | ceph >>"$cluster/osds.out" || return 1
	for i in 0 1 2; do
		at "${osd_hosts[i]}" timeout -k 5 $((60 * SLOW)) ceph-osd -i $i --mkfs --osd-uuid $uuid$i --conf "$cluster/ceph.conf" \
			>>"$cluster/osd$i.out" 2>&1 </dev/null &
		made+=($!)
	done
	for i in 0 1 2; do wait "${made[i]}" || { cat "$cluster/osd$i.out"; return 1; }; done
	for i in 0 1 2; do osd_start $i; done
}

# What needs a server ends before it
ceph_down() {
	local stage name names status=0
	for stage in 'rgw mds' 'osd0 osd1 osd2' 'mon mgr'; do
		names=()
		for name in $stage; do [ -z "${ceph_pids[$name]:-}" ] || names+=("$name"); done
		ceph_kill TERM "${names[@]}" || status=1
	done
	return $status
}

# --- its state ---
# ceph_is SECONDS STATE: waits for it. States are those of ceph_wait.py, which is for the Python that Ceph is for
ceph_is() { LIMIT=$(($1 + 30)) client /usr/bin/python3 "$ROOT/tests/support/ceph_wait.py" $(($1 * SLOW)) "${@:2}"; }
osds_up() { ceph_is 60 up "$1"; } # N
clean() { ceph_is 120 clean; }    # all placement groups are active and have all their copies
no_scrub_errors() { # a placement group reports them together with the time of its scrub; the cluster's health comes later
	ceph pg dump pgs --format json 2>/dev/null | python3 -c '
import json, sys
bad = [pg for pg in json.load(sys.stdin)["pg_stats"] if pg["stat_sum"]["num_scrub_errors"] or "inconsistent" in pg["state"]]
for pg in bad: print(pg["pgid"], pg["state"], pg["stat_sum"]["num_scrub_errors"], "errors")
sys.exit(bool(bad))'
}
deep_scrub_finds_nothing() {
	local since
	since=$(date +%Y-%m-%dT%H:%M:%S)
	ceph osd deep-scrub all && ceph_is 60 scrubbed "$since" && no_scrub_errors
}
