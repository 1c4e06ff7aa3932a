// Who may come in: a limit on open windows and on their memory, decided from
// the header before anything is uploaded.
//
// O(1), thread-safe; never blocks. A Reservation holds its share until it is
// destroyed and may outlive the Admission.
//
//   absl::StatusOr<Reservation> place = admission.Admit(bytes);

#ifndef ROUTEPACK_SERVER_ADMISSION_H_
#define ROUTEPACK_SERVER_ADMISSION_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "planner/plan.h"
#include "planner/window.h"

namespace routepack::server {

// Bytes that a window takes from header to plan: its counts and samples, the
// demand of samples and fillers, what the search holds (planner/planner.h),
// with as many cells as the header allows, and per layer and expert a sample
// being decoded (4 bytes), window loads (8), two placements (16) and three as
// messages (24): the one before, the one that is announced and the plan's.
// Saturates.
uint64_t PlanningBytes(const WindowSpec& spec, const PlanOptions& options);

class Admission;

// A share of the limits. Move-only; releases on destruction.
class Reservation {
 public:
  Reservation() = default;
  Reservation(Reservation&& other) noexcept;
  Reservation& operator=(Reservation&& other) noexcept;
  ~Reservation() { Release(); }

  uint64_t bytes() const { return bytes_; }
  void Release();

 private:
  friend class Admission;
  struct Ledger;
  Reservation(std::shared_ptr<Ledger> ledger, uint64_t bytes);

  std::shared_ptr<Ledger> ledger_;
  uint64_t bytes_ = 0;
};

class Admission {
 public:
  // When a refused window should come again.
  static constexpr absl::Duration kRetryAfter = absl::Milliseconds(250);

  Admission(uint32_t max_windows, uint64_t max_bytes);

  // RESOURCE_EXHAUSTED with a retry delay when the window does not fit now,
  // without one when it never will.
  absl::StatusOr<Reservation> Admit(uint64_t bytes);

  uint32_t open_windows() const;
  uint64_t reserved_bytes() const;

 private:
  std::shared_ptr<Reservation::Ledger> ledger_;
};

}  // namespace routepack::server

#endif  // ROUTEPACK_SERVER_ADMISSION_H_
