// Proper colouring of the edges of a bipartite multigraph with as many colours
// as its largest degree (Konig): edges of a colour share no source and no
// target. Each edge takes a colour that is free at both ends; where there is
// none, colours alternate along a path to make one.
//
// O(1 + Delta / 64) an edge when a colour is free at both ends, O(P) more for a
// path. Deterministic; one thread.
//
// Source: D. Konig, "Graphok es matrixok", 1916; in any textbook as the proof
// that bipartite graphs are class 1.

#ifndef ROUTEPACK_PLANNER_EDGE_COLORING_H_
#define ROUTEPACK_PLANNER_EDGE_COLORING_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace routepack {

class EdgeColoring {
 public:
  // Nodes [0, num_nodes) on either side, of degree at most `num_colors`.
  EdgeColoring(uint32_t num_nodes, uint32_t num_colors);

  // Colours one more edge; edges count from 0. Of the colours that are free at
  // both ends it takes the first at or after `wish`, round and round. Edges
  // coloured before may change their colours.
  void Add(uint32_t source, uint32_t target, uint32_t wish);

  uint32_t color(uint32_t edge) const { return edges_[edge].color; }
  uint32_t num_colors() const { return num_colors_; }

 private:
  enum Side { kSource, kTarget };
  struct Edge {
    uint32_t end[2];  // [side]
    uint32_t color;
  };

  size_t At(Side side, uint32_t node) const {
    return size_t{side} * num_nodes_ + node;
  }
  uint32_t& EdgeOf(Side side, uint32_t node, uint32_t color) {
    return edge_of_[At(side, node) * num_colors_ + color];
  }
  const uint64_t* Free(Side side, uint32_t node) const {
    return free_.data() + At(side, node) * words_;
  }
  void SetFree(Side side, uint32_t node, uint32_t color, bool free);
  uint32_t FirstFree(const uint64_t* a, const uint64_t* b, uint32_t from) const;
  void Put(uint32_t edge, uint32_t color);
  void Lift(uint32_t edge);
  void FreeAtTarget(uint32_t node, uint32_t wanted, uint32_t other);

  uint32_t num_nodes_;
  uint32_t num_colors_;
  size_t words_;
  std::vector<Edge> edges_;
  std::vector<uint32_t> edge_of_;  // [side][node][color], plus 1; 0: none
  std::vector<uint64_t> free_;     // [side][node][word] bit set of colours
  std::vector<uint32_t> path_;
};

}  // namespace routepack

#endif  // ROUTEPACK_PLANNER_EDGE_COLORING_H_
