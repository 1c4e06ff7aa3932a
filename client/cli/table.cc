#include "client/cli/table.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace routepack::cli {

Table::Table(std::vector<std::string> header, size_t left) : left_(left) {
  rows_.push_back(std::move(header));
}

void Table::AddRow(std::vector<std::string> cells) {
  cells.resize(rows_[0].size());
  rows_.push_back(std::move(cells));
}

std::string Table::ToString() const {
  std::vector<size_t> widths(rows_[0].size(), 0);
  for (const auto& row : rows_) {
    for (size_t c = 0; c < row.size(); ++c) {
      widths[c] = std::max(widths[c], row[c].size());
    }
  }
  std::string text;
  for (size_t r = 0; r < rows_.size(); ++r) {
    std::string line;
    for (size_t c = 0; c < widths.size(); ++c) {
      const std::string padding(widths[c] - rows_[r][c].size(), ' ');
      absl::StrAppend(&line, "  ", c < left_ ? "" : padding, rows_[r][c],
                      c < left_ ? padding : "");
    }
    line.erase(line.find_last_not_of(' ') + 1);
    absl::StrAppend(&text, line, "\n");
    if (r > 0) continue;
    for (size_t width : widths) {
      absl::StrAppend(&text, "  ", std::string(width, '-'));
    }
    absl::StrAppend(&text, "\n");
  }
  return text;
}

std::string WithCommas(uint64_t value) {
  std::string digits = absl::StrCat(value);
  for (size_t i = digits.size(); i > 3; i -= 3) digits.insert(i - 3, 1, ',');
  return digits;
}

std::string Fixed(double value, int digits) {
  return absl::StrFormat("%.*f", digits, value);
}

std::string Percent(double ratio, int digits) {
  return absl::StrFormat("%.*f%%", digits, 100 * ratio);
}

std::string Change(double before, double after) {
  if (before == 0) return after == 0 ? "0.00%" : "-";
  return absl::StrFormat("%+.2f%%", 100 * (after / before - 1));
}

std::string Milliseconds(double seconds) {
  return absl::StrFormat("%.1f ms", 1e3 * seconds);
}

std::string Rounded(double value) {
  if (value >= 1e6) return absl::StrFormat("%.2f M", value / 1e6);
  if (value >= 1e3) return absl::StrFormat("%.1f k", value / 1e3);
  return absl::StrFormat("%.0f", value);
}

std::string Bytes(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? absl::StrFormat("%d B", bytes)
                   : absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

std::string Sparkline(const std::vector<double>& values) {
  static constexpr char kLevels[] = " .:-=+*#%@";
  constexpr int kTop = sizeof(kLevels) - 2;
  const double top =
      values.empty() ? 0 : *std::max_element(values.begin(), values.end());
  std::string line;
  for (double value : values) {
    line +=
        kLevels[top > 0 ? static_cast<int>(std::ceil(kTop * value / top)) : 0];
  }
  return line;
}

}  // namespace routepack::cli
