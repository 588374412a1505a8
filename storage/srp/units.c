// units.c - the logical units of verbena-srp-target: opens images, and changes the units while initiators use them
// see: man/verbena-srp-target.8
// SPDX-License-Identifier: MIT
#include "srp/units.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "target/program.h"
#include "target/size.h"

/* ---- images ---- */

static int open_backend(const struct sp_units *u, const char *what, struct nb_backend **b)
{
	struct nb_config c = {.readonly = u->readonly, .buffered = u->buffered, .block = u->block};
	const char *colon = strchr(what, ':');
	struct stat st;

	if (colon && (!strncmp(what, "memory:", 7) || !strncmp(what, "null:", 5))) {
		c.kind = *what == 'm' ? "memory" : "null";
		return nt_size_parse(colon + 1, &c.size) ? nb_open(&c, u->ring, b) : EINVAL;
	}
	if (stat(what, &st))
		return errno;
	c.path = what;
	c.kind = S_ISBLK(st.st_mode) ? "block" : u->mapped ? "mapped" : "file";
	return nb_open(&c, u->ring, b);
}

static const char *error_of_state(int error)
{
	switch (error) {
	case EPERM:
		return "the directory is another user's, or others may write to it";
	case EEXIST:
		return "another unit is the same medium, and has its file";
	case EINVAL:
		return "the file cannot be understood";
	default:
		return strerror(error);
	}
}

bool sp_unit_add(struct sp_units *u, unsigned lun, const char *image, char why[SP_WHY])
{
	if (!strncmp(image, "rbd:", 4)) {
		snprintf(why, SP_WHY, "only verbena-target serves images of Ceph");
		return false;
	}
	struct sc_target *t = &u->target->scsi;
	char seed[4096 + 300] = "", *name = strdup(image);
	struct nb_backend *b = NULL;
	int error = name ? open_backend(u, image, &b) : ENOMEM;

	gethostname(seed, 255);
	snprintf(seed + strlen(seed), sizeof(seed) - strlen(seed), " %u %s", lun, image);
	if (!error && (error = sc_lu_add(t, lun, b, seed)))
		nb_close(b);
	if (error) {
		snprintf(why, SP_WHY, "%s", strerror(error));
		free(name);
		return false;
	}
	free(u->names[lun]);
	u->names[lun] = name;
	if (u->state && (error = sc_keep(t->lus[lun], u->state))) {
		snprintf(why, SP_WHY, "--state: reservations that are kept: %s", error_of_state(error));
		sc_lu_remove(t->lus[lun]);
		return false;
	}
	return true;
}

void sp_units_free(struct sp_units *u)
{
	for (unsigned i = 0; i < SC_LUNS; i++)
		free(u->names[i]);
}

/* ---- commands ---- */

static char *say(const char *format, ...) __attribute__((format(printf, 1, 2)));
static char *say(const char *format, ...)
{
	char *answer = NULL;
	va_list ap;

	va_start(ap, format);
	int n = vasprintf(&answer, format, ap);

	va_end(ap);
	return n < 0 ? NULL : answer;
}

static char *list_units(const struct sp_units *u)
{
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	if (!f)
		return NULL;
	for (unsigned i = 0; i < SC_LUNS; i++) {
		const struct sc_lu *lu = u->target->scsi.lus[i];

		if (lu)
			fprintf(f, "%u %llu %u %s\n", i, (unsigned long long)lu->backend->size, lu->backend->block,
			        u->names[i]);
	}
	return fclose(f) ? NULL : text;
}

static char *add_unit(struct sp_units *u, char *args)
{
	char *rest, *image = strtok_r(args, " ", &rest), *number = strtok_r(NULL, " ", &rest), why[SP_WHY];
	struct sc_target *t = &u->target->scsi;
	uint64_t lun = 0;

	if (!image || strtok_r(NULL, " ", &rest) || (number && !nt_number_parse(number, 10, SC_LUNS - 1, &lun)))
		return say("error: add IMAGE [LUN]\n");
	while (!number && lun < SC_LUNS && t->lus[lun])
		lun++;
	if (lun == SC_LUNS || t->lus[lun])
		return say("error: %s\n", lun == SC_LUNS ? "there are too many units" : "there is such a unit");
	if (!sp_unit_add(u, (unsigned)lun, image, why))
		return say("error: %.300s: %s\n", image, why);
	sc_luns_changed(t);
	sp_report_luns(u->target);
	return say("%u\n", (unsigned)lun);
}

static struct sc_lu *unit_named(const struct sp_units *u, const char *text)
{
	uint64_t lun;

	return nt_number_parse(text, 10, SC_LUNS - 1, &lun) ? u->target->scsi.lus[lun] : NULL;
}

static char *remove_unit(struct sp_units *u, const char *number)
{
	struct sc_lu *lu = unit_named(u, number);

	if (!lu)
		return say("error: there is no such unit\n");
	sc_lu_remove(lu);
	sc_luns_changed(&u->target->scsi);
	sp_report_luns(u->target);
	return say("ok\n");
}

static char *resize_unit(struct sp_units *u, const char *number)
{
	struct sc_lu *lu = unit_named(u, number);
	bool changed;

	if (!lu)
		return say("error: there is no such unit\n");
	int error = sc_lu_resize(lu, &changed);

	if (error)
		return say("error: %s\n", strerror(error));
	if (changed)
		sp_report_capacity(u->target, lu->number);
	return say("%llu\n", (unsigned long long)lu->backend->size);
}

char *sp_units_answer(struct sp_units *u, char *line)
{
	if (!strcmp(line, "list"))
		return list_units(u);
	if (!strncmp(line, "add ", 4))
		return add_unit(u, line + 4);
	if (!strncmp(line, "remove ", 7))
		return remove_unit(u, line + 7);
	if (!strncmp(line, "resize ", 7))
		return resize_unit(u, line + 7);
	return say("error: list, add IMAGE [LUN], remove LUN, resize LUN, or stop\n");
}
