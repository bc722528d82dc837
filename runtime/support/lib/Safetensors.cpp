//===- Safetensors.cpp - Reader of safetensors files ----------------------===//

#include "foresight/support/Safetensors.h"

#include "foresight/support/Json.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <optional>
#include <set>

using namespace foresight;

static_assert(std::endian::native == std::endian::little,
              "safetensors and bundles are little-endian");

/// The format's own limit, so that a damaged length is not taken for a header.
static constexpr uint64_t kMaxHeaderBytes = 100'000'000;

static std::optional<ElementType> parseType(const std::string &name) {
  static const std::pair<const char *, ElementType> types[] = {
      {"F64", ElementType::F64}, {"F32", ElementType::F32},
      {"F16", ElementType::F16}, {"BF16", ElementType::BF16},
      {"I64", ElementType::I64}, {"I32", ElementType::I32},
      {"I16", ElementType::I16}, {"I8", ElementType::I8},
      {"U8", ElementType::U8},   {"BOOL", ElementType::Bool}};
  for (const auto &[text, type] : types)
    if (name == text)
      return type;
  return std::nullopt;
}

/// One member of the header: type, shape and range, checked against each other
/// and against the data that the file has.
static Result<TensorInfo> parseTensor(const JsonObject &entry,
                                      uint64_t dataStart, uint64_t dataBytes) {
  TensorInfo tensor;
  FORESIGHT_TRY(std::string type, read<std::string>(entry, "dtype"));
  std::optional<ElementType> known = parseType(type);
  if (!known)
    return makeError(ErrorCode::Unsupported, entry.where, ": has dtype ", type,
                     ", which is not supported; save it as F32, F16 or BF16");
  tensor.type = *known;
  FORESIGHT_TRY(tensor.shape, read<std::vector<int64_t>>(entry, "shape"));
  FORESIGHT_TRY(std::vector<int64_t> range,
                read<std::vector<int64_t>>(entry, "data_offsets"));
  if (range.size() != 2 || range[0] < 0 || range[1] < range[0])
    return makeError(ErrorCode::BadInput, entry.where,
                     ": \"data_offsets\" must be a begin and an end, found ",
                     shapeText(range));
  if (static_cast<uint64_t>(range[1]) > dataBytes)
    return makeError(ErrorCode::BadInput, entry.where, ": ends at byte ",
                     range[1], " of the data but the file has only ", dataBytes,
                     "; is it truncated? Download it again");
  auto count = elementCount(tensor.shape);
  if (!count)
    return makeError(ErrorCode::BadInput, entry.where, ": ",
                     count.error().message);
  int64_t bytes;
  if (__builtin_mul_overflow(*count, elementBytes(tensor.type), &bytes) ||
      bytes != range[1] - range[0])
    return makeError(ErrorCode::BadInput, entry.where, ": shape ",
                     shapeText(tensor.shape), " of ", type, " does not fill ",
                     range[1] - range[0], " bytes");
  tensor.offset = dataStart + static_cast<uint64_t>(range[0]);
  tensor.bytes = static_cast<uint64_t>(bytes);
  return tensor;
}

/// No two tensors of one file may share bytes: one of them would be wrong.
static Status
checkOverlap(const std::string &path,
             std::vector<std::pair<std::string, TensorInfo>> &tensors) {
  std::vector<const std::pair<std::string, TensorInfo> *> order;
  for (const auto &entry : tensors)
    if (entry.second.bytes)
      order.push_back(&entry);
  std::sort(order.begin(), order.end(), [](const auto *a, const auto *b) {
    return a->second.offset < b->second.offset;
  });
  for (size_t i = 1; i < order.size(); ++i) {
    const TensorInfo &before = order[i - 1]->second;
    if (before.offset + before.bytes > order[i]->second.offset)
      return makeError(ErrorCode::BadInput, path, ": tensors '",
                       order[i - 1]->first, "' and '", order[i]->first,
                       "' overlap at byte ", order[i]->second.offset,
                       " of the file");
  }
  return {};
}

