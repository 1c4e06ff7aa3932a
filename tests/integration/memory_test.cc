// A window of 94 million counts goes through a server whose memory rises by
// at most three times the window's bytes, and comes back afterwards.

#include <gtest/gtest.h>

#include <string>

#include "client/planner_client.h"
#include "tests/integration/server_process.h"

namespace routepack {
namespace {

constexpr uint32_t kSamples = 4096;
constexpr uint32_t kLayers = 60;
constexpr uint32_t kExperts = 384;
constexpr uint32_t kTopK = 8;

v1::WindowHeader XlHeader() {
  v1::WindowHeader header;
  header.mutable_key()->set_job_id("xl");
  header.set_num_samples(kSamples);
  header.set_num_layers(kLayers);
  header.set_num_experts(kExperts);
  header.set_top_k(kTopK);
  header.set_token_cap(16384);
  header.mutable_topology()->mutable_mesh()->set_tp(4);
  header.mutable_topology()->mutable_mesh()->set_etp(1);
  header.mutable_topology()->mutable_mesh()->set_ep(64);
  header.mutable_topology()->mutable_mesh()->set_dp(64);
  return header;
}

// 500 to 7,499 tokens that all choose the same eight experts of a layer, other
// ones in every layer and sample.
void FillSample(uint32_t i, v1::Sample& sample) {
  const uint32_t tokens = 500 + i * 2654435761u % 7000;
  sample.set_id(i);
  sample.set_tokens(tokens);
  std::string& counts = *sample.mutable_counts()->mutable_u16();
  counts.assign(size_t{kLayers} * kExperts * 2, '\0');
  for (uint32_t l = 0; l < kLayers; ++l) {
    for (uint32_t k = 0; k < kTopK; ++k) {
      const uint32_t expert = (i * 37 + l * 11 + k * 48) % kExperts;
      const size_t at = 2 * (size_t{l} * kExperts + expert);
      counts[at] = static_cast<char>(tokens & 0xFF);
      counts[at + 1] = static_cast<char>(tokens >> 8);
    }
  }
}

TEST(Memory, AnXlWindowTakesAtMostThreeTimesItsBytes) {
  if (kSanitized) GTEST_SKIP() << "sanitizers take memory of their own";
  ServerProcess server;
  ASSERT_TRUE(server.running()) << server.Log();
  const uint64_t before = server.Memory();
  ASSERT_GT(before, 0);
  PlannerClient client({.target = server.target()});
  const auto open = []() -> absl::StatusOr<SampleSource> {
    return
        [i = uint32_t{0}](v1::Sample* sample) mutable -> absl::StatusOr<bool> {
          if (i == kSamples) return false;
          FillSample(i++, *sample);
          return true;
        };
  };
  const auto plan = client.StreamPlan(XlHeader(), open);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->topology().shards_size(), 4);
  const uint64_t bytes = uint64_t{kSamples} * kLayers * kExperts * 2;
  EXPECT_LE(server.PeakMemory() - before, 3 * bytes);
  EXPECT_LE(server.Memory() - before, bytes);
}

}  // namespace
}  // namespace routepack
