//===- TempFolder.h - A folder that a test may fill -------------*- C++ -*-===//
#ifndef FORESIGHT_SUPPORT_TEST_TEMPFOLDER_H
#define FORESIGHT_SUPPORT_TEST_TEMPFOLDER_H

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace foresight::test {

/// Removed with all that is in it at the end of its scope.
class TempFolder {
public:
  TempFolder() {
    std::string name =
        (std::filesystem::temp_directory_path() / "foresight-XXXXXX").string();
    path = ::mkdtemp(name.data());
  }
  TempFolder(const TempFolder &) = delete;
  TempFolder &operator=(const TempFolder &) = delete;
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }

  std::string operator/(const std::string &name) const {
    return (path / name).string();
  }
  std::string str() const { return path.string(); }

  std::string write(const std::string &name, const std::string &bytes) const {
    std::ofstream(*this / name, std::ios::binary) << bytes;
    return *this / name;
  }
  std::string read(const std::string &name) const {
    std::ifstream file(*this / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  int entries() const {
    int count = 0;
    for ([[maybe_unused]] const auto &entry :
         std::filesystem::directory_iterator(path))
      ++count;
    return count;
  }

private:
  std::filesystem::path path;
};

} // namespace foresight::test
#endif
