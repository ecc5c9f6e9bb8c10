// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "kv/state.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "kv/state_header.h"

namespace kvant {

// The one way into a cache's tables.
struct StateAccess {
  static void Fill(KvCache& cache, std::size_t length, std::vector<HeadTable> heads) {
    cache.state_.length = length;
    cache.state_.heads = std::move(heads);
  }
};

namespace {

static_assert(std::endian::native == std::endian::little, "numbers are written as they lie in memory");

// One side of one block: which form it has and how many bytes of its canonical order are in the file.
struct SideForm {
  const SideMethod* method;
  Side side;
  std::size_t block;
  bool packed;
  std::uint64_t offset;      // of this side inside its block
  std::uint64_t file_bytes;  // of exact blocks only the rows that hold tokens
};

// The sides of one head in the order of the file.
std::vector<SideForm> SidesOf(const LayerMethod& layer, std::size_t length) {
  std::vector<SideForm> sides;
  const std::size_t n_packed = layer.HeldPacked(length);
  for (std::size_t block = 0; block < BlocksFor(length); ++block) {
    const bool packed = block < n_packed;
    const SideMethod& key = packed ? layer.key : layer.exact_key;
    const SideMethod& value = packed ? layer.value : layer.exact_value;
    const std::size_t n_rows = std::min(kBlockTokens, length - block * kBlockTokens);
    for (const Side side : {Side::kKey, Side::kValue}) {
      const SideMethod& form = side == Side::kKey ? key : value;
      sides.push_back({.method = &form,
                       .side = side,
                       .block = block,
                       .packed = packed,
                       .offset = side == Side::kKey ? 0 : key.geometry.bytes,
                       .file_bytes = packed ? form.geometry.bytes
                                            : n_rows * form.geometry.bytes_per_token});
    }
  }
  return sides;
}

std::uint64_t SinkFileBytes(const LayerMethod& layer) {
  return layer.sink *
         (layer.exact_key.geometry.bytes_per_token + layer.exact_value.geometry.bytes_per_token);
}

// Positions [0, n) were offered to the query statistics once `length` tokens are committed.
std::uint64_t EnergyPositions(const LayerMethod& layer, std::size_t length) {
  return std::min(layer.StatisticsEnd(), length);
}

void CheckCanonical(const Method& method) {
  for (std::size_t i = 0; i < method.geometry().n_layer; ++i) {
    const LayerMethod& layer = method.layer(i);
    for (const SideMethod* side :
         {&layer.key, &layer.value, &layer.exact_key, &layer.exact_value}) {
      if (side->codec->to_canonical != nullptr && side->codec->from_canonical != nullptr) continue;
      Fail(ErrorCode::kUnsupported,
           "codec '{}' has no canonical order, so its rows cannot be saved or loaded; use another codec",
           side->codec->name);
    }
  }
}

template <typename T>
std::span<const std::byte> BytesOf(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

// Writes with the checksum of everything written.
class Writer {
 public:
  explicit Writer(const StateSink& sink) : sink_(sink) {}

  void Write(std::span<const std::byte> bytes) {
    hash_.Update(bytes);
    sink_(bytes);
  }
  void WriteChecksum() {
    const std::uint64_t checksum = hash_.Digest();
    Write(BytesOf(checksum));
  }

 private:
  const StateSink& sink_;
  Hash64 hash_;
};

void WriteHead(const KvCache& cache, std::size_t layer, std::size_t kv_head, Writer& writer) {
  const LayerMethod& method = cache.method().layer(layer);
  const HeadTable& table = cache.head(layer, kv_head);
  const std::size_t n_packed = method.HeldPacked(cache.length());
  std::vector<std::byte> canonical;
  for (const SideForm& form : SidesOf(method, cache.length())) {
    const BlockEntry& entry = table.blocks[form.block];
    const BlockRef& block = form.packed ? entry.packed : entry.exact;
    KVANT_CHECK(static_cast<bool>(block));
    canonical.assign(form.method->geometry.bytes, std::byte{0});
    form.method->codec->to_canonical(form.side, *form.method->config, cache.geometry().head_dim,
                                     block.data() + form.offset, canonical.data());
    writer.Write(std::span(canonical).first(form.file_bytes));
  }
  if (n_packed > 0 && method.sink_bytes() > 0) {
    writer.Write({table.sink_rows.data(), SinkFileBytes(method)});
  }
  if (method.energy_bytes() > 0 && cache.length() > 0) {
    const std::uint64_t n_energy = table.n_energy;
    KVANT_CHECK(n_energy == EnergyPositions(method, cache.length()));
    writer.Write(BytesOf(n_energy));
    writer.Write({table.energy.data(), method.transform->energy_bytes()});
  }
  KVANT_CHECK(table.versions.size() ==
              (method.transform == nullptr ? 0 : method.transform->Versions(n_packed)));
  for (const BlockRef& version : table.versions) {
    writer.Write({version.data(), method.transform->version_bytes()});
  }
}

// Reads what is counted, with the checksum of everything read.
class Reader {
 public:
  explicit Reader(const RestoreArgs& args) : args_(args) {}

  void Read(std::span<std::byte> bytes) {
    if (bytes.size() > left()) Truncated(bytes.size() - left());
    args_.read(bytes);
    n_read_ += bytes.size();
    hash_.Update(bytes);
  }
  template <typename T>
  T ReadNumber() {
    T value;
    Read(std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }
  /// True when the next 8 bytes are the checksum of what was read before them.
  bool ReadChecksum() {
    const std::uint64_t want = hash_.Digest();
    return ReadNumber<std::uint64_t>() == want;
  }
  std::uint64_t left() const { return args_.n_bytes - n_read_; }
  const RestoreArgs& args() const { return args_; }
  [[noreturn]] void Truncated(std::uint64_t n_missing) const {
    Fail(ErrorCode::kCorruptData,
         "{}: it is truncated: it has {} bytes and lacks {} or more; copy it again or save the session "
         "again",
         args_.name, args_.n_bytes, n_missing);
  }

 private:
  const RestoreArgs& args_;
  std::uint64_t n_read_ = 0;
  Hash64 hash_;
};

StateHeader ReadHeader(Reader& reader) {
  const std::string& name = reader.args().name;
  std::string magic(kStateMagic.size(), '\0');
  if (reader.left() >= magic.size()) reader.Read(std::as_writable_bytes(std::span(magic)));
  if (magic != kStateMagic) {
    Fail(ErrorCode::kCorruptData,
         "{}: it is not a saved state: it does not begin with KVSTATE; give a file that --save or /save "
         "wrote",
         name);
  }
  const auto version = reader.ReadNumber<std::uint32_t>();
  if (version != kStateVersion) {
    Fail(ErrorCode::kUnsupported,
         "{}: its format version is {} and this program reads version {}; save the session again with "
         "this program",
         name, version, kStateVersion);
  }
  const auto n_header = reader.ReadNumber<std::uint32_t>();
  if (n_header > kMaxStateHeaderBytes) {
    Fail(ErrorCode::kCorruptData,
         "{}: its header is said to have {} bytes and at most {} are allowed; copy it again or save the "
         "session again",
         name, n_header, kMaxStateHeaderBytes);
  }
  if (n_header > reader.left()) reader.Truncated(n_header - reader.left());
  std::string text(n_header, '\0');
  reader.Read(std::as_writable_bytes(std::span(text)));
  if (!reader.ReadChecksum()) {
    Fail(ErrorCode::kCorruptData,
         "{}: the checksum of its header does not agree, so it is damaged; copy it again or save the "
         "session again",
         name);
  }
  return ParseStateHeader(text, name);
}

void CheckRest(const StateHeader& header, const Reader& reader) {
  const std::uint64_t left = reader.left();
  const std::uint64_t body = header.body_bytes;
  if (left < kStateChecksumBytes || left - kStateChecksumBytes < body) {
    reader.Truncated(body - left + kStateChecksumBytes);
  }
  if (left - kStateChecksumBytes > body) {
    Fail(ErrorCode::kCorruptData,
         "{}: it has {} bytes more than its header says; copy it again or save the session again",
         reader.args().name, left - kStateChecksumBytes - body);
  }
}

void CheckRoomFor(const StateHeader& header, const Method& method, const BlockPool& pool,
                  const std::string& name) {
  const std::uint64_t needed = method.Predict(header.n_cached).resident;
  const std::uint64_t limit = pool.limit_bytes();
  if (limit == 0 || (needed <= limit && pool.resident_bytes() <= limit - needed)) return;
  Fail(ErrorCode::kResourceExhausted,
       "{}: its KV cache needs {} bytes, {} are in use and the limit is {}; raise --kv-limit or leave the "
       "session that is open",
       name, needed, pool.resident_bytes(), limit);
}

HeadTable ReadHead(const Method& method, std::size_t layer, std::size_t length, BlockPool& pool,
                   Reader& reader) {
  const LayerMethod& m = method.layer(layer);
  const std::size_t n_packed = m.HeldPacked(length);
  HeadTable table;
  table.blocks.resize(BlocksFor(length));
  std::vector<std::byte> canonical;
  for (const SideForm& form : SidesOf(m, length)) {
    BlockEntry& entry = table.blocks[form.block];
    BlockRef& block = form.packed ? entry.packed : entry.exact;
    if (!block) block = pool.Allocate(form.packed ? m.packed_block_bytes() : m.exact_block_bytes());
    canonical.assign(form.method->geometry.bytes, std::byte{0});
    reader.Read(std::span(canonical).first(form.file_bytes));
    form.method->codec->from_canonical(form.side, *form.method->config, method.geometry().head_dim,
                                       canonical.data(), block.data() + form.offset);
  }
  if (n_packed > 0 && m.sink_bytes() > 0) {
    table.sink_rows = pool.Allocate(m.sink_bytes());
    reader.Read({table.sink_rows.data(), SinkFileBytes(m)});
  }
  if (m.energy_bytes() > 0 && length > 0) {
    table.n_energy = reader.ReadNumber<std::uint64_t>();
    table.energy = pool.Allocate(m.energy_bytes());
    reader.Read({table.energy.data(), m.transform->energy_bytes()});
  }
  const std::size_t n_version = m.transform == nullptr ? 0 : m.transform->Versions(n_packed);
  for (std::size_t i = 0; i < n_version; ++i) {
    table.versions.push_back(pool.Allocate(m.version_bytes()));
    reader.Read({table.versions[i].data(), m.transform->version_bytes()});
  }
  return table;
}

// What the checksum cannot know: whoever wrote the file may have meant something else.
void CheckContents(const RestoreArgs& args, const Method& method, std::size_t length,
                   std::span<const std::int32_t> tokens, std::span<const HeadTable> heads) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0 && static_cast<std::size_t>(tokens[i]) < args.n_vocab) continue;
    Fail(ErrorCode::kCorruptData,
         "{}: its token {} has the id {} and the vocabulary here has {} tokens; save the session again",
         args.name, i, tokens[i], args.n_vocab);
  }
  for (std::size_t i = 0; i < heads.size(); ++i) {
    const std::size_t layer = i / method.geometry().n_kv_head;
    const LayerMethod& m = method.layer(layer);
    const std::uint64_t n_energy = m.energy_bytes() > 0 ? EnergyPositions(m, length) : 0;
    if (heads[i].n_energy == n_energy) continue;
    Fail(ErrorCode::kCorruptData,
         "{}: the query statistics of its layer {} are of {} positions and {} tokens have {}; save the "
         "session again",
         args.name, layer, heads[i].n_energy, length, n_energy);
  }
}

}  // namespace

