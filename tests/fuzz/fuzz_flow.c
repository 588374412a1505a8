// fuzz_flow.c - hostile rules of flow steering and hostile frames: nothing beyond them is read
// follows: ibv_create_flow(3)
// build: tests/fuzz/run 60 flow
// SPDX-License-Identifier: MIT
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/flow_match.h"
#include "core/rss.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The rule's length, the rule, then the frame: each in memory of its own size, so that reads beyond it show. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 2)
		return 0;
	size_t rule = data[0] | (size_t)(data[1] & 3) << 8, specs = rule < size - 2 ? rule : size - 2;
	size_t len = size - 2 - specs;
	struct ibv_flow_attr *attr = calloc(1, sizeof(*attr) + specs);
	uint8_t *frame = malloc(len ? len : 1);
	union vb_frame_fields fields, inner;
	struct vb_flow_match match;

	memcpy(attr + 1, data + 2, specs);
	memcpy(frame, data + 2 + specs, len);
	attr->size = (uint16_t)(sizeof(*attr) + specs);
	attr->num_of_specs = specs ? data[1] >> 2 : 0;
	uint16_t layers = vb_frame_dissect(frame, (uint32_t)len, &fields);
	uint16_t inside = vb_frame_dissect_inner(frame, (uint32_t)len, &inner);

	/* one bit of the rule's length decides each field: contradictions do no harm either */
	struct vb_rss_hash hash = {.fields = (uint32_t)rule & VB_RSS_FIELDS, .key = {[0] = 0x6d, [39] = 0xfa}};

	assert((layers & (VB_LAYER_IPV4 | VB_LAYER_IPV6)) || !vb_rss_hash_of(&hash, &fields, layers));
	if (!vb_flow_parse(attr, &match)) {
		bool matches = vb_flow_matches(&match.outer, &fields, layers);

		for (size_t i = 0; i < VB_FRAME_KEY_WORDS; i++)
			assert(!((match.outer.value.word[i] & ~match.outer.mask.word[i]) |
			         (match.inner.value.word[i] & ~match.inner.mask.word[i])));
		assert(!matches || (layers & match.outer.layers) == match.outer.layers);
		assert(!inside || layers & (VB_LAYER_IPV4 | VB_LAYER_IPV6));
	}
	free(frame);
	free(attr);
	return 0;
}
