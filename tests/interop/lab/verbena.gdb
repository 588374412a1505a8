# verbena.gdb - prints the queue pairs of a process that hangs: gdb -p PID -batch -x tests/interop/lab/verbena.gdb
# see: src/core/core.h (struct vb_qp), src/path/roce/roce.h
# SPDX-License-Identifier: MIT
set pagination off
set print frame-arguments none

# types are those of enum ibv_qp_type, states those of enum ibv_qp_state
define verbena_qp
	printf "queue pair 0x%x: type %d, state %d, to 0x%x; next PSN 0x%x, expected PSN 0x%x\n", $qp->qp.qp_num, $qp->type, $qp->state, $qp->attr.dest_qp_num, $qp->psn_next, $qp->local.epsn
	printf "  posted %u, handed on %u, completed %u; retries left %d, RNR %d; deadline in ns %ld\n", $qp->sq_head, $qp->sq_emit, $qp->sq_una, $qp->local.retry_left, $qp->local.rnr_left, $qp->local.deadline
	if $qp->local.peer
		printf "  by memory to lane %u, linked: %d; executed %lu, told %lu\n", $qp->local.peer->lane, $qp->local.remote != 0, $qp->local.executed, $qp->local.ack_sent
	end
	if $qp->roce
		output $qp->roce->q.rq
		printf "\n"
		output $qp->roce->q.rs
		printf "\n"
	end
end

define verbena
	set $i = 0
	set $left = the_node->qp_count
	printf "lane %u: %u queue pairs\n", the_node->lane, $left
	while $left > 0 && $i < 16384
		set $qp = the_node->qps[$i]
		if $qp
			verbena_qp
			set $left = $left - 1
		end
		set $i = $i + 1
	end
end

verbena
