#include "pieces.hpp"

#include <algorithm>
#include <cstring>

namespace dlscale {

namespace {

class Packer {
 public:
  Packer(const DlscaleCollective& collective, const Staging& staging)
      : collective_(collective), staging_(staging) {}

  void add(const Piece& piece) {
    if (piece.num_bytes >= staging_.direct_bytes) {
      if (piece.source != piece.target) std::memcpy(piece.target, piece.source, piece.num_bytes);
      allreduce(piece.target, piece.num_bytes, piece.type);
      return;
    }
    if (used_ && piece.type != type_) flush();
    type_ = piece.type;
    for (std::size_t done = 0; done < piece.num_bytes;) {
      const std::size_t part = std::min(piece.num_bytes - done, staging_.num_bytes - used_);
      std::memcpy(staging_.data + used_, piece.source + done, part);
      parts_.push_back({piece.target + done, part});
      used_ += part;
      done += part;
      if (used_ == staging_.num_bytes) flush();
    }
  }

  void flush() {
    if (!used_) return;
    allreduce(staging_.data, used_, type_);
    const std::byte* from = staging_.data;
    for (const Part& part : parts_) {
      std::memcpy(part.target, from, part.num_bytes);
      from += part.num_bytes;
    }
    parts_.clear();
    used_ = 0;
  }

 private:
  struct Part {
    std::byte* target;
    std::size_t num_bytes;
  };

  void allreduce(std::byte* data, std::size_t num_bytes, DlscaleType type) {
    const std::size_t count = num_bytes / width(type);
    const int status = collective_.allreduce(collective_.context, data, count, type, kDlscaleAverage);
    if (status) throw std::runtime_error(collective_.last_error(collective_.context));
  }

  const DlscaleCollective& collective_;
  const Staging& staging_;
  std::size_t used_ = 0;
  DlscaleType type_ = kDlscaleFloat32;
  std::vector<Part> parts_;
};

}  // namespace

std::size_t width(DlscaleType type) {
  switch (type) {
    case kDlscaleBfloat16:
    case kDlscaleFloat16:
      return 2;
    case kDlscaleFloat32:
    case kDlscaleInt32:
      return 4;
    case kDlscaleFloat64:
    case kDlscaleInt64:
      return 8;
  }
  throw std::invalid_argument("no such element type");
}

void average(const DlscaleCollective& collective, const Staging& staging, const std::vector<Piece>& pieces) {
  Packer packer(collective, staging);
  for (const Piece& piece : pieces) packer.add(piece);
  packer.flush();
}

}  // namespace dlscale
