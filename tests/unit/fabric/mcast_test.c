// mcast_test.c - datagrams to a multicast group: where copies go, what stops them, and what they count
// follows: IBA volume 1, 18.2.4.3 (forwarding), 14.2.5.4 (default ports), 14.2.5.12 (multicast tables), 10.9, 7.2.7
// SPDX-License-Identifier: MIT
#include <stdlib.h>

#include "../../support/check.h"
#include "fabric/topology.h"

enum { MLID = 0xc001, HOSTS = 4 };

static struct {
	struct vb_fabric *f;
	struct vb_fabric_node *sw[3];
	struct vb_fabric_port *host[HOSTS]; /* 0 and 1 on switch 0, 2 on switch 1, 3 on switch 2 */
	bool attached[HOSTS];
	unsigned got[HOSTS], packets;
	uint8_t grh[40];
	struct vb_fabric_datagram d;
} t;

static int host_of(const struct vb_fabric_port *p)
{
	for (int i = 0; i < HOSTS; i++)
		if (t.host[i] == p)
			return i;
	return -1;
}

static bool take_packet(void *own, struct vb_fabric_port *port, const struct vb_fabric_packet *packet)
{
	t.packets++;
	return true;
}

static bool is_attached(void *own, struct vb_fabric_port *p, const struct vb_fabric_datagram *d)
{
	return host_of(p) >= 0 && t.attached[host_of(p)];
}

static void take_copy(void *own, struct vb_fabric_port *p, const struct vb_fabric_datagram *d)
{
	CHECK(d == &t.d);
	t.got[host_of(p)]++;
}

static const struct vb_fabric_ops ops = {
        .deliver = take_packet, .is_attached = is_attached, .deliver_to_group = take_copy};

static void leads(int sw, uint16_t ports)
{
	t.sw[sw]->sw->mft[MLID - VB_LID_MULTICAST] = ports;
}

/* Three switches in a triangle, at ports 3 and 4. The tables lead from switch 0 to both others, and to all hosts. */
static void begin(void)
{
	static const char text[] = "Switch 4 \"s0\"\n[1] \"h0\"[1]\n[2] \"h1\"[1]\n[3] \"s1\"[3]\n[4] \"s2\"[3]\n"
	                           "\nSwitch 4 \"s1\"\n[1] \"h2\"[1]\n[4] \"s2\"[4]\n\nSwitch 4 \"s2\"\n[1] \"h3\"[1]\n"
	                           "\nCa 1 \"h0\"\n\nCa 1 \"h1\"\n\nCa 1 \"h2\"\n\nCa 1 \"h3\"\n";
	struct vb_topology_error e;
	char name[3] = "h0";

	memset(&t, 0, sizeof(t));
	t.f = vb_fabric_new(&ops, NULL);
	CHECK(t.f && vb_topology_read(t.f, text, sizeof(text) - 1, &e));
	vb_fabric_train_all(t.f);
	for (int i = 0; i < HOSTS; i++) {
		name[1] = (char)('0' + i);
		t.host[i] = &vb_fabric_find(t.f, name)->port[1];
		t.host[i]->info.lid = (uint16_t)(10 * (i + 1));
		t.attached[i] = true;
	}
	name[0] = 's';
	for (int i = 0; i < 3; i++) {
		name[1] = (char)('0' + i);
		t.sw[i] = vb_fabric_find(t.f, name);
		t.sw[i]->sw->mft = calloc(VB_FABRIC_MFT_CAP, sizeof(uint16_t));
		CHECK(t.sw[i]->sw->mft);
	}
	leads(0, 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4);
	leads(1, 1 << 1 | 1 << 3);
	leads(2, 1 << 1 | 1 << 3);
	for (size_t i = 0; i < t.f->count; i++)
		for (unsigned k = 1; k <= t.f->nodes[i]->ports; k++)
			if (t.f->nodes[i]->port[k].peer)
				t.f->nodes[i]->port[k].info.state = VB_PORT_ACTIVE;
	t.grh[24] = 0xff;
	t.d = (struct vb_fabric_datagram){
	        .slid = 10, .dlid = MLID, .pkey = 0xffff, .src_qpn = 7, .length = 100, .bytes = 400, .grh = t.grh};
}

static void end(void)
{
	vb_fabric_free(t.f);
}

/* Which hosts get a datagram of host `from`: a bit each. None gets it twice. */
static unsigned heard(int from)
{
	unsigned hosts = 0;

	memset(t.got, 0, sizeof(t.got));
	vb_fabric_multicast(t.host[from], &t.d);
	for (unsigned i = 0; i < HOSTS; i++) {
		CHECK(t.got[i] <= 1);
		hosts |= t.got[i] << i;
	}
	return hosts;
}

static void a_datagram_reaches_all_attached_hosts_once(void)
{
	begin();
	SAME(heard(0), 15);
	SAME(heard(2), 15);
	t.attached[0] = t.attached[3] = false;
	SAME(heard(0), 6);
	SAME(t.f->drops.nobody, 1);
	end();
}

static void only_the_tables_lead_on(void)
{
	begin();
	leads(1, 1 << 3); /* host 2 is no member */
	SAME(heard(0), 11);
	leads(0, 1 << 1 | 1 << 2);
	SAME(heard(0), 3);
	leads(0, 0);
	SAME(heard(0), 1); /* its own queue pairs need no switch */
	SAME(t.f->drops.no_route, 1);
	SAME(t.sw[0]->port[1].counters.rcv_relay_errors, 1);
	free(t.sw[0]->sw->mft);
	t.sw[0]->sw->mft = NULL;
	SAME(heard(0), 1);
	t.d.dlid++;
	SAME(heard(2), 4);
	end();
}

