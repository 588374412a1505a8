// secret.c - the text forms of secrets that administrators exchange
// follows: NVM Express Base 2.0, 8.13.5.8; NVMe/TCP transport specification 1.0, 3.6.1.5; RFC 4648, 4 (base64)
// SPDX-License-Identifier: MIT
#include "nvme/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "frame/crc32.h"
#include "nvme/le.h"

#define CRC_LEN 4u

/* The value of a digit, or -1. Without a table, so that cache lines reveal nothing about the secret. */
static int base64_digit(char c)
{
	int upper = c >= 'A' && c <= 'Z', lower = c >= 'a' && c <= 'z', number = c >= '0' && c <= '9';

	return -1 + upper * (c - 'A' + 1) + lower * (c - 'a' + 27) + number * (c - '0' + 53) + (c == '+') * 63 +
	       (c == '/') * 64;
}

/* Decodes whole groups of four, in canonical form, so that each secret has one text. Returns the length, or -1:
 * invalid, or more than max. */
static int base64_decode(const char *text, size_t len, uint8_t *out, size_t max)
{
	size_t pad = len >= 2 && text[len - 1] == '=' ? 1u + (text[len - 2] == '=') : 0, n = 0;

	if (!len || len % 4 || len / 4 * 3 - pad > max)
		return -1;
	for (size_t i = 0; i < len; i += 4) {
		size_t here = i + 4 == len ? 3 - pad : 3;
		uint32_t v = 0;

		for (size_t k = 0; k < 4; k++) {
			int d = k <= here ? base64_digit(text[i + k]) : 0;

			if (d < 0)
				return -1;
			v = v << 6 | (uint32_t)d;
		}
		if (v & (here == 3 ? 0 : here == 2 ? 0xff : 0xffff))
			return -1;
		for (size_t k = 0; k < here; k++)
			out[n++] = (uint8_t)(v >> (16 - 8 * k));
	}
	return (int)n;
}

static bool parse_secret(const char *text, const char *prefix, unsigned hashes, size_t longest, struct nv_secret *out)
{
	size_t skip = strlen(prefix);
	uint8_t raw[NV_SECRET_MAX + CRC_LEN];
	bool good = false;

	if (strncmp(text, prefix, skip) || text[skip] != '0' || text[skip + 1] < '0' ||
	    text[skip + 1] >= '0' + (int)hashes || text[skip + 2] != ':')
		return false;
	const char *code = text + skip + 3, *end = strchr(code, ':');
	int n = end && !end[1 + strspn(end + 1, " \t\r\n")]
	                ? base64_decode(code, (size_t)(end - code), raw, sizeof(raw))
	                : -1;
	size_t len = n > (int)CRC_LEN ? (size_t)n - CRC_LEN : 0;
	uint8_t hash = (uint8_t)(text[skip + 1] - '0');

	if ((len == 32 || len == 48 || len == 64) && len <= longest && vb_crc32(0, raw, len) == nv_get32(raw + len)) {
		*out = (struct nv_secret){.length = (uint8_t)len, .hash = hash};
		memcpy(out->bytes, raw, len);
		good = true;
	}
	explicit_bzero(raw, sizeof(raw));
	return good;
}

bool nv_secret_parse(const char *text, struct nv_secret *out)
{
	return parse_secret(text, "DHHC-1:", 4, 64, out);
}

bool nv_tls_key_parse(const char *text, struct nv_secret *out)
{
	return parse_secret(text, "NVMeTLSkey-1:", 3, 48, out);
}

bool nv_secret_same(const struct nv_secret *a, const struct nv_secret *b)
{
	uint8_t differ = (uint8_t)((a->length ^ b->length) | (a->hash ^ b->hash));

	for (size_t i = 0; i < NV_SECRET_MAX; i++)
		differ |= a->bytes[i] ^ b->bytes[i];
	return !differ;
}

void nv_secret_wipe(struct nv_secret *s)
{
	explicit_bzero(s, sizeof(*s));
}

bool nv_secret_exposed(const char *path)
{
	struct stat st;

	return !stat(path, &st) && S_ISREG(st.st_mode) && (st.st_mode & S_IROTH);
}

/* Rejects a file that everybody can write. */
static int check_file(int fd)
{
	struct stat st;

	return fstat(fd, &st) ? errno : S_ISREG(st.st_mode) && (st.st_mode & S_IWOTH) ? EPERM : 0;
}

int nv_secret_file(const char *path, char text[NV_SECRET_TEXT_MAX])
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), error = fd < 0 ? errno : check_file(fd);
	size_t n = 0;

	while (!error && n < NV_SECRET_TEXT_MAX) {
		ssize_t k = read(fd, text + n, NV_SECRET_TEXT_MAX - n);

		if (k < 0 && errno != EINTR)
			error = errno;
		if (!k)
			break;
		n += k > 0 ? (size_t)k : 0;
	}
	if (fd >= 0)
		close(fd);
	size_t line = 0;

	while (line < n && !strchr("\r\n", text[line])) /* strchr finds the final zero, too */
		line++;
	if (!error && (!line || line >= NV_SECRET_TEXT_MAX))
		error = EINVAL;
	if (error)
		explicit_bzero(text, NV_SECRET_TEXT_MAX);
	else
		explicit_bzero(text + line, NV_SECRET_TEXT_MAX - line);
	return error;
}
