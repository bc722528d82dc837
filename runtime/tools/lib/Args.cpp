//===- Args.cpp - Command lines -------------------------------------------===//
#include "Args.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

namespace foresight::tools {

bool Args::has(std::string_view option) const {
  return values.find(option) != values.end();
}

std::string Args::text(std::string_view option, std::string fallback) const {
  const auto found = values.find(option);
  if (found != values.end())
    return found->second.back();
  return fallback;
}

std::vector<std::string> Args::all(std::string_view option) const {
  const auto found = values.find(option);
  return found == values.end() ? std::vector<std::string>() : found->second;
}

Result<int64_t> Args::integer(std::string_view option, int64_t fallback,
                              int64_t low, int64_t high) const {
  if (!has(option))
    return fallback;
  const std::string value = text(option);
  int64_t number = 0;
  const auto [end, code] =
      std::from_chars(value.data(), value.data() + value.size(), number);
  if (code == std::errc() && end == value.data() + value.size() &&
      number >= low && number <= high)
    return number;
  std::ostringstream range;
  range << "a whole number of at least " << low;
  // A limit that nobody reaches is of interest to those who exceed it.
  if (high != std::numeric_limits<int64_t>::max() ||
      code == std::errc::result_out_of_range)
    range << " and at most " << high;
  return makeError(ErrorCode::Usage, "--", option, " is '", value,
                   "': expected ", range.str());
}

Result<double> Args::number(std::string_view option, double fallback) const {
  if (!has(option))
    return fallback;
  const std::string value = text(option);
  double number = 0;
  const auto [end, code] =
      std::from_chars(value.data(), value.data() + value.size(), number);
  if (code == std::errc() && end == value.data() + value.size() &&
      std::isfinite(number))
    return number;
  return makeError(ErrorCode::Usage, "--", option, " is '", value,
                   "': expected a finite number");
}

Result<std::string>
Args::choice(std::string_view option,
             std::initializer_list<const char *> choices) const {
  if (!has(option))
    return std::string(*choices.begin());
  std::string value = text(option);
  std::string list;
  for (const char *choice : choices) {
    if (value == choice)
      return value;
    list += (list.empty() ? "" : ", ") + std::string(choice);
  }
  return makeError(ErrorCode::Usage, "--", option, " is '", value,
                   "': expected one of ", list);
}

/// Insertions, deletions and replacements that turn one word into the other.
static size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

static Error unknownOption(const CommandSpec &command, std::string_view name) {
  const OptionSpec *nearest = nullptr;
  size_t best = 3;
  for (const OptionSpec &option : command.options)
    if (const size_t d = distance(name, option.name); d < best) {
      nearest = &option;
      best = d;
    }
  const std::string hint =
      nearest ? std::string("did you mean --") + nearest->name + "?"
              : std::string("see foresight ") + command.name + " --help";
  return makeError(ErrorCode::Usage, "unknown option --", name, "; ", hint);
}

Result<Args> parseArgs(const CommandSpec &command,
                       std::span<const std::string> arguments) {
  Args parsed;
  for (size_t i = 0; i < arguments.size(); ++i) {
    std::string_view word = arguments[i];
    if (word == "--") {
      parsed.positional.insert(parsed.positional.end(),
                               arguments.begin() + i + 1, arguments.end());
      break;
    }
    if (word == "-h")
      word = "--help";
    const auto isKnown = [&](std::string_view name) {
      return std::any_of(
          command.options.begin(), command.options.end(),
          [&](const OptionSpec &option) { return name == option.name; });
    };
    if (word.starts_with("-o") && isKnown("o")) {
      if (parsed.has("o"))
        return makeError(ErrorCode::Usage, "-o is given twice");
      std::string value(word.substr(word.starts_with("-o=") ? 3 : 2));
      if (word.size() == 2 && i + 1 < arguments.size())
        value = arguments[++i];
      if (value.empty())
        return makeError(ErrorCode::Usage, "-o needs a value");
      parsed.values["o"] = {std::move(value)};
      continue;
    }
    if (!word.starts_with("--")) {
      if (word.size() > 1 && word.starts_with('-'))
        return makeError(ErrorCode::Usage, "unknown option ", word,
                         "; see foresight ", command.name, " --help");
      parsed.positional.emplace_back(word);
      continue;
    }

    const size_t equals = word.find('=');
    const std::string name(word.substr(2, equals - 2));
    if (name == "help") {
      parsed.values["help"] = {""};
      continue;
    }
    const auto option =
        std::find_if(command.options.begin(), command.options.end(),
                     [&](const OptionSpec &spec) { return name == spec.name; });
    if (name.size() < 2 || option == command.options.end())
      return unknownOption(command, name);
    std::string value;
    if (!option->value) {
      if (equals != std::string_view::npos)
        return makeError(ErrorCode::Usage, "--", name, " takes no value");
    } else if (equals != std::string_view::npos) {
      value = word.substr(equals + 1);
    } else if (i + 1 < arguments.size()) {
      value = arguments[++i];
    }
    if (option->value && value.empty())
      return makeError(ErrorCode::Usage, "--", name,
                       " needs a value: ", option->value);
    std::vector<std::string> &values = parsed.values[name];
    if (!values.empty() && !option->repeats)
      return makeError(ErrorCode::Usage, "--", name, " is given twice");
    values.push_back(std::move(value));
  }
  return parsed;
}

std::string helpText(const CommandSpec &command) {
  std::string out = std::string(command.summary) + "\n\nusage: foresight " +
                    command.name + " " + command.usage + "\n";
  if (*command.details)
    out += "\n" + std::string(command.details) + "\n";
  out += "\noptions:\n";
  constexpr size_t kColumn = 28;
  for (const OptionSpec &option : command.options) {
    std::string left = std::string(option.name) == "o"
                           ? std::string("  -o")
                           : std::string("  --") + option.name;
    if (option.value)
      left += std::string(left == "  -o" ? " " : "=") + option.value;
    left += left.size() + 2 > kColumn ? "\n" + std::string(kColumn, ' ')
                                      : std::string(kColumn - left.size(), ' ');
    out += left;
    for (const char *c = option.help; *c; ++c)
      out += *c == '\n' ? "\n" + std::string(kColumn, ' ') : std::string(1, *c);
    out += "\n";
  }
  out += "  --help                    show this\n";
  return out;
}

Result<std::vector<int32_t>> parseIds(std::string_view text) {
  std::vector<int32_t> ids;
  std::string_view rest = text;
  while (true) {
    std::string_view part = rest.substr(0, rest.find(','));
    const bool last = part.size() == rest.size();
    rest.remove_prefix(part.size() + !last);
    while (part.starts_with(' '))
      part.remove_prefix(1);
    while (part.ends_with(' ') || part.ends_with('\n'))
      part.remove_suffix(1);
    int32_t id = 0;
    const auto [end, code] =
        std::from_chars(part.data(), part.data() + part.size(), id);
    if (code == std::errc::result_out_of_range)
      return makeError(ErrorCode::Usage, "token id ", part,
                       " is too large for any vocabulary");
    if (code != std::errc() || end != part.data() + part.size())
      return makeError(ErrorCode::Usage, "token id '", part,
                       "' is not a whole number: expected ids like 2,5,9");
    ids.push_back(id);
    if (last)
      return ids;
  }
}

} // namespace foresight::tools
