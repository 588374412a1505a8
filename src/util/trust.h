// trust.h - the owner of a directory, and the message if it is another user
// follows: path_resolution(7), stat(2)
// SPDX-License-Identifier: MIT
#ifndef VB_UTIL_TRUST_H
#define VB_UTIL_TRUST_H

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Is it a directory of this user that nobody else can write? */
static inline bool vb_trust_is_private(const struct stat *st, uid_t user)
{
	return S_ISDIR(st->st_mode) && st->st_uid == user && !(st->st_mode & 022);
}

/* Describes why path is not such a directory of ours: names it and its owner. Returns false if it is one, or does
 * not exist. */
static inline bool vb_trust_has_complaint(const char *path, char *text, size_t size)
{
	struct stat st;

	if (lstat(path, &st)) {
		if (errno == ENOENT)
			return false;
		snprintf(text, size, "%s: %s", path, strerror(errno));
	} else if (!S_ISDIR(st.st_mode)) {
		snprintf(text, size, "%s is no directory but %s of user %u", path,
		         S_ISLNK(st.st_mode) ? "a link" : "a file", (unsigned)st.st_uid);
	} else if (st.st_uid != geteuid()) {
		snprintf(text, size, "%s belongs to user %u, not to this program's user %u", path, (unsigned)st.st_uid,
		         (unsigned)geteuid());
	} else if (st.st_mode & 022) {
		snprintf(text, size, "%s can be written by other users (mode %04o)", path,
		         (unsigned)st.st_mode & 07777);
	} else {
		return false;
	}
	return true;
}

#endif
