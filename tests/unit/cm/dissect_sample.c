// dissect_sample.c - writes every CM message as a datagram to queue pair 1, for tshark, and as text
// follows: pcap-savefile(5), link type RAW; IBA annex A17 (RoCEv2), volume 1, 12.6
// SPDX-License-Identifier: MIT
#include <arpa/inet.h>
#include <inttypes.h>

#include "../../support/check.h"
#include "frame/cm.h"
#include "frame/icrc.h"
#include "frame/packet.h"

static FILE *pcap, *text;

/* In this machine's byte order, which the magic number shows. */
static void put32(uint32_t v)
{
	CHECK(fwrite(&v, sizeof(v), 1, pcap) == 1);
}

static void put_file_header(void)
{
	const uint16_t version[2] = {2, 4};

	put32(0xa1b2c3d4);
	CHECK(fwrite(version, sizeof(version), 1, pcap) == 1);
	put32(0);
	put32(0);
	put32(65535);
	put32(101); /* LINKTYPE_RAW: begins with the IP header */
}

static void put_packet(const uint8_t *bytes, size_t len)
{
	static uint32_t seconds;

	put32(seconds++);
	put32(0);
	put32((uint32_t)len);
	put32((uint32_t)len);
	CHECK(fwrite(bytes, len, 1, pcap) == 1);
}

static const struct vb_flow flow = {.src = {[10] = 0xff, [11] = 0xff, [12] = 192, [14] = 2, [15] = 1},
                                    .dst = {[10] = 0xff, [11] = 0xff, [12] = 192, [14] = 2, [15] = 2},
                                    .sport = 0xc001,
                                    .dport = VB_ROCE_PORT};

static void put_mad(const uint8_t mad[VB_MAD_LEN])
{
	uint8_t ip[512], *bth;
	const struct vb_packet p = {.bth = {.opcode = VB_UD_SEND_ONLY,
	                                    .migreq = true,
	                                    .pkey = 0xffff,
	                                    .dest_qpn = VB_GSI_QPN,
	                                    .psn = vb_psn(7)},
	                            .deth = {.qkey = VB_GSI_QKEY, .src_qpn = VB_GSI_QPN}};
	size_t udp_payload = VB_HEADER_LEN(VB_EXT_DETH) + VB_MAD_LEN + VB_ICRC_LEN;
	size_t ip_len = vb_ip_header(ip, &flow, &(struct vb_ip_fields){.hop_limit = 64}, udp_payload);
	struct vb_writer w = vb_writer(ip + ip_len, sizeof(ip) - ip_len);

	vb_put16(&w, flow.sport);
	vb_put16(&w, flow.dport);
	vb_put16(&w, (uint16_t)(8 + udp_payload));
	vb_put16(&w, 0);
	bth = w.bytes + w.pos;
	vb_packet_encode(&w, &p);
	vb_put_bytes(&w, mad, VB_MAD_LEN);
	vb_put_zeros(&w, VB_ICRC_LEN);
	CHECK(!w.failed && w.pos == 8 + udp_payload);
	vb_icrc_encode(w.bytes + w.pos - VB_ICRC_LEN,
	               vb_icrc_start(&flow, 0, bth, udp_payload - VB_ICRC_LEN, udp_payload));
	put_packet(ip, ip_len + w.pos);
}

static const char *address(const uint8_t gid[VB_GID_LEN])
{
	static char buf[4][INET6_ADDRSTRLEN];
	static int turn;
	char *to = buf[turn++ & 3];

	if (vb_gid_is_ipv4(gid))
		return inet_ntop(AF_INET, gid + 12, to, INET6_ADDRSTRLEN);
	return inet_ntop(AF_INET6, gid, to, INET6_ADDRSTRLEN);
}

static void put_hex(const uint8_t *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++)
		fprintf(text, "%02x", bytes[i]);
}

/* name=value, in tshark's format; dissect.sh extracts these fields of each packet and sorts them. */
#define SAY(name, format, value) fprintf(text, "infiniband." name "=" format "\n", value)

