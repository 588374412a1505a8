// script.c - reads VERBENA_FAULT and scenario files
// see: man/verbena-fault.1
// SPDX-License-Identifier: MIT
#include "fault/script.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LEGACY_SEED 0

static bool complain_of(struct vb_fault_complaint *c, const char *name, const char *what)
{
	snprintf(c->line, sizeof(c->line), "%.120s: %s", name, what);
	return false;
}

/* A rule comes from a file or another user: what it quotes does not reach a terminal's escape sequences. */
static void hide_unprintable(char *text)
{
	for (; *text; text++)
		if (*text < ' ' || *text > '~')
			*text = '?';
}

/* where: "rule 2" or "line 7". */
static bool complain_of_rule(struct vb_fault_complaint *c, const char *name, const char *where, const char *text,
                             size_t len, const struct vb_fault_error *err)
{
	snprintf(c->line, sizeof(c->line), "%.100s: %s \"%.*s\", character %zu: %s", name, where,
	         len < 100 ? (int)len : 100, text, err->at + 1, err->text);
	hide_unprintable(c->line);
	return false;
}

static struct vb_fault_step *add_step(struct vb_fault_script *s)
{
	if (s->n == VB_FAULT_STEPS_MAX)
		return NULL;
	struct vb_fault_step *more = realloc(s->steps, (s->n + 1) * sizeof(*more));

	if (!more)
		return NULL;
	s->steps = more;
	more[s->n] = (struct vb_fault_step){0};
	return &more[s->n++];
}

void vb_fault_script_free(struct vb_fault_script *s)
{
	free(s->steps);
	*s = (struct vb_fault_script){0};
}

static void trim_text(const char **text, size_t *len)
{
	while (*len && (**text == ' ' || **text == '\t')) {
		++*text;
		--*len;
	}
	while (*len && strchr(" \t\r", (*text)[*len - 1]))
		--*len;
}

static bool add_rule(struct vb_fault_script *s, struct vb_fault_complaint *c, const char *name, const char *where,
                     const char *text, size_t len, uint64_t at)
{
	struct vb_fault_step *step = add_step(s);
	struct vb_fault_error err;

	if (!step)
		return complain_of(c, name, "too many rules: at most 256");
	step->at = at;
	return vb_fault_parse(text, len, &step->rule, &err) || complain_of_rule(c, name, where, text, len, &err);
}

/* --- the older form: loss=1,dup=5,reorder=5,corrupt=0.1,seed=7, in percent --- */

static const char *const old_names[][2] = {
        {"loss=", "drop"}, {"dup=", "duplicate"}, {"reorder=", "reorder"}, {"corrupt=", "corrupt"}, {"seed=", NULL}};
enum { OLD_NAMES = sizeof(old_names) / sizeof(old_names[0]) };

static bool is_old_form(const char *text)
{
	for (int i = 0; i < OLD_NAMES; i++)
		if (!strncmp(text, old_names[i][0], strlen(old_names[i][0])))
			return true;
	return false;
}

static bool old_number(const char *text, double most, double *out)
{
	char *end;

	*out = vb_fault_strtod(text, &end);
	return end != text && !*end && *out >= 0 && *out <= most;
}

static bool read_old_word(struct vb_fault_script *s, const char *word, unsigned long long *seed)
{
	char rule[96];
	struct vb_fault_error err;
	double percent;
	int i = 0;

	while (i < OLD_NAMES && strncmp(word, old_names[i][0], strlen(old_names[i][0])) != 0)
		i++;
	if (i == OLD_NAMES)
		return false;
	word += strlen(old_names[i][0]);
	if (!old_names[i][1]) {
		char *end;

		*seed = strtoull(word, &end, 0);
		return end != word && !*end;
	}
	if (!old_number(word, 100, &percent))
		return false;
	struct vb_fault_step *step = percent > 0 ? add_step(s) : NULL;

	uint32_t billionths = (uint32_t)(percent * 1e7 + 0.5); /* not %f, whose point depends on the program's locale */
	snprintf(rule, sizeof(rule), "%s p=%u.%09u path=roce", old_names[i][1], billionths / 1000000000,
	         billionths % 1000000000);
	return percent == 0 || (step && vb_fault_parse(rule, strlen(rule), &step->rule, &err));
}

