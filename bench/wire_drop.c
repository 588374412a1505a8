// wire_drop.c - drops packets that arrive at an interface, independently and at random, until it is killed
// follows: bpf(2). With XDP, veth splits super-packets before the program sees them; a queueing discipline would not.
// SPDX-License-Identifier: MIT
#include <linux/bpf.h>
#include <linux/if_link.h>
#include <net/if.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "clock.h"

static int bpf(int command, union bpf_attr *attr)
{
	return (int)syscall(SYS_bpf, command, attr, sizeof(*attr));
}

/* random() >= below: pass */
static int load(uint32_t below)
{
	struct bpf_insn code[] = {
	        {.code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_get_prandom_u32},
	        {.code = BPF_JMP32 | BPF_JGE | BPF_K, .dst_reg = BPF_REG_0, .off = 2, .imm = (int32_t)below},
	        {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = XDP_DROP},
	        {.code = BPF_JMP | BPF_EXIT},
	        {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = XDP_PASS},
	        {.code = BPF_JMP | BPF_EXIT},
	};
	union bpf_attr attr = {
	        .prog_type = BPF_PROG_TYPE_XDP,
	        .insns = (uintptr_t)code,
	        .insn_cnt = sizeof(code) / sizeof(code[0]),
	        .license = (uintptr_t) "MIT",
	        .prog_flags = BPF_F_XDP_HAS_FRAGS,
	};

	return bpf(BPF_PROG_LOAD, &attr);
}

int main(int argc, char **argv)
{
	double percent = argc == 3 ? atof(argv[2]) : -1;
	unsigned ifindex = argc == 3 ? if_nametoindex(argv[1]) : 0;

	if (percent < 0 || percent > 50 || !ifindex) {
		fprintf(stderr, "usage: wire_drop INTERFACE PERCENT (0 to 50)\n");
		return 2;
	}
	int program = load((uint32_t)(percent / 100 * UINT32_MAX));
	if (program < 0)
		fail("wire_drop: BPF_PROG_LOAD");
	union bpf_attr attr = {.link_create.prog_fd = (uint32_t)program,
	                       .link_create.target_ifindex = ifindex,
	                       .link_create.attach_type = BPF_XDP,
	                       .link_create.flags = XDP_FLAGS_DRV_MODE};
	if (bpf(BPF_LINK_CREATE, &attr) < 0)
		fail("wire_drop: BPF_LINK_CREATE");
	puts("losing");
	fflush(stdout);
	for (;;)
		pause();
}
