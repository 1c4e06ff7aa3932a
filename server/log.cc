#include "server/log.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"
#include "spdlog/sinks/stdout_sinks.h"

namespace routepack::server {
namespace {

bool IsPlainAscii(absl::string_view text) {
  for (unsigned char c : text) {
    if (c < 0x20 || c >= 0x7F) return false;
  }
  return true;
}

// A JSON string. Text that is not plain ASCII is C-escaped first, so that
// bytes which are no UTF-8 cannot break the line.
std::string JsonString(absl::string_view text) {
  google::protobuf::Value value;
  value.set_string_value(IsPlainAscii(text) ? std::string(text)
                                            : absl::CEscape(text));
  std::string json;
  if (!google::protobuf::util::MessageToJsonString(value, &json).ok()) {
    return "\"\"";
  }
  return json;
}

// As it is when it is one word, else quoted.
std::string TextValue(absl::string_view text) {
  if (!IsPlainAscii(text)) {
    return absl::StrCat("\"", absl::CEscape(text), "\"");
  }
  if (!text.empty() && text.find_first_of(" \"\\") == text.npos) {
    return std::string(text);
  }
  return absl::StrCat(
      "\"", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"\"", "\\\""}}), "\"");
}

}  // namespace

absl::StatusOr<Log> Log::Create(absl::string_view format,
                                absl::string_view level) {
  return Create(format, level,
                std::make_shared<spdlog::sinks::stderr_sink_mt>());
}

absl::StatusOr<Log> Log::Create(absl::string_view format,
                                absl::string_view level,
                                spdlog::sink_ptr sink) {
  if (format != "text" && format != "json") {
    return absl::InvalidArgumentError(
        absl::StrCat("log format must be text or json, is \"", format, "\""));
  }
  const spdlog::level::level_enum parsed =
      spdlog::level::from_str(std::string(level));
  if (parsed == spdlog::level::off && level != "off") {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown log level \"", level, "\""));
  }
  const bool json = format == "json";
  auto logger = std::make_shared<spdlog::logger>("routepackd", std::move(sink));
  logger->set_level(parsed);
  logger->flush_on(spdlog::level::info);
  logger->set_pattern(json ? R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l",)"
                             "%v}"
                           : "%Y-%m-%d %H:%M:%S.%e %l %v");
  return Log(std::move(logger), json);
}

void Log::Write(spdlog::level::level_enum level, absl::string_view message,
                const Fields& fields) const {
  if (!logger_->should_log(level)) return;
  std::string line = json_ ? absl::StrCat("\"message\":", JsonString(message))
                           : std::string(message);
  for (const LogField& field : fields) {
    const std::string& value = field.value();
    if (json_) {
      absl::StrAppend(&line, ",\"", field.name(),
                      "\":", field.is_number() ? value : JsonString(value));
    } else {
      absl::StrAppend(&line, " ", field.name(), "=", TextValue(value));
    }
  }
  // spdlog and Abseil may differ in their string_view; both convert to this.
  logger_->log(level, spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace routepack::server
