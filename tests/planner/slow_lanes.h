// The optimizer's view of an expert, element by element: slow twin of
// LaneLayout::FromBuffer.

#ifndef ROUTEPACK_TESTS_PLANNER_SLOW_LANES_H_
#define ROUTEPACK_TESTS_PLANNER_SLOW_LANES_H_

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "planner/lane_layout.h"
#include "tests/planner/test_windows.h"

namespace routepack {

// [l][h][element] the lane that owns it.
using SlowLanes = std::vector<std::vector<std::vector<uint32_t>>>;

// Writes every buffer out as a list of elements and cuts its buckets.
inline SlowLanes LanesElementByElement(const GradientBuffer& buffer,
                                       uint32_t num_layers, uint32_t slots,
                                       uint32_t num_lanes) {
  struct Named {
    uint32_t layer, slot, parameter;
  };
  struct Element {
    uint32_t layer = 0, slot = 0;
    uint64_t index = 0;
    bool padding = true;
  };
  std::vector<uint64_t> first(1, 0);
  for (const ExpertParameter& parameter : buffer.parameters) {
    first.push_back(first.back() + parameter.elements);
  }
  SlowLanes lanes(num_layers,
                  std::vector<std::vector<uint32_t>>(
                      slots, std::vector<uint32_t>(first.back(), ~0u)));
  std::set<std::pair<uint32_t, uint32_t>> buffers;
  const auto chunk = [&](uint32_t l) {
    return buffer.chunk_of_layer.empty() ? 0 : buffer.chunk_of_layer[l];
  };
  for (uint32_t l = 0; l < num_layers; ++l) {
    for (const auto& parameter : buffer.parameters) {
      buffers.insert({chunk(l), parameter.buffer});
    }
  }
  for (const auto& [which_chunk, dtype] : buffers) {
    std::vector<Named> order;
    for (uint32_t l = 0; l < num_layers; ++l) {
      if (chunk(l) != which_chunk) continue;
      const auto add = [&, dtype = dtype](uint32_t h, uint32_t j) {
        if (buffer.parameters[j].buffer == dtype) order.push_back({l, h, j});
      };
      const auto count = static_cast<uint32_t>(buffer.parameters.size());
      if (buffer.grouped) {
        for (uint32_t j = 0; j < count; ++j) {
          for (uint32_t h = 0; h < slots; ++h) add(h, j);
        }
      } else {
        for (uint32_t h = 0; h < slots; ++h) {
          for (uint32_t j = 0; j < count; ++j) add(h, j);
        }
      }
    }
    if (buffer.reversed) std::reverse(order.begin(), order.end());
    std::vector<Element> bucket;
    uint64_t before = 0;  // elements of earlier buckets
    for (size_t k = 0; k < order.size(); ++k) {
      while ((before + bucket.size()) % buffer.start_alignment != 0) {
        bucket.push_back({});
      }
      const uint64_t size = buffer.parameters[order[k].parameter].elements;
      for (uint64_t x = 0; x < size; ++x) {
        bucket.push_back({order[k].layer, order[k].slot,
                          first[order[k].parameter] + x, false});
      }
      const bool full = buffer.bucket_elements != 0 &&
                        bucket.size() >= buffer.bucket_elements;
      if (!full && k + 1 < order.size()) continue;
      while ((before + bucket.size()) % num_lanes != 0 ||
             (before + bucket.size()) % buffer.end_multiple != 0) {
        bucket.push_back({});
      }
      for (size_t x = 0; x < bucket.size(); ++x) {
        if (bucket[x].padding) continue;
        lanes[bucket[x].layer][bucket[x].slot][bucket[x].index] =
            static_cast<uint32_t>(x / (bucket.size() / num_lanes));
      }
      before += bucket.size();
      bucket.clear();
    }
  }
  return lanes;
}

// Small buffers with everything that a layout can have.
inline GradientBuffer RandomBuffer(TestRandom& random, uint32_t num_layers) {
  GradientBuffer buffer;
  const uint32_t parameters = random.Between(1, 3);
  for (uint32_t j = 0; j < parameters; ++j) {
    buffer.parameters.push_back(
        {.elements = random.Between(1, 12), .buffer = random.Below(4) / 3});
  }
  buffer.grouped = random.Below(2) == 0;
  buffer.reversed = random.Below(2) == 0;
  buffer.start_alignment = random.Between(1, 4);
  buffer.end_multiple = random.Between(1, 6);
  if (random.Below(2) == 0) buffer.bucket_elements = random.Between(1, 40);
  for (uint32_t l = 0; l < num_layers && num_layers % 2 == 0; ++l) {
    buffer.chunk_of_layer.push_back(random.Below(2));
  }
  return buffer;
}

}  // namespace routepack

#endif  // ROUTEPACK_TESTS_PLANNER_SLOW_LANES_H_
