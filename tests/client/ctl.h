// routepackctl as a shell runs it.

#ifndef ROUTEPACK_TESTS_CLIENT_CTL_H_
#define ROUTEPACK_TESTS_CLIENT_CTL_H_

#include <sys/wait.h>

#include <cstdio>
#include <string>

namespace routepack {

struct Outcome {
  int code = -1;
  std::string output;  // both streams
};

// Without a server by default, so that none that happens to run is asked.
inline Outcome Ctl(const std::string& arguments,
                   const std::string& redirect = "2>&1") {
  const std::string command = std::string("ROUTEPACK_SERVER=127.0.0.1:1 ") +
                              ROUTEPACKCTL + " " + arguments + " " + redirect;
  Outcome outcome;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return outcome;
  char buffer[4096];
  size_t size = 0;
  while ((size = fread(buffer, 1, sizeof(buffer), pipe)) > 0) {
    outcome.output.append(buffer, size);
  }
  const int status = pclose(pipe);
  if (WIFEXITED(status)) outcome.code = WEXITSTATUS(status);
  return outcome;
}

}  // namespace routepack

#endif  // ROUTEPACK_TESTS_CLIENT_CTL_H_
