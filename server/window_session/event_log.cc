#include "server/window_session/event_log.h"

#include <algorithm>
#include <utility>

namespace routepack::server {

void EventLog::Append(Event event) {
  const bool progress = event->has_progress();
  Entry entry{.number = next_number_++, .event = std::move(event)};
  if (progress) {
    progress_ = std::move(entry);
  } else {
    lasting_.push_back(std::move(entry));
  }
}

std::vector<EventLog::Event> EventLog::Lasting() const {
  std::vector<Event> events;
  for (const Entry& entry : lasting_) events.push_back(entry.event);
  return events;
}

EventLog::Event EventLog::Next(EventCursor& cursor) const {
  const auto lasting = std::find_if(
      lasting_.begin(), lasting_.end(),
      [&](const Entry& entry) { return entry.number >= cursor.next; });
  const bool progress =
      progress_.event != nullptr && progress_.number >= cursor.next &&
      (lasting == lasting_.end() || progress_.number < lasting->number);
  if (!progress && lasting == lasting_.end()) return nullptr;
  const Entry& entry = progress ? progress_ : *lasting;
  cursor.next = entry.number + 1;
  return entry.event;
}

}  // namespace routepack::server
