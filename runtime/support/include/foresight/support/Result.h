//===- Result.h - Values or errors ------------------------------*- C++ -*-===//
//
// Every operation that an input can make fail returns a Result. Its error names
// the file, the node or tensor, the rule that was broken, what was found and
// what to do; its code is the exit code of the tool that gives up because of
// it. docs/errors.md lists the codes.
//
//===----------------------------------------------------------------------===//
#ifndef FORESIGHT_SUPPORT_RESULT_H
#define FORESIGHT_SUPPORT_RESULT_H

#include <cassert>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

namespace foresight {

/// What went wrong, for the caller; the value is the tool's exit code.
enum class ErrorCode : int {
  Usage = 2,       ///< bad command line, prompt or option value
  BadInput = 3,    ///< a file is missing, unreadable, damaged or inconsistent
  Unsupported = 4, ///< a well-formed model that this compiler does not take
  BadBundle = 5,   ///< a bundle is damaged, too new, or for another machine
  Resource = 6,    ///< memory, disk or device: not a fault of the input
  Mismatch = 7,    ///< results differ from a reference by more than they may
  Internal = 70,   ///< a broken promise of our own: please report it
};

/// Exit code for "ended by a signal": 128 + SIGINT, as shells count.
constexpr int kInterruptedExitCode = 130;

constexpr int exitCode(ErrorCode code) { return static_cast<int>(code); }

/// The first line of `message` stands alone; further lines are notes.
struct [[nodiscard]] Error {
  ErrorCode code = ErrorCode::Internal;
  std::string message;
};

/// An error whose message is its parts, printed one after the other.
template <typename... Parts>
Error makeError(ErrorCode code, const Parts &...parts) {
  std::ostringstream text;
  (text << ... << parts);
  return {code, text.str()};
}

/// A value, or why there is none. `Result<void>` is success or an error.
template <typename T> class [[nodiscard]] Result {
  using Stored = std::conditional_t<std::is_void_v<T>, std::monostate, T>;

public:
  using Value = T;

  Result()
    requires std::is_void_v<T>
      : state(std::in_place_index<0>) {}
  template <typename U = Stored>
    requires(!std::is_void_v<T> && std::is_constructible_v<Stored, U &&> &&
             !std::is_same_v<std::remove_cvref_t<U>, Error> &&
             !std::is_same_v<std::remove_cvref_t<U>, Result>)
  Result(U &&value) : state(std::in_place_index<0>, std::forward<U>(value)) {}
  Result(Error error) : state(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state.index() == 0; }
  explicit operator bool() const { return ok(); }

  const Error &error() const & {
    assert(!ok() && "a success has no error");
    return *std::get_if<1>(&state);
  }
  Error error() && {
    assert(!ok() && "a success has no error");
    return std::move(*std::get_if<1>(&state));
  }

  Stored &operator*() & {
    assert(ok() && "the value of an error was asked for");
    return *std::get_if<0>(&state);
  }
  const Stored &operator*() const & {
    assert(ok() && "the value of an error was asked for");
    return *std::get_if<0>(&state);
  }
  Stored &&operator*() && { return std::move(**this); }
  Stored *operator->() { return &**this; }
  const Stored *operator->() const { return &**this; }

private:
  std::variant<Stored, Error> state;
};

using Status = Result<void>;

/// `FORESIGHT_TRY(auto file, MappedFile::open(path));` declares `file`, or
/// returns the error to the caller.
#define FORESIGHT_TRY(declaration, ...)                                        \
  FORESIGHT_TRY_IMPL(FORESIGHT_CONCAT(foresightTry, __LINE__), declaration,    \
                     __VA_ARGS__)
#define FORESIGHT_TRY_IMPL(temporary, declaration, ...)                        \
  auto temporary = (__VA_ARGS__);                                              \
  if (!temporary.ok())                                                         \
    return std::move(temporary).error();                                       \
  declaration = std::move(*temporary)

/// `FORESIGHT_CHECK(file.write(bytes));` returns the error, if there is one.
#define FORESIGHT_CHECK(...)                                                   \
  do {                                                                         \
    if (auto foresightStatus = (__VA_ARGS__); !foresightStatus.ok())           \
      return std::move(foresightStatus).error();                               \
  } while (false)

#define FORESIGHT_CONCAT_IMPL(a, b) a##b
#define FORESIGHT_CONCAT(a, b) FORESIGHT_CONCAT_IMPL(a, b)

} // namespace foresight
#endif
