//===- AtomicFile.cpp - Files that appear whole or not at all -------------===//

#include "foresight/support/AtomicFile.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <mutex>
#include <sys/stat.h>
#include <unistd.h>

using namespace foresight;

//===----------------------------------------------------------------------===//
// Temporary files that a signal must remove
//===----------------------------------------------------------------------===//

namespace {

/// Names that the handler unlinks. Fixed memory and atomics: a handler may do
/// next to nothing.
struct CleanupSlot {
  std::atomic<bool> inUse = false;
  char path[4096];
};
CleanupSlot cleanupSlots[8];

extern "C" void removeTemporaries(int signal) {
  for (CleanupSlot &slot : cleanupSlots)
    if (slot.inUse.load(std::memory_order_acquire))
      ::unlink(slot.path);
  // End as the signal would have ended the process.
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

void installHandlers() {
  static std::once_flag once;
  std::call_once(once, [] {
    for (int signal : {SIGINT, SIGTERM, SIGHUP}) {
      struct sigaction old = {};
      ::sigaction(signal, nullptr, &old);
      if (old.sa_handler != SIG_DFL)
        continue; // ignored, or somebody else's
      struct sigaction action = {};
      action.sa_handler = removeTemporaries;
      sigemptyset(&action.sa_mask);
      ::sigaction(signal, &action, nullptr);
    }
  });
}

/// Returns the slot, or -1 if all are taken: the file is then removed by its
/// destructor only.
int registerTemporary(const std::string &path) {
  static std::mutex mutex;
  std::lock_guard<std::mutex> lock(mutex);
  if (path.size() >= sizeof(CleanupSlot::path))
    return -1;
  for (int i = 0; i < static_cast<int>(std::size(cleanupSlots)); ++i) {
    CleanupSlot &slot = cleanupSlots[i];
    if (slot.inUse.load(std::memory_order_relaxed))
      continue;
    std::memcpy(slot.path, path.c_str(), path.size() + 1);
    slot.inUse.store(true, std::memory_order_release);
    installHandlers();
    return i;
  }
  return -1;
}

void forgetTemporary(int slot) {
  if (slot >= 0)
    cleanupSlots[slot].inUse.store(false, std::memory_order_release);
}

std::string folderOf(const std::string &path) {
  std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

std::string temporaryName(const std::string &path) {
  static std::atomic<unsigned> counter = 0;
  return folderOf(path) + "/." +
         std::filesystem::path(path).filename().string() + ".tmp-" +
         std::to_string(::getpid()) + "-" + std::to_string(counter++);
}

Error systemError(const std::string &path, const char *what, int code) {
  std::string hint;
  if (code == ENOSPC || code == EDQUOT)
    hint = "; free some space or write elsewhere";
  return makeError(ErrorCode::Resource, path, ": ", what, ": ",
                   std::strerror(code), hint);
}

} // namespace

//===----------------------------------------------------------------------===//
// AtomicFile
//===----------------------------------------------------------------------===//

Result<AtomicFile> AtomicFile::create(const std::string &path) {
  struct stat info;
  AtomicFile file;
  file.target = path;
  if (::stat(path.c_str(), &info) == 0) {
    if (!S_ISREG(info.st_mode))
      return makeError(ErrorCode::Usage, path,
                       ": is not a regular file and will not be replaced; "
                       "name a file");
    // Replace what a link points to, not the link.
    std::error_code ignored;
    std::filesystem::path real = std::filesystem::canonical(path, ignored);
    if (!ignored)
      file.target = real.string();
  }
  if (std::filesystem::path(path).filename().empty())
    return makeError(ErrorCode::Usage, path.empty() ? "the output" : path,
                     ": needs a file name");

  const std::string folder = folderOf(file.target);
  file.descriptor =
      ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
  if (file.descriptor >= 0)
    return file;
  if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)
    return systemError(path, "cannot be written", errno);

  file.temporary = temporaryName(file.target);
  file.cleanupSlot = registerTemporary(file.temporary);
  file.descriptor = ::open(file.temporary.c_str(),
                           O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0666);
  if (file.descriptor < 0) {
    const int code = errno;
    forgetTemporary(file.cleanupSlot);
    file.cleanupSlot = -1;
    file.temporary.clear();
    return systemError(path, "cannot be written", code);
  }
  return file;
}

AtomicFile::AtomicFile(AtomicFile &&other) noexcept {
  *this = std::move(other);
}

AtomicFile &AtomicFile::operator=(AtomicFile &&other) noexcept {
  std::swap(target, other.target);
  std::swap(temporary, other.temporary);
  std::swap(descriptor, other.descriptor);
  std::swap(cleanupSlot, other.cleanupSlot);
  std::swap(appended, other.appended);
  return *this;
}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::discard() {
  if (descriptor >= 0)
    ::close(descriptor);
  descriptor = -1;
  if (!temporary.empty())
    ::unlink(temporary.c_str());
  temporary.clear();
  forgetTemporary(cleanupSlot);
  cleanupSlot = -1;
}

Status AtomicFile::reserve(uint64_t bytes) {
  if (bytes == 0 || ::fallocate(descriptor, FALLOC_FL_KEEP_SIZE, 0,
                                static_cast<off_t>(bytes)) == 0)
    return {};
  if (errno == EOPNOTSUPP || errno == ENOSYS)
    return {}; // some file systems cannot: writing will tell
  const int code = errno;
  return systemError(
      target, ("cannot get " + std::to_string(bytes) + " bytes").c_str(), code);
}

Status AtomicFile::writeAt(uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(descriptor, bytes.data(), bytes.size(),
                                   static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR)
      continue;
    if (count < 0)
      return systemError(target, "cannot be written", errno);
    bytes = bytes.subspan(static_cast<size_t>(count));
    offset += static_cast<uint64_t>(count);
  }
  return {};
}