Status Safetensors::add(const std::string &path) {
  FORESIGHT_TRY(MappedFile mapped, MappedFile::open(path));
  auto file = std::make_shared<const MappedFile>(std::move(mapped));
  paths.push_back(path);

  uint64_t headerBytes = 0;
  if (file->size() < sizeof(headerBytes))
    return makeError(ErrorCode::BadInput, path, ": has ", file->size(),
                     " bytes, too few for a safetensors file");
  std::memcpy(&headerBytes, file->data(), sizeof(headerBytes));
  if (headerBytes > kMaxHeaderBytes ||
      headerBytes > file->size() - sizeof(headerBytes))
    return makeError(ErrorCode::BadInput, path, ": says that its header has ",
                     headerBytes, " bytes but the file has ", file->size(),
                     "; it is truncated or not a safetensors file");
  FORESIGHT_TRY(Json header,
                parseJson({reinterpret_cast<const char *>(file->data()) + 8,
                           static_cast<size_t>(headerBytes)},
                          path + ": safetensors header"));
  if (!header.is_object())
    return makeError(ErrorCode::BadInput, path,
                     ": safetensors header: expected an object");

  const uint64_t dataStart = sizeof(headerBytes) + headerBytes;
  std::vector<std::pair<std::string, TensorInfo>> found;
  for (const auto &[name, value] : header.items()) {
    if (name == "__metadata__") {
      if (paths.size() == 1 && value.is_object())
        for (const auto &[key, text] : value.items())
          if (text.is_string())
            meta[key] = text.get_ref<const std::string &>();
      continue;
    }
    FORESIGHT_TRY(TensorInfo tensor,
                  parseTensor({value, path + ": tensor '" + name + "'"},
                              dataStart, file->size() - dataStart));
    tensor.file = file;
    found.emplace_back(name, std::move(tensor));
  }
  FORESIGHT_CHECK(checkOverlap(path, found));
  for (auto &[name, tensor] : found)
    if (auto [old, fresh] = byName.emplace(name, std::move(tensor)); !fresh)
      return makeError(ErrorCode::BadInput, path, ": tensor '", name,
                       "' is also in ", old->second.file->path());
  return {};
}

/// Fails if a file of a model folder is a link to a place outside it: a folder
/// from somebody else must not choose what else is read. The Hugging Face hub
/// links MODEL/snapshots/REVISION/FILE to MODEL/blobs/HASH; that is allowed.
static Status checkInside(const std::filesystem::path &folder,
                          const std::filesystem::path &file) {
  namespace fs = std::filesystem;
  std::error_code failure;
  const fs::path realFile = fs::canonical(file, failure);
  if (failure)
    return {}; // it is not there: opening it says so
  const fs::path realFolder =
      fs::canonical(folder.empty() ? "." : folder, failure);
  auto isUnder = [&](const fs::path &outer) {
    return std::mismatch(outer.begin(), outer.end(), realFile.begin(),
                         realFile.end())
               .first == outer.end();
  };
  if (failure || isUnder(realFolder))
    return {};
  const fs::path snapshots = realFolder.parent_path();
  if (snapshots.filename() == "snapshots" &&
      isUnder(snapshots.parent_path() / "blobs"))
    return {};
  return makeError(
      ErrorCode::BadInput, file.string(), ": is a link to ", realFile.string(),
      ", outside the model's folder; copy the file into it, or say "
      "--allow-links if you trust where the model is from");
}

Result<Safetensors> Safetensors::openFile(const std::string &path) {
  Safetensors set;
  set.source = path;
  FORESIGHT_CHECK(set.add(path));
  return set;
}