static void say_path(const struct vb_cm_path *p)
{
	SAY("cm.req.prim_locallid", "%u", p->local_lid);
	SAY("cm.req.prim_remotelid", "%u", p->remote_lid);
	SAY("cm.req.prim_localgid_ipv4", "%s", address(p->local_gid));
	SAY("cm.req.prim_remotegid_ipv4", "%s", address(p->remote_gid));
	/* tshark 4.0 reads flow label and packet rate from other bits; message_test.c checks these */
	SAY("cm.req.prim_tfcclass", "0x%02x", p->traffic_class);
	SAY("cm.req.prim_hoplim", "0x%02x", p->hop_limit);
	SAY("cm.req.prim_sl", "0x%02x", p->sl);
	SAY("cm.req.prim_subnetlocal", "0x%02x", p->subnet_local);
	SAY("cm.req.prim_localacktout", "0x%02x", p->ack_timeout);
}

static void say_cma(const struct vb_cma *c)
{
	bool v4 = vb_gid_is_ipv4(c->src);

	SAY("cm.req.ip_cm.majv", "0x%02x", 0);
	SAY("cm.req.ip_cm.minv", "0x%02x", 0);
	SAY("cm.req.ip_cm.ipv", "0x%02x", v4 ? 4 : 6);
	SAY("cm.req.ip_cm.sport", "0x%04x", c->src_port);
	fprintf(text, "infiniband.cm.req.ip_cm.sip%d=%s\n", v4 ? 4 : 6, address(c->src));
	fprintf(text, "infiniband.cm.req.ip_cm.dip%d=%s\n", v4 ? 4 : 6, address(c->dst));
}

static void say_req(const struct vb_cm_req *m, const struct vb_cma *cma)
{
	SAY("cm.req", "0x%08x", m->local_comm_id);
	SAY("cm.req.localcaguid", "0x%016" PRIx64, m->local_ca_guid);
	SAY("cm.req.localqkey", "0x%08x", m->local_qkey);
	SAY("cm.req.localqpn", "0x%06x", m->local_qpn);
	SAY("cm.req.responderres", "0x%02x", m->responder_resources);
	SAY("cm.req.localeecn", "0x%06x", m->local_eecn);
	SAY("cm.req.initdepth", "0x%02x", m->initiator_depth);
	SAY("cm.req.remoteeecn", "0x%06x", m->remote_eecn);
	SAY("cm.req.remoteresptout", "0x%02x", m->remote_response_timeout);
	SAY("cm.req.transpsvctype", "0x%02x", m->transport);
	SAY("cm.req.e2eflowctrl", "0x%02x", m->flow_control);
	SAY("cm.req.startpsn", "0x%06x", m->starting_psn);
	SAY("cm.req.localresptout", "0x%02x", m->local_response_timeout);
	SAY("cm.req.retrcount", "0x%02x", m->retry_count);
	SAY("cm.req.pkey", "0x%04x", m->pkey);
	SAY("cm.req.pppmtu", "0x%02x", m->mtu);
	SAY("cm.req.rdcexist", "0x%02x", m->rdc_exists);
	SAY("cm.req.rnrretrcount", "0x%02x", m->rnr_retry_count);
	SAY("cm.req.maxcmretr", "0x%02x", m->max_cm_retries);
	SAY("cm.req.srq", "0x%02x", m->srq);
	SAY("cm.req.ext_transport", "0x%02x", m->extended_transport);
	say_path(&m->primary);
	if (cma)
		say_cma(cma);
}

static void say_rep(const struct vb_cm_rep *m)
{
	SAY("cm.rep", "0x%08x", m->local_comm_id);
	SAY("cm.rep.remotecommid", "0x%08x", m->remote_comm_id);
	SAY("cm.rep.localqkey", "0x%08x", m->local_qkey);
	SAY("cm.rep.localqpn", "0x%06x", m->local_qpn);
	SAY("cm.rep.localeecn", "0x%06x", m->local_eecn);
	SAY("cm.rep.startpsn", "0x%06x", m->starting_psn);
	SAY("cm.rep.respres", "0x%02x", m->responder_resources);
	SAY("cm.rep.initdepth", "0x%02x", m->initiator_depth);
	SAY("cm.rep.tgtackdelay", "0x%02x", m->target_ack_delay);
	SAY("cm.rep.failoveracc", "0x%02x", m->failover_accepted);
	SAY("cm.rep.e2eflowctrl", "0x%02x", m->flow_control);
	SAY("cm.rep.rnrretrcount", "0x%02x", m->rnr_retry_count);
	SAY("cm.rep.srq", "0x%02x", m->srq);
	SAY("cm.rep.localcaguid", "0x%016" PRIx64, m->local_ca_guid);
}

