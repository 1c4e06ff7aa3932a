// routepackctl: plans, inspects and scores windows from the command line.

#include <algorithm>
#include <iostream>
#include <new>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "absl/flags/parse.h"
#include "absl/flags/reflection.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/cli/commands.h"
#include "client/cli/flags.h"
#include "client/cli/terminal.h"
#include "planner/errors.h"

namespace routepack::cli {
namespace {

constexpr int kError = 1;
constexpr int kUsage = 2;
constexpr char kVersion[] = ROUTEPACK_VERSION;

std::vector<Command> AllCommands() {
  return {PlanCommand(),  ScoreCommand(),  GenerateCommand(), ConvertCommand(),
          CountCommand(), ReplayCommand(), InfoCommand(),     SubmitCommand(),
          GetCommand(),   RankCommand(),   ListCommand(),     WatchCommand(),
          CancelCommand()};
}

// Edit distance (Levenshtein), one row of the table at a time.
size_t Distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1,
                         diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

// " Did you mean '...'?" or nothing when no candidate is near.
std::string Suggestion(const std::string& wrong, const std::string& prefix,
                       const std::vector<std::string>& candidates) {
  const std::string* best = nullptr;
  size_t best_distance = std::max<size_t>(2, wrong.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const size_t distance =
        absl::StartsWith(candidate, wrong) && wrong.size() >= 2
            ? 1
            : Distance(wrong, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = &candidate;
    }
  }
  if (best == nullptr) return "";
  return absl::StrCat(" Did you mean '", prefix, *best, "'?");
}

std::string MainHelp(const std::vector<Command>& commands) {
  size_t width = 0;
  for (const Command& command : commands) {
    width = std::max(width, command.name.size());
  }
  std::string help =
      "routepackctl: expert placement and row packing for MoE reinforcement "
      "learning.\n\nUsage: routepackctl COMMAND [ARGUMENTS] [FLAGS]\n\n"
      "Commands:\n";
  for (const Command& command : commands) {
    absl::StrAppend(&help, "  ", command.name,
                    std::string(width + 2 - command.name.size(), ' '),
                    command.summary, "\n");
  }
  absl::StrAppend(
      &help,
      "\nExamples:\n"
      "  routepackctl generate --preset=tiny --output=window.rpw\n"
      "  routepackctl plan window.rpw --output=plan.json\n\n"
      "routepackctl COMMAND --help shows the flags of a command.\n");
  return help;
}

// Words of `text` on lines of at most 80 columns.
std::string Wrap(const std::string& text, const std::string& indent) {
  std::string wrapped;
  std::string line = indent;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (line.size() + word.size() + 1 > 80 && line.size() > indent.size()) {
      absl::StrAppend(&wrapped, line, "\n");
      line = indent;
    }
    absl::StrAppend(&line, line.size() > indent.size() ? " " : "", word);
  }
  return absl::StrCat(wrapped, line, "\n");
}

std::string FlagHelp(const std::string& name) {
  const absl::CommandLineFlag* flag = absl::FindCommandLineFlag(name);
  if (flag == nullptr) return "";
  const std::string value = flag->DefaultValue();
  const bool plain = value.empty() || value == "false" || value == "0";
  return absl::StrCat("  --", name, flag->IsOfType<bool>() ? "" : "=...",
                      plain ? "" : absl::StrCat("  (default ", value, ")"),
                      "\n", Wrap(flag->Help(), "      "));
}

std::string CommandHelp(const Command& command) {
  std::string help = absl::StrCat(
      Wrap(absl::StrCat("routepackctl ", command.name, ": ", command.summary),
           ""),
      "\nUsage: routepackctl ", command.name,
      command.arguments.empty() ? "" : " ", command.arguments, " [FLAGS]\n");
  if (!command.description.empty()) {
    absl::StrAppend(&help, "\n", command.description, "\n");
  }
  if (!command.flags.empty()) absl::StrAppend(&help, "\nFlags:\n");
  for (const std::string& name : command.flags) {
    absl::StrAppend(&help, FlagHelp(name));
  }
  absl::StrAppend(&help, "\nExamples:\n");
  for (const std::string& example : command.examples) {
    absl::StrAppend(&help, "  ", example, "\n");
  }
  return help;
}

bool AsksForHelp(const std::string& arg) {
  return arg == "--help" || arg == "-help" || arg == "-h";
}

bool Takes(const Command& command, const std::string& flag) {
  return std::find(command.flags.begin(), command.flags.end(), flag) !=
         command.flags.end();
}

// Checks that every flag is one of the command's and its value can be read, so
// that errors carry our exit code and nearest names; Abseil parses afterwards.
absl::Status CheckFlags(const Command& command, const Args& args) {
  for (size_t i = 0; i < args.size() && args[i] != "--"; ++i) {
    if (args[i].size() < 2 || args[i][0] != '-') continue;
    const absl::string_view arg =
        absl::StripPrefix(absl::StripPrefix(args[i], "-"), "-");
    const size_t equals = arg.find('=');
    const std::string given(arg.substr(0, equals));
    std::string name = given;
    const bool negated = !Takes(command, name) &&
                         absl::StartsWith(name, "no") &&
                         Takes(command, name.substr(2));
    if (negated) name = name.substr(2);
    absl::CommandLineFlag* flag = absl::FindCommandLineFlag(name);
    if (!Takes(command, name) || flag == nullptr ||
        (negated && !flag->IsOfType<bool>())) {
      return UsageError(absl::StrCat("unknown flag '--", given, "'.",
                                     Suggestion(given, "--", command.flags)));
    }
    std::string value;
    if (equals != absl::string_view::npos) {
      value = std::string(arg.substr(equals + 1));
    } else if (flag->IsOfType<bool>()) {
      continue;
    } else if (++i < args.size()) {
      value = args[i];
    } else {
      return UsageError(absl::StrCat("--", name, " needs a value."));
    }
    // An unset variable in a script must not quietly mean another place.
    if (name == "server" && value.empty()) {
      return UsageError(
          "--server is empty: give host:port, or leave the flag out.");
    }
    if (std::string error; !flag->ParseFrom(value, &error)) {
      return UsageError(
          absl::StrCat("--", name, "=", value, ": ",
                       error.empty() ? "not a valid value" : error));
    }
  }
  return absl::OkStatus();
}

// What to do about an error; empty if its message says it all.
std::string NextStep(const Command& command, const absl::Status& status) {
  if (IsUsageError(status)) {
    return absl::StrCat("See 'routepackctl ", command.name, " --help'.");
  }
  if (PreconditionOf(status).type == "CELLS_EXCEED_SAMPLES" &&
      Takes(command, "allow_filler")) {
    return "--allow_filler adds zero-loss samples; a smaller --dp or "
           "--min_rows needs fewer.";
  }
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
      return "Start one with 'routepackd', or name it with "
             "--server=host:port.";
    case absl::StatusCode::kNotFound:
      // Commands with arguments look for files.
      return Takes(command, "job") && command.max_args == 0
                 ? "'routepackctl list' shows what the server has."
                 : "";
    case absl::StatusCode::kAlreadyExists:
      return "Take another --run, --step or --minibatch.";
    case absl::StatusCode::kDeadlineExceeded:
      return Takes(command, "timeout") ? "--timeout gives it longer." : "";
    default:
      return "";
  }
}

