// run_elf.c - whether the dynamic linker of a program will load Verbena's libraries
// follows: elf(5), ld.so(8)
// SPDX-License-Identifier: MIT
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/run_paths.h"

enum { HEADERS_MAX = 64, DYNAMIC_MAX = 512 };

static bool read_at(int fd, void *to, size_t n, off_t at)
{
	return pread(fd, to, n, at) == (ssize_t)n;
}

/* The name of this launcher's own dynamic linker, without its directory. NULL if it has none. */
static const char *own_linker(void)
{
	const ElfW(Phdr) *ph = (const void *)getauxval(AT_PHDR);
	size_t n = getauxval(AT_PHNUM);
	const char *base = NULL;

	for (size_t i = 0; ph && i < n; i++) /* the linker knows where it has put this program */
		if (ph[i].p_type == PT_PHDR)
			base = (const char *)ph - ph[i].p_vaddr;
	for (size_t i = 0; base && i < n; i++)
		if (ph[i].p_type == PT_INTERP)
			return strrchr(base + ph[i].p_vaddr, '/');
	return NULL;
}

/* A position independent program, and not a library that can be executed, as the dynamic linker itself. */
static bool is_pie(int fd, const ElfW(Phdr) * dynamic)
{
	ElfW(Dyn) d;

	for (size_t i = 0; i < DYNAMIC_MAX && (i + 1) * sizeof(d) <= dynamic->p_filesz; i++) {
		if (!read_at(fd, &d, sizeof(d), (off_t)(dynamic->p_offset + i * sizeof(d))) || d.d_tag == DT_NULL)
			return false;
		if (d.d_tag == DT_FLAGS_1)
			return d.d_un.d_val & DF_1_PIE;
	}
	return false;
}

static const char *other_linker(int fd, const ElfW(Phdr) * interp)
{
	char name[PATH_MAX];
	const char *own = own_linker(), *its;

	if (!own || !interp->p_filesz || interp->p_filesz > sizeof(name) ||
	    !read_at(fd, name, interp->p_filesz, (off_t)interp->p_offset) || name[interp->p_filesz - 1])
		return NULL;
	its = strrchr(name, '/');
	return its && strcmp(its, own) != 0 ? "is for another C library" : NULL;
}

static const char *judge(int fd)
{
	ElfW(Ehdr) e;
	ElfW(Phdr) ph;
	static const unsigned char own_class = sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32;
	bool is_program;

	if (!read_at(fd, &e, sizeof(e), 0) || memcmp(e.e_ident, ELFMAG, SELFMAG) != 0)
		return NULL;
	if (e.e_ident[EI_CLASS] != own_class)
		return own_class == ELFCLASS64 ? "is a 32-bit program" : "is a 64-bit program";
	is_program = e.e_type == ET_EXEC;
	for (unsigned i = 0; i < e.e_phnum && i < HEADERS_MAX; i++) {
		if (!read_at(fd, &ph, sizeof(ph), (off_t)(e.e_phoff + (uint64_t)i * e.e_phentsize)))
			return NULL;
		if (ph.p_type == PT_INTERP)
			return other_linker(fd, &ph);
		if (ph.p_type == PT_DYNAMIC && e.e_type == ET_DYN)
			is_program = is_pie(fd, &ph);
	}
	return is_program ? "is statically linked" : NULL;
}

const char *run_elf_refusal(const char *path)
{
	struct stat st;
	const char *why;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0)
		return NULL;
	why = fstat(fd, &st) || !S_ISREG(st.st_mode) ? NULL : judge(fd);
	close(fd);
	return why;
}
