// way_test.c - the ways of data from a port: what opens them, what closes them, and what they count
// follows: IBA volume 1, 18.2.4.3 (linear forwarding), 10.9 (partitions), 7.2.7 (link states)
// SPDX-License-Identifier: MIT
#include "two_switches.h"

static struct {
	struct vb_fabric *f;
	struct vb_fabric_node *sw[2];
	struct vb_fabric_port *host[3];
	struct vb_fabric_way way[2];
	struct vb_fabric_way_key key;
} t;

/* The key asks for the way from host 0 to host 2. */
static void begin(void)
{
	memset(&t, 0, sizeof(t));
	t.f = two_switches(t.sw, t.host);
	t.key = (struct vb_fabric_way_key){.dlid = 30, .pkey = 0xffff, .both = true};
}

static void end(void)
{
	vb_fabric_free(t.f);
}

static unsigned why(void)
{
	return vb_fabric_find_way(t.host[0], &t.key, t.way);
}

static void a_way_leads_by_the_tables_and_back(void)
{
	begin();
	SAME(why(), VB_WAY_OPEN);
	CHECK(t.way[0].end == t.host[2] && t.way[1].end == t.host[0]);
	SAME(t.way[0].ports, 6);
	SAME(t.way[1].ports, 6);
	SAME(t.way[0].mtu, 4);
	t.key.dlid = 31; /* of its LMC */
	SAME(why(), VB_WAY_OPEN);
	t.key.dlid = 11; /* itself */
	SAME(why(), VB_WAY_OPEN);
	SAME(t.way[0].ports, 0);
	end();
}

static void a_node_that_is_handed_over_is_gone_until_it_is_taken_back(void)
{
	struct vb_fabric_node *n;

	begin();
	n = t.host[2]->node;
	vb_fabric_hand_over(n, &t);
	SAME(t.f->away, 1);
	SAME(why(), VB_WAY_NO_LINK);
	SAME(t.host[2]->peer->info.state, VB_PORT_DOWN);
	SAME(t.host[2]->info.lid, 0); /* it has forgotten what the manager had set */
	const struct vb_fabric_end other = {.wants = true, .widths = 3, .speeds = 7};

	vb_fabric_end_told(t.host[2]->peer, &other);
	SAME(t.host[2]->peer->info.state, VB_PORT_INIT);
	t.host[2]->peer->info.state = VB_PORT_ACTIVE;
	SAME(why(), VB_WAY_ELSEWHERE);
	vb_fabric_take_back(n);
	SAME(t.f->away, 0);
	CHECK(!n->where && t.host[2]->info.state == VB_PORT_INIT && t.host[2]->peer->info.state == VB_PORT_INIT);
	SAME(t.host[2]->peer->counters.link_downed, 2);
	end();
}

static void an_sl_needs_its_lane_at_each_port(void)
{
	begin();
	t.key.sl = 5;
	SAME(why(), VB_WAY_OPEN);
	t.sw[1]->port[1].sl2vl = calloc(5, 8); /* all on lane 0 */
	CHECK(t.sw[1]->port[1].sl2vl);
	SAME(why(), VB_WAY_OPEN);
	t.sw[1]->port[1].sl2vl[8 * 3 + 2] = 0x0f; /* SL 5 that comes from port 3: discarded */
	SAME(why(), VB_WAY_BAD_VL);
	t.key.sl = 4;
	SAME(why(), VB_WAY_OPEN);
	t.sw[1]->port[1].sl2vl[8 * 3 + 2] = 0x40;
	SAME(why(), VB_WAY_OPEN);
	t.sw[1]->port[1].info.oper_vls = 3; /* 4 lanes */
	SAME(why(), VB_WAY_BAD_VL);
	t.sw[1]->port[1].info.oper_vls = 4;
	t.sw[0]->port[1].info.oper_vls = 2; /* of the answers: SL 4 stays on lane 4 */
	SAME(why(), VB_WAY_BAD_VL);
	t.key.both = false;
	SAME(why(), VB_WAY_OPEN);
	end();
}

static void a_missing_route_closes_it(void)
{
	begin();
	t.sw[1]->sw->lft[10] = 255; /* of the answers */
	SAME(why(), VB_WAY_NO_ROUTE);
	t.key.both = false;
	SAME(why(), VB_WAY_OPEN);
	t.sw[1]->sw->lft[30] = 3;
	SAME(why(), VB_WAY_LOOP);
	t.sw[1]->sw->lft[30] = 0;
	SAME(why(), VB_WAY_NO_ROUTE);
	t.sw[0]->sw->lft[30] = 2; /* to another host */
	SAME(why(), VB_WAY_NOT_THERE);
	end();
}

static void answers_go_to_the_path_bits_of_the_sender(void)
{
	begin();
	t.key.path_bits = 1;
	SAME(why(), VB_WAY_OPEN);
	t.sw[1]->sw->lft[11] = 255;
	SAME(why(), VB_WAY_NO_ROUTE);
	end();
}