static void beyond_the_table_the_default_port_leads_on(void)
{
	struct vb_switch_info *i;

	begin();
	i = &t.sw[0]->sw->info;
	t.d.dlid = VB_LID_MULTICAST + VB_FABRIC_MFT_CAP;
	SAME(heard(0), 1);
	i->default_mcast_primary = 2;
	SAME(heard(0), 3);
	i->default_mcast_other = 1;
	SAME(heard(1), 3);
	t.d.dlid = MLID;
	i->mft_top = MLID;
	SAME(heard(0), 15);
	i->mft_top = MLID - 1;
	SAME(heard(0), 3);
	i->default_mcast_primary = 200;
	SAME(heard(0), 1);
	end();
}

static void a_circle_of_tables_ends(void)
{
	begin();
	for (int i = 0; i < 3; i++)
		leads(i, 0xffff);
	SAME(heard(0), 15);
	CHECK(t.f->drops.hop_limit > 0);
	SAME(t.sw[0]->port[3].counters.rcv_pkts, 1);
	end();
}

static void links_and_states_stop_it(void)
{
	begin();
	vb_fabric_cut(&t.sw[0]->port[3], true);
	SAME(heard(0), 11);
	t.host[1]->info.state = VB_PORT_INIT;
	SAME(heard(0), 9);
	t.sw[0]->port[4].info.state = VB_PORT_ARMED; /* it does not send yet */
	SAME(heard(0), 1);
	SAME(t.sw[0]->port[4].counters.xmit_discards, 1);
	t.host[0]->info.state = VB_PORT_ARMED;
	SAME(heard(0), 0);
	vb_fabric_switch_off(t.host[0]->node, true);
	SAME(heard(0), 0);
	end();
}

static void an_armed_port_turns_active_with_it(void)
{
	begin();
	t.host[1]->info.state = t.sw[2]->port[3].info.state = VB_PORT_ARMED;
	uint64_t before = t.f->changes;

	SAME(heard(0), 15);
	SAME(t.host[1]->info.state, VB_PORT_ACTIVE);
	SAME(t.sw[2]->port[3].info.state, VB_PORT_ACTIVE);
	CHECK(t.f->changes > before);
	end();
}

static void partitions_are_enforced_by_switches_and_hosts(void)
{
	const uint16_t blue[VB_FABRIC_CA_PKEYS] = {0xffff, 0x8123}, limited[VB_FABRIC_CA_PKEYS] = {0xffff, 0x0123},
	               none[VB_FABRIC_CA_PKEYS] = {0xffff};

	begin();
	CHECK(vb_fabric_set_pkeys(t.host[0], blue) && vb_fabric_set_pkeys(t.host[1], limited));
	CHECK(vb_fabric_set_pkeys(t.host[2], blue) && vb_fabric_set_pkeys(t.host[3], none));
	t.d.pkey = 0x8123;
	SAME(heard(0), 7);
	SAME(t.host[3]->info.pkey_violations, 1);
	SAME(t.f->drops.bad_pkey, 1);
	t.d.pkey = 0x0123; /* of a limited member: not to others */
	SAME(heard(1), 5);
	CHECK(vb_fabric_set_pkeys(&t.sw[0]->port[3], none));
	t.sw[0]->port[3].info.enforce = VB_ENFORCE_OUT;
	t.d.pkey = 0x8123;
	SAME(heard(0), 3);
	SAME(t.sw[0]->port[3].counters.xmit_constraint, 1);
	end();
}

static void what_is_larger_than_a_link_takes_is_discarded(void)
{
	begin();
	t.d.length = 2048;
	SAME(heard(0), 15);
	t.sw[0]->port[4].info.neighbor_mtu = 3;
	SAME(heard(0), 7);
	SAME(t.sw[0]->port[4].counters.xmit_discards, 1);
	SAME(t.f->drops.too_long, 1);
	end();
}

static void ports_on_the_way_count_it(void)
{
	begin();
	SAME(heard(0), 15);
	SAME(t.host[0]->counters.multicast_xmit, 1);
	SAME(t.host[0]->counters.xmit_data, 100);
	SAME(t.host[0]->counters.rcv_pkts, 0); /* its own copy takes no link */
	SAME(t.sw[0]->port[1].counters.multicast_rcv, 1);
	SAME(t.sw[0]->port[3].counters.multicast_xmit, 1);
	SAME(t.host[2]->counters.multicast_rcv, 1);
	SAME(t.host[2]->counters.rcv_data, 100);
	SAME(t.host[2]->counters.unicast_rcv, 0);
	end();
}

int main(void)
{
	RUN(a_datagram_reaches_all_attached_hosts_once);
	RUN(only_the_tables_lead_on);
	RUN(beyond_the_table_the_default_port_leads_on);
	RUN(a_circle_of_tables_ends);
	RUN(links_and_states_stop_it);
	RUN(an_armed_port_turns_active_with_it);
	RUN(partitions_are_enforced_by_switches_and_hosts);
	RUN(what_is_larger_than_a_link_takes_is_discarded);
	RUN(ports_on_the_way_count_it);
	return 0;
}
