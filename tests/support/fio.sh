# fio.sh - pairs of Debian's fio with its rdma engine
# follows: fio(1), "I/O engine" rdma
# SPDX-License-Identifier: MIT
# sourced after lib.sh
on_server=(env) on_client=(env) there=127.0.0.1
fio_ready=(sleep 0.5) # condition to wait for before the first client starts
# On another host, port 4791 must be open: an earlier request to connect is lost, and repeated only after seconds
fio_answers() { gone "$s" || "${on_server[@]}" cat /proc/net/udp /proc/net/udp6 2>/dev/null | grep -qi ':12B7 '; }

# job VERB SIZE ARGS…: both ends move SIZE without an error. The server names no address, because this fio binds to the
# bytes of the name. The client is the writing side, whatever its verb
job() {
	local verb=$1 size=$2 depth=() end=$((SECONDS + 20 * SLOW)) s c
	shift 2
	# it allows no RNR retries, so each message needs a receive
	[ "$verb" != send ] || depth=(--iodepth=300)
	free_port
	(cd "$work" && exec timeout -k 2 $((LIMIT * SLOW)) "${on_server[@]}" "${run[@]}" fio --name=s --ioengine=rdma --port=$port \
		--verb=recv --rw=read --size="$size" "$@" "${depth[@]}" >"$work/server.out" 2>&1 </dev/null) &
	s=$!
	wait_for 20 "${fio_ready[@]}"
	while :; do
		(cd "$work" && exec timeout -k 2 $((LIMIT * SLOW)) "${on_client[@]}" "${run[@]}" fio --name=c --ioengine=rdma --hostname=$there --port=$port \
			--verb="$verb" --rw=write --size="$size" "$@" >"$work/client.out" 2>&1 </dev/null) && c=0 || c=$?
		grep -q "REJECTED" "$work/client.out" && ! gone $s && [ $SECONDS -lt $end ] || break # nobody listens yet
		sleep 0.2
	done
	[ $c = 0 ] || wait_for 2 gone $s || kill $s
	wait $s
	s=$?
	[ $s = 0 ] && [ $c = 0 ] && grep -q 'err= 0' "$work/client.out" && grep -q 'err= 0' "$work/server.out" && return 0
	echo "server ended with $s, client with $c"
	said_by_both
	return 1
}
