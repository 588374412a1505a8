// links_parse.c - the lines of a file that names adapters; any bytes may be in it
// follows: verbena-link(1), FILES
// SPDX-License-Identifier: MIT
#include <string.h>

#include "util/links.h"

#define LINE_MAX_BYTES 512
#define WORDS 16

bool vb_links_is_name(const char *name)
{
	static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-";
	size_t n = strlen(name);

	return n && n < VB_LINKS_NAME && strspn(name, allowed) == n && *name != '.' && *name != '-';
}

bool vb_links_is_netdev(const char *name)
{
	size_t n = strlen(name);

	if (!n || n >= IF_NAMESIZE || !strcmp(name, ".") || !strcmp(name, ".."))
		return false;
	for (; *name; name++)
		if (*name <= ' ' || *name > '~' || *name == '/' || *name == '#')
			return false;
	return true;
}

unsigned vb_links_mtu(const char *text)
{
	static const char *const sizes[] = {"256", "512", "1024", "2048", "4096"};

	for (unsigned i = 0; i < 5; i++)
		if (!strcmp(text, sizes[i]))
			return 256u << i;
	return 0;
}

const struct vb_link *vb_links_of(const struct vb_links *l, const char *netdev, bool iwarp)
{
	for (unsigned i = 0; i < l->n; i++)
		if (l->link[i].iwarp == iwarp && !strcmp(l->link[i].netdev, netdev))
			return &l->link[i];
	return NULL;
}

const struct vb_link *vb_links_named(const struct vb_links *l, const char *name)
{
	for (unsigned i = 0; i < l->n; i++)
		if (!strcmp(l->link[i].name, name))
			return &l->link[i];
	return NULL;
}

/* Cuts the line into words. Returns their number, or -1 if there are too many. */
static int split_words(char *line, char *words[WORDS])
{
	char *rest = NULL;
	int n = 0;

	for (char *w = strtok_r(line, " \t", &rest); w; w = strtok_r(NULL, " \t", &rest)) {
		if (n == WORDS)
			return -1;
		words[n++] = w;
	}
	return n;
}

static const char *read_setting(struct vb_link *k, unsigned *seen, const char *key, const char *value)
{
	static const char *const keys[] = {"type", "netdev", "mtu", "state"};
	unsigned i = 0;

	while (i < 4 && strcmp(key, keys[i]) != 0)
		i++;
	if (i == 4)
		return "an unknown word; after the name come type, netdev, mtu and state, each with a value";
	if (*seen & 1u << i)
		return "a setting is there twice";
	*seen |= 1u << i;
	if (!value)
		return "the last setting has no value";
	switch (i) {
	case 0:
		k->iwarp = !strcmp(value, "iwarp");
		return k->iwarp || !strcmp(value, "roce") ? NULL : "the type is none of roce, iwarp and ib";
	case 1:
		if (!vb_links_is_netdev(value))
			return "netdev is no name of an interface";
		strcpy(k->netdev, value);
		return NULL;
	case 2:
		k->mtu = vb_links_mtu(value);
		return k->mtu ? NULL : "the mtu is none of 256, 512, 1024, 2048 and 4096";
	default:
		k->down = !strcmp(value, "down");
		return k->down || !strcmp(value, "up") ? NULL : "the state is neither up nor down";
	}
}

const char *vb_links_set_ib(struct vb_link_ib *k, const char *key, const char *value)
{
	char *to = !strcmp(key, "fabric") ? k->fabric : !strcmp(key, "node") ? k->node : k->secret;
	size_t most = to == k->node ? sizeof(k->node) : sizeof(k->fabric);

	if (to == k->secret && strcmp(key, "secret") != 0)
		return "an unknown word; with type ib come fabric, node and secret, each with a value";
	if (*to)
		return "a setting is there twice";
	if (!value || !*value)
		return "a setting has no value";
	if (strlen(value) >= most)
		return "a value is too long";
	strcpy(to, value);
	return NULL;
}

