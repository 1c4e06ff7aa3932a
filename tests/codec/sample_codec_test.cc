#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/codec/codec.h"
#include "tests/codec/test_messages.h"

namespace routepack {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using Writer = std::function<void(const std::vector<uint32_t>& ids,
                                  const std::vector<uint32_t>& counts,
                                  const v1::WindowHeader&, v1::Counts*)>;

void WriteSparse(const std::vector<uint32_t>&,
                 const std::vector<uint32_t>& counts,
                 const v1::WindowHeader& header, v1::Counts* out) {
  for (uint32_t l = 0; l < header.num_layers(); ++l) {
    v1::SparseLayer* layer = out->mutable_sparse()->add_layers();
    // Highest expert first: the order must not matter.
    for (uint32_t e = header.num_experts(); e-- > 0;) {
      const uint32_t count = counts[l * header.num_experts() + e];
      if (count == 0) continue;
      layer->add_experts(e);
      layer->add_counts(count);
    }
  }
}

// Every encoding of one sample's counts.
std::vector<std::pair<std::string, Writer>> Writers() {
  using Values = std::vector<uint32_t>;
  using Header = v1::WindowHeader;
  return {
      {"dense",
       [](const Values&, const Values& c, const Header&, v1::Counts* out) {
         out->mutable_dense()->mutable_values()->Add(c.begin(), c.end());
       }},
      {"u8", [](const Values&, const Values& c, const Header&,
                v1::Counts* out) { out->set_u8(LittleEndian<uint8_t>(c)); }},
      {"u16", [](const Values&, const Values& c, const Header&,
                 v1::Counts* out) { out->set_u16(LittleEndian<uint16_t>(c)); }},
      {"u32", [](const Values&, const Values& c, const Header&,
                 v1::Counts* out) { out->set_u32(LittleEndian<uint32_t>(c)); }},
      {"sparse", WriteSparse},
      {"routed u8",
       [](const Values& ids, const Values&, const Header&, v1::Counts* out) {
         out->mutable_routed_experts()->set_u8(LittleEndian<uint8_t>(ids));
       }},
      {"routed u16",
       [](const Values& ids, const Values&, const Header&, v1::Counts* out) {
         out->mutable_routed_experts()->set_u16(LittleEndian<uint16_t>(ids));
       }},
      {"routed i32",
       [](const Values& ids, const Values&, const Header&, v1::Counts* out) {
         out->mutable_routed_experts()->set_i32(LittleEndian<uint32_t>(ids));
       }},
  };
}

struct Recorded {
  uint32_t tokens;
  std::vector<uint32_t> ids;
};

v1::Window Encode(const v1::WindowHeader& header,
                  const std::vector<Recorded>& samples, const Writer& write) {
  v1::Window window;
  *window.mutable_header() = header;
  for (const Recorded& recorded : samples) {
    v1::Sample* sample = window.add_samples();
    sample->set_id(window.samples_size() * 10);
    sample->set_tokens(recorded.tokens);
    write(recorded.ids,
          CountIds(recorded.ids, header.num_layers(), header.num_experts(),
                   header.top_k()),
          header, sample->mutable_counts());
  }
  return window;
}

TEST(SampleCodec, AllEncodingsMeanTheSameWindow) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 20; ++round) {
    v1::WindowHeader header;
    header.set_num_layers(1 + Below(random, 5));
    header.set_num_experts(4 * (1 + Below(random, 8)));
    header.set_top_k(1 + Below(random, 3));
    header.set_token_cap(round % 2 == 0 ? 200 : 1 << 20);  // u16 and u32 arrays
    header.mutable_topology()->mutable_mesh()->set_ep(4);
    header.mutable_topology()->mutable_mesh()->set_dp(4);
    std::vector<Recorded> samples(1 + Below(random, 12));
    for (Recorded& recorded : samples) {
      recorded.tokens = 1 + Below(random, 200);
      // t rows or t - 1: the last token is never forwarded.
      const uint32_t rows = recorded.tokens - Below(random, 2);
      recorded.ids = RandomIds(random, rows, header.num_layers(),
                               header.num_experts(), header.top_k());
    }
    std::string digest;
    for (const auto& [name, write] : Writers()) {
      const absl::StatusOr<Window> window =
          DecodeWindow(Encode(header, samples, write));
      ASSERT_TRUE(window.ok()) << name << ": " << window.status();
      if (digest.empty()) digest = window->digest();
      EXPECT_EQ(window->digest(), digest) << name;
      for (uint32_t i = 0; i < samples.size(); ++i) {
        const std::vector<uint32_t> expected =
            CountIds(samples[i].ids, header.num_layers(), header.num_experts(),
                     header.top_k());
        window->VisitCounts(i, [&](auto counts) {
          EXPECT_EQ(std::vector<uint32_t>(counts.begin(), counts.end()),
                    expected)
              << name << ", sample " << i;
        });
      }
    }
  }
}

