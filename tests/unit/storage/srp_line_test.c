// srp_line_test.c - lines that name a SRP target: what Linux's ib_srp takes, and what it refuses
// follows: Linux Documentation/ABI/stable/sysfs-driver-ib_srp, add_target
// SPDX-License-Identifier: MIT
#include <errno.h>

#include "../../support/check.h"
#include "tools/srp_line.h"

#define TARGET "id_ext=0002c90300001234,ioc_guid=0002c90300005678"
#define BY_GID TARGET ",dgid=fe80000000000000005e4b010000000d,pkey=ffff,service_id=00000000013f15b3"
#define BY_IP TARGET ",dest=192.0.2.1:5555"

static struct vd_srp_line line;
static char why[100], url[200];

static int parse(const char *text)
{
	return vd_srp_line_parse(text, &line, why, sizeof(why));
}

static const char *url_of(const char *text, int lun)
{
	CHECK(!parse(text));
	vd_srp_line_url(&line, lun, url, sizeof(url));
	return url;
}

static void a_line_by_gid_or_by_ip_names_a_disk(void)
{
	CHECK(!strcmp(url_of(BY_GID, 3),
	              "srp://[fe80::5e:4b01:0:d]/0002c90300001234:0002c90300005678?service=13f15b3&pkey=ffff&lun=3"));
	CHECK(!strcmp(url_of(BY_GID "\n", -1),
	              "srp://[fe80::5e:4b01:0:d]/0002c90300001234:0002c90300005678?service=13f15b3&pkey=ffff"));
	CHECK(!strcmp(url_of(BY_IP, 0), "srp://192.0.2.1:5555/0002c90300001234:0002c90300005678?lun=0"));
	CHECK(!strcmp(url_of(TARGET ",dest=[2001:db8::1]:5555,src=[2001:db8::2]", -1),
	              "srp://[2001:db8::1]:5555/0002c90300001234:0002c90300005678"));
}

static void options_are_read_and_checked(void)
{
	CHECK(!parse(BY_IP
	             ",,max_sect=64,queue_size=0x10,ch_count=010,tl_retry_count=2,io_class=0100,cmd_sg_entries=255"));
	SAME(line.max_sect, 64);
	SAME(line.queue_size, 16);
	SAME(line.ch_count, 8);
	SAME(line.tl_retry_count, 2);
	CHECK(!parse(BY_IP ",max_it_iu_size=0,sg_tablesize=2048,comp_vector=1,allow_ext_sg=1,target_can_queue=1,"
	                   "max_cmd_per_lun=1,initiator_ext=0x1"));
	SAME(line.initiator_ext, 1);
	static const char *const wrong[] = {
	        "queue_size=0",      "tl_retry_count=1",
	        "tl_retry_count=8",  "cmd_sg_entries=256",
	        "sg_tablesize=2049", "ch_count=0",
	        "max_sect=",         "max_sect=1x",
	        "max_sect",          "nothing=1",
	        "io_class=ff00",     "comp_vector=-1",
	        "id_ext=",           "id_ext=g",
	        "dgid=fe80",         "dgid=fe80000000000000005e4b01000000zz",
	        "dest=192.0.2.1",    "dest=192.0.2.1:99999",
	        "dest=host:5555",    "dest=[2001:db8::1:5555",
	        "dest=[]:1",         "pkey=10000",
	        "src=host",
	};
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		char text[300];

		snprintf(text, sizeof(text), "%s,%s", BY_IP, wrong[i]);
		SAME(parse(text), EINVAL);
	}
	SAME(parse(BY_IP ",id_ext=10000000000000000"), ERANGE);
	SAME(parse(BY_IP ",max_sect=4294967296"), ERANGE);
}

static void a_line_without_a_target_is_refused(void)
{
	static char longest[5000];

	SAME(parse(""), EINVAL);
	SAME(parse(TARGET), EINVAL);
	SAME(parse("id_ext=1,dest=192.0.2.1:5555"), EINVAL);
	SAME(parse(TARGET ",dgid=fe80000000000000005e4b010000000d,pkey=ffff"), EINVAL);
	memset(longest, ',', sizeof(longest) - 1);
	SAME(parse(longest), EINVAL);
}

static void the_same_target_is_seen(void)
{
	struct vd_srp_line first;

	CHECK(!parse(BY_GID));
	first = line;
	CHECK(!parse(BY_GID ",max_sect=8") && vd_srp_line_same(&first, &line));
	CHECK(!parse(BY_GID ",initiator_ext=1") && !vd_srp_line_same(&first, &line));
	CHECK(!parse(BY_IP) && !vd_srp_line_same(&first, &line));
	first = line;
	CHECK(!parse(TARGET ",dest=192.0.2.1:5556") && !vd_srp_line_same(&first, &line));
}

int main(void)
{
	RUN(a_line_by_gid_or_by_ip_names_a_disk);
	RUN(options_are_read_and_checked);
	RUN(a_line_without_a_target_is_refused);
	RUN(the_same_target_is_seen);
	return 0;
}
