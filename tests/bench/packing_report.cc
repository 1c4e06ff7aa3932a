#include "tests/bench/packing_report.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace routepack {
namespace {

// Characters, not bytes, of UTF-8.
size_t Width(std::string_view text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

void WriteRow(const std::vector<std::string>& cells,
              const std::vector<size_t>& widths, std::ostream& out) {
  for (size_t k = 0; k < cells.size(); ++k) {
    const std::string space(widths[k] - Width(cells[k]), ' ');
    out << "| " << (k == 0 ? cells[k] + space : space + cells[k]) << " ";
  }
  out << "|\n";
}

std::string Quoted(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

std::string List(const std::vector<std::string>& texts) {
  return absl::StrCat(
      "[",
      absl::StrJoin(texts, ", ",
                    [](std::string* out, const std::string& text) {
                      out->append(Quoted(text));
                    }),
      "]");
}

// 97.5 % quantile of Student's t, by Cornish and Fisher's expansion in 1/f
// (Abramowitz and Stegun, 26.7.5); to 1 % from 4 degrees of freedom on.
double StudentQuantile(double f) {
  constexpr double z = 1.959963984540054;
  const double z3 = z * z * z;
  const double z5 = z3 * z * z;
  const double z7 = z5 * z * z;
  return z + (z3 + z) / (4 * f) + (5 * z5 + 16 * z3 + 3 * z) / (96 * f * f) +
         (3 * z7 + 19 * z5 + 17 * z3 - 15 * z) / (384 * f * f * f);
}

}  // namespace

void WriteMarkdown(const std::vector<Table>& tables, std::ostream& out) {
  for (const Table& table : tables) {
    std::vector<size_t> widths;
    for (size_t k = 0; k < table.columns.size(); ++k) {
      widths.push_back(Width(table.columns[k]));
      for (const auto& row : table.rows) {
        widths[k] = std::max(widths[k], Width(row[k]));
      }
    }
    out << "## " << table.title << "\n\n";
    WriteRow(table.columns, widths, out);
    for (size_t k = 0; k < widths.size(); ++k) {
      out << "| " << std::string(widths[k] - (k == 0 ? 0 : 1), '-')
          << (k == 0 ? " " : ": ");
    }
    out << "|\n";
    for (const auto& row : table.rows) WriteRow(row, widths, out);
    out << "\n";
    for (const std::string& note : table.notes) out << note << "\n\n";
  }
}

void WriteJson(const std::vector<Table>& tables, std::ostream& out) {
  out << "[";
  for (const Table& table : tables) {
    if (&table != &tables.front()) out << ",";
    out << "\n{\"title\": " << Quoted(table.title)
        << ", \"columns\": " << List(table.columns) << ", \"rows\": [";
    for (const auto& row : table.rows) {
      if (&row != &table.rows.front()) out << ", ";
      out << List(row);
    }
    out << "], \"notes\": " << List(table.notes) << "}";
  }
  out << "\n]\n";
}

double Mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) /
         static_cast<double>(values.size());
}

double Deviation(const std::vector<double>& values) {
  if (values.size() < 2) return 0;
  const double mean = Mean(values);
  double sum = 0;
  for (double value : values) sum += (value - mean) * (value - mean);
  return std::sqrt(sum / static_cast<double>(values.size() - 1));
}

double Interval95(const std::vector<double>& values) {
  if (values.size() < 2) return 0;
  const auto n = static_cast<double>(values.size());
  return StudentQuantile(n - 1) * Deviation(values) / std::sqrt(n);
}

std::string MeanAndDeviation(const std::vector<double>& values, int digits) {
  return absl::StrFormat("%.*f ± %.*f", digits, Mean(values), digits,
                         Deviation(values));
}

}  // namespace routepack
