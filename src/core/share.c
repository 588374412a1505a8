// share.c - the file behind context->cmd_fd: who has it imports the device, and the objects of its owner
// follows: ibv_import_device(3); memfd_create(2), fcntl(2) (F_SEAL_FUTURE_WRITE)
// SPDX-License-Identifier: MIT
#include "core/share.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/node.h"

#define TEXT 4096u
#define SLOTS 65536u
_Static_assert(SLOTS > VB_MAX_PD, "each protection domain has a slot");

struct vb_share_file {
	char text[TEXT]; /* "verbena device NAME lane N incarnation N\n", then zeros */
	_Atomic uint32_t pd[SLOTS];
};

static struct vb_share *share_new(int fd, bool writable)
{
	struct vb_share *s = calloc(1, sizeof(*s));
	struct stat st;

	if (!s || fstat(fd, &st)) {
		free(s);
		return NULL;
	}
	s->map = mmap(NULL, sizeof(*s->map), writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
	if (s->map == MAP_FAILED) {
		free(s);
		return NULL;
	}
	s->file[0] = st.st_dev;
	s->file[1] = st.st_ino;
	s->writable = writable;
	s->refs = 1;
	return s;
}

static void share_free(struct vb_share *s)
{
	munmap(s->map, sizeof(*s->map));
	free(s);
}

/* Under ctx_lock. */
static void list_share(struct vb_node *node, struct vb_share *s)
{
	s->next = node->shares;
	node->shares = s;
}

int vb_share_new(struct vb_node *node, const char *device, struct vb_share **out, int *fd_out)
{
	int fd = memfd_create("verbena-context", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct vb_share *s = fd < 0 || ftruncate(fd, sizeof(*s->map)) ? NULL : share_new(fd, true);

	if (!s) {
		int err = errno;

		if (fd >= 0)
			close(fd);
		return err;
	}
	s->lane = node->lane;
	s->incarnation = node->incarnation;
	snprintf(s->map->text, sizeof(s->map->text), "verbena device %s lane %" PRIu32 " incarnation %" PRIu64 "\n",
	         device, s->lane, s->incarnation);
	/* from here on nobody else can write it. Linux before 5.1 does not know the last seal */
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE))
		fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
	vb_mutex_lock(&node->ctx_lock, VB_RANK_CONTEXTS);
	list_share(node, s);
	vb_mutex_unlock(&node->ctx_lock);
	*out = s;
	*fd_out = fd;
	return 0;
}

bool vb_share_parse(const char *bytes, size_t n, struct vb_share_text *text)
{
	const char *line_end = memchr(bytes, '\n', n);
	char line[256];
	int end = 0;

	if (!line_end || (size_t)(line_end - bytes) >= sizeof(line))
		return false;
	memcpy(line, bytes, (size_t)(line_end - bytes));
	line[line_end - bytes] = '\0';
	_Static_assert(IBV_SYSFS_NAME_MAX == 64, "as in the format");
	if (sscanf(line, "verbena device %63s lane %" SCNu32 " incarnation %" SCNu64 "%n", text->device, &text->lane,
	           &text->incarnation, &end) != 3)
		return false;
	return end > 0 && !line[end];
}

int vb_share_read(int fd, struct vb_share_text *text)
{
	char bytes[512];
	struct stat st;

	if (fstat(fd, &st))
		return errno;
	int seals = S_ISREG(st.st_mode) ? fcntl(fd, F_GET_SEALS) : -1;

	/* without the seal its owner could shorten it, and an access would raise SIGBUS */
	if (seals < 0 || !(seals & F_SEAL_SHRINK) || (uint64_t)st.st_size < sizeof(struct vb_share_file))
		return EOPNOTSUPP;
	ssize_t n = pread(fd, bytes, sizeof(bytes), 0);
	return n > 0 && vb_share_parse(bytes, (size_t)n, text) ? 0 : EOPNOTSUPP;
}

/* Under ctx_lock. */
static struct vb_share *find_share(struct vb_node *node, const struct stat *st)
{
	struct vb_share *s = node->shares;

	while (s && (s->file[0] != st->st_dev || s->file[1] != st->st_ino))
		s = s->next;
	return s;
}

int vb_share_open(struct vb_node *node, int fd, struct vb_share **out)
{
	struct vb_share_text text;
	struct stat st;
	int err = vb_share_read(fd, &text);

	if (err)
		return err;
	if (fstat(fd, &st))
		return errno;
	struct vb_share *made = share_new(fd, false);
	if (!made)
		return errno ? errno : ENOMEM;
	made->lane = text.lane;
	made->incarnation = text.incarnation;
	vb_mutex_lock(&node->ctx_lock, VB_RANK_CONTEXTS);
	struct vb_share *s = find_share(node, &st);
	if (s)
		s->refs++;
	else
		list_share(node, made);
	vb_mutex_unlock(&node->ctx_lock);
	if (s)
		share_free(made);
	*out = s ? s : made;
	return 0;
}

void vb_share_put(struct vb_node *node, struct vb_share *share)
{
	if (!share)
		return;
	vb_mutex_lock(&node->ctx_lock, VB_RANK_CONTEXTS);
	bool last = !--share->refs;
	if (last) {
		struct vb_share **at = &node->shares;

		while (*at != share)
			at = &(*at)->next;
		*at = share->next;
	}
	vb_mutex_unlock(&node->ctx_lock);
	if (last)
		share_free(share);
}

bool vb_share_is_ours(const struct vb_node *node, const struct vb_share *share)
{
	/* what another process has written says nothing about us */
	return share->writable && share->lane == node->lane && share->incarnation == node->incarnation;
}

void vb_share_enter(struct vb_share *share, uint32_t handle)
{
	if (!share->writable)
		return;
	for (uint32_t i = 0; i < SLOTS; i++) {
		uint32_t none = 0;

		if (atomic_compare_exchange_strong(&share->map->pd[(handle + i) % SLOTS], &none, handle))
			return;
	}
}

/* The slot of a handle, or SLOTS. */
static uint32_t share_slot(const struct vb_share *share, uint32_t handle)
{
	for (uint32_t i = 0; i < SLOTS; i++)
		if (atomic_load_explicit(&share->map->pd[(handle + i) % SLOTS], memory_order_relaxed) == handle)
			return (handle + i) % SLOTS;
	return SLOTS;
}

void vb_share_remove(struct vb_share *share, uint32_t handle)
{
	uint32_t slot = share->writable ? share_slot(share, handle) : SLOTS;

	if (slot < SLOTS)
		atomic_store(&share->map->pd[slot], 0);
}

bool vb_share_has(const struct vb_share *share, uint32_t handle)
{
	return handle && share_slot(share, handle) < SLOTS;
}