TEST(SampleCodec, KeepsWideCounts) {
  v1::Window message;
  v1::WindowHeader* header = message.mutable_header();
  header->set_num_layers(1);
  header->set_num_experts(2);
  header->set_top_k(1);
  header->set_token_cap(1 << 24);
  header->mutable_topology()->mutable_mesh();
  v1::Sample* sample = message.add_samples();
  sample->set_tokens(10'000'000);
  sample->mutable_counts()->set_u32(LittleEndian<uint32_t>({9'999'998, 1}));
  const absl::StatusOr<Window> window = DecodeWindow(message);
  ASSERT_TRUE(window.ok()) << window.status();
  EXPECT_EQ(window->count(0, 0, 0), 9'999'998u);
  EXPECT_EQ(window->count(0, 0, 1), 1u);
}

// The tiny window with sample 3 spoilt.
struct Spoilt {
  const char* name;
  std::function<void(v1::Sample*)> spoil;
  const char* field;
  const char* description;  // part of it
};

class MalformedSample : public testing::TestWithParam<Spoilt> {};

TEST_P(MalformedSample, IsNamedExactly) {
  v1::Window message = TinyWindow();
  GetParam().spoil(message.mutable_samples(3));
  const absl::Status status = DecodeWindow(message).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  ASSERT_THAT(Fields(status), ElementsAre(GetParam().field)) << status;
  EXPECT_THAT(ViolationsOf(status)[0].description,
              HasSubstr(GetParam().description));
}

v1::SparseCounts* OneEach(v1::Sample* sample) {
  v1::SparseCounts* sparse = sample->mutable_counts()->mutable_sparse();
  for (int l = 0; l < 2; ++l) {
    v1::SparseLayer* layer = sparse->add_layers();
    for (uint32_t e : {1, 2}) {
      layer->add_experts(e);
      layer->add_counts(11);
    }
  }
  return sparse;
}

std::string Ids(size_t tokens, const std::vector<uint32_t>& first) {
  std::vector<uint32_t> ids(tokens * 2 * 2);
  for (size_t j = 0; j < ids.size(); ++j) ids[j] = j % 2;
  std::copy(first.begin(), first.end(), ids.begin());
  return LittleEndian<uint32_t>(ids);
}

