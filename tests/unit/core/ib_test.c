// ib_test.c - an adapter on a fabric: what the fabric process says of its port, and address vectors by LID
// follows: IBA volume 1, 14.2.5.6 (PortInfo), 11.2.2 (address handle), 10.9.3 (P_Keys)
// SPDX-License-Identifier: MIT
#include "harness.h"

static struct vb_device dev;

static struct vb_ib_port active_port(void)
{
	return (struct vb_ib_port){.state = IBV_PORT_ACTIVE,
	                           .mtu = IBV_MTU_2048,
	                           .mtu_cap = IBV_MTU_2048,
	                           .lid = 7,
	                           .prefix = 0xfe80000000000000ull,
	                           .guids = {0x11},
	                           .pkey = {0xffff, 0x8123}};
}

static unsigned told(const struct vb_ib_port *port)
{
	vb_device_apply_ib(&dev, port);
	unsigned pending = dev.pending;

	dev.pending = 0;
	return pending;
}

static void begin(void)
{
	memset(&dev, 0, sizeof(dev));
	dev.ib = true;
	vb_lock_init(&dev.lock, VB_RANK_DEVICE);
}

static void each_change_of_the_port_is_an_event(void)
{
	struct vb_ib_port p = active_port();

	begin();
	CHECK(told(&p) == (VB_DEV_PORT_UP | VB_DEV_LID_CHANGE | VB_DEV_PKEY_CHANGE | VB_DEV_GID_CHANGE));
	CHECK(told(&p) == 0);
	p.lmc = 1;
	CHECK(told(&p) == VB_DEV_LID_CHANGE);
	p.sm_lid = 3;
	CHECK(told(&p) == VB_DEV_SM_CHANGE);
	p.reregisters++;
	CHECK(told(&p) == VB_DEV_REREGISTER);
	p.pkey[1] = 0;
	CHECK(told(&p) == VB_DEV_PKEY_CHANGE);
	p.prefix++;
	CHECK(told(&p) == VB_DEV_GID_CHANGE);
	p.state = IBV_PORT_ARMED;
	CHECK(told(&p) == VB_DEV_PORT_DOWN);
	p.state = IBV_PORT_ACTIVE;
	CHECK(told(&p) == VB_DEV_PORT_UP);
	p.state = IBV_PORT_DOWN;
	CHECK(told(&p) == VB_DEV_PORT_DOWN);
	CHECK(told(&p) == 0);
}

static void a_change_that_is_undone_before_it_is_told_is_none(void)
{
	struct vb_ib_port p = active_port();

	begin();
	told(&p);
	p.state = IBV_PORT_DOWN;
	vb_device_apply_ib(&dev, &p);
	p.state = IBV_PORT_ACTIVE;
	CHECK(told(&p) == VB_DEV_PORT_UP); /* as the last state */
}

static void path_bits_are_those_of_the_ports_lmc(void)
{
	struct vb_ib_port p = active_port();

	begin();
	p.lid = 0x40;
	p.lmc = 3;
	told(&p);
	CHECK(vb_ib_lid(&dev, 5) == 0x45 && vb_ib_lid(&dev, 0xff) == 0x47);
	CHECK(vb_ib_path_bits(&dev, 0x45) == 5);
	p.lmc = 0;
	told(&p);
	CHECK(vb_ib_lid(&dev, 5) == 0x40 && vb_ib_path_bits(&dev, 0x40) == 0);
}

static void values_that_no_port_has_are_replaced(void)
{
	struct vb_ib_port p;
	struct ibv_port_attr attr;

	begin();
	memset(&p, 0xff, sizeof(p));
	told(&p);
	CHECK(!vb_ib_query_port(&dev, &attr));
	CHECK(attr.state == IBV_PORT_DOWN && attr.active_mtu == IBV_MTU_256 && attr.max_mtu == IBV_MTU_4096);
	CHECK(!attr.lid && !attr.lmc);
	CHECK(vb_ib_pkey(&dev, VB_IB_PKEYS) == 0);
}

