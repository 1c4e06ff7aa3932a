// Structured log lines through spdlog: a message and named fields, as text
//
//   2026-11-30 12:00:00.123 info call request_id=7f3a-12 status=OK ms=1.25
//
// or one JSON object a line. Thread-safe.
//
//   Log log = *Log::Create("json", "info");
//   log.Info("listening", {{"address", "127.0.0.1:7070"}});

#ifndef ROUTEPACK_SERVER_LOG_H_
#define ROUTEPACK_SERVER_LOG_H_

#include <cmath>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "spdlog/logger.h"

namespace routepack::server {

class LogField {
 public:
  // `name` is a literal, a plain word; text may hold any bytes.
  LogField(absl::string_view name, std::string text)
      : name_(name), value_(std::move(text)) {}
  // JSON has no infinities and no NaN: those stay text.
  template <typename Number>
  requires std::is_arithmetic_v<Number> LogField(absl::string_view name,
                                                 Number number)
      : name_(name),
        value_(absl::StrCat(number)),
        is_number_(std::isfinite(static_cast<double>(number))) {}

  absl::string_view name() const { return name_; }
  const std::string& value() const { return value_; }
  bool is_number() const { return is_number_; }

 private:
  absl::string_view name_;
  std::string value_;
  bool is_number_ = false;
};

class Log {
 public:
  using Fields = std::vector<LogField>;

  // To standard error. INVALID_ARGUMENT: unknown format or level.
  static absl::StatusOr<Log> Create(absl::string_view format,
                                    absl::string_view level);
  // To a sink of the caller's.
  static absl::StatusOr<Log> Create(absl::string_view format,
                                    absl::string_view level,
                                    spdlog::sink_ptr sink);

  void Debug(absl::string_view message, const Fields& fields = {}) const {
    Write(spdlog::level::debug, message, fields);
  }
  void Info(absl::string_view message, const Fields& fields = {}) const {
    Write(spdlog::level::info, message, fields);
  }
  void Warn(absl::string_view message, const Fields& fields = {}) const {
    Write(spdlog::level::warn, message, fields);
  }
  void Error(absl::string_view message, const Fields& fields = {}) const {
    Write(spdlog::level::err, message, fields);
  }

 private:
  Log(std::shared_ptr<spdlog::logger> logger, bool json)
      : logger_(std::move(logger)), json_(json) {}
  void Write(spdlog::level::level_enum level, absl::string_view message,
             const Fields& fields) const;

  std::shared_ptr<spdlog::logger> logger_;
  bool json_;
};

}  // namespace routepack::server

#endif  // ROUTEPACK_SERVER_LOG_H_
