#include "planner/edge_coloring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "tests/planner/test_windows.h"

namespace routepack {
namespace {

struct Edge {
  uint32_t source, target;
};

uint32_t Degree(const std::vector<Edge>& edges, uint32_t nodes) {
  std::vector<uint32_t> degree(2 * size_t{nodes}, 0);
  for (const Edge& edge : edges) {
    ++degree[edge.source];
    ++degree[nodes + edge.target];
  }
  return *std::max_element(degree.begin(), degree.end());
}

void ExpectProper(const EdgeColoring& coloring,
                  const std::vector<Edge>& edges) {
  std::set<std::pair<uint32_t, uint32_t>> sources, targets;
  for (uint32_t k = 0; k < edges.size(); ++k) {
    const uint32_t color = coloring.color(k);
    ASSERT_LT(color, coloring.num_colors());
    ASSERT_TRUE(sources.insert({edges[k].source, color}).second);
    ASSERT_TRUE(targets.insert({edges[k].target, color}).second);
  }
}

TEST(EdgeColoring, NeedsNoMoreColorsThanTheDegree) {
  TestRandom random(1);
  for (int trial = 0; trial < 500; ++trial) {
    const uint32_t nodes = random.Between(1, 12);
    std::vector<Edge> edges(random.Between(1, 400));
    for (Edge& edge : edges) {
      edge = {random.Below(nodes), random.Below(nodes)};
    }
    const uint32_t degree = Degree(edges, nodes);
    EdgeColoring coloring(nodes, degree);
    for (const Edge& edge : edges) {
      coloring.Add(edge.source, edge.target, random.Below(degree));
    }
    ExpectProper(coloring, edges);
    if (HasFatalFailure()) return;
  }
}

TEST(EdgeColoring, ColorsRegularMultigraphs) {
  // Every colour is a perfect matching: nothing is left over. Degrees around
  // the words of the bit sets.
  TestRandom random(2);
  for (const uint32_t degree : {1u, 63u, 64u, 65u, 128u, 200u}) {
    const uint32_t nodes = 16;
    std::vector<Edge> edges;
    std::vector<uint32_t> target(nodes);
    for (uint32_t p = 0; p < nodes; ++p) target[p] = p;
    for (uint32_t k = 0; k < degree; ++k) {
      random.Shuffle(target);
      for (uint32_t p = 0; p < nodes; ++p) edges.push_back({p, target[p]});
    }
    random.Shuffle(edges);
    EdgeColoring coloring(nodes, degree);
    for (const Edge& edge : edges) coloring.Add(edge.source, edge.target, 0);
    ExpectProper(coloring, edges);
  }
}

TEST(EdgeColoring, TakesTheFirstFreeColorFromTheWishOn) {
  EdgeColoring coloring(2, 70);
  coloring.Add(0, 0, 65);
  coloring.Add(0, 1, 65);
  coloring.Add(1, 0, 65);
  coloring.Add(1, 0, 69);
  coloring.Add(1, 0, 69);
  EXPECT_EQ(coloring.color(0), 65u);
  EXPECT_EQ(coloring.color(1), 66u);
  EXPECT_EQ(coloring.color(2), 66u);
  EXPECT_EQ(coloring.color(3), 69u);
  EXPECT_EQ(coloring.color(4), 0u);
}

}  // namespace
}  // namespace routepack
