// What happened to a window, for any number of readers at their own pace.
//
// Events have numbers. Lasting ones (sealed, placement ready, plan) are all
// kept; of progress only the newest is, so a slow reader gets one progress
// event instead of many and nothing piles up. Readers hold a cursor and pull.
// Not thread-safe: WindowSession guards it.

#ifndef ROUTEPACK_SERVER_WINDOW_SESSION_EVENT_LOG_H_
#define ROUTEPACK_SERVER_WINDOW_SESSION_EVENT_LOG_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "routepack/v1/planner_service.pb.h"

namespace routepack::server {

// How far a reader is: the number of the next event it wants.
struct EventCursor {
  uint64_t next = 0;
};

class EventLog {
 public:
  using Event = std::shared_ptr<const v1::PlanEvent>;

  // A progress event replaces the one before.
  void Append(Event event);
  void Append(v1::PlanEvent event) {
    Append(std::make_shared<const v1::PlanEvent>(std::move(event)));
  }
  // All but progress, in order.
  std::vector<Event> Lasting() const;
  // The first event at or after the cursor, which moves behind it; null when
  // there is none yet.
  Event Next(EventCursor& cursor) const;

 private:
  struct Entry {
    uint64_t number = 0;
    Event event;
  };

  uint64_t next_number_ = 0;
  std::vector<Entry> lasting_;  // ascending numbers
  Entry progress_;
};

}  // namespace routepack::server

#endif  // ROUTEPACK_SERVER_WINDOW_SESSION_EVENT_LOG_H_