static void links_and_states_close_it(void)
{
	begin();
	t.host[2]->info.state = VB_PORT_INIT;
	SAME(why(), VB_WAY_NOT_ACTIVE);
	t.host[2]->info.state = VB_PORT_ACTIVE;
	uint64_t before = t.f->changes;
	vb_fabric_cut(&t.sw[0]->port[3], true);
	CHECK(t.f->changes > before);
	SAME(why(), VB_WAY_NO_LINK);
	t.key.dlid = 20;
	SAME(why(), VB_WAY_OPEN);
	vb_fabric_switch_off(t.host[1]->node, true);
	SAME(why(), VB_WAY_NO_LINK);
	end();
}

static void an_armed_port_takes_data_and_then_answers(void)
{
	begin();
	t.host[2]->info.state = t.sw[1]->port[3].info.state = VB_PORT_ARMED;
	SAME(why(), VB_WAY_OPEN);
	vb_fabric_count(t.way[0].port, t.way[0].ports, 0, 0);
	SAME(t.host[2]->info.state, VB_PORT_ARMED);
	vb_fabric_count(t.way[0].port, t.way[0].ports, 1, 100);
	SAME(t.host[2]->info.state, VB_PORT_ACTIVE);
	SAME(t.sw[1]->port[3].info.state, VB_PORT_ACTIVE);
	t.host[0]->info.state = VB_PORT_ARMED; /* it does not send first */
	SAME(why(), VB_WAY_NOT_ACTIVE);
	t.host[0]->info.state = VB_PORT_ACTIVE;
	t.sw[0]->port[3].info.state = VB_PORT_ARMED; /* nor does a port of a switch where nothing came in */
	SAME(why(), VB_WAY_NOT_ACTIVE);
	end();
}

static void members_of_a_partition_talk_if_one_is_full(void)
{
	begin();
	keys_of(t.host[0], 0x7fff, 0x8123);
	keys_of(t.host[2], 0x7fff, 0x0123);
	t.key.pkey = 0x7fff;
	SAME(why(), VB_WAY_BAD_PKEY);
	t.key.pkey = 0x8123; /* answers come with the limited key */
	SAME(why(), VB_WAY_OPEN);
	t.key.pkey = 0x8124;
	SAME(why(), VB_WAY_BAD_PKEY);
	t.key.pkey = 0; /* not asked */
	SAME(why(), VB_WAY_OPEN);
	end();
}

static void switches_enforce_partitions_but_not_membership(void)
{
	struct vb_fabric_port *p;

	begin();
	p = &t.sw[0]->port[1];
	keys_of(p, 0x7fff, 0);
	p->info.enforce = VB_ENFORCE_IN;
	keys_of(t.host[0], 0x7fff, 0x8123);
	keys_of(t.host[2], 0xffff, 0x8123);
	t.key.pkey = 0x7fff;
	SAME(why(), VB_WAY_OPEN);
	t.key.pkey = 0x8123;
	SAME(why(), VB_WAY_BAD_PKEY);
	end();
}

static void a_grh_names_the_port_at_the_end(void)
{
	struct vb_writer w;

	begin();
	t.key.grh = true;
	w = vb_writer(t.key.dgid, 16);
	vb_put64(&w, VB_FABRIC_LINK_LOCAL);
	vb_put64(&w, t.host[2]->guid);
	SAME(why(), VB_WAY_OPEN);
	t.host[2]->info.gid_prefix = 0xfec0000000000000ull; /* the link-local GID stays */
	SAME(why(), VB_WAY_OPEN);
	t.key.dgid[15] ^= 1;
	SAME(why(), VB_WAY_BAD_GID);
	end();
}

static void all_ports_of_a_way_count(void)
{
	begin();
	SAME(why(), VB_WAY_OPEN);
	vb_fabric_count(t.way[0].port, t.way[0].ports, 3, 400);
	SAME(t.host[0]->counters.xmit_pkts, 3);
	SAME(t.host[0]->counters.xmit_data, 100);
	SAME(t.sw[0]->port[1].counters.rcv_pkts, 3);
	SAME(t.sw[0]->port[3].counters.xmit_data, 100);
	SAME(t.sw[1]->port[3].counters.unicast_rcv, 3);
	SAME(t.host[2]->counters.rcv_data, 100);
	SAME(t.host[2]->counters.xmit_pkts, 0);
	end();
}

int main(void)
{
	RUN(a_way_leads_by_the_tables_and_back);
	RUN(a_node_that_is_handed_over_is_gone_until_it_is_taken_back);
	RUN(an_sl_needs_its_lane_at_each_port);
	RUN(a_missing_route_closes_it);
	RUN(answers_go_to_the_path_bits_of_the_sender);
	RUN(links_and_states_close_it);
	RUN(an_armed_port_takes_data_and_then_answers);
	RUN(members_of_a_partition_talk_if_one_is_full);
	RUN(switches_enforce_partitions_but_not_membership);
	RUN(a_grh_names_the_port_at_the_end);
	RUN(all_ports_of_a_way_count);
	return 0;
}
