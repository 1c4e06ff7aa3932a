#include "tests/integration/server_process.h"

#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace routepack {
namespace {

constexpr absl::Duration kPatience = absl::Minutes(1);
constexpr absl::Duration kPoll = absl::Milliseconds(5);

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

pid_t Spawn(const std::vector<std::string>& arguments,
            const std::string& log_path) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);
  const int log = open(log_path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    execv(argv[0], argv.data());
    _exit(127);
  }
  close(log);
  return pid;
}

}  // namespace

ServerProcess::ServerProcess(std::vector<std::string> flags) {
  std::string folder =
      (std::filesystem::temp_directory_path() / "routepackd.XXXXXX").string();
  folder_ = mkdtemp(folder.data());
  const std::string port_file = folder_ + "/port";
  std::vector<std::string> arguments = {
      ROUTEPACKD, "--listen=127.0.0.1:0", "--threads=2",
      absl::StrCat("--port_file=", port_file)};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  pid_ = Spawn(arguments, folder_ + "/log");
  const absl::Time end = absl::Now() + kPatience;
  while (!std::filesystem::exists(port_file)) {
    if (Ended() || absl::Now() > end) return;
    absl::SleepFor(kPoll);
  }
  std::string port = ReadFile(port_file);
  port.pop_back();
  target_ = absl::StrCat("127.0.0.1:", port);
  grpc::ChannelArguments channel_arguments;
  channel_arguments.SetInt(GRPC_ARG_MAX_METADATA_SIZE, 64 << 10);
  // Servers of other tests had this port before: connections are not shared.
  channel_arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  channel_ = grpc::CreateCustomChannel(
      target_, grpc::InsecureChannelCredentials(), channel_arguments);
  stub_ = v1::PlannerService::NewStub(channel_);
}

ServerProcess::~ServerProcess() {
  if (pid_ > 0 && !Ended()) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void ServerProcess::Terminate() { kill(pid_, SIGTERM); }

bool ServerProcess::Ended() {
  int status = 0;
  if (!ended_ && waitpid(pid_, &status, WNOHANG) == pid_) {
    ended_ = true;
    exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  return ended_;
}

int ServerProcess::ExitCode() {
  const absl::Time end = absl::Now() + kPatience;
  while (!Ended() && absl::Now() < end) absl::SleepFor(kPoll);
  return exit_code_;
}

std::string ServerProcess::Log() const { return ReadFile(folder_ + "/log"); }

uint64_t ServerProcess::StatusLine(const std::string& name) const {
  std::ifstream file(absl::StrCat("/proc/", pid_, "/status"));
  std::string word;
  while (file >> word) {
    uint64_t kilobytes = 0;
    if (word == name && file >> kilobytes) return kilobytes * 1024;
  }
  return 0;
}

}  // namespace routepack
