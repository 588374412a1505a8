// resources.c - the objects of the running programs, for RDMA netlink
// follows: docs/control.md; rdma-resource(8)
// SPDX-License-Identifier: MIT
#include "tools/shim/resources.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/shim/next.h"
#include "tools/shim/programs.h"
#include "util/control_dir.h"

#define PAGES_MOST 1024u /* answers of one program: 256 objects each */

static const char *const verbs[] = {[VB_SHIM_QP] = "qps",
                                    [VB_SHIM_CM_ID] = "connections",
                                    [VB_SHIM_CQ] = "cqs",
                                    [VB_SHIM_MR] = "mrs",
                                    [VB_SHIM_PD] = "pds"};

struct search {
	DIR *dir;
	enum vb_shim_kind kind;
	const char *device;
	vb_shim_take_resource *take;
	void *arg;
	uint32_t ids; /* of connections: so many have been taken */
};

/* Takes the rows of an answer, one in each line. Returns where the next answer begins, 0 if there is none. */
static uint64_t take_page(struct search *s, int pid, char *text)
{
	static const char next[] = "], \"next\": ";
	struct vb_shim_resource r;
	uint64_t from = 0;
	char *save;

	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		const char *more = strstr(line, next);

		if (more)
			from = strtoull(more + strlen(next), NULL, 10);
		if (!vb_shim_resource_read(s->kind, s->device, line, &r))
			continue;
		r.pid = (uint32_t)pid;
		if (s->kind == VB_SHIM_CM_ID)
			r.id = ++s->ids;
		s->take(s->arg, &r);
	}
	return from;
}

/* A program with many objects answers in parts. */
static void take_objects(void *arg, const char *name, int pid, const char *text)
{
	struct search *s = arg;
	char request[64], *copy = text ? strdup(text) : NULL;
	uint64_t from = copy ? take_page(s, pid, copy) : 0, last = 0;

	free(copy);
	for (unsigned pages = 1; from > last && pages < PAGES_MOST; pages++) {
		snprintf(request, sizeof(request), "%s from=%" PRIu64 "\n", verbs[s->kind], from);
		char *more = vb_shim_ask_program(s->dir, name, request);

		last = from;
		from = more ? take_page(s, pid, more) : 0;
		free(more);
	}
}

APART void vb_shim_resources(enum vb_shim_kind kind, const char *device, vb_shim_take_resource *take, void *arg)
{
	struct search s = {.kind = kind, .device = device, .take = take, .arg = arg};
	int saved = errno, dir_fd;
	char request[24];

	if (!vb_control_dir_open(false, &dir_fd)) {
		s.dir = fdopendir(dir_fd);
		snprintf(request, sizeof(request), "%s\n", verbs[kind]);
		if (s.dir) {
			vb_shim_ask_programs(s.dir, request, take_objects, &s);
			closedir(s.dir);
		} else {
			close(dir_fd);
		}
	}
	errno = saved;
}
