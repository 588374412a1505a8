// collectives.cc - Gloo's collectives of one rank, over its ibverbs transport: every number is looked at
// follows: gloo/algorithm.h
// usage: collectives RANK SIZE FOLDER DEVICE GID-INDEX; the ranks meet in FOLDER, which is empty before
// SPDX-License-Identifier: MIT
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <unistd.h>
#include <vector>

#include "gloo/allreduce_halving_doubling.h"
#include "gloo/allreduce_ring.h"
#include "gloo/allreduce_ring_chunked.h"
#include "gloo/barrier_all_to_all.h"
#include "gloo/broadcast_one_to_all.h"
#include "gloo/rendezvous/context.h"
#include "gloo/rendezvous/file_store.h"
#include "gloo/rendezvous/prefix_store.h"
#include "gloo/transport/ibverbs/device.h"

enum kind { RING, CHUNKED, HALVING, BROADCAST, KINDS };
static const char *const names[] = {"ring", "chunked ring", "halving and doubling", "broadcast"};
static const int counts[] = {1, 1000, 1 << 18};
static const int rounds = 30;

static int rank, size;

// What rank r puts in at i in this round, and what all have after it
static float before(kind k, int r, int round, int i)
{
	return k != BROADCAST ? float((r + 1) * (1 + (i + round) % 7)) : r ? 0 : float(round + i % 11);
}

static float after(kind k, int round, int i)
{
	return k != BROADCAST ? float(size * (size + 1) / 2 * (1 + (i + round) % 7)) : float(round + i % 11);
}

static std::unique_ptr<gloo::Algorithm> make(kind k, const std::shared_ptr<gloo::Context> &context, std::vector<float> &v)
{
	const std::vector<float *> data{v.data()};
	const int n = int(v.size());

	switch (k) {
	case RING: return std::make_unique<gloo::AllreduceRing<float>>(context, data, n);
	case CHUNKED: return std::make_unique<gloo::AllreduceRingChunked<float>>(context, data, n);
	case HALVING: return std::make_unique<gloo::AllreduceHalvingDoubling<float>>(context, data, n);
	default: return std::make_unique<gloo::BroadcastOneToAll<float>>(context, data, n, 0);
	}
}

static void run(kind k, gloo::Algorithm &algorithm, gloo::Algorithm &barrier, std::vector<float> &v)
{
	for (int round = 0; round < rounds; round++) {
		barrier.run();
		for (size_t i = 0; i < v.size(); i++)
			v[i] = before(k, rank, round, int(i));
		barrier.run();
		algorithm.run();
		for (size_t i = 0; i < v.size(); i++) {
			if (v[i] == after(k, round, int(i)))
				continue;
			printf("%s of %zu, round %d: rank %d has %g at %zu\n", names[k], v.size(), round, rank, v[i], i);
			fflush(stdout);
			_exit(1);
		}
	}
	barrier.run();
}

int main(int argc, char **argv)
{
	if (argc != 6)
		return 2;
	rank = atoi(argv[1]);
	size = atoi(argv[2]);
	gloo::transport::ibverbs::attr attr = {argv[4], 1, atoi(argv[5])};
	auto device = gloo::transport::ibverbs::CreateDevice(attr);
	gloo::rendezvous::FileStore store(argv[3]);
	int made = 0;
	// Each has queue pairs of its own: Gloo has eight buffers for one
	auto connected = [&] {
		auto context = std::make_shared<gloo::rendezvous::Context>(rank, size);
		gloo::rendezvous::PrefixStore own(std::to_string(made++), store);

		context->connectFullMesh(own, device);
		return context;
	};
	gloo::BarrierAllToAll barrier(connected());
	std::vector<std::vector<float>> memory;
	std::vector<std::unique_ptr<gloo::Algorithm>> algorithms;

	memory.reserve(KINDS * std::size(counts));
	for (int n : counts)
		for (int k = 0; k < KINDS; k++) {
			memory.emplace_back(n);
			algorithms.push_back(make(kind(k), connected(), memory.back()));
			run(kind(k), *algorithms.back(), barrier, memory.back());
		}
	printf("rank %d of %d: right\n", rank, size);
	fflush(stdout);
	_exit(0); // Gloo's destructors call abort() if an operation is outstanding
}
