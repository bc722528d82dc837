//===- BenchReport.h - What bench measured ----------------------*- C++ -*-===//
#ifndef FORESIGHT_TOOLS_BENCHREPORT_H
#define FORESIGHT_TOOLS_BENCHREPORT_H

#include "MlpUse.h"

#include "foresight/runtime/CpuDevice.h"

#include <optional>

namespace foresight::tools {

struct DecodeBench {
  bool dense = false;
  int64_t batch = 0;           ///< sequences of `decode_batch`; 0: one, decoded
  std::vector<double> seconds; ///< of every step of every repetition
  /// Between a step and the next, where the device runs them by itself.
  std::vector<double> idleSeconds;
  SessionTrace trace; ///< of one repetition
  double tokensPerSecond() const;
  double bytesPerToken() const {
    return trace.tokens ? static_cast<double>(trace.weightBytes()) /
                              static_cast<double>(trace.tokens)
                        : 0;
  }
};

class BenchReport {
public:
  BenchReport(const Bundle &bundle, const Program &program)
      : bundle(bundle), manifest(bundle.manifest()), program(program) {}

  int64_t promptTokens = 0, tokens = 0, repeat = 0;
  /// Roles of stages that did not run.
  std::vector<std::string> without;
  /// Of the GPU's memory, where `threads` is 0, and not known if it is 0
  /// itself.
  ReadBandwidth bandwidth;
  std::vector<double> promptSeconds;
  std::vector<DecodeBench> decodes; ///< dense, then sparse if there is one
  std::optional<DecodeBench> batch;

  std::string text() const;
  OrderedJson json() const;

private:
  /// What stages of one role took and read, a token.
  struct RoleTotal {
    std::string role;
    double seconds = 0, bytes = 0;
  };
  std::vector<RoleTotal> roles(const DecodeBench &decode) const;
  std::string batchText() const;
  std::string stagesText(const DecodeBench &decode) const;
  std::string bandwidthText() const;
  std::string shareText(double bytesPerSecond) const;
  OrderedJson shareJson(double bytesPerSecond) const;
  OrderedJson decodeJson(const DecodeBench &decode) const;

  const Bundle &bundle;
  const Manifest &manifest;
  const Program &program;
};

/// Stages as events that follow each other, one track an entry.
class ChromeTrace {
public:
  void add(const Manifest &manifest, const SessionTrace &trace,
           const std::string &track);
  std::string json() const;

private:
  struct Track {
    std::string name;
    int64_t nanoseconds = 0;
  };
  std::vector<Track> tracks;
  OrderedJson events = OrderedJson::array();
};

} // namespace foresight::tools
#endif