static const char *read_ib(struct vb_links *l, char **words, int n, unsigned line)
{
	struct vb_link_ib k = {.line = line};
	const char *why = NULL;

	for (int i = 2; i < n && !why; i += 2)
		if (strcmp(words[i], "type") != 0)
			why = vb_links_set_ib(&k, words[i], i + 1 < n ? words[i + 1] : NULL);
	if (why)
		return why;
	if (strcmp(words[1], VB_LINKS_IB) != 0)
		return "an adapter of type ib is called " VB_LINKS_IB;
	if (!*k.fabric)
		return "fabric is missing";
	if (l->ib.line || vb_links_named(l, VB_LINKS_IB))
		return "an earlier line has the same name";
	l->ib = k;
	return NULL;
}

static bool is_ib(char **words, int n)
{
	for (int i = 2; i + 1 < n; i += 2)
		if (!strcmp(words[i], "type") && !strcmp(words[i + 1], "ib"))
			return true;
	return false;
}

static const char *read_link(struct vb_links *l, char **words, int n, unsigned line)
{
	struct vb_link k = {.line = line};
	unsigned seen = 0;

	if (n < 2 || !vb_links_is_name(words[1]))
		return "no name of an adapter: letters, digits, _ . and -, 63 at most";
	if (is_ib(words, n))
		return read_ib(l, words, n, line);
	strcpy(k.name, words[1]);
	for (int i = 2; i < n; i += 2) {
		const char *why = read_setting(&k, &seen, words[i], i + 1 < n ? words[i + 1] : NULL);

		if (why)
			return why;
	}
	if ((seen & 3) != 3)
		return "type or netdev is missing";
	if (vb_links_named(l, k.name) || (l->ib.line && !strcmp(k.name, VB_LINKS_IB)))
		return "an earlier line has the same name";
	if (vb_links_of(l, k.netdev, k.iwarp))
		return "an earlier line has an adapter of this type on the same interface";
	if (l->n == VB_LINKS_MAX)
		return "the file names more than 256 adapters";
	l->link[l->n++] = k;
	return NULL;
}

static const char *read_line(struct vb_links *l, char *line, unsigned number)
{
	char *words[WORDS];
	int n;

	line[strcspn(line, "#")] = '\0';
	n = split_words(line, words);
	if (!n)
		return NULL;
	if (n < 0)
		return "too many words";
	if (!strcmp(words[0], "link"))
		return read_link(l, words, n, number);
	if (strcmp(words[0], "automatic") != 0)
		return "a line begins with link, automatic or #";
	if (n != 2 || (strcmp(words[1], "on") != 0 && strcmp(words[1], "off") != 0))
		return "after automatic comes on or off";
	l->automatic = !strcmp(words[1], "on");
	l->automatic_line = number;
	return NULL;
}

unsigned vb_links_parse(struct vb_links *l, const char *text, size_t len, vb_links_complain *complain, void *arg)
{
	unsigned wrong = 0, number = 1;

	l->automatic = true;
	l->automatic_line = l->n = 0;
	l->ib.line = 0;
	for (const char *end = text + len; text < end; number++) {
		const char *newline = memchr(text, '\n', (size_t)(end - text));
		size_t n = (size_t)((newline ? newline : end) - text);
		char line[LINE_MAX_BYTES];
		const char *why = NULL;

		if (!newline) {
			why = "the file ends in this line, which has no newline: it was cut off";
		} else if (n >= sizeof(line)) {
			why = "the line is longer than 511 bytes";
		} else if (memchr(text, '\0', n)) {
			why = "the line has a zero byte";
		} else {
			memcpy(line, text, n);
			line[n] = '\0';
			why = read_line(l, line, number);
		}
		if (why) {
			wrong++;
			if (complain)
				complain(arg, number, why);
		}
		text += n + 1;
		if (!newline)
			break;
	}
	return wrong;
}
