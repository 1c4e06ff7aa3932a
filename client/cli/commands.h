// The commands of routepackctl, one file each (<name>_command.cc).
//
// To add a command: write `Command FooCommand()` in foo_command.cc, declare it
// here, list it in main.cc and in CMakeLists.txt. A command takes exactly the
// flags it lists: main.cc refuses others, and `routepackctl foo --help` shows
// these. Flags that several commands share are in flags.h; a flag of one
// command is an ABSL_FLAG in its file (names are global to the program).

#ifndef ROUTEPACK_CLIENT_CLI_COMMANDS_H_
#define ROUTEPACK_CLIENT_CLI_COMMANDS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace routepack::cli {

using Args = std::vector<std::string>;  // without flags and command name

struct Command {
  std::string name;                   // "plan"
  std::string arguments;              // "WINDOW", for the usage line
  std::string summary;                // one line, for the list of commands
  std::string description;            // paragraphs, for the command's help
  std::vector<std::string> examples;  // whole command lines
  std::vector<std::string> flags;     // names of the flags it takes
  size_t min_args = 0;
  size_t max_args = 0;
  // Prints results to standard output. An error becomes exit code 1, a
  // UsageError 2.
  absl::Status (*run)(const Args& args) = nullptr;
};

// The command line makes no sense: exit code 2 and a pointer to --help.
absl::Status UsageError(const std::string& message);
bool IsUsageError(const absl::Status& status);

Command CancelCommand();
Command ConvertCommand();
Command CountCommand();
Command GenerateCommand();
Command GetCommand();
Command InfoCommand();
Command ListCommand();
Command PlanCommand();
Command RankCommand();
Command ReplayCommand();
Command ScoreCommand();
Command SubmitCommand();
Command WatchCommand();

}  // namespace routepack::cli

#endif  // ROUTEPACK_CLIENT_CLI_COMMANDS_H_
