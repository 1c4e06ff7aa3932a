// Tables for people: plain text, columns padded, numbers to the right.
//
//   Table table({"arm", "peak sum", "joint"});
//   table.AddRow({"baseline", "812,334", "97.31"});
//   std::cout << table.ToString();

#ifndef ROUTEPACK_CLIENT_CLI_TABLE_H_
#define ROUTEPACK_CLIENT_CLI_TABLE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace routepack::cli {

class Table {
 public:
  // The first `left` columns are aligned to the left, the others to the right.
  explicit Table(std::vector<std::string> header, size_t left = 1);

  // Cells that are missing are empty.
  void AddRow(std::vector<std::string> cells);

  // Header, a rule, rows; each line indented by two and ended. Widths count
  // bytes: cells are ASCII.
  std::string ToString() const;

 private:
  size_t left_;
  std::vector<std::vector<std::string>> rows_;  // the header first
};

std::string WithCommas(uint64_t value);             // "1,234,567"
std::string Fixed(double value, int digits);        // "12.35"
std::string Percent(double ratio, int digits = 2);  // 0.1 is "10.00%"
std::string Change(double before, double after);    // "-3.13%", "-" from 0
std::string Milliseconds(double seconds);           // "12.3 ms"
std::string Rounded(double value);                  // "1.25 M", "87.3 k"
std::string Bytes(uint64_t bytes);                  // "64.0 MiB"
// One character a value, from ' ' (0) to '@' (the largest); none is negative.
std::string Sparkline(const std::vector<double>& values);

}  // namespace routepack::cli

#endif  // ROUTEPACK_CLIENT_CLI_TABLE_H_
