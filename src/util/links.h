// links.h - the files that name adapters: what `verbena link` writes and every program reads
// follows: verbena-link(1)
// SPDX-License-Identifier: MIT
#ifndef VB_UTIL_LINKS_H
#define VB_UTIL_LINKS_H

#include <net/if.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VB_LINKS_MAX 256         /* lines that name an adapter */
#define VB_LINKS_FILE_MAX 65536u /* bytes of a file */
#define VB_LINKS_NAME 64         /* IBV_SYSFS_NAME_MAX */
#define VB_LINKS_ROOM 4352       /* bytes for the path of a file */

/* A line of the file: "link NAME type roce|iwarp netdev INTERFACE [mtu BYTES] [state up|down]". */
struct vb_link {
	char name[VB_LINKS_NAME], netdev[IF_NAMESIZE];
	bool iwarp, down;
	unsigned mtu;  /* 0: the interface's */
	unsigned line; /* its number, from 1 */
};

/* The line of the adapter on an InfiniBand fabric, for `verbena run`:
 * "link ib0 type ib fabric SOCKET|udp:HOST[:PORT] [node NODE] [secret FILE]". */
#define VB_LINKS_IB "ib0"
struct vb_link_ib {
	char fabric[192], node[68], secret[192]; /* as VERBENA_FABRIC, VERBENA_NODE and VERBENA_FABRIC_SECRET */
	unsigned line;                           /* 0: there is none */
};

struct vb_links {
	bool automatic;          /* interfaces without a RoCE line have their RoCE adapter: "automatic off" ends that */
	unsigned automatic_line; /* the last line that says so, or 0 */
	unsigned n;
	struct vb_link link[VB_LINKS_MAX];
	struct vb_link_ib ib;
};

/* Is told each line that is wrong. line is 0 if the file as a whole is meant. */
typedef void vb_links_complain(void *arg, unsigned line, const char *why);

/* Reads the bytes of a file. Lines that are wrong are left out. complain may be NULL. Returns the number of wrong
 * lines. */
unsigned vb_links_parse(struct vb_links *l, const char *text, size_t len, vb_links_complain *complain, void *arg);

bool vb_links_is_name(const char *name);
bool vb_links_is_netdev(const char *name);
/* 256, 512, 1024, 2048 or 4096; 0 if the text is none of them. */
unsigned vb_links_mtu(const char *text);

/* One of its settings. Returns why it is wrong, or NULL. */
const char *vb_links_set_ib(struct vb_link_ib *k, const char *key, const char *value);

/* The line of the adapter of an interface, or NULL. */
const struct vb_link *vb_links_of(const struct vb_links *l, const char *netdev, bool iwarp);
const struct vb_link *vb_links_named(const struct vb_links *l, const char *name);

/* The paths of the system's file and of the user's. The user's is false if there is no home, and in a program with more
 * privileges than its caller. */
void vb_links_system_path(char path[VB_LINKS_ROOM]);
bool vb_links_user_path(char path[VB_LINKS_ROOM]);

/* The file that programs read: the user's if it exists, else the system's. False if there is neither. */
bool vb_links_chosen_path(char path[VB_LINKS_ROOM]);

/* Reads a file whole. The caller frees *text. 0 or an errno value; why is the reason in words: ENOENT if it does not
 * exist, EPERM if somebody else could have written it. */
int vb_links_read(const char *path, char **text, size_t *len, const char **why);

/* Reads and parses the chosen file. No file, or one that cannot be read: automatic adapters alone. named: wrong lines
 * and files are logged. Returns their number. path is set, to "" if there is no file. */
unsigned vb_links_load(struct vb_links *l, char path[VB_LINKS_ROOM], bool named);

/* Reads and parses the file at this path. 0 or an errno value, which leaves *l as it is. wrong: the number of lines. */
int vb_links_load_from(struct vb_links *l, const char *path, unsigned *wrong);

#endif
