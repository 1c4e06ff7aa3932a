#include "planner/assignment.h"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <limits>

namespace routepack {
namespace {

constexpr int64_t kFar = std::numeric_limits<int64_t>::max();

// Rows and columns count from 1; column 0 is where the row that is being
// added waits.
class Assigner {
 public:
  Assigner(std::span<const int64_t> costs, uint32_t n)
      : costs_(costs),
        n_(n),
        row_price_(size_t{n} + 1, 0),
        column_price_(size_t{n} + 1, 0),
        row_of_column_(size_t{n} + 1, 0),
        previous_(size_t{n} + 1, 0),
        distance_(size_t{n} + 1),
        settled_(size_t{n} + 1) {}

  // Prices at which most rows find a column that nobody else wants; returns the
  // rows that do not.
  std::vector<uint32_t> Begin() {
    for (uint32_t j = 1; j <= n_; ++j) column_price_[j] = kFar;
    for (size_t k = 0; k < costs_.size(); ++k) {
      int64_t& price = column_price_[k % n_ + 1];
      price = std::min(price, costs_[k]);
    }
    std::vector<uint32_t> left;
    for (uint32_t row = 1; row <= n_; ++row) {
      const int64_t* cost = costs_.data() + size_t{row - 1} * n_;
      int64_t least = kFar;
      for (uint32_t j = 1; j <= n_; ++j) {
        least = std::min(least, cost[j - 1] - column_price_[j]);
      }
      row_price_[row] = least;
      uint32_t column = 1;
      while (column <= n_ &&
             (row_of_column_[column] != 0 ||
              cost[column - 1] - column_price_[column] != least)) {
        ++column;
      }
      if (column <= n_) {
        row_of_column_[column] = row;
      } else {
        left.push_back(row);
      }
    }
    return left;
  }

  void AddRow(uint32_t row) {
    row_of_column_[0] = row;
    std::fill(distance_.begin(), distance_.end(), kFar);
    std::fill(settled_.begin(), settled_.end(), 0);
    uint32_t column = 0;
    do {
      column = Settle(column);
    } while (row_of_column_[column] != 0);
    while (column != 0) {
      const uint32_t before = previous_[column];
      row_of_column_[column] = row_of_column_[before];
      column = before;
    }
  }

  std::vector<uint32_t> Columns() const {
    std::vector<uint32_t> result(n_);
    for (uint32_t column = 1; column <= n_; ++column) {
      result[row_of_column_[column] - 1] = column - 1;
    }
    return result;
  }

 private:
  // Settles a column, prices so that the nearest open one is at distance 0, and
  // returns that one.
  uint32_t Settle(uint32_t column) {
    settled_[column] = 1;
    const uint32_t row = row_of_column_[column];
    const int64_t* cost = costs_.data() + size_t{row - 1} * n_;
    const int64_t price = row_price_[row];
    uint32_t nearest = 0;
    int64_t delta = kFar;
    for (uint32_t j = 1; j <= n_; ++j) {
      if (settled_[j]) continue;
      const int64_t reduced = cost[j - 1] - price - column_price_[j];
      if (reduced < distance_[j]) {
        distance_[j] = reduced;
        previous_[j] = column;
      }
      if (distance_[j] < delta) {
        delta = distance_[j];
        nearest = j;
      }
    }
    for (uint32_t j = 0; j <= n_; ++j) {
      if (settled_[j]) {
        row_price_[row_of_column_[j]] += delta;
        column_price_[j] -= delta;
      } else {
        distance_[j] -= delta;
      }
    }
    return nearest;
  }

  std::span<const int64_t> costs_;
  uint32_t n_;
  std::vector<int64_t> row_price_;       // [row]
  std::vector<int64_t> column_price_;    // [column]
  std::vector<uint32_t> row_of_column_;  // [column]; 0: free
  std::vector<uint32_t> previous_;       // [column] before it on its path
  std::vector<int64_t> distance_;        // [column] from the settled ones
  std::vector<char> settled_;            // [column]
};

}  // namespace

std::vector<uint32_t> MinCostAssignment(std::span<const int64_t> costs,
                                        uint32_t n) {
  assert(costs.size() == size_t{n} * n);
  Assigner assigner(costs, n);
  for (const uint32_t row : assigner.Begin()) assigner.AddRow(row);
  return assigner.Columns();
}

}  // namespace routepack
