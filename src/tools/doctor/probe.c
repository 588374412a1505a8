// probe.c - requests of connection management to a service that nobody has: a rejection shows a live RoCE peer
// follows: IBA volume 1, 12.6.7 (REJ, reason 8); rdma_connect(3)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "frame/hello.h"
#include "tools/doctor/doctor.h"
#include "tools/doctor/verbs.h"

#define PROBES 10
#define GIVE_UP 3 /* losses without any answer before */
#define PROBE_MS 1000
#define NOBODY 1 /* a port of rdma_cm without a listener */

struct prober {
	struct doc_verbs v;
	struct rdma_event_channel *ch;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct sockaddr_storage to;
	char version[VB_HELLO_VERSION_LEN]; /* of a peer on Verbena, or "" */
};

static void set_probe_port(struct sockaddr_storage *to, uint16_t port)
{
	if (to->ss_family == AF_INET6)
		((struct sockaddr_in6 *)to)->sin6_port = htons(port);
	else
		((struct sockaddr_in *)to)->sin_port = htons(port);
}

/* Waits for an event of this id. False after a line on standard error if another one came. */
static bool expect_event(struct prober *p, enum rdma_cm_event_type want, const char *what)
{
	struct doc_event e;
	int err = doc_verbs_event(&p->v, p->ch, 2 * PROBE_MS, &e);

	if (!err && e.type == want)
		return true;
	fprintf(stderr, "%s: %s\n", what, strerror(err ? err : e.status < 0 ? -e.status : EHOSTUNREACH));
	return false;
}

static bool resolve_peer(struct prober *p, struct rdma_cm_id *id)
{
	if (p->v.rdma_resolve_addr(id, NULL, (struct sockaddr *)&p->to, PROBE_MS)) {
		fprintf(stderr, "the address cannot be resolved: %s\n", strerror(errno));
		return false;
	}
	if (!expect_event(p, RDMA_CM_EVENT_ADDR_RESOLVED, "the address cannot be resolved"))
		return false;
	if (p->v.rdma_resolve_route(id, PROBE_MS)) {
		fprintf(stderr, "no route: %s\n", strerror(errno));
		return false;
	}
	return expect_event(p, RDMA_CM_EVENT_ROUTE_RESOLVED, "no route");
}

/* Returns the time to an answer in microseconds, 0 if there was none, or -1 after a line on standard error. */
static int64_t probe_once(struct prober *p)
{
	struct rdma_conn_param param = {
	        .retry_count = 1, .private_data = VB_HELLO_ASK, .private_data_len = VB_HELLO_LEN};
	struct rdma_cm_id *id;
	struct doc_event e;
	int64_t us = -1;

	if (p->v.rdma_create_id(p->ch, &id, NULL, RDMA_PS_TCP))
		return -1;
	if (resolve_peer(p, id)) {
		int err = doc_verbs_queue_pair(&p->v, id, &p->pd, &p->cq);
		int64_t began = doc_now_us();

		if (err || p->v.rdma_connect(id, &param)) {
			fprintf(stderr, "no request can be sent: %s\n", strerror(err ? err : errno));
		} else {
			err = doc_verbs_event(&p->v, p->ch, PROBE_MS, &e);
			if (!err && e.type == RDMA_CM_EVENT_REJECTED)
				vb_hello_read(e.private_data, sizeof(e.private_data), p->version);
			us = err || e.type == RDMA_CM_EVENT_UNREACHABLE ? 0 : doc_now_us() - began + 1;
		}
		if (id->qp)
			p->v.rdma_destroy_qp(id);
	}
	p->v.rdma_destroy_id(id);
	return us;
}

/* In a child. Writes "PROBES ANSWERS LEAST SUM VERSION". */
static int probe_many(int out, void *arg)
{
	struct prober p = {.to = *(struct sockaddr_storage *)arg};
	int n = 0, answers = 0;
	long long least = 0, sum = 0;

	if (!doc_verbs_load(&p.v))
		return 1;
	p.ch = p.v.rdma_create_event_channel();
	if (!p.ch)
		return 1;
	set_probe_port(&p.to, NOBODY);
	while (n < PROBES && (answers || n < GIVE_UP)) {
		int64_t us = probe_once(&p);

		if (us < 0)
			return 1;
		n++;
		if (!us)
			continue;
		answers++;
		sum += us;
		least = !least || us < least ? us : least;
	}
	return dprintf(out, "%d %d %lld %lld %s", n, answers, least, sum, *p.version ? p.version : "-") < 0;
}

