// collect_filter.c - filters frames by expressions of libpcap, which is loaded if there is one
// follows: pcap-filter(7), pcap_compile(3), dlopen(3)
// SPDX-License-Identifier: MIT
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/collect.h"
#include "tools/verbena.h"

#ifdef VB_HAVE_PCAP
#include <pcap/pcap.h>

/* libpcap is not linked, because it needs libibverbs: `verbena run` would load an adapter for itself. */
#define LIBPCAP "libpcap.so.0.8"

struct cap_filter {
	void *library;
	pcap_t *pcap;
	struct bpf_program program;
	int (*match)(const struct bpf_program *, const struct pcap_pkthdr *, const u_char *);
	void (*close)(pcap_t *);
	void (*free_code)(struct bpf_program *);
};

static void *symbol_of(void *library, const char *name, bool *ok)
{
	void *p = dlsym(library, name);

	*ok = *ok && p;
	return p;
}

static bool compile_filter(struct cap_filter *f, const char *command, const char *text)
{
	bool ok = true;
	pcap_t *(*open_dead)(int, int) = symbol_of(f->library, "pcap_open_dead", &ok);
	int (*compile)(pcap_t *, struct bpf_program *, const char *, int, bpf_u_int32) =
	        symbol_of(f->library, "pcap_compile", &ok);
	char *(*geterr)(pcap_t *) = symbol_of(f->library, "pcap_geterr", &ok);

	f->match = symbol_of(f->library, "pcap_offline_filter", &ok);
	f->close = symbol_of(f->library, "pcap_close", &ok);
	f->free_code = symbol_of(f->library, "pcap_freecode", &ok);
	if (!ok) {
		cmd_complain(command, "--filter: " LIBPCAP " lacks a function");
		return false;
	}
	f->pcap = open_dead(DLT_EN10MB, VB_CAPTURE_FRAME_MAX);
	if (!f->pcap || compile(f->pcap, &f->program, text, 1, PCAP_NETMASK_UNKNOWN)) {
		cmd_complain(command, "--filter '%s': %s (pcap-filter(7) describes expressions)", text,
		             f->pcap ? geterr(f->pcap) : "no memory");
		return false;
	}
	return true;
}

struct cap_filter *cap_filter_new(const char *command, const char *text)
{
	struct cap_filter *f = calloc(1, sizeof(*f));

	if (f)
		f->library = dlopen(LIBPCAP, RTLD_NOW | RTLD_LOCAL);
	if (f && f->library && compile_filter(f, command, text))
		return f;
	if (!f || !f->library)
		cmd_complain(command, "--filter needs " LIBPCAP ": install libpcap0.8");
	cap_filter_free(f);
	return NULL;
}

bool cap_filter_match(const struct cap_filter *f, const uint8_t *bytes, uint32_t captured, uint32_t length)
{
	const struct pcap_pkthdr head = {.caplen = captured, .len = length};

	return f->match(&f->program, &head, bytes) != 0;
}

void cap_filter_free(struct cap_filter *f)
{
	if (f && f->program.bf_insns)
		f->free_code(&f->program);
	if (f && f->pcap)
		f->close(f->pcap);
	free(f); /* the library stays: unloading libibverbs with it is not safe */
}
#else
struct cap_filter *cap_filter_new(const char *command, const char *text)
{
	cmd_complain(command, "--filter: this verbena was built without libpcap");
	return NULL;
}

bool cap_filter_match(const struct cap_filter *f, const uint8_t *bytes, uint32_t captured, uint32_t length)
{
	return true;
}

void cap_filter_free(struct cap_filter *f)
{
}
#endif