static bool read_old_form(const char *name, const char *text, struct vb_fault_script *s, struct vb_fault_complaint *c)
{
	unsigned long long seed = LEGACY_SEED;
	char *copy = strdup(text), *rest = copy, said[320];

	for (char *word; copy && (word = strsep(&rest, ","));) {
		if (!*word || read_old_word(s, word, &seed))
			continue;
		snprintf(
		        said, sizeof(said),
		        "\"%.60s\" is not loss=, dup=, reorder= or corrupt= and a percentage from 0 to 100, or seed= and a number",
		        word);
		hide_unprintable(said);
		free(copy);
		return complain_of(c, name, said);
	}
	free(copy);
	for (unsigned i = 0; i < s->n; i++) { /* each rule has numbers of its own */
		s->steps[i].rule.has_seed = true;
		s->steps[i].rule.seed = seed + i;
	}
	return true;
}

/* --- rules with ; between them --- */

static bool read_new_form(const char *name, const char *text, struct vb_fault_script *s, struct vb_fault_complaint *c)
{
	unsigned n = 0;

	for (const char *next; text; text = next) {
		const char *end = strchrnul(text, ';'), *at = text;
		size_t len = (size_t)(end - text);
		char where[32];

		next = *end ? end + 1 : NULL;
		trim_text(&at, &len);
		if (!len)
			continue;
		snprintf(where, sizeof(where), "rule %u", ++n);
		if (!add_rule(s, c, name, where, at, len, 0))
			return false;
	}
	return true;
}

bool vb_fault_read_rules(const char *name, const char *text, struct vb_fault_script *s, struct vb_fault_complaint *c)
{
	*s = (struct vb_fault_script){0};
	if (is_old_form(text) ? read_old_form(name, text, s, c) : read_new_form(name, text, s, c))
		return true;
	vb_fault_script_free(s);
	return false;
}

/* --- a scenario --- */

/* Takes the next word of the line if it is this one. */
static bool skip_word(const char **text, size_t *len, const char *word)
{
	size_t n = strlen(word);

	if (*len < n || memcmp(*text, word, n) != 0 || (*len > n && (*text)[n] != ' ' && (*text)[n] != '\t'))
		return false;
	*text += n;
	*len -= n;
	trim_text(text, len);
	return true;
}

/* A time is what delay= takes, or 0. */
static bool take_time(const char **text, size_t *len, uint64_t *at)
{
	char probe[80];
	size_t n = 0;
	struct vb_fault_rule rule;
	struct vb_fault_error err;

	while (n < *len && (*text)[n] != ' ' && (*text)[n] != '\t')
		n++;
	if (n > 40)
		return false;
	snprintf(probe, sizeof(probe), "drop after=%.*s", (int)n, *text);
	if (!vb_fault_parse(probe, strlen(probe), &rule, &err))
		return false;
	*at = rule.after;
	*text += n;
	*len -= n;
	trim_text(text, len);
	return true;
}

static bool take_id(const char *text, size_t len, unsigned *id)
{
	unsigned n = 0;

	if (len == 3 && !memcmp(text, "all", 3)) {
		*id = 0;
		return true;
	}
	for (size_t i = 0; i < len; i++) {
		if (text[i] < '0' || text[i] > '9' || n > 1000000)
			return false;
		n = n * 10 + (unsigned)(text[i] - '0');
	}
	*id = n;
	return n > 0;
}

