// topology_test.c - texts and shapes as fabrics: what is read, and why a wrong one is refused
// follows: ibnetdiscover(8), the output format
// SPDX-License-Identifier: MIT
#include "../../support/check.h"
#include "fabric/topology.h"

static const struct vb_fabric_ops no_ops;

static const char good[] =
        "vendid=0x2c9\ndevid=0xbd36\nsysimgguid=0x2c902400003\nswitchguid=0x2c902400000(2c902400000)\n"
        "Switch\t8 \"S-0002c90240000000\"\t\t# \"leaf one\" base port 0 lid 3 lmc 0\n"
        "[1]\t\"H-0002c90300000000\"[1](2c90300000001) \t\t# \"alpha HCA-1\" lid 4 4xQDR\n"
        "[8]\t\"H-0002c90300000010\"[2](2c90300000012) \t\t# \"beta HCA-1\" lid 5 1xSDR\n\n"
        "vendid=0x2c9\ncaguid=0x2c90300000000\n"
        "Ca\t2 \"H-0002c90300000000\"\t\t# \"alpha HCA-1\"\n"
        "[1](2c90300000001) \t\"S-0002c90240000000\"[1]\t\t# lid 4 lmc 0 \"leaf one\" lid 3 4xQDR\n\n"
        "Ca\t2 \"H-0002c90300000010\"\t\t# \"beta HCA-1\"\n"
        "[2](2c90300000012) \t\"S-0002c90240000000\"[8]\t\t# lid 5 lmc 0 \"leaf one\" lid 3 1xSDR\n";

static struct vb_fabric *read_text(const char *text, struct vb_topology_error *e)
{
	struct vb_fabric *f = vb_fabric_new(&no_ops, NULL);

	CHECK(f);
	if (vb_topology_read(f, text, strlen(text), e))
		return f;
	SAME(f->count, 0);
	vb_fabric_free(f);
	return NULL;
}

static void ibnetdiscovers_own_output_is_read(void)
{
	struct vb_topology_error e;
	struct vb_fabric *f = read_text(good, &e);

	CHECK(f);
	SAME(f->count, 3);
	struct vb_fabric_node *sw = vb_fabric_find(f, "S-0002c90240000000"), *b = vb_fabric_find(f, "beta HCA-1");
	CHECK(sw && b && sw->sw && !b->sw);
	CHECK(vb_fabric_find(f, "beta") == b && vb_fabric_find(f, "0x2c90300000010") == b);
	SAME(sw->guid, 0x2c902400000);
	SAME(sw->vendor_id, 0x2c9);
	CHECK(!strcmp(sw->desc, "leaf one"));
	CHECK(sw->port[8].peer == &b->port[2] && b->port[2].peer == &sw->port[8]);
	SAME(b->port[2].guid, 0x2c90300000012);
	vb_fabric_train_all(f);
	SAME(sw->port[8].info.state, VB_PORT_INIT);
	SAME(sw->port[2].info.state, VB_PORT_DOWN);
	SAME(sw->port[8].info.width_active, 1);
	SAME(sw->port[8].info.speed_active, 1);
	SAME(sw->port[1].info.speed_active, 4);
	vb_fabric_free(f);
}

