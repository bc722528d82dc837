//===- Machine.cpp - What this process may use ----------------------------===//
#include "Machine.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <thread>

#include <cpuid.h>
#include <sched.h>

namespace foresight {
namespace {

/// The folders of a cgroup controller's files, from this process's group to the
/// root; version 2's if `controller` is empty.
std::vector<std::string> cgroupFolders(const std::string &controller) {
  const std::string root =
      "/sys/fs/cgroup" + (controller.empty() ? "" : "/" + controller);
  std::string path;
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    // ID:CONTROLLER,CONTROLLER:PATH
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos)
      continue;
    std::istringstream names(line.substr(first + 1, second - first - 1));
    bool found = controller.empty() && second == first + 1;
    for (std::string name; std::getline(names, name, ',');)
      found |= name == controller;
    if (found)
      path = line.substr(second + 1);
  }
  std::vector<std::string> folders;
  while (!path.empty() && path != "/") {
    folders.push_back(root + path);
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
  folders.push_back(root);
  return folders;
}

std::optional<double> readNumber(const std::string &file) {
  std::ifstream in(file);
  double value;
  if (in >> value)
    return value;
  return std::nullopt;
}

/// The value behind `key` in a file of "key value" lines.
std::optional<double> readKey(const std::string &file, const std::string &key) {
  std::ifstream in(file);
  std::string name;
  for (double value; in >> name;) {
    if (!(in >> value)) {
      in.clear();
      continue;
    }
    if (name == key)
      return value;
    std::getline(in, name); // a unit
  }
  return std::nullopt;
}

/// CPUs' worth of time that cgroups grant.
double cpuQuota() {
  double quota = 1e9;
  for (const std::string &folder : cgroupFolders("")) {
    std::ifstream in(folder + "/cpu.max");
    double most, period;
    if (in >> most >> period && period > 0)
      quota = std::min(quota, most / period);
  }
  for (const std::string &folder : cgroupFolders("cpu")) {
    const auto most = readNumber(folder + "/cpu.cfs_quota_us");
    const auto period = readNumber(folder + "/cpu.cfs_period_us");
    if (most && period && *most > 0 && *period > 0)
      quota = std::min(quota, *most / *period);
  }
  return quota;
}

} // namespace

int availableThreads() {
  // Asked once, before threads of ours are pinned.
  static const int threads = [] {
    double count = static_cast<double>(cpu::allowedCpus().size());
    if (count == 0)
      count = std::max(1u, std::thread::hardware_concurrency());
    const double quota = cpuQuota();
    if (quota < count)
      count = static_cast<double>(static_cast<int64_t>(quota + 0.999));
    return std::max(1, static_cast<int>(count));
  }();
  return threads;
}

std::vector<std::string> cpuFeatures() {
  __builtin_cpu_init();
  std::vector<std::string> features;
#define FEATURE(name)                                                          \
  if (__builtin_cpu_supports(name))                                            \
    features.emplace_back(name);
  FEATURE("cmov")
  FEATURE("popcnt")
  FEATURE("sse")
  FEATURE("sse2")
  FEATURE("sse3")
  FEATURE("ssse3")
  FEATURE("sse4.1")
  FEATURE("sse4.2")
  FEATURE("avx")
  FEATURE("avx2")
  FEATURE("fma")
  FEATURE("f16c")
  FEATURE("bmi")
  FEATURE("bmi2")
  FEATURE("lzcnt")
  FEATURE("movbe")
  FEATURE("avx512f")
  FEATURE("avx512bw")
  FEATURE("avx512cd")
  FEATURE("avx512dq")
  FEATURE("avx512vl")
  FEATURE("avx512vnni")
  FEATURE("avx512bf16")
  FEATURE("avx512fp16")
  FEATURE("avxvnni")
#undef FEATURE
  return features;
}

std::string cpuName() {
  unsigned words[12] = {};
  if (__get_cpuid_max(0x80000000u, nullptr) < 0x80000004u)
    return "x86-64 CPU";
  for (unsigned i = 0; i < 3; ++i)
    __get_cpuid(0x80000002u + i, &words[4 * i], &words[4 * i + 1],
                &words[4 * i + 2], &words[4 * i + 3]);
  char text[sizeof(words) + 1] = {};
  std::memcpy(text, words, sizeof(words));
  std::string name = text;
  while (!name.empty() && name.back() == ' ')
    name.pop_back();
  return name.substr(std::min(name.find_first_not_of(' '), name.size()));
}

namespace cpu {

std::vector<int> allowedCpus() {
  std::vector<int> cpus;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0)
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &set))
        cpus.push_back(cpu);
  return cpus;
}

int64_t availableMemory() {
  double bytes = 9e18;
  if (const auto available = readKey("/proc/meminfo", "MemAvailable:"))
    bytes = *available * 1024;
  // What a group holds as page cache can be had back.
  for (const std::string &folder : cgroupFolders("")) {
    const auto most = readNumber(folder + "/memory.max");
    const auto used = readNumber(folder + "/memory.current");
    const auto cache = readKey(folder + "/memory.stat", "file");
    if (most && used)
      bytes = std::min(bytes, *most - *used + cache.value_or(0));
  }
  for (const std::string &folder : cgroupFolders("memory")) {
    const auto most = readNumber(folder + "/memory.limit_in_bytes");
    const auto used = readNumber(folder + "/memory.usage_in_bytes");
    const auto cache = readKey(folder + "/memory.stat", "total_cache");
    if (most && used)
      bytes = std::min(bytes, *most - *used + cache.value_or(0));
  }
  if (bytes >= 9e18)
    return INT64_MAX;
  return std::max<int64_t>(0, static_cast<int64_t>(bytes));
}

} // namespace cpu
} // namespace foresight
