// One step of a generation: writes new rows of K and V behind the rows that a key-value cache has,
// and lets their queries attend to the cache with these rows. The rotary embedding rotates K and q.
//
//   ps::append_attention({.k = k, .v = v, .k_cache = k_cache, .v_cache = v_cache,
//                         .lengths = lengths, .cos = cos, .sin = sin},
//                        {.q = q, .out = out, .causal = true, .pool = &pool}, stream);
//
// The results are those of append_kv() and then attention(), with one kernel fewer and without
// storing the rotated q.
#pragma once

#include <cstddef>

#include "penstock/host/stream.h"
#include "penstock/ops/append_kv.h"
#include "penstock/ops/attention.h"

namespace ps {

// `append` is what append_kv() takes, without q and q_out.
//
// `attention` is what attention() takes, without k, v, cu_q, cu_k, lengths_k and pages: these are
// the caches, cu_new, the lengths with the new rows, and the pages of `append`. q has the sequences
// and rows of the new K, and is rotated if there are `cos` and `sin`, by the same positions. With
// cu_new, pass `max_q`, the most new rows of a sequence.
//
// On a GPU one kernel does both if attention() would use a decode kernel, that is, with at most 16
// new rows per sequence, or if `kernel` names a decode kernel. Other calls run append_kv() and
// attention() one after the other. The bits are those of the two calls with the same kernel, if
// attention() is told the lengths in the same way: by caches cut to the length where `length` is a
// number, else by lengths_k. With batch_invariant they always are. `append.advance` adds a
// small kernel: in a model whose layers have the same lengths, only the last layer needs it.
//
// Enqueues and returns, without waiting for the device unless a `check` is set; may be captured
// unless a `check` is set. Both options check all arrays before anything is written. Without them,
// as in append_kv() and attention(): rows that have no room or a page that does not exist are left
// out, and lengths are clamped. Pages that get new rows belong to one sequence; others may be
// shared.
//
// D and Dv are multiples of 8 from 8 to 256. On a GPU rows of q, out and the caches begin at
// multiples of 16 bytes; those of the new K and V may begin anywhere. Without new rows a call does
// nothing. k_cache, v_cache, out, lse and, with `advance`, lengths are apart from each other and
// from all inputs. Throws InvalidArgument naming the argument ("attention.k" for one that does not
// belong here), OutOfMemory, and Unsupported as attention() does.
void append_attention(const AppendKVOptions& append, const AttentionOptions& attention,
                      const Stream& stream);

// The bytes of workspace that a call with views of these shapes needs on a GPU. Reads of `append`
// the shapes of k_cache, v_cache, cu_new and pages and whether there is `cos`, and of `attention`
// the shape and type of q, max_q, max_k, kernel and batch_invariant. Throws InvalidArgument as
// append_attention() does.
std::size_t append_attention_workspace_bytes(const AppendKVOptions& append,
                                             const AttentionOptions& attention);

}  // namespace ps
