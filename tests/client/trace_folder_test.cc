#include "client/trace_folder.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/count_encoding.h"
#include "client/model_config.h"
#include "client/window_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "planner/counter_random.h"
#include "planner/plan.h"
#include "proto/codec/codec.h"

namespace routepack {
namespace {

using ::testing::HasSubstr;

std::string DataPath(const std::string& name) {
  return std::string(ROUTEPACK_TEST_DATA) + "/" + name;
}

void WriteFile(const std::string& path, std::string_view bytes) {
  std::ofstream out(path, std::ios::binary);
  out << bytes;
}

std::string LittleEndian(const std::vector<uint32_t>& values, size_t width) {
  std::string bytes;
  for (const uint32_t value : values) {
    for (size_t b = 0; b < width; ++b) {
      bytes.push_back(static_cast<char>(value >> (8 * b)));
    }
  }
  return bytes;
}

// A folder with two samples of 3 and 2 tokens, 2 layers, 4 experts, top-2.
class TraceFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "/trace_" +
              ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    Put("meta.json", R"({"name": "hand", "samples": 2, "layers": 2,
                         "experts": 4, "top_k": 2})");
    Put("lengths.u32", LittleEndian({3, 2}, 4));
    Put("groups.u32", LittleEndian({5, 6}, 4));
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void Put(const std::string& name, std::string_view bytes) {
    WriteFile(folder_ + "/" + name, bytes);
  }
  void PutIds(const std::string& type, size_t width) {
    Put("routed_experts." + type, LittleEndian(kIds, width));
  }
  void ExpectError(absl::StatusCode code, const std::string& text,
                   TraceCounts counts = TraceCounts::kAuto) {
    const absl::Status status = ReadTraceFolder(folder_, counts).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(status.message(), HasSubstr(text));
  }

  // [token][layer][k]
  const std::vector<uint32_t> kIds = {0, 1, 2, 3, 0, 2, 2, 3, 0, 3,
                                      2, 1, 1, 2, 0, 3, 1, 3, 0, 2};
  // [sample][layer][expert]
  const std::vector<uint32_t> kCounts = {3, 1, 1, 1, 0, 1, 3, 2,
                                         0, 2, 1, 1, 2, 0, 1, 1};
  std::string folder_;
};

TEST_F(TraceFolderTest, CountsIdsOfEveryWidth) {
  const std::pair<const char*, size_t> types[] = {
      {"u8", 1}, {"u16", 2}, {"i32", 4}};
  for (const auto& [type, width] : types) {
    PutIds(type, width);
    const absl::StatusOr<Trace> trace = ReadTraceFolder(folder_);
    ASSERT_TRUE(trace.ok()) << trace.status();
    EXPECT_EQ(trace->counts, kCounts) << type;
    EXPECT_FALSE(trace->compared);
    std::filesystem::remove(folder_ + "/routed_experts." + type);
  }
}

TEST_F(TraceFolderTest, ReadsCountsAndComparesThemWithIds) {
  Put("counts.u16", LittleEndian(kCounts, 2));
  absl::StatusOr<Trace> trace = ReadTraceFolder(folder_);
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(trace->counts, kCounts);
  EXPECT_EQ(trace->name, "hand");
  EXPECT_THAT(trace->lengths, ::testing::ElementsAre(3, 2));
  EXPECT_THAT(trace->groups, ::testing::ElementsAre(5, 6));
  EXPECT_FALSE(trace->compared);

  PutIds("u8", 1);
  trace = ReadTraceFolder(folder_);
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_TRUE(trace->compared);
  for (const TraceCounts source : {TraceCounts::kFile, TraceCounts::kIds}) {
    trace = ReadTraceFolder(folder_, source);
    ASSERT_TRUE(trace.ok()) << trace.status();
    EXPECT_EQ(trace->counts, kCounts);
    EXPECT_FALSE(trace->compared);
  }
}

