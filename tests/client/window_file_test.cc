#include "client/window_file.h"

#include <sys/stat.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "tests/client/temp_folder.h"

namespace routepack {
namespace {

using ::google::protobuf::util::MessageDifferencer;
using ::testing::HasSubstr;
using ::testing::Not;

// Samples out of a vector.
SampleSource SourceOf(std::vector<v1::Sample> samples) {
  return [samples = std::move(samples), next = size_t{0}](
             v1::Sample* sample) mutable -> absl::StatusOr<bool> {
    if (next == samples.size()) return false;
    *sample = samples[next++];
    return true;
  };
}

// Layers x experts counts that satisfy top_k t per layer.
std::vector<v1::Sample> MakeSamples(uint32_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<v1::Sample> samples(n);
  for (uint32_t i = 0; i < n; ++i) {
    v1::Sample& sample = samples[i];
    sample.set_id(1000 + i);
    sample.set_group(i / 4);
    sample.set_tokens(1 + random() % 100);
    for (int l = 0; l < 2; ++l) {
      const uint32_t first = random() % (sample.tokens() + 1);
      auto* values = sample.mutable_counts()->mutable_dense();
      values->add_values(first);
      values->add_values(sample.tokens() - first);
    }
  }
  return samples;
}

v1::WindowHeader MakeHeader(uint32_t n) {
  v1::WindowHeader header;
  header.mutable_key()->set_job_id("job");
  header.set_num_samples(n);
  header.set_num_layers(2);
  header.set_num_experts(2);
  header.set_top_k(1);
  header.set_token_cap(128);
  header.mutable_topology()->mutable_mesh()->set_ep(2);
  header.mutable_topology()->mutable_mesh()->set_dp(2);
  return header;
}

absl::StatusOr<std::vector<v1::Sample>> ReadAll(const SampleSource& next) {
  std::vector<v1::Sample> samples;
  while (true) {
    v1::Sample sample;
    absl::StatusOr<bool> more = next(&sample);
    if (!more.ok()) return more.status();
    if (!*more) return samples;
    samples.push_back(std::move(sample));
  }
}

std::string Contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

void Write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

using WindowFileTest = TempFolderTest;

TEST_F(WindowFileTest, WindowsSurviveBothFormats) {
  const std::vector<v1::Sample> samples = MakeSamples(50, 1);
  const v1::WindowHeader header = MakeHeader(50);
  for (const char* name : {"w.json", "w.rpw", "w.JSON"}) {
    const std::string path = Path(name);
    ASSERT_TRUE(WriteWindow(path, header, SourceOf(samples)).ok());
    absl::StatusOr<WindowFile> file = OpenWindow(path);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_TRUE(MessageDifferencer::Equals(file->header, header));
    absl::StatusOr<std::vector<v1::Sample>> read = ReadAll(file->next);
    ASSERT_TRUE(read.ok()) << read.status();
    ASSERT_EQ(read->size(), samples.size());
    for (size_t i = 0; i < samples.size(); ++i) {
      EXPECT_TRUE(MessageDifferencer::Equals((*read)[i], samples[i])) << i;
    }
    // The end stays the end.
    v1::Sample sample;
    EXPECT_FALSE(file->next(&sample).value());
  }
  EXPECT_THAT(Contents(Path("w.json")), HasSubstr("\"num_layers\": 2"));
  EXPECT_THAT(Contents(Path("w.rpw")), Not(HasSubstr("num_layers")));
}

TEST_F(WindowFileTest, LoadedWindowsAreTheSameFromBothFormats) {
  const v1::WindowHeader header = MakeHeader(20);
  std::vector<std::string> digests;
  for (const char* name : {"w.json", "w.rpw"}) {
    ASSERT_TRUE(
        WriteWindow(Path(name), header, SourceOf(MakeSamples(20, 2))).ok());
    absl::StatusOr<LoadedWindow> loaded = LoadWindow(Path(name));
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_EQ(loaded->window.num_samples(), 20u);
    digests.push_back(loaded->window.digest());
  }
  EXPECT_EQ(digests[0], digests[1]);
}

TEST_F(WindowFileTest, JsonTypedByHandTakesBothSpellingsAndCountsSamples) {
  Write(Path("w.json"),
        R"({"header": {"numLayers": 1, "num_experts": 2, "topK": 1,
                       "token_cap": 9, "topology": {"mesh": {"ep": 2, "dp": 2}}},
            "samples": [{"id": 4, "tokens": 3,
                         "counts": {"dense": {"values": [1, 2]}}}]})");
  absl::StatusOr<LoadedWindow> loaded = LoadWindow(Path("w.json"));
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->header.num_samples(), 1u);
  EXPECT_EQ(loaded->window.count(0, 0, 1), 2u);
}

