// Small windows for tests of the server.

#ifndef ROUTEPACK_TESTS_SERVER_WINDOWS_H_
#define ROUTEPACK_TESTS_SERVER_WINDOWS_H_

#include <cstdint>
#include <string>

#include "routepack/v1/window.pb.h"

namespace routepack::server {

inline v1::PlanKey Key(uint64_t step, const std::string& job = "job",
                       const std::string& run = "run") {
  v1::PlanKey key;
  key.set_job_id(job);
  key.set_run_id(run);
  key.set_step(step);
  return key;
}

// 2 layers, 4 experts, top-2, 2 EP ranks, 2 DP slots, cells of 64 tokens; few
// proposals.
inline v1::WindowHeader Header(const v1::PlanKey& key, uint32_t num_samples) {
  v1::WindowHeader header;
  *header.mutable_key() = key;
  header.set_num_samples(num_samples);
  header.set_num_layers(2);
  header.set_num_experts(4);
  header.set_top_k(2);
  header.set_token_cap(64);
  header.mutable_topology()->mutable_mesh()->set_ep(2);
  header.mutable_topology()->mutable_mesh()->set_dp(2);
  header.mutable_options()->mutable_search()->set_steps(2000);
  return header;
}

// Sample `i` of a window: 8 to 15 tokens, experts 2i and 2i + 1 (mod 4) take
// all of them in layer 0, experts 1 and 2 in layer 1.
inline v1::Sample MakeSample(uint32_t i) {
  const uint32_t tokens = 8 + i % 8;
  v1::Sample sample;
  sample.set_id(1000 + i);
  sample.set_tokens(tokens);
  std::string counts(8, '\0');
  counts[2 * (i % 2)] = static_cast<char>(tokens);
  counts[2 * (i % 2) + 1] = static_cast<char>(tokens);
  counts[4 + 1] = static_cast<char>(tokens);
  counts[4 + 2] = static_cast<char>(tokens);
  sample.mutable_counts()->set_u8(counts);
  return sample;
}

inline v1::SampleChunk Chunk(uint32_t index, uint32_t first, uint32_t count) {
  v1::SampleChunk chunk;
  chunk.set_index(index);
  for (uint32_t i = 0; i < count; ++i) {
    *chunk.add_samples() = MakeSample(first + i);
  }
  return chunk;
}

inline v1::Seal MakeSeal(uint32_t num_chunks) {
  v1::Seal seal;
  seal.set_num_chunks(num_chunks);
  return seal;
}

inline v1::Window MakeWindow(const v1::PlanKey& key, uint32_t num_samples) {
  v1::Window window;
  *window.mutable_header() = Header(key, num_samples);
  for (uint32_t i = 0; i < num_samples; ++i) {
    *window.add_samples() = MakeSample(i);
  }
  return window;
}

}  // namespace routepack::server

#endif  // ROUTEPACK_TESTS_SERVER_WINDOWS_H_