TEST_F(TraceFolderTest, AcceptsIdsWithoutEachLastToken) {
  std::vector<uint32_t> ids = kIds;
  ids.erase(ids.begin() + 16, ids.end());        // last token of sample 1
  ids.erase(ids.begin() + 8, ids.begin() + 12);  // last token of sample 0
  Put("routed_experts.u8", LittleEndian(ids, 1));
  const absl::StatusOr<Trace> trace = ReadTraceFolder(folder_);
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_THAT(trace->counts_of(0),
              ::testing::ElementsAre(2, 1, 1, 0, 0, 0, 2, 2));
  EXPECT_THAT(trace->counts_of(1),
              ::testing::ElementsAre(0, 1, 1, 0, 1, 0, 0, 1));
}

TEST_F(TraceFolderTest, GroupsMayBeAbsent) {
  std::filesystem::remove(folder_ + "/groups.u32");
  PutIds("u8", 1);
  const absl::StatusOr<Trace> trace = ReadTraceFolder(folder_);
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_THAT(trace->groups, ::testing::ElementsAre(0, 0));
}

TEST_F(TraceFolderTest, NamesWhatIsMissing) {
  ExpectError(absl::StatusCode::kNotFound, "no counts.u16 or routed_experts");
  ExpectError(absl::StatusCode::kNotFound, "no routed_experts.u8",
              TraceCounts::kIds);
  PutIds("u8", 1);
  ExpectError(absl::StatusCode::kNotFound, "no counts.u16", TraceCounts::kFile);
  std::filesystem::remove(folder_ + "/lengths.u32");
  ExpectError(absl::StatusCode::kNotFound, "lengths.u32: cannot open");
  std::filesystem::remove(folder_ + "/meta.json");
  ExpectError(absl::StatusCode::kNotFound, "meta.json: cannot open");
}

TEST_F(TraceFolderTest, RefusesFilesOfAnotherSize) {
  Put("counts.u16", LittleEndian({1, 2, 3}, 2));
  ExpectError(absl::StatusCode::kInvalidArgument,
              "counts.u16: has 3 counts, not samples 2 x layers 2 x experts 4");
  Put("counts.u16", "odd");
  ExpectError(absl::StatusCode::kInvalidArgument, "no multiple of 2");
  Put("counts.u16", LittleEndian(kCounts, 2));
  Put("routed_experts.u8", "123456");
  ExpectError(absl::StatusCode::kInvalidArgument,
              "routed_experts.u8: has 6 bytes, not tokens 5");
  Put("lengths.u32", LittleEndian({3, 2, 1}, 4));
  ExpectError(absl::StatusCode::kInvalidArgument,
              "lengths.u32: has 3 values for 2 samples");
  Put("lengths.u32", LittleEndian({3, 0}, 4));
  ExpectError(absl::StatusCode::kInvalidArgument, "sample without tokens");
}

TEST_F(TraceFolderTest, RefusesCountsThatDifferFromTheIds) {
  std::vector<uint32_t> counts = kCounts;
  std::swap(counts[12], counts[13]);  // sample 1, layer 1, experts 0 and 1
  Put("counts.u16", LittleEndian(counts, 2));
  PutIds("u8", 1);
  ExpectError(absl::StatusCode::kInvalidArgument,
              "differ: sample 1 layer 1 expert 0: 0 and 2");
}

TEST_F(TraceFolderTest, RefusesIdsOutOfRange) {
  std::vector<uint32_t> ids = kIds;
  ids[7] = 4;
  Put("routed_experts.u8", LittleEndian(ids, 1));
  ExpectError(absl::StatusCode::kInvalidArgument, "routed_experts.u8");
}

TEST_F(TraceFolderTest, RefusesBadMeta) {
  PutIds("u8", 1);
  Put("meta.json", "{");
  ExpectError(absl::StatusCode::kInvalidArgument, "meta.json: not JSON");
  Put("meta.json", R"({"samples": 2, "layers": 0, "experts": 4, "top_k": 2})");
  ExpectError(absl::StatusCode::kInvalidArgument, "\"layers\" must be");
  Put("meta.json", R"({"samples": "2", "layers": 2, "experts": 4})");
  ExpectError(absl::StatusCode::kInvalidArgument, "\"samples\" must be");
  Put("meta.json", R"({"samples": 2, "layers": 4000000000, "experts": 4,
                       "top_k": 2})");
  ExpectError(absl::StatusCode::kInvalidArgument,
              "\"layers\" must be a whole number in [1, 4096]");
  Put("meta.json", R"({"samples": 10000000, "layers": 4096,
                       "experts": 65536, "top_k": 2})");
  ExpectError(absl::StatusCode::kInvalidArgument, "samples x layers x experts");
}