static void an_address_vector_needs_a_lid(void)
{
	struct ibv_ah_attr a = {.port_num = 1, .dlid = 9};
	union ibv_gid sgid;

	begin();
	CHECK(!vb_ib_check_av(&dev, &a, &sgid));
	a.dlid = 0;
	CHECK(vb_ib_check_av(&dev, &a, NULL) == EINVAL);
	a.dlid = 0xffff;
	CHECK(vb_ib_check_av(&dev, &a, NULL) == EINVAL);
	a.dlid = 0xc001; /* a group, which needs a GID */
	CHECK(vb_ib_check_av(&dev, &a, NULL) == EINVAL);
	a.is_global = 1;
	a.grh.dgid.raw[0] = 0xff;
	CHECK(!vb_ib_check_av(&dev, &a, NULL));
	a.grh.sgid_index = 2; /* a hole */
	CHECK(vb_ib_check_av(&dev, &a, NULL) == EINVAL);
	a = (struct ibv_ah_attr){.port_num = 2, .dlid = 9};
	CHECK(vb_ib_check_av(&dev, &a, NULL) == EINVAL);
	a = (struct ibv_ah_attr){.port_num = 1, .dlid = 9, .sl = 16};
	CHECK(vb_ib_check_av(&dev, &a, NULL) == EINVAL);
}

static void partitions_match_if_one_member_is_full(void)
{
	CHECK(vb_ib_partitions_match(0, 0)); /* neither is on a fabric */
	CHECK(!vb_ib_partitions_match(0, VB_IB_SHARED(0xffff, VB_IB_ANY_LID)));
	CHECK(!vb_ib_partitions_match(VB_IB_SHARED(0, VB_IB_ANY_LID), VB_IB_SHARED(0, VB_IB_ANY_LID)));
	CHECK(!vb_ib_partitions_match(VB_IB_SHARED(0x8000, VB_IB_ANY_LID), VB_IB_SHARED(0x8000, VB_IB_ANY_LID)));
	CHECK(!vb_ib_partitions_match(VB_IB_SHARED(0x7fff, VB_IB_ANY_LID), VB_IB_SHARED(0x7fff, VB_IB_ANY_LID)));
	CHECK(vb_ib_partitions_match(VB_IB_SHARED(0x7fff, VB_IB_ANY_LID), VB_IB_SHARED(0xffff, VB_IB_ANY_LID)));
	CHECK(!vb_ib_partitions_match(VB_IB_SHARED(0x8123, VB_IB_ANY_LID), VB_IB_SHARED(0xffff, VB_IB_ANY_LID)));
}

static void a_connected_queue_pair_takes_packets_of_one_lid(void)
{
	struct vb_ib_way way = {.slid = 5};

	CHECK(vb_ib_takes_from(VB_IB_SHARED(0xffff, 5), &way));
	CHECK(!vb_ib_takes_from(VB_IB_SHARED(0xffff, 6), &way));
	CHECK(vb_ib_takes_from(VB_IB_SHARED(0xffff, VB_IB_ANY_LID), &way));
	CHECK(vb_ib_takes_from(VB_IB_SHARED(0xffff, 6), NULL));
	CHECK(vb_ib_takes_from(0, &way)); /* it is on no fabric */
	CHECK(vb_ib_partitions_match(VB_IB_SHARED(0xffff, 6), VB_IB_SHARED(0x7fff, 7)));
}

int main(void)
{
	RUN(each_change_of_the_port_is_an_event);
	RUN(a_change_that_is_undone_before_it_is_told_is_none);
	RUN(path_bits_are_those_of_the_ports_lmc);
	RUN(values_that_no_port_has_are_replaced);
	RUN(an_address_vector_needs_a_lid);
	RUN(partitions_match_if_one_member_is_full);
	RUN(a_connected_queue_pair_takes_packets_of_one_lid);
	return 0;
}
