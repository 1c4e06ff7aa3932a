// Messages and matchers that the codec's tests share.

#ifndef ROUTEPACK_TESTS_CODEC_TEST_MESSAGES_H_
#define ROUTEPACK_TESTS_CODEC_TEST_MESSAGES_H_

#include <cstdint>
#include <cstring>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "google/protobuf/util/json_util.h"
#include "gtest/gtest.h"
#include "planner/errors.h"
#include "routepack/v1/window.pb.h"

namespace routepack {

inline std::string ReadTestData(const std::string& name) {
  const std::string path = std::string(ROUTEPACK_TEST_DATA) + "/" + name;
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// The hand-written window: 16 samples, 2 layers, 8 experts, EP 4, DP 4.
inline v1::Window TinyWindow() {
  v1::Window window;
  const auto status = google::protobuf::util::JsonStringToMessage(
      ReadTestData("tiny_window.json"), &window);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return window;
}

// Paths of all violations, in order.
inline std::vector<std::string> Fields(const absl::Status& status) {
  std::vector<std::string> fields;
  for (const FieldViolation& v : ViolationsOf(status)) {
    fields.push_back(v.field);
  }
  return fields;
}

// Little-endian bytes, value by value.
template <typename T>
std::string LittleEndian(const std::vector<uint32_t>& values) {
  std::string bytes;
  for (const uint32_t value : values) {
    for (size_t b = 0; b < sizeof(T); ++b) {
      bytes.push_back(static_cast<char>(value >> (8 * b)));
    }
  }
  return bytes;
}

// Uniform in [0, n), from mt19937_64, whose output the standard fixes.
inline uint32_t Below(std::mt19937_64& random, uint32_t n) {
  return static_cast<uint32_t>(random() % n);
}

// A sample's recorded routing [T, L, k], each token k different experts; k is
// at most 3, E at least 4 and not 6.
inline std::vector<uint32_t> RandomIds(std::mt19937_64& random, uint32_t rows,
                                       uint32_t layers, uint32_t experts,
                                       uint32_t top_k) {
  std::vector<uint32_t> ids;
  for (uint32_t row = 0; row < rows * layers; ++row) {
    const uint32_t first = Below(random, experts);
    for (uint32_t j = 0; j < top_k; ++j) {
      ids.push_back((first + j * (1 + 2 * (row % 2))) % experts);
    }
  }
  return ids;
}

// [L, E] counts of ids [T, L, k].
inline std::vector<uint32_t> CountIds(const std::vector<uint32_t>& ids,
                                      uint32_t layers, uint32_t experts,
                                      uint32_t top_k) {
  std::vector<uint32_t> counts(size_t{layers} * experts);
  for (size_t j = 0; j < ids.size(); ++j) {
    ++counts[j / top_k % layers * experts + ids[j]];
  }
  return counts;
}

}  // namespace routepack

#endif  // ROUTEPACK_TESTS_CODEC_TEST_MESSAGES_H_
