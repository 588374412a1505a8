// xrc_files.c - which XRC domains other processes of this user have open: locks in a file of the runtime directory
// follows: ibv_open_xrcd(3); fcntl(2), open file description locks
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "broker/proto/runtime.h"
#include "core/node.h"
#include "util/runtime.h"
#include "util/sip.h"

/*
 * Each domain that belongs to a file has one byte, whose position is a hash. Its openers have a read lock there, which the
 * kernel releases when the last process with the descriptor has closed it, or has ended. Who can get a write lock is alone.
 */
#define TRIES 1000 /* of a millisecond: others hold a write lock for a moment only */

static int open_lock_file(void)
{
	char dir[256], path[300];
	int err = vb_runtime_dir(dir, sizeof(dir));

	if (err) {
		errno = err;
		return -1;
	}
	snprintf(path, sizeof(path), "%s/xrc-domains", dir);
	return open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY, 0600);
}

static off_t byte_of(const char *device, const struct stat *st)
{
	static const uint64_t key[2] = {0x7672642d646f6d61, 0x696e732d66696c65};
	uint64_t words[3 + 8] = {st->st_dev, st->st_ino, vb_runtime_network()};

	strncpy((char *)&words[3], device, 8 * sizeof(words[0]) - 1);
	return (off_t)(vb_sip(key, words, 3 + 8) >> 2);
}

static int lock_byte(int fd, int operation, short type, off_t at, short *found)
{
	struct flock l = {.l_type = type, .l_whence = SEEK_SET, .l_start = at, .l_len = 1};

	if (fcntl(fd, operation, &l))
		return errno == EACCES ? EAGAIN : errno;
	if (found)
		*found = l.l_type;
	return 0;
}

/* One attempt: 0, the errno values of vb_xrc_file_open, or EBUSY if another process is just looking. */
static int try_lock(int fd, off_t at, int oflags)
{
	short found = F_UNLCK;
	int err = lock_byte(fd, F_OFD_SETLK, F_WRLCK, at, NULL);

	if (!err) /* nobody has the domain */
		return oflags & O_CREAT ? lock_byte(fd, F_OFD_SETLK, F_RDLCK, at, NULL) : EAGAIN;
	if (err != EAGAIN)
		return err;
	if (oflags & O_EXCL) {
		err = lock_byte(fd, F_OFD_GETLK, F_WRLCK, at, &found);
		return err ? err : found == F_RDLCK ? EINVAL : EBUSY;
	}
	err = lock_byte(fd, F_OFD_SETLK, F_RDLCK, at, NULL);
	return err == EAGAIN ? EBUSY : err;
}

int vb_xrc_file_open(const char *device, const struct stat *st, int oflags, int *lock)
{
	const struct timespec moment = {0, 1000000};
	int fd = open_lock_file(), err = EBUSY;
	off_t at = byte_of(device, st);

	*lock = -1;
	VB_MAY_WAIT();
	if (fd < 0) /* nothing of this user reaches another process then */
		return oflags & O_CREAT ? 0 : EAGAIN;
	for (int i = 0; err == EBUSY && i < TRIES; i++) {
		err = try_lock(fd, at, oflags);
		if (err == EBUSY)
			nanosleep(&moment, NULL);
	}
	if (!err) {
		*lock = fd;
		return 0;
	}
	close(fd);
	return err;
}