/* A peer that answers: what it is, as far as it can be told. */
static void find_kind(const struct sockaddr *to, const char *name, const char *version)
{
	const char *maker = doc_maker_of(to);

	if (strcmp(version, "-") != 0)
		doc_find(DOC_OK, "kind", NULL, "%s is Verbena %s%s", name, version,
		         strcmp(version, VB_VERSION) != 0 ? ", another version than this one, " VB_VERSION : "");
	else
		doc_find(
		        DOC_OK, "kind", NULL,
		        "%s is another RoCE adapter: hardware, the kernel's rxe, or a Verbena before this question%s%s",
		        name, maker ? "; its network card is of " : "", maker ? maker : "");
}

/* A peer that does not answer requests. */
static void find_silence(const struct sockaddr *to, const char *name, int n, bool reachable, const char *device)
{
	enum doc_port port = doc_roce_port(to);
	const char *
	        why = reachable ? "the host is there, but has no RoCE, or a firewall drops the packets"
	                        : "nobody is there, or a firewall drops everything",
	       *mend = reachable
	                       ? "on that host: verbena doctor; let its firewall, and those between, accept UDP port 4791; "
	                         "keep a program on Verbena (or verbena-broker --stay) running there"
	                       : "ping the host; look at its cable, its address and the firewalls between";

	if (port == DOC_PORT_CLOSED) {
		why = "the port is closed (ICMP port unreachable): the host is there, but has no RoCE now; no program on "
		      "Verbena runs there, and the kernel's rxe is not loaded";
		mend = "on that host: keep a program on Verbena (or verbena-broker --stay) running, or rdma link add ... type rxe";
	} else if (port == DOC_PORT_FORBIDDEN) {
		why = "a firewall forbids it (ICMP administratively prohibited, or host unreachable)";
		mend = "let the firewall of that host, and those between, accept UDP port 4791";
	}
	doc_find(DOC_FAIL, "peer", mend, "%s did not answer %d requests to RoCE's UDP port 4791 from %s: %s", name, n,
	         device, why);
}

static void find_answers(const struct sockaddr *to, const char *said, const char *name, bool reachable,
                         const char *device)
{
	char version[VB_HELLO_VERSION_LEN] = "-";
	int n = 0, answers = 0;
	long long least = 0, sum = 0;

	if (sscanf(said, "%d %d %lld %lld %31s", &n, &answers, &least, &sum, version) != 5)
		return;
	if (!answers) {
		find_silence(to, name, n, reachable, device);
		return;
	}
	if (answers < n)
		doc_find(DOC_WARN, "peer", "look for a bad cable, a full queue or a shaper (ip -s link; tc -s qdisc)",
		         "%s: %d of %d requests had no answer (%d %% lost); latency of the others %lld us (least %lld)",
		         name, n - answers, n, 100 * (n - answers) / n, sum / answers, least);
	else
		doc_find(
		        DOC_OK, "peer", NULL,
		        "%s answers as a RoCE peer with connection management: %d of %d requests, latency %lld us (least %lld)",
		        name, answers, n, sum / answers, least);
	find_kind(to, name, version);
}

void doc_probe_roce(const struct sockaddr *to, const char *name, bool reachable, const char *device)
{
	struct sockaddr_storage copy = {0};
	struct doc_child c;

	memcpy(&copy, to, to->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in));
	int status = doc_child_run(&c, probe_many, &copy, (PROBES + 5) * PROBE_MS, "requests to the peer");

	if (status)
		doc_find(
		        DOC_FAIL, "peer",
		        reachable
		                ? "verbena doctor, for this host"
		                : "is the host up? ip neigh shows whether it answers on its network; verbena doctor, for this host",
		        "%s cannot be asked: %s", name,
		        *doc_child_complaint(&c) ? doc_child_complaint(&c)
		                                 : "the program that asks did not end in time");
	else
		find_answers(to, c.said, name, reachable, device);
}
