//===- Progress.cpp - What the user sees while compiling ------------------===//

#include "Progress.h"

#include "foresight/support/Message.h"

#include <cstdio>
#include <fstream>
#include <unistd.h>

using namespace foresight;

std::string foresight::bytesText(uint64_t bytes) {
  char text[32];
  if (bytes < 1000000)
    snprintf(text, sizeof text, "%.1f kB", bytes / 1e3);
  else if (bytes < 1000000000)
    snprintf(text, sizeof text, "%.1f MB", bytes / 1e6);
  else
    snprintf(text, sizeof text, "%.2f GB", bytes / 1e9);
  return text;
}

/// Resident pages that are not of files: the kernel keeps a peak only of both
/// together.
static uint64_t anonymousBytes() {
  std::ifstream file("/proc/self/statm");
  uint64_t size = 0, resident = 0, shared = 0;
  static const long page = sysconf(_SC_PAGESIZE);
  return file >> size >> resident >> shared && resident > shared
             ? (resident - shared) * page
             : 0;
}

Progress::Progress(bool quiet)
    : quiet(quiet), terminal(isatty(STDERR_FILENO)),
      start(std::chrono::steady_clock::now()) {
  if (!quiet)
    watcher = std::thread([this] { watchMemory(); });
}

Progress::~Progress() {
  stop = true;
  if (watcher.joinable())
    watcher.join();
  std::lock_guard lock(mutex);
  endLine();
}

void Progress::watchMemory() {
  while (!stop) {
    uint64_t now = anonymousBytes();
    if (now > peakBytes)
      peakBytes = now;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

double Progress::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
      .count();
}

void Progress::endLine() {
  if (!line.empty() && terminal)
    fputc('\n', stderr);
  line.clear();
  shown = -1;
}

void Progress::phase(const std::string &name, const std::string &detail) {
  if (quiet)
    return;
  std::lock_guard lock(mutex);
  endLine();
  char stamp[32];
  snprintf(stamp, sizeof stamp, "[%5.1f s] %-9s ", seconds(), name.c_str());
  line = stamp + detail;
  phaseStart = seconds();
  nextLine = phaseStart + 2;
  fprintf(stderr, "%s%s", line.c_str(), terminal ? "" : "\n");
}

void Progress::note(const std::string &text) {
  if (!quiet)
    explain(text);
}

void Progress::explain(const std::string &text) {
  print(std::string(20, ' ') + text + "\n");
}

void Progress::print(const std::string &text) {
  std::lock_guard lock(mutex);
  endLine();
  fputs(text.c_str(), stderr);
}

void Progress::warn(const std::string &text) {
  std::lock_guard lock(mutex);
  if (!warned.insert(text).second)
    return;
  endLine();
  fputs(messageLine("foresight-compile", "warning", text).c_str(), stderr);
}

void Progress::percent(uint64_t done, uint64_t total) {
  if (quiet || total == 0)
    return;
  int now = static_cast<int>(done * 100 / total);
  std::lock_guard lock(mutex);
  if (now <= shown)
    return;
  shown = now;
  if (!terminal && seconds() < nextLine)
    return;
  nextLine = seconds() + 2; // a log is for what takes long
  char text[48];
  double passed = seconds() - phaseStart;
  if (passed < 2) // too early to tell
    snprintf(text, sizeof text, "%3d %%", now);
  else
    snprintf(text, sizeof text, "%3d %%, %.0f s left", now,
             passed * static_cast<double>(total - done) /
                 static_cast<double>(done));
  if (terminal)
    fprintf(stderr, "\r%s %s   ", line.c_str(), text);
  else
    fprintf(stderr, "%20s%s\n", "", text);
}

void Progress::finish(const std::string &text) {
  if (quiet)
    return;
  stop = true;
  if (watcher.joinable())
    watcher.join();
  std::lock_guard lock(mutex);
  endLine();
  fprintf(stderr, "[%5.1f s] %s; peak memory %s beyond mapped files\n",
          seconds(), text.c_str(), bytesText(peakBytes).c_str());
}