INSTANTIATE_TEST_SUITE_P(
    All, MalformedSample,
    testing::Values(
        Spoilt{"DenseTooShort",
               [](v1::Sample* s) {
                 s->mutable_counts()
                     ->mutable_dense()
                     ->mutable_values()
                     ->RemoveLast();
               },
               "samples[3].counts.dense.values",
               "has 15 values, expected 16 for [L, E] = [2, 8]"},
        Spoilt{"U8TooLong",
               [](v1::Sample* s) {
                 s->mutable_counts()->set_u8(std::string(17, '\0'));
               },
               "samples[3].counts.u8",
               "has 17 bytes, expected 16 for [L, E] = [2, 8] of 1 bytes"},
        Spoilt{"U16Odd",
               [](v1::Sample* s) {
                 s->mutable_counts()->set_u16(std::string(31, '\0'));
               },
               "samples[3].counts.u16",
               "has 31 bytes, expected 32 for [L, E] = [2, 8] of 2 bytes"},
        Spoilt{"U32Empty",
               [](v1::Sample* s) { s->mutable_counts()->set_u32(""); },
               "samples[3].counts.u32", "has 0 bytes, expected 64"},
        Spoilt{"NoEncoding",
               [](v1::Sample* s) { s->mutable_counts()->clear_encoding(); },
               "samples[3].counts", "no encoding"},
        Spoilt{"Missing", [](v1::Sample* s) { s->clear_counts(); },
               "samples[3].counts", "missing"},
        Spoilt{
            "SparseTooFewLayers",
            [](v1::Sample* s) { OneEach(s)->mutable_layers()->RemoveLast(); },
            "samples[3].counts.sparse.layers", "has 1 layers, expected L = 2"},
        Spoilt{"SparseUnpaired",
               [](v1::Sample* s) {
                 OneEach(s)->mutable_layers(1)->mutable_counts()->RemoveLast();
               },
               "samples[3].counts.sparse.layers[1]",
               "has 2 experts and 1 counts"},
        Spoilt{"SparseExpertOutOfRange",
               [](v1::Sample* s) {
                 OneEach(s)->mutable_layers(1)->set_experts(1, 8);
               },
               "samples[3].counts.sparse.layers[1].experts[1]",
               "expert 8 is outside [0, 8)"},
        Spoilt{"SparseExpertTwice",
               [](v1::Sample* s) {
                 OneEach(s)->mutable_layers(0)->set_experts(1, 1);
               },
               "samples[3].counts.sparse.layers[0].experts[1]",
               "expert 1 is listed twice"},
        Spoilt{"IdsNotSet",
               [](v1::Sample* s) {
                 s->mutable_counts()->mutable_routed_experts();
               },
               "samples[3].counts.routed_experts", "no ids"},
        Spoilt{"IdsOfTooFewTokens",
               [](v1::Sample* s) {
                 s->mutable_counts()->mutable_routed_experts()->set_i32(
                     Ids(9, {}));
               },
               "samples[3].counts.routed_experts.i32",
               "has 144 bytes, expected 176 or 160 for [t or t - 1, L, k] = "
               "[11 or 10, 2, 2] of 4 bytes"},
        Spoilt{"IdOutOfRange",
               [](v1::Sample* s) {
                 s->mutable_counts()->mutable_routed_experts()->set_i32(
                     Ids(11, {0, 1, 0, 1, 0, 1, 8}));
               },
               "samples[3].counts.routed_experts.i32", "token 1, layer 1"},
        Spoilt{"IdNegative",
               [](v1::Sample* s) {
                 s->mutable_counts()->mutable_routed_experts()->set_i32(
                     Ids(10, {0, 1, 0xFFFFFFFF}));
               },
               "samples[3].counts.routed_experts.i32", "-1"},
        Spoilt{"CountAboveTokens",
               [](v1::Sample* s) {
                 v1::DenseCounts* dense = s->mutable_counts()->mutable_dense();
                 dense->clear_values();
                 for (int j = 0; j < 16; ++j) {
                   dense->add_values(j == 2 ? 12 : j == 9 || j == 10 ? 11 : 0);
                 }
               },
               "samples[3].counts", "layer 0, expert 2"},
        Spoilt{"LayerSumWrong",
               [](v1::Sample* s) {
                 v1::DenseCounts* dense = s->mutable_counts()->mutable_dense();
                 dense->set_values(0, dense->values(0) + 1);
               },
               "samples[3].counts", "layer 0"},
        Spoilt{"IdTaken", [](v1::Sample* s) { s->set_id(100); },
               "samples[3].id", "100"},
        Spoilt{"AboveCap",
               [](v1::Sample* s) {
                 s->set_tokens(41);
                 s->mutable_counts()->mutable_routed_experts()->set_i32(
                     Ids(41, {}));
               },
               "samples[3].tokens", "40"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(SampleCodec, ListsTheProblemsOfAllSamples) {
  v1::Window message = TinyWindow();
  message.mutable_samples(0)->mutable_counts()->set_u8("x");
  message.mutable_samples(9)->mutable_counts()->set_u16("x");
  message.mutable_samples(12)->clear_counts();
  const absl::Status status = DecodeWindow(message).status();
  EXPECT_THAT(Fields(status),
              ElementsAre("samples[0].counts.u8", "samples[9].counts.u16",
                          "samples[12].counts"));
}

TEST(SampleCodec, KeepsTheFirstHundredViolationsAndCountsAll) {
  v1::Window message = TinyWindow();
  const v1::Sample sample = message.samples(0);
  for (int i = 0; i < 250; ++i) {
    v1::Sample* added = message.add_samples();
    added->set_id(1000 + i);
    added->set_tokens(5);
    added->mutable_counts()->set_u8("bad");
  }
  const absl::Status status = DecodeWindow(message).status();
  EXPECT_EQ(Fields(status).size(), 100u);
  EXPECT_THAT(std::string(status.message()), HasSubstr("249 more"));
}

TEST(SampleCodec, SingleTokenSamplesMayHaveNoIds) {
  v1::Window message = TinyWindow();
  v1::Sample* sample = message.mutable_samples(2);
  sample->set_tokens(1);
  sample->mutable_counts()->mutable_routed_experts()->set_u8("");
  const absl::StatusOr<Window> window = DecodeWindow(message);
  ASSERT_TRUE(window.ok()) << window.status();
  for (uint32_t e = 0; e < 8; ++e) EXPECT_EQ(window->count(2, 0, e), 0u);
}

}  // namespace
}  // namespace routepack