TEST_F(WindowFileTest, JsonErrorsNameThePathAndTheField) {
  Write(Path("w.json"), R"({"header": {"num_layer": 1}})");
  const absl::Status unknown = OpenWindow(Path("w.json")).status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(unknown.message()), HasSubstr(Path("w.json")));
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("num_layer"));
  Write(Path("cut.json"), R"({"header": {"num_layers")");
  EXPECT_EQ(OpenWindow(Path("cut.json")).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(WindowFileTest, ViolationsKeepTheirFieldsAndNameThePath) {
  v1::WindowHeader header = MakeHeader(1);
  v1::Sample sample = MakeSamples(1, 3)[0];
  sample.mutable_counts()->mutable_dense()->set_values(0, 1000);
  ASSERT_TRUE(WriteWindow(Path("w.rpw"), header, SourceOf({sample})).ok());
  const absl::Status status = LoadWindow(Path("w.rpw")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(Path("w.rpw")));
  ASSERT_FALSE(ViolationsOf(status).empty());
  EXPECT_THAT(ViolationsOf(status)[0].field, HasSubstr("samples[0].counts"));
}

TEST_F(WindowFileTest, MissingFilesAndFoldersAreNamed) {
  const absl::Status missing = OpenWindow(Path("none.rpw")).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("none.rpw"));
  EXPECT_FALSE(OpenWindow(folder_.string()).ok());
  EXPECT_FALSE(ReadPlan(Path("none.rpp")).ok());
  EXPECT_FALSE(
      WriteWindow(Path("no/folder/w.rpw"), MakeHeader(0), SourceOf({})).ok());
}

TEST_F(WindowFileTest, EveryTruncationIsAnError) {
  ASSERT_TRUE(
      WriteWindow(Path("w.rpw"), MakeHeader(3), SourceOf(MakeSamples(3, 4)))
          .ok());
  const std::string whole = Contents(Path("w.rpw"));
  for (size_t length = 0; length < whole.size(); ++length) {
    Write(Path("cut.rpw"), whole.substr(0, length));
    absl::StatusOr<WindowFile> file = OpenWindow(Path("cut.rpw"));
    const absl::Status status =
        file.ok() ? ReadAll(file->next).status() : file.status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << length;
    EXPECT_THAT(std::string(status.message()), HasSubstr("cut.rpw: truncated"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("record "));
  }
}

TEST_F(WindowFileTest, CorruptBytesNeverPassUnnoticedAsAnotherStructure) {
  ASSERT_TRUE(
      WriteWindow(Path("w.rpw"), MakeHeader(3), SourceOf(MakeSamples(3, 5)))
          .ok());
  const std::string whole = Contents(Path("w.rpw"));
  std::mt19937 random(6);
  for (int round = 0; round < 300; ++round) {
    std::string bytes = whole;
    bytes[random() % bytes.size()] = static_cast<char>(random());
    Write(Path("bad.rpw"), bytes);
    absl::StatusOr<WindowFile> file = OpenWindow(Path("bad.rpw"));
    if (!file.ok()) {
      EXPECT_THAT(std::string(file.status().message()), HasSubstr("bad.rpw"));
      continue;
    }
    absl::StatusOr<std::vector<v1::Sample>> read = ReadAll(file->next);
    if (read.ok()) {
      EXPECT_EQ(read->size(), file->header.num_samples());
    } else {
      EXPECT_THAT(std::string(read.status().message()), HasSubstr("record "));
    }
  }
}

TEST_F(WindowFileTest, RecordsOutOfOrderAreRefusedByNumber) {
  const v1::WindowHeader header = MakeHeader(1);
  v1::WindowRecord first;
  *first.mutable_header() = header;
  v1::WindowRecord chunk;
  *chunk.mutable_chunk()->add_samples() = MakeSamples(1, 7)[0];
  v1::WindowRecord late = chunk;
  late.mutable_chunk()->set_index(1);
  v1::WindowRecord seal;
  seal.mutable_seal()->set_num_chunks(1);
  v1::WindowRecord wrong_seal;
  wrong_seal.mutable_seal()->set_num_chunks(2);
  v1::WindowRecord empty_chunk;
  empty_chunk.mutable_chunk();

  const auto file = [&](const std::vector<v1::WindowRecord>& records) {
    std::string bytes;
    for (const v1::WindowRecord& record : records) {
      const std::string encoded = record.SerializeAsString();
      EXPECT_LT(encoded.size(), 128u);
      bytes += static_cast<char>(encoded.size());
      bytes += encoded;
    }
    Write(Path("w.rpw"), bytes);
    absl::StatusOr<WindowFile> opened = OpenWindow(Path("w.rpw"));
    if (!opened.ok()) return std::string(opened.status().message());
    return std::string(ReadAll(opened->next).status().message());
  };
  EXPECT_EQ(file({first, chunk, seal}), "");
  EXPECT_THAT(file({chunk, seal}), HasSubstr("record 1 is not a header"));
  EXPECT_THAT(file({first, late, seal}), HasSubstr("record 2 is chunk 1"));
  EXPECT_THAT(file({first, chunk, wrong_seal}), HasSubstr("record 3 seals 2"));
  EXPECT_THAT(file({first, first}), HasSubstr("record 2 is a second header"));
  EXPECT_THAT(file({first, empty_chunk}), HasSubstr("record 2 is a chunk of"));
  EXPECT_THAT(file({first, chunk, seal, seal}),
              HasSubstr("record 4 comes after the seal"));
  v1::WindowRecord no_chunks;
  no_chunks.mutable_seal();
  EXPECT_THAT(file({first, no_chunks}),
              HasSubstr("0 samples, but header.num_samples is 1"));
}

TEST_F(WindowFileTest, OversizedRecordsAreRefusedBeforeTheyAreRead) {
  Write(Path("w.rpw"), "\xff\xff\xff\xff\x07");
  const absl::Status status = OpenWindow(Path("w.rpw")).status();
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("record 1 claims 2147483647 bytes"));
  Write(Path("w.rpw"), std::string(20, '\xff'));
  EXPECT_THAT(std::string(OpenWindow(Path("w.rpw")).status().message()),
              HasSubstr("has no valid size"));
}

