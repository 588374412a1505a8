# nvme.sh - the Linux kernel as an NVMe host in the lab's guest, verbena-target on this side
# follows: nvme(1), fio(1)
# SPDX-License-Identifier: MIT
# sourced after lab/lib.sh. $target: the pid of the target; $work/target.err: its messages
export VERBENA_LAB_S=400
NQN=nqn.2026-01.test:linux
there() { "$LAB" guest "$*"; }

ended_well() { # it got SIGTERM
	kill -TERM "$target"
	wait "$target"
	local status=$?
	target=
	[ $status = 0 ] && ! grep Sanitizer "$work/target.err"
}
killed() {
	kill -KILL "$target"
	wait "$target" 2>/dev/null
	target=
}

connects() { # TRANSPORT ARGS…: both its namespaces appear
	there "nvme connect -t $1 -n $NQN -k 60 -l 100 ${*:2} && for i in \$(seq 60); do [ -b /dev/nvme0n2 ] && exit 0; sleep 1; done; exit 1"
}
disconnect() { there "nvme disconnect -n $NQN"; }
verifies() { # DEVICE ARGS…
	there "for i in \$(seq 60); do [ ! -b $1 ] || break; sleep 1; done # the kernel scans for disks with a delay
		fio --name=v --filename=$1 --allow_file_create=0 --ioengine=libaio --direct=1 --iodepth=8 --verify=crc32c --do_verify=1 --verify_fatal=1 ${*:2}"
}

# works_on COMMANDS: runs COMMANDS in the background while something happens to the target
works_on() {
	there "$1" >"$work/through" 2>&1 &
	through=$!
	sleep 3 # roughly in the middle
}
came_through() { wait "$through" || { cat "$work/through"; return 1; }; }
