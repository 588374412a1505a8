// iwarp.c - shared by the tests of iWARP's connections: counters, and private data
// see: path/iwarp/cm.h
// SPDX-License-Identifier: MIT
#include "iwarp.h"

#include <dirent.h>

struct vb_iwcm_stats stats(void)
{
	struct vb_iwcm_stats s;

	vb_iwcm_stats(&s);
	return s;
}

void lives(uint64_t n)
{
	for (int i = 0; i < 4000 && stats().live != n; i++)
		sleep_ms(5);
	SAME(stats().live, n);
}

void reaches(uint64_t n, size_t counter)
{
	struct vb_iwcm_stats s;

	for (int i = 0; i < 4000; i++) {
		s = stats();
		if (*(uint64_t *)((char *)&s + counter) >= n)
			break;
		sleep_ms(5);
	}
	SAME(*(uint64_t *)((char *)&s + counter), n);
}

bool data_is(const struct rdma_cm_event *e, const char *text)
{
	return e->param.conn.private_data_len == strlen(text) &&
	       !memcmp(e->param.conn.private_data, text, strlen(text));
}

struct rdma_conn_param words(const char *text, uint8_t responder_resources, uint8_t initiator_depth)
{
	return (struct rdma_conn_param){.private_data = text,
	                                .private_data_len = (uint8_t)strlen(text),
	                                .responder_resources = responder_resources,
	                                .initiator_depth = initiator_depth};
}

unsigned descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	CHECK(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}