TEST_F(WindowFileTest, FailedWritesLeaveTheOldFileAndNothingElse) {
  Write(Path("w.rpw"), "old");
  Write(Path("w.json"), "old");
  for (const char* name : {"w.rpw", "w.json"}) {
    const absl::Status status =
        WriteWindow(Path(name), MakeHeader(4), SourceOf(MakeSamples(3, 8)));
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("header.num_samples is 4, but 3 samples"));
    EXPECT_THAT(std::string(status.message()), HasSubstr(Path(name)));
    EXPECT_EQ(Contents(Path(name)), "old");
  }
  const absl::Status failed = WriteWindow(
      Path("w.rpw"), MakeHeader(4), [](v1::Sample*) -> absl::StatusOr<bool> {
        return absl::AbortedError("no more disk");
      });
  EXPECT_EQ(failed.code(), absl::StatusCode::kAborted);
  const auto files = std::filesystem::directory_iterator(folder_);
  EXPECT_EQ(std::distance(begin(files), end(files)), 2);
}

TEST_F(WindowFileTest, DevicesAreWrittenInPlace) {
  ASSERT_TRUE(
      WriteWindow("/dev/null", MakeHeader(2), SourceOf(MakeSamples(2, 9)))
          .ok());
  struct stat info;
  ASSERT_EQ(stat("/dev/null", &info), 0);
  EXPECT_TRUE(S_ISCHR(info.st_mode));
}

TEST_F(WindowFileTest, PlansSurviveBothFormats) {
  v1::Plan plan;
  plan.mutable_key()->set_job_id("job");
  plan.mutable_rows()->set_rows(3);
  plan.mutable_routepack()->mutable_score()->set_total(int64_t{1} << 60);
  plan.mutable_routepack()->set_joint(0.1);
  for (int i = 0; i < 2000; ++i) plan.add_imputed_sample_ids(i);
  for (const char* name : {"p.json", "p.rpp"}) {
    ASSERT_TRUE(WritePlan(Path(name), plan).ok());
    absl::StatusOr<v1::Plan> read = ReadPlan(Path(name));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE(MessageDifferencer::Equals(*read, plan)) << name;
  }
  const std::string whole = Contents(Path("p.rpp"));
  for (size_t length = 0; length < whole.size(); length += 97) {
    Write(Path("cut.rpp"), whole.substr(0, length));
    const absl::Status status = ReadPlan(Path("cut.rpp")).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << length;
    EXPECT_THAT(std::string(status.message()), HasSubstr("cut.rpp: truncated"));
  }
  Write(Path("long.rpp"), whole + "x");
  EXPECT_THAT(std::string(ReadPlan(Path("long.rpp")).status().message()),
              HasSubstr("not a plan file"));
}

