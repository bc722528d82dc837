//===- SafetensorsWriter.h - Small files for tests --------------*- C++ -*-===//
#ifndef FORESIGHT_SUPPORT_TEST_SAFETENSORSWRITER_H
#define FORESIGHT_SUPPORT_TEST_SAFETENSORSWRITER_H

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace foresight::test {

/// Length, header, data: of any header, also a wrong one.
inline std::string safetensorsBytes(const std::string &header,
                                    const std::string &data) {
  const uint64_t length = header.size();
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  return bytes + header + data;
}

/// Collects tensors, then gives the bytes of a correct file.
class SafetensorsWriter {
public:
  void add(const std::string &name, const std::string &type,
           const std::vector<int64_t> &shape, const void *values,
           size_t bytes) {
    if (!header.empty())
      header += ",";
    header += "\"" + name + "\":{\"dtype\":\"" + type + "\",\"shape\":[";
    for (size_t i = 0; i < shape.size(); ++i)
      header += (i ? "," : "") + std::to_string(shape[i]);
    header += "],\"data_offsets\":[" + std::to_string(data.size()) + "," +
              std::to_string(data.size() + bytes) + "]}";
    data.append(static_cast<const char *>(values), bytes);
  }
  void add(const std::string &name, const std::vector<int64_t> &shape,
           const std::vector<float> &values) {
    add(name, "F32", shape, values.data(), values.size() * sizeof(float));
  }
  std::string bytes() const {
    return safetensorsBytes("{" + header + "}", data);
  }

private:
  std::string header, data;
};

} // namespace foresight::test
#endif
