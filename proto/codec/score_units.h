// Scores and costs: planner values are integers in score units, messages state
// costs in token-cap units, of which each is 256 C score units (spec 1.4).

#ifndef ROUTEPACK_PROTO_CODEC_SCORE_UNITS_H_
#define ROUTEPACK_PROTO_CODEC_SCORE_UNITS_H_

#include <cmath>
#include <cstdint>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "planner/errors.h"
#include "planner/layout.h"
#include "planner/window.h"
#include "routepack/v1/plan.pb.h"

namespace routepack {

// Score units of one token-cap unit.
inline double UnitsPerCap(const Window& window) {
  return static_cast<double>(kScoreScale) * window.spec().token_cap;
}

// Back to score units: exact below 2^51 of them. 0, and a violation at `field`,
// when it is negative, not finite or too large.
inline int64_t DecodeCost(double cost, const Window& window,
                          std::string_view field, Violations& bad) {
  const double units = cost * UnitsPerCap(window);
  if (units >= 0 && units < 0x1p62) return std::llround(units);
  bad.Add(field, absl::StrCat("is ", cost, ", out of range"));
  return 0;
}

inline void EncodeScore(const Score& score, v1::ExactScore* message) {
  message->set_slowest_shard(score.slowest_shard);
  message->set_total(score.total);
  message->set_worst_row(score.worst_row);
}

inline Score DecodeScore(const v1::ExactScore& message) {
  return {.slowest_shard = message.slowest_shard(),
          .total = message.total(),
          .worst_row = message.worst_row()};
}

}  // namespace routepack

#endif  // ROUTEPACK_PROTO_CODEC_SCORE_UNITS_H_
