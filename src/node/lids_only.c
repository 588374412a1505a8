// lids_only.c - does the program connect its queue pairs by LIDs alone: reads what the executable imports
// follows: elf(5), dl_iterate_phdr(3), System V gABI chapter 5 (dynamic section, relocations)
// SPDX-License-Identifier: MIT
#include "node/lids_only.h"

#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <string.h>

#include "util/log.h"

#ifdef __LP64__
struct imports {
	bool connects, gids, ports;
};

/* The dynamic section of the executable, which the dynamic linker has read before us. */
struct dynamic {
	const ElfW(Sym) * symbols;
	const char *names;
	size_t names_len;
	const ElfW(Rela) * table[2]; /* of calls, and of other symbols */
	size_t bytes[2];
};

/* The GNU dynamic linker has replaced addresses in the section by those in memory, others leave them as they are. */
static const void *in_memory(const struct dl_phdr_info *info, ElfW(Addr) at)
{
	return (const void *)(at < info->dlpi_addr ? at + info->dlpi_addr : at);
}

static void read_dynamic(const struct dl_phdr_info *info, const ElfW(Dyn) * dyn, struct dynamic *d)
{
	for (; dyn->d_tag != DT_NULL; dyn++) {
		switch (dyn->d_tag) {
		case DT_SYMTAB:
			d->symbols = in_memory(info, dyn->d_un.d_ptr);
			break;
		case DT_STRTAB:
			d->names = in_memory(info, dyn->d_un.d_ptr);
			break;
		case DT_STRSZ:
			d->names_len = dyn->d_un.d_val;
			break;
		case DT_JMPREL:
			d->table[0] = in_memory(info, dyn->d_un.d_ptr);
			break;
		case DT_PLTRELSZ:
			d->bytes[0] = dyn->d_un.d_val;
			break;
		case DT_RELA:
			d->table[1] = in_memory(info, dyn->d_un.d_ptr);
			break;
		case DT_RELASZ:
			d->bytes[1] = dyn->d_un.d_val;
			break;
		default:
			break;
		}
	}
}

/* Each function that the executable imports has a relocation, whatever hash table it has. */
static void read_imports(const struct dynamic *d, int table, struct imports *found)
{
	size_t n = d->table[table] ? d->bytes[table] / sizeof(ElfW(Rela)) : 0;

	for (size_t i = 0; d->symbols && d->names && i < n; i++) {
		const ElfW(Sym) *symbol = &d->symbols[ELF64_R_SYM(d->table[table][i].r_info)];

		if (symbol->st_shndx != SHN_UNDEF || symbol->st_name >= d->names_len)
			continue;
		const char *name = d->names + symbol->st_name;

		if (strncmp(name, "ibv_", 4) != 0 && strncmp(name, "_ibv_", 5) != 0)
			continue;
		found->connects = found->connects || !strcmp(name, "ibv_modify_qp");
		found->gids = found->gids || strstr(name, "gid");
		found->ports = found->ports || !strcmp(name, "ibv_query_port");
	}
}

/* The first object of all is the executable. */
static int look_at_first(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct dynamic d = {0};

	for (unsigned i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			read_dynamic(info, (const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr), &d);
	for (int table = 0; table < 2; table++)
		read_imports(&d, table, arg);
	return 1;
}

bool vb_knows_lids_only(void)
{
	static _Atomic int known; /* 0: not looked at yet; else 1 or 2 for yes */
	int is = known;

	if (!is) {
		struct imports found = {0};

		dl_iterate_phdr(look_at_first, &found);
		known = is = found.connects && found.ports && !found.gids ? 2 : 1;
		if (is == 2)
			vb_log(VB_LOG_INFO,
			       "the program asks for no GID, so its RoCE adapters have LIDs (VERBENA_LIDS=0: they have none)");
	}
	return is == 2;
}
#else
bool vb_knows_lids_only(void)
{
	return false;
}
#endif
