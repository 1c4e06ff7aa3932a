// A folder of its own for every test.

#ifndef ROUTEPACK_TESTS_CLIENT_TEMP_FOLDER_H_
#define ROUTEPACK_TESTS_CLIENT_TEMP_FOLDER_H_

#include <stdlib.h>

#include <filesystem>
#include <string>

#include "gtest/gtest.h"

namespace routepack {

class TempFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "/routepack_XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr) << name;
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name) const {
    return (folder_ / name).string();
  }

  std::filesystem::path folder_;
};

}  // namespace routepack

#endif  // ROUTEPACK_TESTS_CLIENT_TEMP_FOLDER_H_
