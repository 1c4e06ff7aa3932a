// Tables and statistics of packing_bench.

#ifndef ROUTEPACK_TESTS_BENCH_PACKING_REPORT_H_
#define ROUTEPACK_TESTS_BENCH_PACKING_REPORT_H_

#include <ostream>
#include <string>
#include <vector>

namespace routepack {

struct Table {
  std::string title;
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
  std::vector<std::string> notes;
};

void WriteMarkdown(const std::vector<Table>& tables, std::ostream& out);
// [{"title", "columns", "rows", "notes"}]
void WriteJson(const std::vector<Table>& tables, std::ostream& out);

double Mean(const std::vector<double>& values);
// Of a sample: n - 1. 0 of fewer than two values.
double Deviation(const std::vector<double>& values);
// Half of the 95 % interval of the mean (Student's t); 0 of fewer than two.
double Interval95(const std::vector<double>& values);

// "-3.14 ± 0.25"
std::string MeanAndDeviation(const std::vector<double>& values, int digits);

}  // namespace routepack

#endif  // ROUTEPACK_TESTS_BENCH_PACKING_REPORT_H_
