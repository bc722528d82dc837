//===- Args.h - Command lines -----------------------------------*- C++ -*-===//
#ifndef FORESIGHT_TOOLS_ARGS_H
#define FORESIGHT_TOOLS_ARGS_H

#include "foresight/support/Result.h"

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace foresight::tools {

struct OptionSpec {
  const char *name;  ///< without the two dashes
  const char *value; ///< what the help calls its value; null: it takes none
  const char *help;
  bool repeats = false;
};

struct CommandSpec {
  const char *name;
  const char *summary;
  const char *usage; ///< behind "foresight NAME "
  const char *details;
  std::vector<OptionSpec> options;
};

/// What a command line said.
class Args {
public:
  std::vector<std::string> positional;

  bool has(std::string_view option) const;
  std::string text(std::string_view option, std::string fallback = "") const;
  std::vector<std::string> all(std::string_view option) const;
  /// Usage if the value is no whole number from `low` to `high`.
  Result<int64_t>
  integer(std::string_view option, int64_t fallback, int64_t low,
          int64_t high = std::numeric_limits<int64_t>::max()) const;
  /// Usage if the value is no finite number.
  Result<double> number(std::string_view option, double fallback) const;
  /// Usage if the value is none of `choices`, the first of which is the
  /// default.
  Result<std::string> choice(std::string_view option,
                             std::initializer_list<const char *> choices) const;

private:
  friend Result<Args> parseArgs(const CommandSpec &,
                                std::span<const std::string>);
  std::map<std::string, std::vector<std::string>, std::less<>> values;
};

/// `--name value`, `--name=value`, `-o value`, `-ovalue`; `--` ends options. An
/// empty value is none. An unknown
/// option is Usage and names the nearest known one.
Result<Args> parseArgs(const CommandSpec &command,
                       std::span<const std::string> arguments);

std::string helpText(const CommandSpec &command);

/// "2,5,9": Usage if a part is no whole number that fits an id.
Result<std::vector<int32_t>> parseIds(std::string_view text);

} // namespace foresight::tools
#endif