static void say_rej(const struct vb_cm_rej *m)
{
	SAY("cm.rej.localcommid", "0x%08x", m->local_comm_id);
	SAY("cm.rej.remotecommid", "0x%08x", m->remote_comm_id);
	SAY("cm.rej.msgrej", "0x%02x", m->answers);
	SAY("cm.rej.rejinfolen", "0x%02x", m->ari_len);
	SAY("cm.rej.reason", "0x%04x", m->reason);
	fprintf(text, "infiniband.cm.rej.ari=");
	put_hex(m->ari, sizeof(m->ari));
	fprintf(text, "\n");
}

static void put(const struct vb_cm_msg *m, const struct vb_cma *cma)
{
	static unsigned number;
	uint8_t mad[VB_MAD_LEN];

	vb_cm_encode(mad, m);
	put_mad(mad);
	fprintf(text, "packet %u\n", ++number);
	SAY("bth.destqp", "0x%06x", VB_GSI_QPN);
	SAY("deth.q_key", "0x%016x", VB_GSI_QKEY);
	SAY("mad.baseversion", "0x%02x", 1);
	SAY("mad.mgmtclass", "0x%02x", 7);
	SAY("mad.classversion", "0x%02x", 2);
	SAY("mad.method", "0x%02x", 3);
	SAY("mad.transactionid", "0x%016" PRIx64, m->tid);
	SAY("mad.attributeid", "0x%04x", (unsigned)m->attr);
	switch (m->attr) {
	case VB_CM_REQ:
		say_req(&m->req, cma);
		break;
	case VB_CM_REP:
		say_rep(&m->rep);
		break;
	case VB_CM_REJ:
		say_rej(&m->rej);
		break;
	case VB_CM_RTU:
		SAY("cm.rtu.localcommid", "0x%08x", m->rtu.local_comm_id);
		SAY("cm.rtu.remotecommid", "0x%08x", m->rtu.remote_comm_id);
		break;
	case VB_CM_DREQ:
		SAY("cm.dreq.localcommid", "0x%08x", m->dreq.local_comm_id);
		SAY("cm.dreq.remotecommid", "0x%08x", m->dreq.remote_comm_id);
		SAY("cm.req.remoteqpneecn", "0x%06x", m->dreq.remote_qpn);
		break;
	case VB_CM_DREP:
		SAY("cm.drsp.localcommid", "0x%08x", m->drep.local_comm_id);
		SAY("cm.drsp.remotecommid", "0x%08x", m->drep.remote_comm_id);
		break;
	default: /* identified by their attribute only */
		break;
	}
}

#define IDS .local_comm_id = 0x12345678, .remote_comm_id = 0x9abcdef0

static void put_req(const struct vb_cma *cma, uint64_t service_id)
{
	struct vb_cm_msg m = {.attr = VB_CM_REQ,
	                      .tid = 0x1122334455667788,
	                      .req = {.local_comm_id = 0x12345678,
	                              .service_id = service_id,
	                              .local_ca_guid = 0x0211223344556677,
	                              .local_qkey = 0x11223344,
	                              .local_qpn = 0xabcdef,
	                              .responder_resources = 16,
	                              .local_eecn = 0x010203,
	                              .initiator_depth = 15,
	                              .remote_eecn = 0x040506,
	                              .remote_response_timeout = 20,
	                              .transport = VB_CM_UC,
	                              .flow_control = true,
	                              .starting_psn = 0x778899,
	                              .local_response_timeout = 21,
	                              .retry_count = 7,
	                              .pkey = 0xffff,
	                              .mtu = 3,
	                              .rdc_exists = true,
	                              .rnr_retry_count = 6,
	                              .max_cm_retries = 15,
	                              .srq = true,
	                              .extended_transport = 1,
	                              .primary = {.local_lid = 0xffff,
	                                          .remote_lid = 0xfffe,
	                                          .flow_label = 0x12345,
	                                          .packet_rate = 0x2a,
	                                          .traffic_class = 0x68,
	                                          .hop_limit = 64,
	                                          .sl = 3,
	                                          .subnet_local = true,
	                                          .ack_timeout = 19}}};

	memcpy(m.req.primary.local_gid, flow.src, VB_GID_LEN);
	memcpy(m.req.primary.remote_gid, flow.dst, VB_GID_LEN);
	memset(m.req.private_data, 0x61, sizeof(m.req.private_data));
	vb_cma_encode(m.req.private_data, cma);
	put(&m, cma);
}

