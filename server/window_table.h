// The windows of a server: those at work, and behind them the store of those
// that are done.
//
// A key has at most one open session. Sessions leave the table when they end;
// their record is in the store before anybody learns of the end. Thread-safe.
// Lock order: the table's lock, then a session's or the store's.

#ifndef ROUTEPACK_SERVER_WINDOW_TABLE_H_
#define ROUTEPACK_SERVER_WINDOW_TABLE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/admission.h"
#include "server/plan_store.h"
#include "server/window_key.h"
#include "server/window_session/session.h"

namespace routepack::server {

class WindowTable {
 public:
  using SessionPtr = std::shared_ptr<WindowSession>;

  // Both outlive the table.
  WindowTable(Admission* admission, PlanStore* store)
      : admission_(admission), store_(store) {}

  static constexpr absl::Duration kMakesRoomAfter = absl::Seconds(30);

  struct Opened {
    SessionPtr session;
    bool created = false;  // false: the key had a window already
  };
  // The window of a header's key: the one that exists (unless it was cancelled
  // or failed), else a new one, admitted with `extra_bytes` besides its own and
  // its header's. When the server is full, uploads that have had no stream for
  // kMakesRoomAfter are forgotten to make room, the longest first.
  // Whether an existing window is the same as the caller's is for the caller
  // to find out. Errors: as DecodeRequest, Admission::Admit and LoadCurrent;
  // UNAVAILABLE for new windows while draining.
  absl::StatusOr<Opened> Open(const v1::WindowHeader& header,
                              uint64_t extra_bytes, absl::Time now);

  // The open session of a key, or one that replays the record of the store.
  // INVALID_ARGUMENT: no valid key. NOT_FOUND.
  absl::StatusOr<SessionPtr> Find(const v1::PlanKey& key) const;

  // State after the call. NOT_FOUND.
  absl::StatusOr<v1::PlanState> Cancel(const v1::PlanKey& key, absl::Time now);

  // Ends a session with this record, which goes to the store. False: it has
  // been ended otherwise.
  bool End(WindowSession& session, PlanRecord record, absl::Time now);
  // Ends a session that leaves no trace: invalid or abandoned uploads, and
  // what is open at shutdown.
  bool Forget(WindowSession& session, absl::Status why, absl::Time now);

  // Forgets uploads that have been silent for `timeout`; returns them.
  std::vector<v1::PlanKey> DropIdle(absl::Duration timeout, absl::Time now);

  // INVALID_ARGUMENT: a token that is none of ours, or of another list.
  absl::StatusOr<v1::ListPlansResponse> List(
      const v1::ListPlansRequest& request, uint32_t max_page) const;

  // From now on new windows are refused.
  void BeginDrain();
  bool draining() const;
  size_t num_open() const;
  // Without uploads that no stream is attached to.
  size_t num_busy() const;
  // Forgets all that is open.
  void ForgetAll(const absl::Status& why, absl::Time now);

 private:
  absl::StatusOr<Reservation> Admit(uint64_t planning_bytes,
                                    uint64_t message_bytes, absl::Time now);
  // Forgets the upload that has had no stream for longest. False: there is
  // none.
  bool DropAbandoned(absl::Time now);
  std::vector<SessionPtr> OpenSessions() const;
  // What stands in the way of a new window of this key; null if nothing.
  SessionPtr Existing(const WindowKey& key) const
      ABSL_SHARED_LOCKS_REQUIRED(mu_);
  void Remove(const WindowSession& session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Admission* const admission_;
  PlanStore* const store_;
  mutable std::mutex mu_;
  absl::flat_hash_map<WindowKey, SessionPtr> open_ ABSL_GUARDED_BY(mu_);
  uint64_t next_sequence_ ABSL_GUARDED_BY(mu_) = 1;
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace routepack::server

#endif  // ROUTEPACK_SERVER_WINDOW_TABLE_H_
