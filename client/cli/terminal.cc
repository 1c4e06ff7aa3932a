#include "client/cli/terminal.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"

namespace routepack::cli {
namespace {

constexpr int kBarWidth = 24;

bool ColorOn(int descriptor) {
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  return isatty(descriptor) != 0 &&
         (no_color == nullptr || *no_color == '\0') &&
         (term == nullptr || std::string(term) != "dumb");
}

}  // namespace

Style OutputStyle() { return Style(ColorOn(STDOUT_FILENO)); }
Style ErrorStyle() { return Style(ColorOn(STDERR_FILENO)); }

ProgressBar::ProgressBar() : enabled_(isatty(STDERR_FILENO) != 0) {}

void ProgressBar::Show(double fraction, const std::string& text) {
  if (!enabled_) return;
  const absl::Time now = absl::Now();
  if (now - last_ < absl::Milliseconds(100)) return;
  last_ = now;
  drawn_ = true;
  const double part = std::clamp(fraction, 0.0, 1.0);
  const int full = static_cast<int>(part * kBarWidth);
  std::cerr << absl::StrFormat(
                   "\r\033[K[%s%s] %3.0f%% %s", std::string(full, '='),
                   std::string(kBarWidth - full, ' '), 100 * part, text)
            << std::flush;
}

void ProgressBar::Clear() {
  if (drawn_) std::cerr << "\r\033[K" << std::flush;
  drawn_ = false;
}

}  // namespace routepack::cli
