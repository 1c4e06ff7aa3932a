// Ends the process, whatever still holds it up, unless it is destroyed in
// time.
//
//   const ExitTimer timer(absl::Seconds(30), 3, log);
//   server->Stop();

#ifndef ROUTEPACK_SERVER_EXIT_TIMER_H_
#define ROUTEPACK_SERVER_EXIT_TIMER_H_

#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <thread>

#include "absl/time/time.h"
#include "server/log.h"

namespace routepack::server {

class ExitTimer {
 public:
  ExitTimer(absl::Duration limit, int exit_code, const Log& log)
      : thread_([=](const std::stop_token& stop) {
          std::mutex mu;
          std::condition_variable_any wake;
          std::unique_lock lock(mu);
          wake.wait_for(lock, stop, absl::ToChronoMilliseconds(limit),
                        [&] { return stop.stop_requested(); });
          if (stop.stop_requested()) return;
          log.Error("did not stop in time",
                    {{"seconds", absl::ToDoubleSeconds(limit)}});
          // Destructors would wait for what hangs.
          _exit(exit_code);
        }) {}

 private:
  std::jthread thread_;
};

}  // namespace routepack::server

#endif  // ROUTEPACK_SERVER_EXIT_TIMER_H_