// The plain loop, on the shipped raw folder.
TEST(RawTraceTest, CountsEqualACountOfTheRecordedIds) {
  const std::string folder = DataPath("raw-trace");
  const absl::StatusOr<Trace> trace =
      ReadTraceFolder(folder, TraceCounts::kFile);
  ASSERT_TRUE(trace.ok()) << trace.status();
  const absl::StatusOr<std::string> ids =
      ReadBytes(folder + "/routed_experts.u8");
  ASSERT_TRUE(ids.ok());
  std::vector<uint32_t> counted(trace->counts.size());
  size_t at = 0;
  for (uint32_t i = 0; i < trace->num_samples; ++i) {
    for (uint32_t t = 0; t < trace->lengths[i]; ++t) {
      for (uint32_t l = 0; l < 12; ++l) {
        for (uint32_t k = 0; k < 4; ++k) {
          const auto id = static_cast<unsigned char>((*ids)[at++]);
          ++counted[(i * 12 + l) * 64 + id];
        }
      }
    }
  }
  EXPECT_EQ(at, ids->size());
  EXPECT_EQ(counted, trace->counts);

  const absl::StatusOr<Trace> compared = ReadTraceFolder(folder);
  ASSERT_TRUE(compared.ok()) << compared.status();
  EXPECT_TRUE(compared->compared);
}

TEST(RawTraceTest, BecomesAValidWindow) {
  const absl::StatusOr<Trace> trace = ReadTraceFolder(DataPath("raw-trace"));
  ASSERT_TRUE(trace.ok()) << trace.status();
  v1::Window message;
  trace->FillHeader(*message.mutable_header());
  message.mutable_header()->set_token_cap(512);
  v1::MeshSizes& mesh =
      *message.mutable_header()->mutable_topology()->mutable_mesh();
  mesh.set_ep(4);
  mesh.set_dp(4);
  const SampleSource next = trace->Source();
  for (v1::Sample sample;;) {
    const absl::StatusOr<bool> more = next(&sample);
    ASSERT_TRUE(more.ok());
    if (!*more) break;
    *message.add_samples() = sample;
  }
  const absl::StatusOr<Window> window = DecodeWindow(message);
  ASSERT_TRUE(window.ok()) << window.status();
  for (uint32_t i = 0; i < window->num_samples(); ++i) {
    EXPECT_EQ(window->samples()[i].group, trace->groups[i]);
    for (uint32_t l = 0; l < 12; ++l) {
      for (uint32_t e = 0; e < 64; ++e) {
        ASSERT_EQ(window->count(i, l, e), trace->counts_of(i)[l * 64 + e]);
      }
    }
  }
}

constexpr const char* kShippedWindows[] = {"gsm8k-0", "gsm8k-1", "gsm8k-2",
                                           "gsm8k-3", "gsm8k-4", "mixed-0",
                                           "mixed-1"};

TEST(ShippedWindowTest, LptLowersTheCvOfRankLoadsByOver95Percent) {
  for (const char* name : kShippedWindows) {
    SCOPED_TRACE(name);
    const absl::StatusOr<LoadedWindow> loaded =
        LoadWindow(DataPath(std::string(name) + ".rpw"));
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    const Window& window = loaded->window;
    const uint32_t layers = window.num_layers();
    const uint32_t experts = window.num_experts();
    constexpr uint32_t kRanks = 8;
    const std::vector<uint64_t> loads = window.ExpertLoads();
    const auto cv = [&](const Placement& placement) {
      return CvGlobal(RankLoads(placement, loads), layers, kRanks);
    };
    const double before = cv(IdentityPlacement(layers, experts, kRanks));
    EXPECT_GT(before, 0.2);
    EXPECT_LT(cv(LptPlacement(loads, layers, experts, kRanks)), 0.05 * before);
  }
}