// Chunks of samples, cut by the obvious rule: encode, and see if it fits.
std::vector<v1::SampleChunk> CutSlowly(const std::vector<v1::Sample>& samples,
                                       size_t max_bytes) {
  std::vector<v1::SampleChunk> chunks;
  for (const v1::Sample& sample : samples) {
    if (!chunks.empty()) {
      v1::SampleChunk longer = chunks.back();
      *longer.add_samples() = sample;
      longer.set_index(0xffffffff);
      if (longer.ByteSizeLong() <= max_bytes) {
        longer.set_index(chunks.back().index());
        chunks.back() = longer;
        continue;
      }
    }
    v1::SampleChunk chunk;
    chunk.set_index(static_cast<uint32_t>(chunks.size()));
    *chunk.add_samples() = sample;
    chunks.push_back(chunk);
  }
  return chunks;
}

TEST(ForEachChunk, CutsLikeTheSlowTwinAndStaysWithinTheLimit) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const std::vector<v1::Sample> samples = MakeSamples(seed * 5, seed);
    for (size_t limit : {40u, 64u, 200u, 1u << 20}) {
      std::vector<v1::SampleChunk> chunks;
      absl::StatusOr<uint32_t> count =
          ForEachChunk(SourceOf(samples), limit, [&](v1::SampleChunk&& chunk) {
            EXPECT_LE(chunk.ByteSizeLong(), limit);
            chunks.push_back(std::move(chunk));
            return absl::OkStatus();
          });
      ASSERT_TRUE(count.ok()) << count.status();
      const std::vector<v1::SampleChunk> expected = CutSlowly(samples, limit);
      ASSERT_EQ(*count, expected.size());
      ASSERT_EQ(chunks.size(), expected.size());
      for (size_t c = 0; c < chunks.size(); ++c) {
        EXPECT_TRUE(MessageDifferencer::Equals(chunks[c], expected[c]));
      }
    }
  }
}

TEST(ForEachChunk, SampleAboveTheLimitIsNamed) {
  v1::Sample sample;
  sample.set_id(77);
  sample.mutable_counts()->mutable_routed_experts()->set_u8(
      std::string(100, 'x'));
  const absl::Status status =
      ForEachChunk(SourceOf({sample}), 50, [](v1::SampleChunk&&) {
        return absl::OkStatus();
      }).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("sample 77"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("count its"));
}

TEST(ForEachChunk, ErrorsOfEitherSideStopIt) {
  int emitted = 0;
  EXPECT_EQ(ForEachChunk(SourceOf(MakeSamples(20, 1)), 40,
                         [&](v1::SampleChunk&&) {
                           ++emitted;
                           return absl::AbortedError("full");
                         })
                .status()
                .message(),
            "full");
  EXPECT_EQ(emitted, 1);
  EXPECT_EQ(ForEachChunk(
                [](v1::Sample*) -> absl::StatusOr<bool> {
                  return absl::DataLossError("gone");
                },
                40, [](v1::SampleChunk&&) { return absl::OkStatus(); })
                .status()
                .message(),
            "gone");
}

TEST(SamplesDigest, TellsSamplesApartAndReadsThemAll) {
  const std::vector<v1::Sample> samples = MakeSamples(20, 1);
  const auto digest = SamplesDigest(SourceOf(samples));
  ASSERT_TRUE(digest.ok());
  EXPECT_EQ(digest->size(), 32);
  EXPECT_EQ(*SamplesDigest(SourceOf(samples)), *digest);
  std::vector<v1::Sample> other = samples;
  other.back().set_id(7);
  EXPECT_NE(*SamplesDigest(SourceOf(other)), *digest);
  other = samples;
  std::swap(other[0], other[1]);
  EXPECT_NE(*SamplesDigest(SourceOf(other)), *digest);
  other = samples;
  other.pop_back();
  EXPECT_NE(*SamplesDigest(SourceOf(other)), *digest);
  EXPECT_EQ(SamplesDigest([](v1::Sample*) -> absl::StatusOr<bool> {
              return absl::DataLossError("gone");
            }).status(),
            absl::DataLossError("gone"));
}

TEST(SamplesDigest, LeavesADigestThatIsGiven) {
  v1::WindowHeader header = MakeHeader(20);
  ASSERT_TRUE(FillContentDigest(SourceOf(MakeSamples(20, 1)), header).ok());
  EXPECT_EQ(header.content_digest(),
            *SamplesDigest(SourceOf(MakeSamples(20, 1))));
  header.set_content_digest("mine");
  ASSERT_TRUE(FillContentDigest(SourceOf(MakeSamples(20, 2)), header).ok());
  EXPECT_EQ(header.content_digest(), "mine");
}

}  // namespace
}  // namespace routepack