static bool read_scenario_line(struct vb_fault_script *s, struct vb_fault_complaint *c, const char *name, unsigned line,
                               const char *text, size_t len)
{
	struct vb_fault_error err = {0};
	const char *whole = text;
	size_t whole_len = len;
	uint64_t at = 0;
	char where[32];

	snprintf(where, sizeof(where), "line %u", line);
	if (skip_word(&text, &len, "at") && !take_time(&text, &len, &at)) {
		err.at = (size_t)(text - whole);
		snprintf(err.text, sizeof(err.text), "a time is a number and a unit, ns, us, ms, s or m");
		return complain_of_rule(c, name, where, whole, whole_len, &err);
	}
	if (!skip_word(&text, &len, "remove")) {
		skip_word(&text, &len, "add");
		return add_rule(s, c, name, where, text, len, at);
	}
	struct vb_fault_step *step = add_step(s);

	if (!step)
		return complain_of(c, name, "too many steps: at most 256");
	step->at = at;
	step->removes = true;
	if (take_id(text, len, &step->remove))
		return true;
	err.at = (size_t)(text - whole);
	snprintf(err.text, sizeof(err.text), "remove takes a rule's number (the first rule is 1) or all");
	return complain_of_rule(c, name, where, whole, whole_len, &err);
}

/* Keeps the order of steps of one time. */
static void sort_steps(struct vb_fault_script *s)
{
	for (unsigned i = 1; i < s->n; i++)
		for (unsigned j = i; j && s->steps[j].at < s->steps[j - 1].at; j--) {
			struct vb_fault_step t = s->steps[j];

			s->steps[j] = s->steps[j - 1];
			s->steps[j - 1] = t;
		}
}

bool vb_fault_read_scenario(const char *name, const char *text, size_t len, struct vb_fault_script *s,
                            struct vb_fault_complaint *c)
{
	const char *end = text + len;
	unsigned line = 0;

	*s = (struct vb_fault_script){0};
	while (text < end) {
		const char *stop = memchr(text, '\n', (size_t)(end - text)), *at = text;

		stop = stop ? stop : end;
		const char *hash = memchr(text, '#', (size_t)(stop - text));
		size_t n = (size_t)((hash ? hash : stop) - text);

		text = stop + (stop < end);
		line++;
		trim_text(&at, &n);
		if (!n || read_scenario_line(s, c, name, line, at, n))
			continue;
		vb_fault_script_free(s);
		return false;
	}
	sort_steps(s);
	return true;
}

static bool read_whole_file(const char *path, char *text, size_t *len, int *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat st;
	ssize_t n = -1;

	*len = 0;
	*err = 0;
	if (fd >= 0 && !fstat(fd, &st) && !S_ISREG(st.st_mode))
		*err = EISDIR;
	while (fd >= 0 && !*err && *len < VB_FAULT_FILE_MAX &&
	       (n = read(fd, text + *len, VB_FAULT_FILE_MAX - *len)) > 0)
		*len += (size_t)n;
	if (!*err && n < 0)
		*err = errno;
	if (fd >= 0)
		close(fd);
	return !*err;
}

bool vb_fault_read_file(const char *path, struct vb_fault_script *s, struct vb_fault_complaint *c)
{
	char *text = malloc(VB_FAULT_FILE_MAX);
	size_t len;
	int err = ENOMEM;

	*s = (struct vb_fault_script){0};
	bool done = text && read_whole_file(path, text, &len, &err);

	if (!done)
		complain_of(c, path,
		            err == EISDIR ? "this is not a regular file: give a file of rules" : strerror(err));
	else if (len == VB_FAULT_FILE_MAX)
		done = complain_of(c, path, "the file is too long: at most 64 KiB");
	else
		done = vb_fault_read_scenario(path, text, len, s, c);
	free(text);
	return done;
}

bool vb_fault_read_env(const char *value, struct vb_fault_script *s, struct vb_fault_complaint *c)
{
	return value[0] == '@' ? vb_fault_read_file(value + 1, s, c)
	                       : vb_fault_read_rules("VERBENA_FAULT", value, s, c);
}