void SaveState(const KvCache& cache, const StateModel& model, std::span<const std::int32_t> tokens,
               const StateSink& sink) {
  const Method& method = cache.method();
  KVANT_CHECK(cache.length() <= tokens.size());
  CheckCanonical(method);
  const std::string header =
      FormatStateHeader(MakeStateHeader(method, model, tokens.size(), cache.length()));
  KVANT_CHECK(header.size() <= kMaxStateHeaderBytes);
  const auto n_header = static_cast<std::uint32_t>(header.size());
  Writer writer(sink);
  writer.Write(std::as_bytes(std::span(kStateMagic)));
  writer.Write(BytesOf(kStateVersion));
  writer.Write(BytesOf(n_header));
  writer.Write(std::as_bytes(std::span(header)));
  writer.WriteChecksum();
  writer.Write(std::as_bytes(tokens));
  for (std::size_t layer = 0; layer < method.geometry().n_layer; ++layer) {
    for (std::size_t kv_head = 0; kv_head < method.geometry().n_kv_head; ++kv_head) {
      WriteHead(cache, layer, kv_head, writer);
    }
  }
  writer.WriteChecksum();
}

RestoredState RestoreState(const std::shared_ptr<const Method>& method, BlockPool* pool, Isa isa,
                           const RestoreArgs& args) {
  CheckCanonical(*method);
  Reader reader(args);
  const StateHeader header = ReadHeader(reader);
  CheckRest(header, reader);
  CheckStateHeader(header, *method, args);
  CheckRoomFor(header, *method, *pool, args.name);
  RestoredState state{.cache = KvCache(method, pool, isa),
                      .tokens = std::vector<std::int32_t>(header.n_tokens)};
  reader.Read(std::as_writable_bytes(std::span(state.tokens)));
  std::vector<HeadTable> heads;
  for (std::size_t layer = 0; layer < method->geometry().n_layer; ++layer) {
    for (std::size_t kv_head = 0; kv_head < method->geometry().n_kv_head; ++kv_head) {
      heads.push_back(ReadHead(*method, layer, header.n_cached, *pool, reader));
    }
  }
  if (!reader.ReadChecksum()) {
    Fail(ErrorCode::kCorruptData,
         "{}: its checksum does not agree, so it is damaged; copy it again or save the session again",
         args.name);
  }
  CheckContents(args, *method, header.n_cached, state.tokens, heads);
  StateAccess::Fill(state.cache, header.n_cached, std::move(heads));
  KVANT_CHECK(state.cache.resident_bytes() == header.resident_bytes);
  try {
    state.cache.PackAhead();
  } catch (const Error& error) {  // rows that no cache would have taken
    Fail(error.code(), "{}: {}", args.name, error.what());
  }
  return state;
}

}  // namespace kvant
