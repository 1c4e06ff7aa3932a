#include "server/window_table.h"

#include <algorithm>
#include <limits>
#include <mutex>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "proto/codec/codec.h"
#include "proto/codec/status.h"
#include "server/bad_field.h"
#include "server/guarded.h"
#include "server/page_token.h"
#include "server/window_session/state.h"

namespace routepack::server {
namespace {

constexpr uint32_t kDefaultPage = 50;
constexpr absl::Duration kDrainRetry = absl::Seconds(5);

absl::Status Draining() {
  return RetryableError(absl::StatusCode::kUnavailable,
                        "the server is shutting down and takes no new windows",
                        kDrainRetry);
}

bool MayBeSubmittedAnew(v1::PlanState state) {
  return state == v1::PLAN_STATE_CANCELLED || state == v1::PLAN_STATE_FAILED;
}

}  // namespace

WindowTable::SessionPtr WindowTable::Existing(const WindowKey& key) const {
  if (const auto it = open_.find(key); it != open_.end()) {
    // One that is about to leave the table counts by what it will be.
    return MayBeSubmittedAnew(it->second->decided()) ? nullptr : it->second;
  }
  const absl::StatusOr<PlanRecord> record = store_->Get(key);
  if (!record.ok() || MayBeSubmittedAnew(record->summary.state())) {
    return nullptr;
  }
  return std::make_shared<WindowSession>(*record);
}

absl::StatusOr<WindowTable::Opened> WindowTable::Open(
    const v1::WindowHeader& header, uint64_t extra_bytes, absl::Time now) {
  const WindowKey key = WindowKey::Of(header.key());
  {
    const std::lock_guard lock(mu_);
    if (SessionPtr session = Existing(key)) return Opened{std::move(session)};
    if (draining_) return Draining();
  }
  absl::StatusOr<WindowRequest> request = DecodeRequest(header);
  if (!request.ok()) return request.status();
  // What takes memory by the header's word comes after this, but for the
  // movement model that was checked, which is bounded.
  absl::StatusOr<Reservation> reservation =
      Admit(PlanningBytes(request->spec, request->options),
            header.ByteSizeLong() + extra_bytes, now);
  if (!reservation.ok()) return reservation.status();
  if (absl::Status status = LoadCurrent(*store_, *request); !status.ok()) {
    return status;
  }
  absl::StatusOr<WindowBuilder> builder = WindowBuilder::Create(request->spec);
  if (!builder.ok()) return builder.status();

  const std::lock_guard lock(mu_);
  if (SessionPtr session = Existing(key)) return Opened{std::move(session)};
  if (draining_) return Draining();
  auto session = std::make_shared<WindowSession>(
      std::make_shared<const WindowRequest>(*std::move(request)),
      next_sequence_++, *std::move(builder), *std::move(reservation), now);
  open_.insert_or_assign(key, session);
  return Opened{.session = std::move(session), .created = true};
}

absl::StatusOr<Reservation> WindowTable::Admit(uint64_t planning_bytes,
                                               uint64_t message_bytes,
                                               absl::Time now) {
  constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
  const uint64_t bytes = planning_bytes > kMax - message_bytes
                             ? kMax
                             : planning_bytes + message_bytes;
  for (;;) {
    absl::StatusOr<Reservation> reservation = admission_->Admit(bytes);
    // Without a delay it never fits: nobody need make room.
    if (reservation.ok() || !RetryDelayOf(reservation.status()).has_value() ||
        !DropAbandoned(now)) {
      return reservation;
    }
  }
}

bool WindowTable::DropAbandoned(absl::Time now) {
  SessionPtr longest;
  absl::Duration abandoned = kMakesRoomAfter;
  for (SessionPtr& session : OpenSessions()) {
    const absl::Duration duration = session->AbandonedFor(now);
    if (duration <= abandoned) continue;
    abandoned = duration;
    longest = std::move(session);
  }
  // Another thread may end it first: that makes room as well.
  if (longest == nullptr) return false;
  Forget(*longest,
         absl::AbortedError(absl::StrCat(
             "the upload had no stream for ", absl::FormatDuration(abandoned),
             " and has made room for another window; begin again")),
         now);
  return true;
}

absl::StatusOr<WindowTable::SessionPtr> WindowTable::Find(
    const v1::PlanKey& key) const {
  if (absl::Status status = ValidateKey(key, "key"); !status.ok()) {
    return status;
  }
  const std::lock_guard lock(mu_);
  const auto it = open_.find(WindowKey::Of(key));
  if (it != open_.end()) return it->second;
  absl::StatusOr<PlanRecord> record = store_->Get(WindowKey::Of(key));
  if (!record.ok()) return record.status();
  return std::make_shared<WindowSession>(*record);
}

absl::StatusOr<v1::PlanState> WindowTable::Cancel(const v1::PlanKey& key,
                                                  absl::Time now) {
  absl::StatusOr<SessionPtr> session = Find(key);
  if (!session.ok()) return session.status();
  absl::Status why = absl::CancelledError("cancelled by CancelPlan");
  // A window that has just got its plan stays as it is.
  if (IsFinal((*session)->decided()) ||
      !End(
          **session,
          (*session)->MakeRecord(v1::PLAN_STATE_CANCELLED, std::move(why), now),
          now)) {
    return (*session)->decided();
  }
  return v1::PLAN_STATE_CANCELLED;
}

bool WindowTable::End(WindowSession& session, PlanRecord record,
                      absl::Time now) {
  // Made before the claim: what follows it must not fail.
  auto kept = std::make_shared<const PlanRecord>(std::move(record));
  if (!session.Claim(kept->summary.state())) return false;
  {
    const std::lock_guard lock(mu_);
    const auto it = open_.find(WindowKey::Of(session.key()));
    // Another session of this key may have begun since the claim; its record
    // is the one that counts.
    if (it != open_.end() && it->second.get() == &session) {
      // A plan that cannot be kept still goes to whoever waits for it.
      Guarded([&] { return store_->Put(*kept); }).IgnoreError();
      open_.erase(it);
    }
  }
  session.Finish(std::move(kept), now);
  return true;
}

bool WindowTable::Forget(WindowSession& session, absl::Status why,
                         absl::Time now) {
  auto record = std::make_shared<const PlanRecord>(
      session.MakeRecord(v1::PLAN_STATE_FAILED, std::move(why), now));
  if (!session.Claim(v1::PLAN_STATE_FAILED)) return false;
  {
    const std::lock_guard lock(mu_);
    Remove(session);
  }
  session.Finish(std::move(record), now);
  return true;
}

std::vector<v1::PlanKey> WindowTable::DropIdle(absl::Duration timeout,
                                               absl::Time now) {
  std::vector<v1::PlanKey> dropped;
  for (const SessionPtr& session : OpenSessions()) {
    if (session->IdleFor(now) < timeout) continue;
    absl::Status why = absl::AbortedError(absl::StrCat(
        "the upload was silent for ", absl::FormatDuration(timeout),
        " and has been dropped; begin again"));
    if (Forget(*session, std::move(why), now)) {
      dropped.push_back(session->key());
    }
  }
  return dropped;
}

absl::StatusOr<v1::ListPlansResponse> WindowTable::List(
    const v1::ListPlansRequest& request, uint32_t max_page) const {
  const PlanFilter filter{.job_id = request.job_id(),
                          .run_id = request.run_id()};
  uint64_t before = kNewest;
  if (!request.page_token().empty()) {
    const std::optional<uint64_t> decoded =
        DecodePageToken(request.page_token(), filter);
    if (!decoded.has_value()) {
      return BadField(
          "page_token",
          "is not a next_page_token of a list with this job_id and run_id");
    }
    before = *decoded;
  }
  const size_t page = std::min(
      request.page_size() == 0 ? kDefaultPage : request.page_size(), max_page);

  // Open sessions hide the record of an earlier window of their key.
  std::map<uint64_t, v1::PlanSummary, std::greater<>> found;
  absl::flat_hash_map<WindowKey, uint64_t> open;
  for (const SessionPtr& session : OpenSessions()) {
    open.emplace(WindowKey::Of(session->key()), session->sequence());
    if (session->sequence() < before && filter.Matches(session->key())) {
      found.emplace(session->sequence(), session->Summary());
    }
  }
  for (const PlanRecord& record :
       store_->List(filter, before, page + 1 + open.size())) {
    if (open.contains(record.key())) continue;
    found.emplace(record.sequence, record.summary);
  }
  v1::ListPlansResponse response;
  for (auto& [sequence, summary] : found) {
    if (static_cast<size_t>(response.plans_size()) == page) {
      response.set_next_page_token(EncodePageToken(before, filter));
      break;
    }
    *response.add_plans() = std::move(summary);
    before = sequence;
  }
  return response;
}

void WindowTable::BeginDrain() {
  const std::lock_guard lock(mu_);
  draining_ = true;
}

bool WindowTable::draining() const {
  const std::lock_guard lock(mu_);
  return draining_;
}

size_t WindowTable::num_open() const {
  const std::lock_guard lock(mu_);
  return open_.size();
}

size_t WindowTable::num_busy() const {
  return static_cast<size_t>(absl::c_count_if(
      OpenSessions(),
      [](const SessionPtr& session) { return !session->IsAbandoned(); }));
}

void WindowTable::ForgetAll(const absl::Status& why, absl::Time now) {
  for (const SessionPtr& session : OpenSessions()) Forget(*session, why, now);
}

std::vector<WindowTable::SessionPtr> WindowTable::OpenSessions() const {
  std::vector<SessionPtr> sessions;
  const std::lock_guard lock(mu_);
  sessions.reserve(open_.size());
  for (const auto& [key, session] : open_) sessions.push_back(session);
  return sessions;
}

void WindowTable::Remove(const WindowSession& session) {
  const auto it = open_.find(WindowKey::Of(session.key()));
  if (it != open_.end() && it->second.get() == &session) open_.erase(it);
}

}  // namespace routepack::server
