// Windows to pack in benchmarks: recorded ones under several meshes and caps,
// and generated presets. Placement is LPT and rows are the fewest.

#ifndef ROUTEPACK_TESTS_BENCH_PACKING_CASES_H_
#define ROUTEPACK_TESTS_BENCH_PACKING_CASES_H_

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/bounds.h"
#include "planner/layout.h"
#include "planner/placement.h"
#include "planner/window.h"

namespace routepack {

template <typename T>
T OrExit(absl::StatusOr<T> value) {
  if (!value.ok()) {
    std::cerr << value.status() << "\n";
    std::exit(1);
  }
  return *std::move(value);
}

struct PackingCase {
  std::string setting;  // mesh and cap
  std::string window;
  std::shared_ptr<const Window> samples;
  Placement placement;
  PackingProblem problem;
  Layout length;  // length-only packing
  ScoreBounds bounds;
  uint64_t peak_floor = 0;  // of the EP peak sum, for the placement
};

// Window `step` of a generated preset.
PackingCase PresetCase(const std::string& preset, uint64_t step);

// All settings, at most `windows` of each: five or more of them are there.
// `data` is the folder of the recorded windows.
std::vector<PackingCase> PackingCases(const std::string& data, size_t windows);

}  // namespace routepack

#endif  // ROUTEPACK_TESTS_BENCH_PACKING_CASES_H_
