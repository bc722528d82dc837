//===- Progress.h - What the user sees while compiling ----------*- C++ -*-===//
#ifndef FORESIGHT_TOOLS_COMPILE_PROGRESS_H
#define FORESIGHT_TOOLS_COMPILE_PROGRESS_H

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <thread>

namespace foresight {

/// One line a phase on stderr, and a percentage while weights are packed: in
/// place on a terminal, every two seconds otherwise. Also watches how much
/// memory the process has beyond the pages of mapped files.
class Progress {
public:
  explicit Progress(bool quiet);
  ~Progress();

  /// Ends the phase before and starts the next.
  void phase(const std::string &name, const std::string &detail);
  /// More about the phase that runs.
  void note(const std::string &text);
  /// What --explain asks for: also where progress is not shown.
  void explain(const std::string &text);
  /// Lines of their own, as they are.
  void print(const std::string &text);
  /// "foresight-compile: warning: TEXT", each text once.
  void warn(const std::string &text);
  /// May be called from any thread.
  void percent(uint64_t done, uint64_t total);
  /// The last line: time and peak memory.
  void finish(const std::string &text);

private:
  void endLine();
  void watchMemory();
  double seconds() const;

  bool quiet, terminal;
  std::chrono::steady_clock::time_point start;
  std::mutex mutex;
  std::string line;
  std::set<std::string> warned;
  int shown = -1;
  double nextLine = 0;
  double phaseStart = 0;
  std::atomic<uint64_t> peakBytes{0};
  std::atomic<bool> stop{false};
  std::thread watcher;
};

/// "37.5 MB", "6.1 kB".
std::string bytesText(uint64_t bytes);

} // namespace foresight
#endif