static void put_samples(void)
{
	struct vb_cma v4 = {.src_port = 0xc123}, v6 = {.src_port = 1,
	                                               .src = {0x20, 1, 0xd, 0xb8, [15] = 1},
	                                               .dst = {0x20, 1, 0xd, 0xb8, [15] = 2}};

	memcpy(v4.src, flow.src, VB_GID_LEN);
	memcpy(v4.dst, flow.dst, VB_GID_LEN);
	put_req(&v4, vb_cm_service_id(VB_PS_TCP, 7471));
	put_req(&v6, vb_cm_service_id(VB_PS_TCP, 65535));
	put(&(struct vb_cm_msg){.attr = VB_CM_MRA, .tid = 1, .mra = {IDS, .answers = 1, .service_timeout = 24}}, NULL);
	put(&(struct vb_cm_msg){.attr = VB_CM_REJ,
	                        .tid = 2,
	                        .rej = {IDS, .answers = 2, .reason = 28, .ari_len = 8, .ari = {1, 2, [71] = 9}}},
	    NULL);
	put(&(struct vb_cm_msg){.attr = VB_CM_REP,
	                        .tid = 3,
	                        .rep = {IDS, .local_qkey = 0x80010001, .local_qpn = 0x00abcd, .local_eecn = 5,
	                                .starting_psn = 0xfedcba, .responder_resources = 4, .initiator_depth = 5,
	                                .target_ack_delay = 15, .failover_accepted = 1, .flow_control = true,
	                                .rnr_retry_count = 7, .srq = true, .local_ca_guid = 0x0a0b0c0d0e0f0102}},
	    NULL);
	put(&(struct vb_cm_msg){.attr = VB_CM_RTU, .tid = 3, .rtu = {IDS}}, NULL);
	put(&(struct vb_cm_msg){.attr = VB_CM_DREQ, .tid = 4, .dreq = {IDS, .remote_qpn = 0x00abcd}}, NULL);
	put(&(struct vb_cm_msg){.attr = VB_CM_DREP, .tid = 4, .drep = {IDS}}, NULL);
	put(&(struct vb_cm_msg){.attr = VB_CM_SIDR_REQ,
	                        .tid = 5,
	                        .sidr_req = {.request_id = 9, .pkey = 0xffff, .service_id = 0x01110007}},
	    NULL);
	put(
	        &(struct vb_cm_msg){
	                .attr = VB_CM_SIDR_REP,
	                .tid = 5,
	                .sidr_rep = {.request_id = 9, .qpn = 0x123, .service_id = 0x01110007, .qkey = 0x1234567}},
	        NULL);
	put(&(struct vb_cm_msg){.attr = VB_CM_LAP, .tid = 6, .lap = {IDS, .remote_qpn = 1}}, NULL);
	put(&(struct vb_cm_msg){.attr = VB_CM_APR, .tid = 6, .apr = {IDS, .status = 2}}, NULL);
}

int main(int argc, char **argv)
{
	if (argc != 3) {
		fprintf(stderr, "usage: dissect_sample PCAP TEXT\n");
		return 2;
	}
	pcap = fopen(argv[1], "wb");
	text = fopen(argv[2], "w");
	CHECK(pcap && text);
	put_file_header();
	put_samples();
	CHECK(!fclose(pcap) && !fclose(text));
	return 0;
}