Result<Safetensors> Safetensors::openIndex(const std::string &path,
                                           bool anyLinks) {
  FORESIGHT_TRY(Json index, readJsonFile(path));
  FORESIGHT_TRY(const Json *map, readObject({index, path}, "weight_map"));
  const std::filesystem::path folder =
      std::filesystem::path(path).parent_path();

  Safetensors set;
  set.source = path;
  std::set<std::string> shards;
  for (const auto &[name, value] : map->items()) {
    if (!value.is_string())
      return makeError(ErrorCode::BadInput, path, ": \"weight_map\": '", name,
                       "' must name a file");
    const std::string &shard = value.get_ref<const std::string &>();
    // Shards lie beside their index: anything else is a mistake or an attack.
    if (shard.empty() || shard == "." || shard == ".." ||
        shard.find_first_of("/\\") != std::string::npos)
      return makeError(ErrorCode::BadInput, path, ": \"weight_map\": '", name,
                       "' is said to be in '", shard,
                       "'; a shard must be a file beside the index");
    shards.insert(shard);
  }
  for (const std::string &shard : shards) {
    if (!anyLinks)
      FORESIGHT_CHECK(checkInside(folder, folder / shard));
    FORESIGHT_CHECK(set.add((folder / shard).string()));
  }
  for (const auto &[name, value] : map->items()) {
    const TensorInfo *tensor = set.find(name);
    const std::string shard =
        (folder / value.get_ref<const std::string &>()).string();
    if (!tensor)
      return makeError(ErrorCode::BadInput, path, ": tensor '", name,
                       "' is said to be in ", shard, " but is not there");
    if (tensor->file->path() != shard)
      return makeError(ErrorCode::BadInput, path, ": tensor '", name,
                       "' is said to be in ", shard, " but is in ",
                       tensor->file->path());
  }
  // Versions of transformers disagree on tensors that an index leaves out, so
  // they are no part of the model, but whoever misses one is told where it is.
  for (const auto &[name, tensor] : set.byName)
    if (!map->contains(name))
      set.unlisted.emplace(name, tensor.file->path());
  for (const auto &[name, shard] : set.unlisted)
    set.byName.erase(name);
  return set;
}

Result<Safetensors> Safetensors::openFolder(const std::string &folder,
                                            bool anyLinks) {
  namespace fs = std::filesystem;
  std::error_code failure;
  if (!fs::is_directory(folder, failure))
    return makeError(ErrorCode::BadInput, folder, ": is not a folder");
  const fs::path base(folder);
  if (fs::exists(base / "model.safetensors.index.json", failure))
    return openIndex((base / "model.safetensors.index.json").string(),
                     anyLinks);
  if (fs::exists(base / "model.safetensors", failure)) {
    if (!anyLinks)
      FORESIGHT_CHECK(checkInside(base, base / "model.safetensors"));
    return openFile((base / "model.safetensors").string());
  }

  std::vector<std::string> found;
  for (fs::directory_iterator it(folder, failure), end; !failure && it != end;
       it.increment(failure))
    if (it->path().extension() == ".safetensors")
      found.push_back(it->path().string());
  if (failure)
    return makeError(ErrorCode::BadInput, folder,
                     ": cannot be listed: ", failure.message());
  if (found.size() == 1) {
    if (!anyLinks)
      FORESIGHT_CHECK(checkInside(base, found.front()));
    return openFile(found.front());
  }
  if (found.empty())
    return makeError(ErrorCode::BadInput, folder,
                     ": has no *.safetensors file");
  return makeError(ErrorCode::BadInput, folder, ": has ", found.size(),
                   " *.safetensors files but no model.safetensors.index.json "
                   "that says which are the model's");
}

const TensorInfo *Safetensors::find(const std::string &name) const {
  auto found = byName.find(name);
  return found == byName.end() ? nullptr : &found->second;
}

const std::string *Safetensors::findUnlisted(const std::string &name) const {
  auto found = unlisted.find(name);
  return found == unlisted.end() ? nullptr : &found->second;
}