Status AtomicFile::write(std::span<const std::byte> bytes) {
  FORESIGHT_CHECK(writeAt(appended, bytes));
  appended += bytes.size();
  return {};
}

Status AtomicFile::write(std::string_view text) {
  return write(std::as_bytes(std::span(text.data(), text.size())));
}

Status AtomicFile::makeExecutable() {
  const mode_t mask = ::umask(0);
  ::umask(mask);
  if (::fchmod(descriptor, 0777 & ~mask) != 0)
    return systemError(target, "cannot be made executable", errno);
  return {};
}

Status AtomicFile::commit() {
  // A seek past what was written is part of the file.
  struct stat info;
  if (::fstat(descriptor, &info) != 0)
    return systemError(target, "cannot be examined", errno);
  if (static_cast<uint64_t>(info.st_size) < appended &&
      ::ftruncate(descriptor, static_cast<off_t>(appended)) != 0)
    return systemError(target, "cannot be written", errno);
  if (::fsync(descriptor) != 0)
    return systemError(target, "cannot be written", errno);

  if (temporary.empty()) {
    // The file has no name yet, and linkat does not replace one.
    const std::string own = "/proc/self/fd/" + std::to_string(descriptor);
    temporary = temporaryName(target);
    cleanupSlot = registerTemporary(temporary);
    if (::linkat(AT_FDCWD, own.c_str(), AT_FDCWD, temporary.c_str(),
                 AT_SYMLINK_FOLLOW) != 0) {
      const int code = errno;
      temporary.clear();
      return systemError(target, "cannot be named", code);
    }
  }
  if (::rename(temporary.c_str(), target.c_str()) != 0)
    return systemError(target, "cannot be replaced", errno);
  temporary.clear();
  forgetTemporary(cleanupSlot);
  cleanupSlot = -1;
  ::close(descriptor);
  descriptor = -1;

  // Make the new name itself durable; the data already are.
  const int folder =
      ::open(folderOf(target).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder >= 0) {
    ::fsync(folder);
    ::close(folder);
  }
  return {};
}

Status foresight::writeFileAtomically(const std::string &path,
                                      std::string_view text) {
  FORESIGHT_TRY(AtomicFile file, AtomicFile::create(path));
  FORESIGHT_CHECK(file.write(text));
  return file.commit();
}
