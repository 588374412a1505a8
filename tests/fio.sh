# fio.sh - pairs of Debian's fio with its rdma engine
# follows: fio(1), "I/O engine" rdma
# SPDX-License-Identifier: MIT
# sourced after lib.sh
on_server=(env) on_client=(env) there=127.0.0.1

# job VERB SIZE ARGS…: both ends move SIZE without an error. The server names no address: this fio binds to the bytes of the name
# The side that writes is the client, whatever its verb
job() {
	local verb=$1 size=$2 depth=() end=$((SECONDS + 20 * SLOW)) s c
	shift 2
	# it allows no RNR retries: a receive for each message
	[ "$verb" != send ] || depth=(--iodepth=300)
	free_port
	(cd "$work" && exec timeout -k 2 $((LIMIT * SLOW)) "${on_server[@]}" "${run[@]}" fio --name=s --ioengine=rdma --port=$port \
		--verb=recv --rw=read --size="$size" "$@" "${depth[@]}" >"$work/server.out" 2>&1 </dev/null) &
	s=$!
	while :; do
		sleep 0.5
		(cd "$work" && exec timeout -k 2 $((LIMIT * SLOW)) "${on_client[@]}" "${run[@]}" fio --name=c --ioengine=rdma --hostname=$there --port=$port \
			--verb="$verb" --rw=write --size="$size" "$@" >"$work/client.out" 2>&1 </dev/null) && c=0 || c=$?
		grep -q "REJECTED" "$work/client.out" && ! gone $s && [ $SECONDS -lt $end ] || break # nobody listens yet
	done
	[ $c = 0 ] || wait_for 2 gone $s || kill $s
	wait $s
	s=$?
	[ $s = 0 ] && [ $c = 0 ] && grep -q 'err= 0' "$work/client.out" && grep -q 'err= 0' "$work/server.out" && return 0
	echo "server ended with $s, client with $c"
	said_by_both
	return 1
}
