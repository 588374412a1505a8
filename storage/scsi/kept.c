// kept.c - persistent reservations in a file, for registrations that survive the target (APTPL)
// follows: SPC-4, 5.13.5 (preserving persistent reservations)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "scsi/internal.h"

static const char head[] = "SCSI reservations 1\n";

/* ---- out ---- */

static bool sync_directory(const char *file)
{
	char *copy = strdup(file), *slash = copy ? strrchr(copy, '/') : NULL;
	int fd = -1;

	if (slash) {
		*slash = '\0';
		fd = open(*copy ? copy : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	}
	bool done = fd >= 0 && !fsync(fd);

	if (fd >= 0)
		close(fd);
	free(copy);
	return done;
}

/* A line for each registrant; "*": the reservation is its. */
static bool print_state(const struct sc_lu *lu, FILE *f)
{
	fprintf(f, "%stype %u\n", head, lu->type);
	for (unsigned i = 0; i < SC_REGISTRATIONS; i++) {
		const struct sc_registration *r = &lu->registrations[i];

		if (!r->key)
			continue;
		for (unsigned k = 0; k < SC_PORT_ID; k++)
			fprintf(f, "%02x", r->port[k]);
		fprintf(f, " %016" PRIx64 "%s\n", r->key, lu->type && lu->held == r ? " *" : "");
	}
	return !fflush(f) && !fsync(fileno(f));
}

/* A new file, whatever has its name now: a link to another file, for example. */
static FILE *make_file(const char *name)
{
	if (unlink(name) && errno != ENOENT)
		return NULL;
	int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	FILE *f = fd < 0 ? NULL : fdopen(fd, "w");

	if (!f && fd >= 0)
		close(fd);
	return f;
}

/* The old file or the new one is there at any time. */
static bool replace_file(const struct sc_lu *lu)
{
	char *next;

	if (asprintf(&next, "%s.new", lu->kept) < 0)
		return false;
	FILE *f = make_file(next);
	bool done = f && print_state(lu, f);

	if (f && fclose(f))
		done = false;
	done = done && !rename(next, lu->kept) && sync_directory(lu->kept);
	free(next);
	return done;
}

bool sc_kept_write(struct sc_lu *lu)
{
	if (!lu->kept)
		return true;
	if (lu->aptpl)
		return replace_file(lu);
	return unlink(lu->kept) ? errno == ENOENT : sync_directory(lu->kept);
}

/* ---- in ---- */

static bool read_registrant(struct sc_lu *lu, unsigned n, const char *line)
{
	struct sc_registration *r = &lu->registrations[n];
	char port[2 * SC_PORT_ID + 1], star[2] = "";

	if (n >= SC_REGISTRATIONS || sscanf(line, "%32[0-9a-f] %16" SCNx64 " %1[*]", port, &r->key, star) < 2 ||
	    strlen(port) != 2 * SC_PORT_ID || !r->key)
		return false;
	for (unsigned k = 0; k < SC_PORT_ID; k++) {
		unsigned byte;

		sscanf(port + 2 * k, "%2x", &byte);
		r->port[k] = (uint8_t)byte;
	}
	if (*star && lu->held)
		return false;
	if (*star)
		lu->held = r;
	return true;
}

static bool read_state(struct sc_lu *lu, FILE *f)
{
	char line[80];
	unsigned type, n = 0;

	if (!fgets(line, sizeof(line), f) || strcmp(line, head) != 0 || !fgets(line, sizeof(line), f) ||
	    sscanf(line, "type %u", &type) != 1 || type == 2 || type == 4 || type > 8)
		return false;
	while (fgets(line, sizeof(line), f))
		if (!read_registrant(lu, n++, line))
			return false;
	lu->type = (uint8_t)type;
	return !lu->type == !lu->held;
}

/* A user who may write there could add and remove registrations. */
static int check_directory(const char *directory)
{
	struct stat st;

	if (stat(directory, &st))
		return errno;
	if (!S_ISDIR(st.st_mode))
		return ENOTDIR;
	return st.st_uid != geteuid() || st.st_mode & 022 ? EPERM : 0;
}

/* Two units of one medium have one identifier. */
static bool another_has_file(const struct sc_lu *lu)
{
	for (unsigned i = 0; i < SC_LUNS; i++) {
		const struct sc_lu *other = lu->target->lus[i];

		if (other && other != lu && other->kept && other->id == lu->id)
			return true;
	}
	return false;
}

int sc_keep(struct sc_lu *lu, const char *directory)
{
	int error = check_directory(directory);

	if (error)
		return error;
	if (another_has_file(lu))
		return EEXIST;
	if (asprintf(&lu->kept, "%s/%016" PRIx64 ".reservations", directory, lu->id) < 0) {
		lu->kept = NULL;
		return ENOMEM;
	}
	FILE *f = fopen(lu->kept, "re");

	if (!f)
		return errno == ENOENT ? 0 : errno;
	lu->aptpl = read_state(lu, f);
	fclose(f);
	return lu->aptpl ? 0 : EINVAL;
}
