#include "server/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"
#include "server/log.h"
#include "spdlog/sinks/ostream_sink.h"

namespace routepack::server {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

TEST(Options, DefaultsAreInRange) { EXPECT_TRUE(ValidateOptions({}).ok()); }

TEST(Options, NamesEveryOptionThatIsOutOfRange) {
  ServerOptions options;
  options.listen = "nowhere";
  options.threads = 1025;
  options.concurrent_plans = 0;
  options.max_open_windows = 0;
  options.window_memory_mb = 0;
  options.max_unary_bytes = 1;
  options.max_chunk_bytes = 1;
  options.upload_idle_timeout = absl::ZeroDuration();
  options.plan_history = 0;
  options.plan_store_mb = 0;
  options.max_list_page = 1001;
  options.drain_timeout = absl::InfiniteDuration();
  options.log_format = "xml";
  options.log_level = "loud";
  const std::string message(ValidateOptions(options).message());
  for (const char* flag :
       {"--listen", "--threads", "--concurrent_plans", "--max_open_windows",
        "--window_memory_mb", "--max_unary_bytes", "--max_chunk_bytes",
        "--upload_idle_timeout", "--plan_history", "--plan_store_mb",
        "--max_list_page", "--drain_timeout", "--log_format", "--log_level"}) {
    EXPECT_THAT(message, HasSubstr(flag));
  }
}

TEST(Options, ListenTakesIpv6AndPortZero) {
  for (const char* good : {"[::1]:7070", "0.0.0.0:0", "localhost:65535"}) {
    EXPECT_TRUE(ValidateOptions({.listen = good}).ok()) << good;
  }
  for (const char* bad : {"", ":7070", "host", "host:", "host:65536"}) {
    EXPECT_FALSE(ValidateOptions({.listen = bad}).ok()) << bad;
  }
}

std::string Logged(const std::string& format, const std::string& message,
                   const Log::Fields& fields) {
  std::ostringstream stream;
  auto log = Log::Create(
      format, "info", std::make_shared<spdlog::sinks::ostream_sink_mt>(stream));
  EXPECT_TRUE(log.ok());
  log->Debug("hidden");
  log->Info(message, fields);
  return stream.str();
}

TEST(Log, TextQuotesWhatIsNotOneWord) {
  EXPECT_THAT(
      Logged("text", "call",
             {{"a", "word"},
              {"b", "two words"},
              {"c", "quo\"te"},
              {"d", ""},
              {"e", "line\nbreak"},
              {"ms", 1.5}}),
      EndsWith("info call a=word b=\"two words\" c=\"quo\\\"te\" d=\"\" "
               "e=\"line\\nbreak\" ms=1.5\n"));
}

TEST(Log, JsonLinesParseWhateverTheText) {
  const std::string line = Logged("json", "a \"message\"",
                                  {{"path", "C:\\x"},
                                   {"bytes", "\xff\n\t"},
                                   {"ms", 2.25},
                                   {"braces", "}{"}});
  google::protobuf::Struct parsed;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(line, &parsed).ok())
      << line;
  const auto& fields = parsed.fields();
  EXPECT_EQ(fields.at("message").string_value(), "a \"message\"");
  EXPECT_EQ(fields.at("level").string_value(), "info");
  EXPECT_EQ(fields.at("path").string_value(), "C:\\x");
  EXPECT_EQ(fields.at("bytes").string_value(), "\\377\\n\\t");
  EXPECT_EQ(fields.at("ms").number_value(), 2.25);
  EXPECT_EQ(fields.at("braces").string_value(), "}{");
  EXPECT_TRUE(fields.contains("time"));
}

TEST(Log, RefusesUnknownFormatsAndLevels) {
  EXPECT_FALSE(Log::Create("xml", "info").ok());
  EXPECT_FALSE(Log::Create("text", "loud").ok());
  EXPECT_TRUE(Log::Create("text", "off").ok());
}

}  // namespace
}  // namespace routepack::server