TEST(ShippedWindowTest, AllLoadAndAreAsDescribed) {
  std::set<std::string> digests;
  for (const char* name : kShippedWindows) {
    const absl::StatusOr<LoadedWindow> loaded =
        LoadWindow(DataPath(std::string(name) + ".rpw"));
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    const Window& window = loaded->window;
    EXPECT_EQ(window.num_samples(), 512u);
    EXPECT_EQ(window.num_layers(), 12u);
    EXPECT_EQ(window.num_experts(), 64u);
    EXPECT_EQ(window.spec().top_k, 4u);
    EXPECT_EQ(window.spec().token_cap, 2048u);
    EXPECT_EQ(window.spec().topology.num_slots(), 8u);
    EXPECT_EQ(window.spec().topology.num_ranks(), 8u);
    EXPECT_EQ(window.spec().topology.num_shards(), 1u);
    ASSERT_EQ(window.spec().attention.size(), 1u);
    EXPECT_EQ(window.spec().counts_origin, CountsOrigin::kReplayed);
    EXPECT_GT(window.total_tokens(), 134000u);
    EXPECT_LT(window.total_tokens(), 144000u);
    digests.insert(window.digest());
  }
  EXPECT_EQ(digests.size(), 7u);
}

class CountEncodingTest : public ::testing::TestWithParam<uint32_t> {};

TEST_P(CountEncodingTest, RoundTripsAndIsNoLargerThanAnyOther) {
  const uint32_t largest = GetParam();
  for (const double density : {0.02, 0.3, 1.0}) {
    const CounterRandom random(17, largest, density * 100);
    std::vector<uint32_t> counts(3 * 40);
    uint32_t total = 0;
    for (size_t n = 0; n < counts.size(); ++n) {
      if (random.UniformAt(2 * n) < density) {
        counts[n] = random.BelowAt(2 * n + 1, uint64_t{largest} + 1);
      }
      total = std::max(total, counts[n]);
    }
    WindowSpec spec = {.num_samples = 1,
                       .num_layers = 3,
                       .num_experts = 40,
                       .top_k = 40,
                       .token_cap = kMaxTokenCap,
                       .topology = *Topology::FromShards(1, 1, {})};
    spec.partial_counts = true;
    size_t compact_size = 0;
    for (const auto encoding :
         {CountsEncoding::kCompact, CountsEncoding::kFixedWidth}) {
      v1::Sample sample;
      sample.set_tokens(std::max(total, 1u));
      EncodeCounts(counts, 3, encoding, sample.mutable_counts());
      absl::StatusOr<WindowBuilder> builder = WindowBuilder::Create(spec);
      ASSERT_TRUE(builder.ok()) << builder.status();
      std::vector<uint32_t> scratch;
      DecodeSample(sample, *builder, scratch);
      const absl::StatusOr<Window> window = std::move(*builder).Seal();
      ASSERT_TRUE(window.ok()) << window.status();
      for (size_t n = 0; n < counts.size(); ++n) {
        ASSERT_EQ(window->count(0, n / 40, n % 40), counts[n]);
      }
      const size_t size = sample.counts().ByteSizeLong();
      if (encoding == CountsEncoding::kCompact) compact_size = size;
      EXPECT_LE(compact_size, size);
    }
    // The encodings it did not choose.
    v1::Counts dense;
    dense.mutable_dense()->mutable_values()->Add(counts.begin(), counts.end());
    v1::Counts sparse;
    for (uint32_t l = 0; l < 3; ++l) {
      v1::SparseLayer* layer = sparse.mutable_sparse()->add_layers();
      for (uint32_t e = 0; e < 40; ++e) {
        if (counts[40 * l + e] == 0) continue;
        layer->add_experts(e);
        layer->add_counts(counts[40 * l + e]);
      }
    }
    // Choosing compares payloads; the frames differ by a few bytes.
    EXPECT_LE(compact_size, dense.ByteSizeLong() + 4);
    EXPECT_LE(compact_size, sparse.ByteSizeLong() + 4);
  }
}

INSTANTIATE_TEST_SUITE_P(Largest, CountEncodingTest,
                         ::testing::Values(1u, 100u, 255u, 256u, 60000u, 65536u,
                                           3000000u));

}  // namespace
}  // namespace routepack
