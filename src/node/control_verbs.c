// control_verbs.c - the verbs of the control socket: the table, and what a program says about itself
// follows: docs/control.md
// SPDX-License-Identifier: MIT
#include "node/control_verbs.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/node.h"
#include "util/control_dir.h"

#define VERBS_MAX 64u
#define EXPORT __attribute__((visibility("default"))) /* for librdmacm */

/* Entries are only added. An entry is complete when its verb is not NULL. */
static struct {
	const char *_Atomic verb;
	int (*serve)(struct vb_control_call *);
} verbs[VERBS_MAX];
static atomic_uint verbs_taken;

static int (*find_verb(const char *verb))(struct vb_control_call *)
{
	for (unsigned i = 0; i < VERBS_MAX; i++) {
		const char *known = atomic_load_explicit(&verbs[i].verb, memory_order_acquire);

		if (known && !strcmp(known, verb))
			return verbs[i].serve;
	}
	return NULL;
}

EXPORT bool vb_control_add(const char *verb, int (*serve)(struct vb_control_call *))
{
	if (find_verb(verb))
		return find_verb(verb) == serve;
	unsigned i = atomic_fetch_add(&verbs_taken, 1);
	if (i >= VERBS_MAX) {
		atomic_store(&verbs_taken, VERBS_MAX);
		return false;
	}
	verbs[i].serve = serve;
	atomic_store_explicit(&verbs[i].verb, verb, memory_order_release);
	return true;
}

bool vb_control_word(const char *args, const char *key, char *value, size_t size)
{
	size_t n = strlen(key);

	while (*args) {
		size_t len = strcspn(args, " ");

		if (len > n && !strncmp(args, key, n) && args[n] == '=') {
			if (len - n - 1 >= size)
				return false;
			memcpy(value, args + n + 1, len - n - 1);
			value[len - n - 1] = '\0';
			return true;
		}
		args += len;
		args += strspn(args, " ");
	}
	return false;
}

EXPORT bool vb_control_number(const char *args, const char *key, uint64_t *n)
{
	char text[24], *end;

	if (!vb_control_word(args, key, text, sizeof(text)))
		return true;
	if (!isdigit((unsigned char)text[0]))
		return false;
	errno = 0;
	uint64_t value = strtoull(text, &end, 10);
	if (*end || errno)
		return false;
	*n = value;
	return true;
}

static void answer_error(struct vb_text *out, int err, const char *text)
{
	vb_text_free(out);
	vb_text_put(out, "{\"error\": ");
	vb_text_quote(out, text);
	vb_text_format(out, ", \"errno\": %d}\n", err);
}

void vb_control_serve(struct vb_control_call *call)
{
	char *line = call->args + strspn(call->args, " ");
	char *end = line + strcspn(line, " \r");

	call->args = end + strspn(end, " ");
	call->args[strcspn(call->args, "\r")] = '\0';
	*end = '\0';
	call->verb = line;
	int (*serve)(struct vb_control_call *) = find_verb(line);
	if (!serve) {
		answer_error(call->out, EOPNOTSUPP, "this program does not know the verb");
		return;
	}
	int err = serve(call);
	if (!err && call->out->failed)
		err = ENOMEM;
	if (err)
		answer_error(call->out, err, strerror(err));
	else if (!call->out->len)
		vb_text_put(call->out, "{}\n");
}

static void read_comm(char *buf, size_t size)
{
	FILE *f = fopen("/proc/self/comm", "re");

	buf[0] = '\0';
	if (f && fgets(buf, (int)size, f))
		buf[strcspn(buf, "\n")] = '\0';
	if (f)
		fclose(f);
}

int vb_control_about(struct vb_control_call *call)
{
	const struct vb_node *node = call->node;
	char comm[64];

	read_comm(comm, sizeof(comm));
	vb_text_format(call->out, "{\"pid\": %d, \"uid\": %u, \"program\": ", getpid(), (unsigned)geteuid());
	vb_text_quote(call->out, comm);
	vb_text_format(call->out, ", \"version\": \"%s\", \"netns\": %" PRIu64 ", \"lane\": %" PRIu32 "}\n", VB_VERSION,
	               vb_control_netns(), node->lane);
	return 0;
}