static void a_wrong_text_is_refused_with_its_line_and_the_reason(void)
{
	static const struct {
		const char *text;
		unsigned line;
		const char *reason;
	} cases[] = {
	        {"", 0, "no node"},
	        {"hello\n", 1, "not a node"},
	        {"[1] \"x\"[1]\n", 1, "before the first node"},
	        {"Switch \"x\"\n", 1, "number of ports is missing"},
	        {"Switch 0 \"x\"\n", 1, "1 to 254"},
	        {"Switch 255 \"x\"\n", 1, "1 to 254"},
	        {"Switch 8 x\n", 1, "name of the node"},
	        {"vendid=0x1000000\nSwitch 8 \"x\"\n", 1, "24 bits"},
	        {"devid=x\nSwitch 8 \"x\"\n", 1, "no number"},
	        {"colour=1\n", 1, "no such setting"},
	        {"Switch 8 \"x\"\n[9] \"y\"[1]\nCa 1 \"y\"\n", 2, "ports 1 to 8"},
	        {"Switch 8 \"x\"\n[1] \"y\"[1]\n", 2, "no \"y\""},
	        {"Switch 8 \"x\"\n[1] \"y\"[2]\n\nCa 1 \"y\"\n", 2, "ports 1 to 1"},
	        {"Switch 8 \"x\"\n[1] \"x\"[1]\n", 2, "ends where it begins"},
	        {"Switch 8 \"x\"\n[1] \"y\"[1]\n[1] \"y\"[2]\n\nCa 2 \"y\"\n", 3, "in line 2 already"},
	        {"Switch 8 \"x\"\n[1] \"y\"[1]\n\nCa 2 \"y\"\n[1] \"x\"[2]\n", 2, "line 5 says"},
	        {"Switch 8 \"x\"\n[1] \"y\"[1]\n[2] \"y\"[1]\n\nCa 2 \"y\"\n", 3, "two cables"},
	        {"Switch 8 \"x\"\n\nSwitch 8 \"x\"\n", 3, "line 1 already"},
	        {"switchguid=0x7\nSwitch 8 \"x\"\ncaguid=0x7\nCa 1 \"y\"\n", 4, "GUID 0x7 is that of line 2"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct vb_topology_error e = {.line = 99};

		if (read_text(cases[i].text, &e))
			CHECK_FAILED("case %zu was read", i);
		if (e.line != cases[i].line || !strstr(e.reason, cases[i].reason))
			CHECK_FAILED("case %zu: line %u: %s", i, e.line, e.reason);
	}
}

static void a_node_is_added_to_a_fabric_that_runs(void)
{
	struct vb_topology_error e;
	struct vb_fabric *f = read_text(good, &e);
	const char more[] = "Ca 1 \"H-new\" # \"gamma HCA-1\"\n[1] \"S-0002c90240000000\"[4]\n";
	const char taken[] = "Ca 1 \"H-newer\"\n[1] \"S-0002c90240000000\"[1]\n";

	CHECK(f);
	vb_fabric_train_all(f);
	CHECK(vb_topology_read(f, more, strlen(more), &e));
	SAME(f->count, 4);
	CHECK(vb_fabric_find(f, "gamma")->port[1].peer == &vb_fabric_find(f, "S-0002c90240000000")->port[4]);
	CHECK(!vb_topology_read(f, taken, strlen(taken), &e));
	SAME(e.line, 2);
	CHECK(strstr(e.reason, "has a cable already"));
	SAME(f->count, 4);
	CHECK(!vb_fabric_by_id(f, "H-newer"));
	vb_fabric_free(f);
}

static size_t cables_of(const struct vb_fabric *f)
{
	size_t ends = 0;

	for (size_t i = 0; i < f->count; i++)
		for (unsigned k = 1; k <= f->nodes[i]->ports; k++) {
			const struct vb_fabric_port *p = &f->nodes[i]->port[k];

			CHECK(!p->peer || p->peer->peer == p);
			ends += p->peer != NULL;
		}
	return ends / 2;
}

static void shapes_have_their_nodes_and_cables_and_survive_as_texts(void)
{
	static const struct {
		const char *what;
		size_t nodes, cables;
	} cases[] = {{"switch:2", 3, 2},
	             {"fat-tree:8,4,4", 8 + 4 + 32, 32 + 32},
	             {"torus:4,4,2", 16 + 32, 32 + 32},
	             {"torus:3,3,3,1", 27 + 27, 81 + 27},
	             {"dragonfly:5,2,3", 10 + 30, 5 + 10 + 30}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct vb_fabric *f = vb_fabric_new(&no_ops, NULL);
		struct vb_topology_error e;
		char *text;
		size_t len;
		FILE *out = open_memstream(&text, &len);

		CHECK(f && out && vb_topology_generate(f, cases[i].what, &e));
		SAME(f->count, cases[i].nodes);
		SAME(cables_of(f), cases[i].cables);
		vb_topology_print(f, out);
		fclose(out);
		struct vb_fabric *g = read_text(text, &e);
		if (!g)
			CHECK_FAILED("%s: line %u: %s", cases[i].what, e.line, e.reason);
		SAME(g->count, f->count);
		SAME(cables_of(g), cases[i].cables);
		free(text);
		vb_fabric_free(f);
		vb_fabric_free(g);
	}
}

static void shapes_that_cannot_be_are_refused(void)
{
	static const char *const cases[] = {
	        "",           "ring:4",       "switch",       "switch:0",           "switch:255",         "switch:2,3",
	        "fat-tree:2", "torus:1,2,3,", "torus:-1,2,3", "fat-tree:9,200,200", "dragonfly:254,254,2"};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct vb_fabric *f = vb_fabric_new(&no_ops, NULL);
		struct vb_topology_error e = {.line = 9};

		CHECK(f && !vb_topology_generate(f, cases[i], &e));
		SAME(e.line, 0);
		CHECK(e.reason[0]);
		vb_fabric_free(f);
	}
}

int main(void)
{
	RUN(ibnetdiscovers_own_output_is_read);
	RUN(a_wrong_text_is_refused_with_its_line_and_the_reason);
	RUN(a_node_is_added_to_a_fabric_that_runs);
	RUN(shapes_have_their_nodes_and_cables_and_survive_as_texts);
	RUN(shapes_that_cannot_be_are_refused);
	return 0;
}
