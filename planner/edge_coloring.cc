#include "planner/edge_coloring.h"

#include <bit>
#include <cassert>

namespace routepack {
namespace {

constexpr uint32_t kNone = ~uint32_t{0};

}  // namespace

EdgeColoring::EdgeColoring(uint32_t num_nodes, uint32_t num_colors)
    : num_nodes_(num_nodes),
      num_colors_(num_colors),
      words_((size_t{num_colors} + 63) / 64),
      edge_of_(2 * size_t{num_nodes} * num_colors, 0),
      free_(2 * size_t{num_nodes} * words_, ~uint64_t{0}) {
  if (num_colors % 64 == 0) return;
  for (size_t last = words_ - 1; last < free_.size(); last += words_) {
    free_[last] = (uint64_t{1} << (num_colors % 64)) - 1;
  }
}

void EdgeColoring::SetFree(Side side, uint32_t node, uint32_t color,
                           bool free) {
  uint64_t& word = free_[At(side, node) * words_ + color / 64];
  const uint64_t bit = uint64_t{1} << (color % 64);
  word = free ? word | bit : word & ~bit;
}

// The first colour in both sets at or after `from`, else from 0 on.
uint32_t EdgeColoring::FirstFree(const uint64_t* a, const uint64_t* b,
                                 uint32_t from) const {
  const size_t first = from / 64;
  for (size_t k = 0; k <= words_; ++k) {
    const size_t w = (first + k) % words_;
    uint64_t both = a[w] & b[w];
    const uint64_t below = (uint64_t{1} << (from % 64)) - 1;
    if (k == 0) both &= ~below;
    if (k == words_) both &= below;
    if (both != 0) {
      return static_cast<uint32_t>(w * 64) +
             static_cast<uint32_t>(std::countr_zero(both));
    }
  }
  return kNone;
}

void EdgeColoring::Put(uint32_t edge, uint32_t color) {
  edges_[edge].color = color;
  for (const Side side : {kSource, kTarget}) {
    EdgeOf(side, edges_[edge].end[side], color) = edge + 1;
    SetFree(side, edges_[edge].end[side], color, false);
  }
}

void EdgeColoring::Lift(uint32_t edge) {
  const uint32_t color = edges_[edge].color;
  for (const Side side : {kSource, kTarget}) {
    EdgeOf(side, edges_[edge].end[side], color) = 0;
    SetFree(side, edges_[edge].end[side], color, true);
  }
}

// Makes `wanted` free at a target by exchanging it with `other` along the path
// of these colours. The path does not end at a source where `wanted` is free:
// it enters sources by edges that have it.
void EdgeColoring::FreeAtTarget(uint32_t node, uint32_t wanted,
                                uint32_t other) {
  path_.clear();
  Side side = kTarget;
  uint32_t color = wanted;
  while (const uint32_t edge = EdgeOf(side, node, color)) {
    path_.push_back(edge - 1);
    side = side == kTarget ? kSource : kTarget;
    node = edges_[edge - 1].end[side];
    color = color == wanted ? other : wanted;
  }
  for (const uint32_t edge : path_) Lift(edge);
  for (const uint32_t edge : path_) {
    Put(edge, edges_[edge].color == wanted ? other : wanted);
  }
}

void EdgeColoring::Add(uint32_t source, uint32_t target, uint32_t wish) {
  const uint64_t* at_source = Free(kSource, source);
  const uint64_t* at_target = Free(kTarget, target);
  uint32_t color = FirstFree(at_source, at_target, wish);
  if (color == kNone) {
    color = FirstFree(at_source, at_source, wish);
    const uint32_t other = FirstFree(at_target, at_target, wish);
    assert(color != kNone && other != kNone);
    FreeAtTarget(target, color, other);
  }
  edges_.push_back({{source, target}, color});
  Put(static_cast<uint32_t>(edges_.size() - 1), color);
}

}  // namespace routepack
