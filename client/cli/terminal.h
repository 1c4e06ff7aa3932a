// What depends on whether a person is looking: colour and progress bars.
//
// Colour only on terminals and without NO_COLOR in the environment
// (no-color.org); progress bars only when standard error is a terminal.

#ifndef ROUTEPACK_CLIENT_CLI_TERMINAL_H_
#define ROUTEPACK_CLIENT_CLI_TERMINAL_H_

#include <string>

#include "absl/time/time.h"

namespace routepack::cli {

class Style {
 public:
  explicit Style(bool color) : color_(color) {}
  std::string Bold(const std::string& text) const { return Code("1", text); }
  std::string Red(const std::string& text) const { return Code("1;31", text); }
  std::string Green(const std::string& text) const { return Code("32", text); }
  std::string Yellow(const std::string& text) const { return Code("33", text); }
  std::string Dim(const std::string& text) const { return Code("2", text); }

 private:
  std::string Code(const std::string& code, const std::string& text) const {
    return color_ ? "\033[" + code + "m" + text + "\033[0m" : text;
  }
  bool color_;
};

Style OutputStyle();  // of standard output
Style ErrorStyle();   // of standard error

// One line on standard error that is redrawn in place, at most ten times a
// second, and erased at the end. Nothing if standard error is no terminal.
class ProgressBar {
 public:
  ProgressBar();
  ~ProgressBar() { Clear(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // `fraction` in [0, 1].
  void Show(double fraction, const std::string& text);
  void Clear();

 private:
  bool enabled_;
  bool drawn_ = false;
  absl::Time last_ = absl::InfinitePast();
};

}  // namespace routepack::cli

#endif  // ROUTEPACK_CLIENT_CLI_TERMINAL_H_