void PrintError(const Command& command, const absl::Status& status) {
  std::cerr << ErrorStyle().Red(
                   absl::StrCat("routepackctl ", command.name, ":"))
            << " " << status.message() << "\n";
  const std::vector<FieldViolation> violations = ViolationsOf(status);
  if (violations.size() > 1) {
    for (const FieldViolation& violation : violations) {
      std::cerr << "  " << violation.field << ": " << violation.description
                << "\n";
    }
  }
  if (const std::string next = NextStep(command, status); !next.empty()) {
    std::cerr << next << "\n";
  }
}

// Files and flags decide how much memory a command takes.
absl::Status RunGuarded(const Command& command, const Args& args) {
  try {
    return command.run(args);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("out of memory");
  }
}

int RunCommand(const Command& command, char* program, Args args) {
  const auto flags_end = std::find(args.begin(), args.end(), "--");
  if (std::any_of(args.begin(), flags_end, AsksForHelp)) {
    std::cout << CommandHelp(command);
    return 0;
  }
  if (Takes(command, "verbose")) {
    std::replace(args.begin(), std::find(args.begin(), args.end(), "--"),
                 std::string("-v"), std::string("--verbose"));
  }
  absl::Status status = CheckFlags(command, args);
  if (status.ok()) {
    std::vector<char*> argv = {program};
    argv.reserve(argv.size() + args.size());
    for (std::string& arg : args) argv.push_back(arg.data());
    const std::vector<char*> left =
        absl::ParseCommandLine(static_cast<int>(argv.size()), argv.data());
    const Args positional(left.begin() + 1, left.end());
    if (positional.size() < command.min_args ||
        positional.size() > command.max_args) {
      status = UsageError(absl::StrCat(
          "takes ",
          command.arguments.empty() ? "no argument" : command.arguments,
          ", got ", positional.size(),
          positional.size() == 1 ? " argument." : " arguments."));
    } else {
      status = RunGuarded(command, positional);
    }
  }
  if (status.ok()) return 0;
  PrintError(command, status);
  return IsUsageError(status) ? kUsage : kError;
}

int Main(int argc, char** argv) {
  const std::vector<Command> commands = AllCommands();
  std::vector<std::string> names;
  names.reserve(commands.size());
  for (const Command& command : commands) names.push_back(command.name);
  Args args(argv + 1, argv + argc);
  if (args.empty()) {
    std::cerr << MainHelp(commands);
    return kUsage;
  }
  if (args[0] == "--version") {
    std::cout << "routepackctl " << kVersion << "\n";
    return 0;
  }
  if (AsksForHelp(args[0]) || args[0] == "help") {
    if (args.size() == 1) {
      std::cout << MainHelp(commands);
      return 0;
    }
    // "help plan" is "plan --help".
    args = {args[1], "--help"};
  }
  for (const Command& command : commands) {
    if (command.name == args[0]) {
      return RunCommand(command, argv[0], Args(args.begin() + 1, args.end()));
    }
  }
  std::cerr << ErrorStyle().Red("routepackctl:") << " unknown command '"
            << args[0] << "'." << Suggestion(args[0], "", names)
            << "\n'routepackctl --help' lists the commands.\n";
  return kUsage;
}

}  // namespace
}  // namespace routepack::cli

int main(int argc, char** argv) { return routepack::cli::Main(argc, argv); }
